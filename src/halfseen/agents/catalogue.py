"""The catalogue of named agents, and the functions that make them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from halfseen.agents import costs, guardrails
from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.costs import Budget, split_budget
from halfseen.agents.guardrails import Guardrails, split_guardrails
from halfseen.agents.plain import PlainEntry, factory_name
from halfseen.agents.policy import Policy
from halfseen.agents.source_code import source_hash_of
from halfseen.choosers.floored_greedy import FlooredGreedy
from halfseen.choosers.greedy import Greedy
from halfseen.choosers.information_directed import InformationDirected
from halfseen.choosers.optimistic import Optimistic
from halfseen.choosers.state_sampling import StateSampling
from halfseen.choosers.thompson import Thompson
from halfseen.choosers.ucb import Ucb
from halfseen.choosers.uniform import Uniform
from halfseen.components import Chooser, Estimator, Learner, StreamBatch
from halfseen.errors import InvalidInput, invalid, unknown
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
from halfseen.learners.calibrated_family import CalibratedFamily
from halfseen.learners.generalised_linear import GeneralisedLinear, QuasiLikelihood
from halfseen.learners.known import Known, KnownByState
from halfseen.learners.measurement_error import MeasurementError
from halfseen.learners.ridge import Ridge
from halfseen.reports.tables import Table
from halfseen.validation import Bound, Integers, at_least, seed_number


@cache  # because reading a signature is slow, and every call of `make` needs it
def _signature(component: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(component, eval_str=True)


FAMILY_OPTION = "reward_family"
_FAMILY_LEARNERS: dict[Callable[..., Learner], Callable[..., Learner]] = {
    Calibrated: CalibratedFamily,
    Ridge: GeneralisedLinear,
}
MAX_PENDING, DEFAULT_MAX_PENDING = Integers(1, 1_000_000_000), 100_000


@dataclass(frozen=True)
class CatalogueEntry:
    """An agent of the catalogue: its name, its three components, the defaults of their options, and its source.

    Examples
    --------
    >>> import halfseen as hs
    >>> entry = hs.catalog()["kf-ts"]
    >>> entry.summary
    'Kalman filter with known model, Thompson sampling'
    >>> entry.required
    ('model',)
    >>> print(hs.catalog()["hmm-ts"].bounds["restarts"])
    an integer between 0 and 10
    """

    name: str
    estimator: Callable[..., Estimator]
    learner: Callable[..., Learner]
    chooser: Callable[..., Chooser]
    summary: str = ""
    source: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def components(self) -> tuple[str, str, str]:
        """The names of the estimator, the learner and the chooser in lower case."""
        names = (one.__name__.lower() for one in (self.estimator, self.learner, self.chooser))
        return tuple(names)  # type: ignore[return-value]

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """All options of the three components, by name."""
        options: dict[str, inspect.Parameter] = {}
        for component in (self.estimator, self.learner, self.chooser):
            for name, parameter in _signature(component).parameters.items():
                if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                    options[name] = parameter
        if self._family_learner is not None:
            family = _signature(self._family_learner).parameters[FAMILY_OPTION]
            options[FAMILY_OPTION] = family.replace(default="gaussian")
        return options

    @property
    def _family_learner(self) -> Callable[..., Learner] | None:
        """The learner that takes the place of `learner` for rewards that are clicks or counts, if there is one."""
        return None if self.chooser is Uniform else _FAMILY_LEARNERS.get(self.learner)

    def learner_for(self, options: Mapping[str, Any]) -> Callable[..., Learner]:
        """Return the learner of an agent with these options. It depends on the option `reward_family`."""
        family_learner = self._family_learner
        if family_learner is None or options.get(FAMILY_OPTION, "gaussian") == "gaussian":
            return self.learner
        return family_learner

    @property
    def bounds(self) -> dict[str, Bound]:
        """The bounds of the options, by name. The `str` of a bound describes the values that the option may have."""
        found: dict[str, Bound] = {}
        for name, parameter in self.options.items():
            for bound in getattr(parameter.annotation, "__metadata__", ()):
                found[name] = bound
        return found

    @property
    def required(self) -> tuple[str, ...]:
        """The options that have no default and must be given."""
        return tuple(
            name
            for name, parameter in self.options.items()
            if parameter.default is inspect.Parameter.empty and name not in self.defaults
        )

    @property
    def reveals_context(self) -> bool:
        """Whether the agent bases its decisions on the true context, which `decide` then requires."""
        return bool(getattr(self.estimator, "reveals_context", False))

    @property
    def scales_observations(self) -> bool:
        """Whether the agent centres and scales observations itself and has an intercept, like `adaptive`."""
        return bool(getattr(self.estimator, "scales_observations", False))

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse names that are neither options of the three components nor options that every agent has."""
        known = {*self.options, *guardrails.OPTIONS, costs.OPTION}
        for name in options:
            if name not in known:
                raise unknown("option", name, known, f"'{self.name}'")

    def check_bounds(self, options: Mapping[str, Any]) -> None:
        """Refuse the value of an option that is out of its bounds."""
        if options:
            for name, bound in self.bounds.items():
                if name in options:
                    bound.check(name, options[name])

    def build(self, streams: StreamBatch, options: Mapping[str, Any]) -> Policy:
        """Make the agent for a batch of streams. A control arm is given by its number."""
        self.check_options(options)
        guards, options = split_guardrails(options)
        given, options = split_budget(options)
        budget = None if given is None else Budget.checked(given)
        for name in self.required:
            if name not in options:
                raise InvalidInput(f"'{self.name}' requires the option '{name}'.")
        self.check_bounds(options)
        values = dict(self.defaults) | dict(options)

        def options_of(component: Callable[..., Any]) -> dict[str, Any]:
            return {name: values[name] for name in _signature(component).parameters if name in values}

        estimator = self.estimator(streams, **options_of(self.estimator))
        make_learner = self.learner_for(values)
        learner = make_learner(streams, estimator.dimension, **options_of(make_learner))
        chooser = self.chooser(streams, estimator.dimension, **options_of(self.chooser))
        policy = Policy(streams, estimator, learner, chooser, budget)
        if guards:
            arms = Arms(range(streams.arms))
            policy.set_guardrails(Guardrails.checked(arms, guards), arms)
        return policy


_PAPER = "Zeng, Bhatt, Koppel & Ganesh 2024"
_HALFSEEN = "halfseen, docs/mathematics.md"
_ENTRIES = (
    CatalogueEntry(
        "adaptive",
        Adaptive,
        Calibrated,
        Optimistic,
        "model learnt from the stream, optimistic Thompson sampling",
        _HALFSEEN,
        {"bonus": 1.4, "width": 0.15, "foresight": 0.1},
    ),
    CatalogueEntry(
        "adaptive-ts",
        Adaptive,
        Calibrated,
        Thompson,
        "model learnt from the stream, Thompson sampling",
        _HALFSEEN,
        {"noise_std": 1.0},
    ),
    CatalogueEntry(
        "adaptive-ids",
        Adaptive,
        Calibrated,
        InformationDirected,
        "model learnt from the stream, information-directed sampling",
        _HALFSEEN,
    ),
    CatalogueEntry(
        "emkf-ts",
        Emkf,
        Ridge,
        Thompson,
        "windowed EM on filtered means, Thompson sampling",
        f"{_PAPER}, Algorithm 1",
    ),
    CatalogueEntry("emkf-ucb", Emkf, Ridge, Ucb, "windowed EM on filtered means, LinUCB", f"{_PAPER}, section 4"),
    CatalogueEntry(
        "em-rts-ts",
        SmoothedEm,
        Ridge,
        Thompson,
        "windowed EM with the RTS smoother, Thompson sampling",
        "Liu et al. 2022",
    ),
    CatalogueEntry(
        "kf-ts", Kalman, Ridge, Thompson, "Kalman filter with known model, Thompson sampling", f"{_PAPER}, section 2.1"
    ),
    CatalogueEntry("kf-ucb", Kalman, Ridge, Ucb, "Kalman filter with known model, LinUCB", f"{_PAPER}, section 2.1"),
    CatalogueEntry("oracle-ts", Revealed, Ridge, Thompson, "true context, Thompson sampling", "Agrawal & Goyal 2013"),
    CatalogueEntry("oracle-ucb", Revealed, Ridge, Ucb, "true context, LinUCB", "Chu et al. 2011"),
    CatalogueEntry(
        "ts-pco",
        Observed,
        Ridge,
        Thompson,
        "observation used as the context, Thompson sampling",
        "Park & Faradonbeh 2024",
    ),
    CatalogueEntry(
        "glm-ts",
        Observed,
        GeneralisedLinear,
        Thompson,
        "observation used as the context, generalised linear, Thompson sampling",
        "Kveton et al. 2020",
    ),
    CatalogueEntry(
        "glm-ucb",
        Observed,
        QuasiLikelihood,
        Ucb,
        "observation used as the context, generalised linear, upper bounds",
        "Filippi et al. 2010",
        {"width": 0.5},
    ),
    CatalogueEntry(
        "blup-ts",
        Blup,
        Ridge,
        Thompson,
        "context predicted from one observation, Thompson sampling",
        "Park & Faradonbeh 2021",
    ),
    CatalogueEntry(
        "pco-greedy",
        Observed,
        Ridge,
        Greedy,
        "observation used as the context, no exploration",
        "Park & Faradonbeh 2022",
    ),
    CatalogueEntry(
        "pco-scaled",
        Observed,
        Ridge,
        Thompson,
        "observation used as the context, scaled exploration",
        "Park & Faradonbeh 2022",
        {"width": 0.5},
    ),
    CatalogueEntry(
        "meb",
        ObservedWithPropensity,
        MeasurementError,
        FlooredGreedy,
        "observation corrected for measurement error",
        "Guo, Xu & Murphy 2024",
    ),
    CatalogueEntry(
        "hmm-ts",
        Hmm,
        Ridge,
        Thompson,
        "belief of a learnt hidden Markov model, Thompson sampling",
        "Nelson et al. 2022",
    ),
    CatalogueEntry("hmm-ucb", Hmm, Ridge, Ucb, "belief of a learnt hidden Markov model, LinUCB", "Nelson et al. 2022"),
    CatalogueEntry(
        "mts",
        LatentStates,
        KnownByState,
        StateSampling,
        "state of a known Markov chain, inferred from rewards",
        "Hong et al. 2020",
    ),
    CatalogueEntry(
        "lag-ts",
        Lagged,
        Ridge,
        Thompson,
        "last observations used as the context, Thompson sampling",
        "baseline with history but without a model",
    ),
    CatalogueEntry("bayes", Kalman, Known, Greedy, "known model and known arms", "best attainable expected reward"),
    CatalogueEntry("random", Observed, Ridge, Uniform, "arms chosen uniformly at random", "baseline"),
)


Entry = CatalogueEntry | PlainEntry
_BUILT_IN = frozenset(entry.name for entry in _ENTRIES)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


class Catalog(Mapping[str, Entry]):
    """A mapping from names to agents of the catalogue. It is printed as a table."""

    def __init__(self, entries: tuple[CatalogueEntry, ...]) -> None:
        self._entries: dict[str, Entry] = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> Entry:
        if not isinstance(name, str) or name not in self._entries:
            raise unknown("agent", name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Add or replace a user-defined agent. The agents of the package cannot be replaced."""
        check_new_name(entry.name, _BUILT_IN, "agent")
        self._entries[entry.name] = entry

    def table(self) -> Table:
        """Return the catalogue as a table with one row per agent."""
        rows = [
            {
                "agent": entry.name,
                **dict(zip(("estimator", "learner", "chooser"), entry.components, strict=True)),
                "description": entry.summary,
                "requires": ", ".join(entry.required) or "nothing",
                "source": entry.source,
            }
            for entry in self._entries.values()
        ]
        return Table(rows)

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


CATALOG = Catalog(_ENTRIES)


def catalog() -> Catalog:
    """Return the catalogue of named agents.

    Returns
    -------
    Catalog
        A mapping from the names of the agents to their descriptions, options and sources. Its `repr` is a table.

    Examples
    --------
    >>> import halfseen as hs
    >>> "ts-pco" in hs.catalog()
    True
    >>> list(hs.catalog()["ts-pco"].options)
    ['regularisation', 'width', 'noise_std', 'delta', 'reward_family']
    """
    return CATALOG


def component_entry(name: str) -> CatalogueEntry:
    """Return an agent of the catalogue. Raise an error unless it has an estimator, a learner and a chooser."""
    entry = CATALOG[name]
    if isinstance(entry, PlainEntry):
        expected = "an agent with an estimator, a learner and a chooser, as fleets, streams and evaluations need it"
        raise InvalidInput(f"agent: expected {expected}, got '{name}', a class of its own")
    return entry


def check_new_name(name: object, taken: Iterable[str], kind: str) -> None:
    """Raise an error if a name cannot be registered. On the command line, ':' and ',' are separators after a name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid("name", "letters, digits, '.', '_' and '-', beginning with a letter", repr(name))
    if name in taken:
        raise invalid("name", f"a name that no {kind} of halfseen has", f"'{name}'")


def is_triple(agent: object) -> bool:
    """Return whether the value is meant as a triple of an estimator, a learner and a chooser."""
    return isinstance(agent, tuple) and any(
        inspect.isclass(one) and issubclass(one, Estimator | Learner | Chooser) for one in agent
    )


def catalogue_entry(agent: Any, name: str = "", **about: Any) -> Entry:
    """Return the catalogue entry of an agent.

    `agent` is a name in the catalogue, an entry, a triple of components, a class or a function. For a triple, a class
    or a function, a new entry is made. `name` is its name, and `about` has values for its other fields.
    """
    if isinstance(agent, CatalogueEntry | PlainEntry):
        return agent
    if is_triple(agent):
        for part, base in zip(agent, (Estimator, Learner, Chooser), strict=False):
            if not (inspect.isclass(part) and issubclass(part, base)):
                raise invalid("agent", f"a class derived from {base.__name__}", repr(part))
        if len(agent) != 3:
            raise invalid("agent", "an estimator, a learner and a chooser", f"{len(agent)} components")
        return CatalogueEntry(name or "-".join(part.__name__.lower() for part in agent), *agent, **about)
    if isinstance(agent, str) or not callable(agent):
        if hasattr(agent, "decide"):
            expected = "a class or function that makes agents, because every seed needs its own"
            raise invalid("agents", expected, f"an object of {type(agent).__name__}")
        return CATALOG[agent]
    return PlainEntry(name or factory_name(agent), agent, **about)


@dataclass(frozen=True)
class AgentSpec:
    """An agent with options, for experiments.

    Parameters
    ----------
    name : str, class, callable or tuple
        The name of the agent in the catalogue, or a user-defined agent: a class or function that makes objects with
        `decide` and `learn`, or a tuple of three classes (an estimator, a learner and a chooser).
    options : mapping, optional
        Options of the agent.
    label : str, optional
        The name under which results are reported. The default is the name of the agent followed by its options.

    Examples
    --------
    >>> import halfseen as hs
    >>> hs.AgentSpec("ts-pco", {"width": 0.5}).label
    'ts-pco:width=0.5'
    """

    name: Any  # always a str after `__post_init__`
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    # The entry of a user-defined agent, so that another process can play the agent without registering it.
    _own: Entry | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        entry = catalogue_entry(self.name)
        object.__setattr__(self, "name", entry.name)
        if entry.name not in _BUILT_IN or entry is not CATALOG[entry.name]:
            object.__setattr__(self, "_own", entry)
        if not isinstance(self.options, Mapping):
            raise invalid("options", "a dictionary of options", repr(self.options))
        entry.check_options(self.options)
        if not self.label:
            options = ",".join(f"{key}={value}" for key, value in self.options.items())
            object.__setattr__(self, "label", f"{self.name}:{options}" if options else self.name)

    @property
    def entry(self) -> Entry:
        """The entry of the agent in the catalogue, or the entry that was made for a user-defined agent."""
        return CATALOG[self.name] if self._own is None else self._own

    @property
    def is_own(self) -> bool:
        """Whether the agent is user-defined, which means not part of the package."""
        return self._own is not None

    @property
    def source_hash(self) -> str | None:
        """A hash of the source code of a user-defined agent. None for agents of the package."""
        if self._own is None:
            return None
        if isinstance(self._own, PlainEntry):
            return source_hash_of(self._own.factory)
        return " ".join(source_hash_of(part) for part in (self._own.estimator, self._own.learner, self._own.chooser))


def split_spec(text: str) -> tuple[str, dict[str, Any]]:
    """Split 'name:key=value,key=value' into the name and the options.

    A value that is not valid JSON is taken as a string.
    """
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, re.split(r",(?![^\[]*\])", rest)):  # a comma in brackets belongs to a value
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise invalid("option", "name:key=value,key=value", f"'{part}' in '{text}'")
        try:
            options[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            options[key.strip()] = value.strip()
    return name.strip(), options


AgentLike = str | AgentSpec | Callable[..., Any] | tuple[type[Estimator], type[Learner], type[Chooser]]


def agent_spec(agent: Any) -> AgentSpec:
    """Return the AgentSpec for a name ('emkf-ts'), a name with options ('emkf-ts:window=400') or a user-defined agent.

    An AgentSpec is returned unchanged.
    """
    if isinstance(agent, AgentSpec):
        return agent
    if isinstance(agent, str):
        return AgentSpec(*split_spec(agent))
    if not (callable(agent) or is_triple(agent) or hasattr(agent, "decide") or isinstance(agent, Entry)):
        raise invalid("agents", "names of agents, AgentSpecs, classes or triples of components", repr(agent))
    return AgentSpec(agent)


def register(
    name: str,
    agent: Any,
    *,
    summary: str = "",
    source: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Add a user-defined agent to the catalogue, so that it can be used by name.

    `hs.make`, `hs.run`, `hs.leaderboard` and `halfseen run --import` then accept the name. A triple of components can
    also be used in fleets and evaluations. The registration is valid for this process. It replaces an earlier
    registration of the same name.

    Parameters
    ----------
    name : str
        The name: letters, digits, ".", "_" and "-". It must not be the name of an agent of the package.
    agent : class, callable or tuple
        A class or function that makes objects with `decide` and `learn`, as in `run`, or a tuple of three classes (an
        estimator, a learner and a chooser).
    summary, source : str, optional
        A description of the agent and its origin, which tables show. The default summary is the first line of the
        docstring.
    defaults : mapping, optional
        Values of options. They replace the default values.

    Returns
    -------
    None

    Raises
    ------
    HalfseenError
        If the name is not valid or belongs to an agent of the package, if the agent is not valid, or if `defaults`
        names an option that the agent does not have.

    Examples
    --------
    >>> import halfseen as hs
    >>> from halfseen.choosers.ucb import Ucb
    >>> from halfseen.estimators.lagged import Lagged
    >>> from halfseen.learners.ridge import Ridge
    >>> hs.register("lag-ucb", (Lagged, Ridge, Ucb), summary="last observations, LinUCB")
    >>> hs.make("lag-ucb", observed=2, arms=3, lags=2).decide([0.1, 0.3]).arm in range(3)
    True
    """
    check_new_name(name, _BUILT_IN, "agent")
    if isinstance(agent, str) or not (callable(agent) or is_triple(agent)):
        raise invalid("agent", "a class, a function that makes agents, or a triple of components", repr(agent))
    if not summary and (inspect.isclass(agent) or inspect.isroutine(agent)):
        summary = next(iter((inspect.getdoc(agent) or "").splitlines()), "")
    entry = catalogue_entry(agent, name, summary=summary, source=source, defaults=dict(defaults or {}))
    entry.check_options(entry.defaults)
    CATALOG.add(entry)


def make(
    name: str,
    *,
    observed: int,
    arms: int | Sequence[str],
    seed: int = 0,
    max_pending: int = DEFAULT_MAX_PENDING,
    **options: Any,
) -> Agent:
    """Make a catalogued agent for one stream.

    Parameters
    ----------
    name : str
        The name of the agent in the catalogue, such as ``"adaptive"``. See `halfseen.catalog`.
    observed : int
        The number k of observed features.
    arms : int or sequence of str
        The number of arms, or their names.
    seed : int, default 0
        The seed of all random draws, from 0 to 2**64 - 1. Agents with the same seed and the same history make the same
        decisions.
    max_pending : int, default 100_000
        How many decisions can wait for their reward, at most 1,000,000,000. If more decisions wait, the oldest of them
        are dropped.
    **options
        Options of the agent, such as ``latent``, ``model``, ``window`` or ``width``.
        ``halfseen.catalog()[name].options`` lists them, and ``.bounds`` lists the values that they may have. The
        guardrails ``floor``, ``holdback`` and ``control`` are options of every agent, see `Agent.set_guardrails`. Every
        agent also has the option ``budget``, a pair of an amount and a number of rounds. The costs of all decisions
        together never exceed the amount, see `Agent.decide`. With ``reward_family="binary"`` rewards are clicks or
        other numbers from 0 to 1, and with ``"count"`` they are counts or other numbers of at least 0.

    Returns
    -------
    Agent
        The new agent. For a class or function that was registered (see `register`), the object that it makes.

    Raises
    ------
    HalfseenError
        If the name or an option is unknown, or if a value is invalid.

    Examples
    --------
    >>> import halfseen as hs
    >>> agent = hs.make("adaptive", observed=2, arms=["low", "high"], seed=1)
    >>> decision = agent.decide([0.5, -1.0])
    >>> agent.learn(decision, 1.0)
    """
    entry = CATALOG[name]
    if isinstance(entry, PlainEntry):
        own: Agent = _make_plain(entry, observed, arms, seed, options)
        return own
    guards, _ = split_guardrails(options)
    agent = make_with_arms(name, observed, arms, seed, max_pending, options)
    if guards:
        agent.set_guardrails(**guards)
    return agent


def _make_plain(entry: PlainEntry, observed: int, arms: int | Sequence[str], seed: int, options: Any) -> Any:
    if not isinstance(arms, int | np.integer):
        raise invalid("arms", f"a count, because '{entry.name}' numbers its arms", repr(arms))
    return entry.make(
        observed=at_least("observed", observed, 1),
        arms=at_least("arms", arms, 1),
        seed=seed_number("seed", seed),
        rounds=None,
        options=options,
    )


def make_with_arms(
    name: str,
    observed: int,
    arms: int | Sequence[str],
    seed: int,
    max_pending: int,
    options: Mapping[str, Any],
    added: Sequence[Mapping[str, Any]] = (),
) -> Agent:
    """Make an agent without guardrails, and add the arms that were `added` before the agent was saved."""
    entry = component_entry(name)
    names: list[Arm]
    if isinstance(arms, int | np.integer):
        names = list(range(at_least("arms", arms, 1)))
    else:
        names = list(arms) if isinstance(arms, Iterable) else []
        if not names or not all(isinstance(arm, str) and arm for arm in names) or isinstance(arms, str):
            raise invalid("arms", "a count of at least 1, or a list of names", repr(arms))
        if len(set(names)) < len(names):
            raise invalid("arms", "names that differ from each other", repr(arms))
    MAX_PENDING.check("max_pending", max_pending)
    keys = stream_keys(seed_number("seed", seed))
    streams = StreamBatch(keys, at_least("observed", observed, 1), len(names))
    policy = entry.build(streams, split_guardrails(options)[1])
    recipe = {
        "name": name,
        "observed": streams.observed,
        "arms": len(names) if isinstance(arms, int | np.integer) else [str(arm) for arm in names],
        "seed": int(seed),
        "max_pending": max_pending,
        **options,
    }
    return Agent(policy, recipe, arms=names, max_pending=max_pending, added=added)
