"""The named agents: a table, one row each."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm
from halfseen.agents.policy import Policy
from halfseen.choosers.floored_greedy import FlooredGreedy
from halfseen.choosers.greedy import Greedy
from halfseen.choosers.information_directed import InformationDirected
from halfseen.choosers.optimistic import Optimistic
from halfseen.choosers.state_sampling import StateSampling
from halfseen.choosers.thompson import Thompson
from halfseen.choosers.ucb import Ucb
from halfseen.choosers.uniform import Uniform
from halfseen.components import Chooser, Estimator, Learner, StreamBatch
from halfseen.errors import invalid, unknown
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.estimators.blup import Blup
from halfseen.estimators.emkf import Emkf
from halfseen.estimators.hmm import Hmm
from halfseen.estimators.kalman import Kalman
from halfseen.estimators.lagged import Lagged
from halfseen.estimators.latent_states import LatentStates
from halfseen.estimators.observed import Observed, ObservedWithPropensity
from halfseen.estimators.revealed import Revealed
from halfseen.estimators.smoothed_em import SmoothedEm
from halfseen.kernels.random import stream_keys
from halfseen.learners.calibrated import Calibrated
from halfseen.learners.known import Known, KnownByState
from halfseen.learners.measurement_error import MeasurementError
from halfseen.learners.ridge import Ridge
from halfseen.reports.tables import Table
from halfseen.validation import at_least, seed_number

_signature = cache(inspect.signature)  # of the parts: slow, and needed for every agent that is made


@dataclass(frozen=True)
class CatalogueEntry:
    """One row: a name, its three parts, where it comes from, and its own defaults for their options."""

    name: str
    estimator: Callable[..., Estimator]
    learner: Callable[..., Learner]
    chooser: Callable[..., Chooser]
    summary: str
    source: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Every option of the three parts, by name."""
        found: dict[str, inspect.Parameter] = {}
        for part in (self.estimator, self.learner, self.chooser):
            for name, parameter in _signature(part).parameters.items():
                if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                    found[name] = parameter
        return found

    @property
    def required(self) -> tuple[str, ...]:
        """The options that have no default: what the agent must be told."""
        return tuple(
            name
            for name, parameter in self.options.items()
            if parameter.default is inspect.Parameter.empty and name not in self.defaults
        )

    @property
    def reveals_context(self) -> bool:
        """Whether `decide` wants the true context."""
        return bool(getattr(self.estimator, "reveals_context", False))

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse the name of an option that none of the three parts has."""
        known = self.options
        for name in options:
            if name not in known:
                raise unknown("option", name, known, f"'{self.name}'")

    def build(self, streams: StreamBatch, options: Mapping[str, Any]) -> Policy:
        """The agent for a batch of streams."""
        self.check_options(options)
        for name in self.required:
            if name not in options:
                raise invalid(name, f"a value: '{self.name}' must be told its {name}", "nothing")
        chosen = dict(self.defaults) | dict(options)

        def own(part: Callable[..., Any]) -> dict[str, Any]:
            return {name: chosen[name] for name in _signature(part).parameters if name in chosen}

        estimator = self.estimator(streams, **own(self.estimator))
        learner = self.learner(streams, estimator.dimension, **own(self.learner))
        chooser = self.chooser(streams, estimator.dimension, **own(self.chooser))
        return Policy(streams, estimator, learner, chooser)


_PAPER = "Zeng, Bhatt, Koppel & Ganesh 2024"
_OWN = "ours: docs/mathematics.md"
_TABLE = (
    CatalogueEntry(
        "adaptive",
        Adaptive,
        Calibrated,
        Optimistic,
        "dynamics learnt, told nothing",
        _OWN,
        {"bonus": 1.4, "width": 0.15, "foresight": 0.25},
    ),
    CatalogueEntry(
        "adaptive-ts", Adaptive, Calibrated, Thompson, "the same, Thompson sampling", _OWN, {"noise_std": 1.0}
    ),
    CatalogueEntry("adaptive-ids", Adaptive, Calibrated, InformationDirected, "the same, information-directed", _OWN),
    CatalogueEntry("emkf-ts", Emkf, Ridge, Thompson, "windowed EM on filtered means", f"{_PAPER}, Algorithm 1"),
    CatalogueEntry("emkf-ucb", Emkf, Ridge, Ucb, "the same, LinUCB", f"{_PAPER}, section 4"),
    CatalogueEntry(
        "em-rts-ts", SmoothedEm, Ridge, Thompson, "windowed full EM with the RTS smoother", "Liu et al. 2022"
    ),
    CatalogueEntry("kf-ts", Kalman, Ridge, Thompson, "Kalman filter, model known", f"{_PAPER}, section 2.1"),
    CatalogueEntry("kf-ucb", Kalman, Ridge, Ucb, "the same, LinUCB", f"{_PAPER}, section 2.1"),
    CatalogueEntry("oracle-ts", Revealed, Ridge, Thompson, "the true context", "Agrawal & Goyal 2013"),
    CatalogueEntry("oracle-ucb", Revealed, Ridge, Ucb, "the true context, LinUCB", "Chu et al. 2011"),
    CatalogueEntry("ts-pco", Observed, Ridge, Thompson, "the observation as the context", "Park & Faradonbeh 2024"),
    CatalogueEntry(
        "blup-ts", Blup, Ridge, Thompson, "the context predicted from one observation", "Park & Faradonbeh 2021"
    ),
    CatalogueEntry("pco-greedy", Observed, Ridge, Greedy, "the observation, never explores", "Park & Faradonbeh 2022"),
    CatalogueEntry(
        "pco-scaled",
        Observed,
        Ridge,
        Thompson,
        "the observation, explores less or more",
        "Park & Faradonbeh 2022",
        {"width": 0.5},
    ),
    CatalogueEntry(
        "meb",
        ObservedWithPropensity,
        MeasurementError,
        FlooredGreedy,
        "the observation, its noise corrected for",
        "Guo, Xu & Murphy 2024",
    ),
    CatalogueEntry(
        "hmm-ts", Hmm, Ridge, Thompson, "the belief of a hidden Markov chain, learnt online", "Nelson et al. 2022"
    ),
    CatalogueEntry("hmm-ucb", Hmm, Ridge, Ucb, "the same, LinUCB", "Nelson et al. 2022"),
    CatalogueEntry(
        "mts", LatentStates, KnownByState, StateSampling, "the state of a known chain, from rewards", "Hong et al. 2020"
    ),
    CatalogueEntry(
        "lag-ts", Lagged, Ridge, Thompson, "the last observations side by side", "control: history, no model"
    ),
    CatalogueEntry("bayes", Kalman, Known, Greedy, "model and arms known", "the attainable floor"),
    CatalogueEntry("random", Observed, Ridge, Uniform, "any arm", "the other end"),
)


class Catalog(Mapping[str, CatalogueEntry]):
    """The named agents, by name. Printed, it is a table."""

    def __init__(self, entries: tuple[CatalogueEntry, ...]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> CatalogueEntry:
        if not isinstance(name, str) or name not in self._entries:
            raise unknown("agent", name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def table(self) -> Table:
        """One row an agent: name, its parts, what it decides on, what it must be told, source."""
        rows = [
            {
                "agent": entry.name,
                "estimator": entry.estimator.__name__.lower(),
                "learner": entry.learner.__name__.lower(),
                "chooser": entry.chooser.__name__.lower(),
                "context": entry.summary,
                "told": ", ".join(entry.required) or "nothing",
                "source": entry.source,
            }
            for entry in self._entries.values()
        ]
        return Table(rows)

    def __repr__(self) -> str:
        return str(self.table())


CATALOG = Catalog(_TABLE)


def catalog() -> Catalog:
    """The table of named agents, with their sources."""
    return CATALOG


@dataclass(frozen=True)
class AgentSpec:
    """A catalogued agent with options of its own, under a label of its own."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        entry = CATALOG[self.name]
        if not isinstance(self.options, Mapping):
            raise invalid("options", "a dictionary of options", repr(self.options))
        entry.check_options(self.options)
        if not self.label:
            chosen = ",".join(f"{key}={value}" for key, value in self.options.items())
            object.__setattr__(self, "label", f"{self.name}:{chosen}" if chosen else self.name)


def split_spec(text: str) -> tuple[str, dict[str, Any]]:
    """'name:key=value,key=value' as a name and options; values are JSON where they can be, else text."""
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise invalid("option", "name:key=value,key=value", f"'{part}' in '{text}'")
        try:
            options[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            options[key.strip()] = value.strip()
    return name.strip(), options


def agent_spec(agent: str | AgentSpec) -> AgentSpec:
    """An agent by name ('emkf-ts'), by name with options ('emkf-ts:window=400'), or ready-made."""
    if not isinstance(agent, str | AgentSpec):
        raise invalid("agents", "names of agents, or AgentSpecs", repr(agent))
    return AgentSpec(*split_spec(agent)) if isinstance(agent, str) else agent


def make(
    name: str,
    *,
    observed: int,
    arms: int | Sequence[str],
    seed: int = 0,
    max_pending: int = 100_000,
    **options: Any,
) -> Agent:
    """A catalogued agent on one stream.

    `observed` is the number of observed features k, `arms` a count or a list of names. Decisions older than the last
    `max_pending` unrewarded ones can no longer be rewarded. The other options are those of the agent's parts, such
    as `latent`, `model`, `window` or `width`: `halfseen.catalog()[name].options` lists them.
    """
    return make_with_arms(name, observed, arms, seed, max_pending, options)


def make_with_arms(
    name: str,
    observed: int,
    arms: int | Sequence[str],
    seed: int,
    max_pending: int,
    options: Mapping[str, Any],
    added: Sequence[Mapping[str, Any]] = (),
) -> Agent:
    """An agent as a save file describes it: with the arms `added` since it was made."""
    entry = CATALOG[name]
    names: list[Arm]
    if isinstance(arms, int | np.integer):
        names = list(range(at_least("arms", arms, 1)))
    else:
        names = list(arms) if isinstance(arms, Iterable) else []
        if not names or not all(isinstance(arm, str) and arm for arm in names) or isinstance(arms, str):
            raise invalid("arms", "a count of at least 1, or a list of names", repr(arms))
        if len(set(names)) < len(names):
            raise invalid("arms", "names that differ from each other", repr(arms))
    keys = stream_keys(seed_number("seed", seed))
    streams = StreamBatch(keys, at_least("observed", observed, 1), len(names))
    policy = entry.build(streams, options)
    recipe = {
        "name": name,
        "observed": streams.observed,
        "arms": len(names) if isinstance(arms, int | np.integer) else [str(arm) for arm in names],
        "seed": int(seed),
        "max_pending": max_pending,
        **options,
    }
    return Agent(policy, recipe, arms=names, max_pending=max_pending, added=added)
