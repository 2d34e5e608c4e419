"""Golden results: what users would notice, recorded with one version of the code and compared with another.

    python tests/goldens/goldens.py record FOLDER
    python tests/goldens/goldens.py compare FOLDER [--only worlds,online] [--all]

Everything goes through the public face: names of `halfseen.__all__`, documented attributes, `python -m halfseen`. The
halfseen that is tried is the one that this Python imports (set PYTHONPATH); its path is printed first.

FOLDER holds, for each section, the numbers (`SECTION.npz`) and the rest (`SECTION.json`), and the files that newer code
has to be able to read: saved agents and fleets (`saved`), an exported journal and a database of the service.

Numbers must agree to 1e-9 of their size or 1e-12 of the largest in their array. Decisions of a stream follow from the
earlier ones, so a stream is compared up to its first arm that differs, and numbers that sum up such a stream are left
out. Another arm is a failure unless the scores of the two can be shown to be equal, which public numbers allow only for
agents that choose without a draw: of `decide`, by equal shares of the propensity, or for greedy ones by `expected`. For
agents that draw, equal scores have no probability worth mentioning; what `hs.run` gives shows no scores at all.
"""

# ruff: noqa: E402 (the environment is set before NumPy is loaded)
from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # sums are taken in one order
os.environ["HALFSEEN_QUIET"] = "1"
os.environ.pop("HALFSEEN_DATABASE", None)

import argparse
import copy
import inspect
import json
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import halfseen as hs

RELATIVE = 1e-9  # of a number
FLOOR = 1e-12  # of the largest number of its array
TIE = 1e-10  # scores nearer than this are equal
LINES = 40  # of a section that are shown without --all

# ---------------------------------------------------------------------------------------------------------------------
# What is recorded
# ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Stream:
    """The rounds of one stream of decisions, time first."""

    agent: str
    arms: np.ndarray  # (T,) places in the list of arms
    weighed: dict[str, np.ndarray]  # known before the arm was chosen
    followed: dict[str, np.ndarray]  # known after


@dataclass
class Book:
    """All that one section has found, by name. A name is a path; what is below the same parent belongs together."""

    streams: dict[str, Stream] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)  # what could not be finished, and why
    recording: bool = False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is below `name`: while comparing, an error in it is noted and the other parts go on."""
        try:
            yield
        except Exception as error:
            if self.recording:
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.stopped[name] = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"

    def numbers(self, name: str, **arrays: Any) -> None:
        for part, array in arrays.items():
            self.arrays[f"{name}/{part}"] = np.asarray(array, dtype=np.float64)

    def fact(self, name: str, value: Any) -> None:
        self.facts[name] = json.loads(json.dumps(value, default=_plain))

    def save(self, folder: Path, section: str) -> None:
        arrays = {f"array|{name}": array for name, array in self.arrays.items()}
        agents = {}
        for name, stream in self.streams.items():
            agents[name] = stream.agent
            arrays[f"stream|{name}|arms"] = stream.arms
            for kind in ("weighed", "followed"):
                for part, array in getattr(stream, kind).items():
                    arrays[f"stream|{name}|{kind}|{part}"] = array
        np.savez_compressed(folder / f"{section}.npz", **arrays)
        text = json.dumps({"agents": agents, "facts": self.facts}, indent=1, ensure_ascii=False)
        (folder / f"{section}.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, section: str) -> Book:
        rest = json.loads((folder / f"{section}.json").read_text(encoding="utf-8"))
        book = cls(facts=rest["facts"])
        book.streams = {name: Stream(agent, np.zeros(0), {}, {}) for name, agent in rest["agents"].items()}
        with np.load(folder / f"{section}.npz") as arrays:
            for label in arrays.files:
                kind, name, *part = label.split("|")
                if kind == "array":
                    book.arrays[name] = arrays[label]
                elif part == ["arms"]:
                    book.streams[name].arms = arrays[label]
                else:
                    getattr(book.streams[name], part[0])[part[1]] = arrays[label]
        return book


def _plain(value: Any) -> Any:
    """NumPy and the like as what JSON has."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


def padded(rows: Iterable[Any]) -> np.ndarray:
    """Rows of different lengths, for arms may have been added, as one array with NaN at the ends."""
    listed = [np.asarray(row, dtype=np.float64) for row in rows]
    table = np.full((len(listed), max((len(row) for row in listed), default=0)), np.nan)
    for place, row in enumerate(listed):
        table[place, : len(row)] = row
    return table


class Log:
    """Decisions of one stream, as they are made."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Any, Any, Any]] = []

    def add(self, arm: int, expected: Any, propensities: Any, context: Any = ()) -> None:
        self.rows.append((arm, expected, propensities, context))

    def stream(self, agent: str) -> Stream:
        arms, expected, propensities, contexts = zip(*self.rows, strict=True)
        weighed = {"expected": expected, "propensities": propensities, "context": contexts}
        return Stream(agent, np.array(arms), {name: padded(rows) for name, rows in weighed.items()}, {})


@dataclass
class Place:
    """Where a section may write."""

    kept: Path  # what newer code has to be able to read; written only while recording
    scratch: Path
    recording: bool

    def keep(self, source: Path, name: str) -> Path:
        """The recorded file of that name; while recording, `source` becomes it."""
        target = self.kept / name
        if self.recording:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        return target


# ---------------------------------------------------------------------------------------------------------------------
# A small setting that any catalogued agent can be built in
# ---------------------------------------------------------------------------------------------------------------------

OBSERVED, LATENT, ARMS = 3, 5, 4


@cache
def small_model(observed: int = OBSERVED, latent: int = LATENT, seed: int = 0) -> hs.LinearGaussianModel:
    rng = np.random.default_rng([seed, 1])
    rotation = np.linalg.qr(rng.normal(size=(latent, latent)))[0]
    root = 0.4 * rng.normal(size=(latent, latent))
    return hs.LinearGaussianModel(
        transition=0.93 * rotation,
        process_cov=root @ root.T + 0.1 * np.eye(latent),
        observation_cov=np.diag(rng.uniform(0.1, 0.6, size=observed)),
        initial_mean=rng.normal(size=latent),
        initial_cov=1.7 * np.eye(latent),
    )


ARM_PARAMS = np.random.default_rng(2).normal(size=(ARMS + 1, LATENT))  # the last is of an arm that is added later
STATE_REWARDS = np.random.default_rng(3).normal(size=(ARMS + 1, 3))
STATE_TRANSITION = np.array([[0.9, 0.07, 0.03], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])


def told(name: str) -> dict[str, Any]:
    """What an agent must be told, and options away from 0 and 1 where it has them."""
    facts = {
        "model": small_model(),
        "arm_params": ARM_PARAMS[:ARMS],
        "latent": LATENT,
        "state_rewards": STATE_REWARDS[:ARMS],
        "state_transition": STATE_TRANSITION,
    }
    liked = {
        "regularisation": 2.3,
        "states": 3,
        "warm_up": 12,
        "restarts": 1,
        "state_std": 1.7,
        "memory": 90,
        "window": 5 * LATENT,
        "observation_cov": 0.3,
        "burn_in": 14,
        "floor": 0.07,
    }
    entry = hs.catalog()[name]
    must = {option: facts[option] for option in entry.required}
    return must | {option: value for option, value in liked.items() if option in entry.options}


@dataclass(frozen=True)
class Story:
    """Rounds of the small model."""

    contexts: np.ndarray  # (n, d)
    seen: np.ndarray  # (n, k), NaN where not seen
    noise: np.ndarray  # (n,) of the rewards
    fates: np.ndarray  # (n,) when the reward comes: at once (0), some rounds later, or one of the negative ones below


NEVER, GIVEN_UP, PROVISIONAL = -1, -2, -3


@cache
def story(rounds: int, seed: int = 0, missing: float = 0.15, model: hs.LinearGaussianModel | None = None) -> Story:
    rng, model = np.random.default_rng([seed, 4]), model or small_model()
    state_root, noise_root = np.linalg.cholesky(model.process_cov), np.sqrt(np.diag(model.observation_cov))
    x, contexts = rng.normal(size=model.latent), []
    for _ in range(rounds):
        x = model.transition @ x + state_root @ rng.normal(size=model.latent)
        contexts.append(x)
    xs = np.array(contexts)
    seen = xs @ model.observation.T + noise_root * rng.normal(size=(rounds, model.observed))
    seen[rng.uniform(size=seen.shape) < missing] = np.nan
    noise = 0.5 * rng.normal(size=rounds)
    fates = rng.choice([0, 1, 3, 8, NEVER, GIVEN_UP, PROVISIONAL], size=rounds, p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05])
    return Story(xs, seen, noise, fates)


def shown(name: str, context: np.ndarray) -> dict[str, np.ndarray]:
    """What `decide` wants besides the observation: the truth, for those that are documented to be shown it."""
    return {"context": context} if name.startswith("oracle") else {}


# ---------------------------------------------------------------------------------------------------------------------
# 1. Agents in worlds
# ---------------------------------------------------------------------------------------------------------------------

WORLDS = ("paper", "orbit", "keyhole", "regimes", "foggy-keyhole")
CHANGING, IN_CHANGING = "switch:at=400", ("kf-ts", "emkf-ts", "em-rts-ts", "adaptive", "hmm-ts", "random")
VARIANTS = (  # other options, in two worlds
    "ts-pco:width=theory",
    "kf-ts:width=theory,regularisation=0.5",
    "kf-ucb:width=self-normalised",
    "oracle-ucb:width=0.7",
    "emkf-ts:window=100",
    "em-rts-ts:window=150,iterations=3",
    "blup-ts:context_cov=running",
    "meb:floor=0.05",
    "hmm-ts:states=4,warm_up=100",
    "lag-ts:lags=5",
    "adaptive:latent=8",
    "adaptive:bonus=0,width=0.85,foresight=0",
    "adaptive-ids:width=0.8",
)
DATA_WORLDS = ("voltrade", "power", "returns")  # of the extra `data`
SEEDS, ROUNDS = (0, 1, 2), 1_000
_OF_THE_MACHINE = {"wall_seconds", "microseconds_per_round", "rounds_per_second", "versions", "jobs"}


def without_timings(summary: Any) -> Any:
    if isinstance(summary, dict):
        return {key: without_timings(value) for key, value in summary.items() if key not in _OF_THE_MACHINE}
    return [without_timings(one) for one in summary] if isinstance(summary, list) else summary


def in_world(book: Book, world: str, agent: str, seeds: Sequence[int] = SEEDS, rounds: int = ROUNDS) -> None:
    name = f"{world}/{agent}"
    with book.part(name):
        try:
            result = hs.run([agent], world=world, rounds=rounds, seeds=list(seeds))
        except hs.HalfseenError:
            book.fact(f"{name}/can play", False)
            return
        book.fact(f"{name}/can play", True)
        (track,) = result.tracks.values()
        for row, seed in enumerate(seeds):
            book.streams[f"{name}/seed {seed}"] = Stream(
                agent.partition(":")[0],
                np.asarray(track.arm[row], dtype=np.int64),
                {"error": np.asarray(track.error[row])},
                {"regret": np.asarray(track.regret[row]), "reward": np.asarray(track.reward[row])},
            )
        (summary,) = result.summary["worlds"].values()
        book.fact(f"{name}/summary", without_timings(summary))


def worlds(place: Place) -> Book:
    book = Book(recording=place.recording)
    own = hs.worlds.linear_gaussian(model=small_model(), arm_params=ARM_PARAMS, reward_std=0.5, name="own")
    named = {name: _world(name) for name in (*WORLDS, CHANGING, "fog", "blurred")}
    for name, world in (named | {"own": own}).items():
        with book.part(f"{name}/what happens"):
            happened = world.begin((0, 5)).advance(60)
            book.numbers(
                f"{name}/what happens",
                contexts=happened.contexts,
                observations=happened.observations,
                expected=happened.expected,
                reward_noise=happened.reward_noise,
            )
    for name in WORLDS:
        for agent in hs.catalog():
            in_world(book, name, agent)
    for agent in IN_CHANGING:
        in_world(book, CHANGING, agent)
    for name in ("keyhole", "regimes"):
        for agent in VARIANTS:
            in_world(book, name, agent)
    for name in DATA_WORLDS:
        for agent in ("oracle-ts", "ts-pco", "adaptive"):
            in_world(book, name, agent, (0, 1), 300)
    for agent in hs.catalog():
        if place.recording and not any(book.facts[f"{world}/{agent}/can play"] for world in WORLDS):
            raise RuntimeError(f"'{agent}' could play none of {', '.join(WORLDS)}")
    return book


def _world(text: str) -> Any:
    name, _, rest = text.partition(":")
    return hs.worlds.named(name, **{key: int(value) for key, _, value in (rest.partition("="),) if key})


# ---------------------------------------------------------------------------------------------------------------------
# 2. Single agents online
# ---------------------------------------------------------------------------------------------------------------------

ONLINE_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive, refitted by hand": ("adaptive", {"refit": "manual"}),
    "adaptive of 5 dimensions": ("adaptive", {"latent": LATENT}),
    "ts-pco by the theorem": ("ts-pco", {"width": "theory"}),
    "kf-ucb, self-normalised": ("kf-ucb", {"width": "self-normalised"}),
    "meb, decaying floor": ("meb", {"floor": "decaying"}),
    "blup-ts, running": ("blup-ts", {"context_cov": "running"}),
}
BEFORE, AFTER = 150, 20  # rounds before and after an agent is saved and loaded
BEFORE_ADAPTIVE = 300  # it identifies several times in these


class Waiting:
    """Rewards on their way, by the round in which they come."""

    def __init__(self) -> None:
        self.due: dict[int, list[tuple[int, float | None]]] = {}

    def later(self, round_: int, number: int, value: float | None) -> None:
        self.due.setdefault(round_, []).append((number, value))

    def deliver(self, round_: int, agent: hs.Agent) -> None:
        come = self.due.pop(round_, [])
        for number, value in come:
            if value is None:
                agent.give_up(number)
        rewards = [(number, value) for number, value in come if value is not None]
        if len(rewards) == 1:
            agent.learn(*rewards[0])
        elif rewards:
            agent.learn_many([number for number, _ in rewards], [value for _, value in rewards])


def live(agent: hs.Agent, rounds: range, waiting: Waiting, log: Log) -> None:
    """Rounds with entries missing, arms not available, and rewards now, late, provisional, given up or never."""
    told_of = story(BEFORE_ADAPTIVE + AFTER)
    for t in rounds:
        y = told_of.seen[t]
        available = agent.active_arms[t % 2 :: 2] if t % 6 == 5 else None
        seen = y if t % 2 else [None if np.isnan(entry) else float(entry) for entry in y]
        decision = agent.decide(seen, available=available, **shown(agent.name, told_of.contexts[t]))
        log.add(decision.index, decision.expected, decision.propensities, decision.context)
        paid = float(ARM_PARAMS[decision.index] @ told_of.contexts[t] + told_of.noise[t])
        fate = int(told_of.fates[t])
        if fate == PROVISIONAL and agent.takes_provisional:
            agent.learn(decision, 0.25, provisional=True)
            waiting.later(t + 4, decision.id, paid)
        elif fate == GIVEN_UP:
            waiting.later(t + 5, decision.id, None)
        elif fate != NEVER:
            waiting.later(t + max(fate, 0), decision.id, paid)
        waiting.deliver(t, agent)


def add_arm(agent: hs.Agent) -> None:
    required = hs.catalog()[agent.name].required
    params = ARM_PARAMS[ARMS] if "arm_params" in required else None
    agent.add_arm(params=STATE_REWARDS[ARMS] if "state_rewards" in required else params)


def health_facts(health: hs.Health) -> dict[str, Any]:
    return {
        "ok": health.ok,
        "heading": health.heading,
        "notes": health.notes,
        "facts": health.facts,
        "findings": [finding_facts(one) for one in health.findings],
        "text": str(health),
    }


def finding_facts(finding: hs.Finding) -> dict[str, Any]:
    wanted = ("name", "value", "shown", "expected", "verdict", "sentence")
    return {name: getattr(finding, name) for name in wanted}


def online(place: Place) -> Book:
    book = Book(recording=place.recording)
    cases = {name: (name, {}) for name in hs.catalog()} | ONLINE_VARIANTS
    for label, (name, options) in cases.items():
        with book.part(label):
            played_online(book, place, label, name, options)
        with book.part(f"{label}/after a record"):
            folded(book, label, name, options)
    return book


def played_online(book: Book, place: Place, label: str, name: str, options: dict[str, Any]) -> None:
    agent = hs.make(name, observed=OBSERVED, arms=ARMS, seed=7, **(told(name) | options))
    before = BEFORE_ADAPTIVE if name.startswith("adaptive") else BEFORE
    by_hand = options.get("refit") == "manual"
    log, waiting, file = Log(), Waiting(), place.scratch / "agent.hs"
    for start in range(0, before, 10):
        if start == 60:
            add_arm(agent)
        if start == 110:
            agent.retire_arm(1)
        if by_hand and start in (80, 160):
            agent.refit()
        if by_hand and start == 240:  # the model is found by a copy
            agent.save(file)
            helper = hs.load(file)
            helper.refit()
            agent.accept(helper.model())
        live(agent, range(start, start + 10), waiting, log)
    if name.startswith("adaptive"):
        agent.refit()
    book.streams[f"{label}/live"] = log.stream(name)
    book.fact(f"{label}/health", health_facts(agent.health()))
    book.fact(f"{label}/counts", [agent.rounds, agent.unrewarded, len(agent.pending), len(agent.active_arms)])
    agent.save(file)
    recorded = place.keep(file, f"saved/agents/{label}.hs")
    for source, path in (("after loading", file), ("after loading the recorded file", recorded)):
        with book.part(f"{label}/{source}"):
            loaded, log = hs.load(path), Log()
            live(loaded, range(before, before + AFTER), copy.deepcopy(waiting), log)
            book.streams[f"{label}/{source}"] = log.stream(name)


def folded(book: Book, label: str, name: str, options: dict[str, Any]) -> None:
    """An agent that lives through rounds somebody else played."""
    told_of, rng = story(BEFORE_ADAPTIVE + AFTER), np.random.default_rng(11)
    arms = rng.integers(ARMS, size=110)
    rewards = (ARM_PARAMS[arms] * told_of.contexts[:110]).sum(axis=1) + told_of.noise[:110]
    rewards[rng.uniform(size=110) < 0.1] = np.nan
    agent = hs.make(name, observed=OBSERVED, arms=ARMS, seed=8, **(told(name) | options))
    contexts = {"contexts": told_of.contexts[:80]} if shown(name, arms) else {}
    agent.fold(told_of.seen[:80], arms[:80].tolist(), rewards[:80], propensities=np.full(80, 0.25), **contexts)
    log = Log()
    for t in range(80, 110):
        context = shown(name, told_of.contexts[t])
        if t % 3 or context:
            decision = agent.replay(told_of.seen[t], int(arms[t]), propensity=0.25, **context)
            log.add(decision.index, decision.expected, decision.propensities, decision.context)
            number = decision.id
        else:
            number = agent.replay(told_of.seen[t], int(arms[t]), propensity=0.25).id
        if not np.isnan(rewards[t]):
            agent.learn(number, float(rewards[t]))
    live(agent, range(110, 130), Waiting(), log)
    book.streams[f"{label}/after a record"] = log.stream(name)


# ---------------------------------------------------------------------------------------------------------------------
# 3. Fleets
# ---------------------------------------------------------------------------------------------------------------------

FLEET_ROUNDS, FLEET_SAVED = 60, 45
PACKED = ("ts-pco", "kf-ts", "emkf-ts", "adaptive", "hmm-ts")


class FleetPlay:
    """A fleet, the rewards on their way to it, and what its streams decided."""

    def __init__(self, fleet: hs.Fleet) -> None:
        self.fleet = fleet
        self.late: dict[int, list[tuple[int, int, float]]] = {}  # by round: stream, id, reward
        self.logs: dict[int, Log] = {}

    def at(self, fleet: hs.Fleet) -> FleetPlay:
        """The same rewards on their way to a copy of the fleet, and new logs."""
        other = FleetPlay(fleet)
        other.late = copy.deepcopy(self.late)
        return other

    def play(self, rounds: range) -> None:
        for t in rounds:
            self.come_and_go(t)
            streams = self.fleet.streams if t % 3 else self.fleet.streams[t % 2 :: 2]
            self.decide(t, streams.tolist())
            come = [one for one in self.late.pop(t, []) if one[0] in self.fleet]
            if come:
                self.fleet.learn([number for _, number, _ in come], [value for _, _, value in come])

    def come_and_go(self, t: int) -> None:
        if t == 20:
            self.fleet.remove([3, 7])
            self.fleet.add(["ada", "bob"], seeds=[70, 71])
        if t == 35:
            self.fleet.add(3)
        if t == 50:
            self.fleet.remove(["ada", 11])
            self.fleet.add(1)

    def decide(self, t: int, streams: list[int]) -> None:
        stories = [story(FLEET_ROUNDS, seed=100 + number) for number in streams]
        available: Any = None
        if t % 5 == 4:
            available = [0, 2, 3]
        elif t % 7 == 6:
            available = np.random.default_rng([t, 12]).uniform(size=(len(streams), ARMS)) < 0.6
            available[:, t % ARMS] = True
        contexts = np.array([one.contexts[t] for one in stories])
        extra = {"contexts": contexts} if shown(self.fleet.name, contexts) else {}
        seen = np.array([one.seen[t] for one in stories])
        found = self.fleet.decide(seen, streams=streams, available=available, **extra)
        for row, (number, about) in enumerate(zip(streams, stories, strict=True)):
            arm = int(found.indices[row])
            log = self.logs.setdefault(number, Log())
            log.add(arm, found.expected[row], found.propensities[row], found.contexts[row])
            paid = float(ARM_PARAMS[arm] @ about.contexts[t] + about.noise[t])
            if about.fates[t] >= 0:
                self.late.setdefault(t + int(about.fates[t]), []).append((number, int(found.ids[row]), paid))

    def write(self, book: Book, name: str) -> None:
        for number, log in self.logs.items():
            book.streams[f"{name}/stream {number}"] = log.stream(self.fleet.name)
        book.fact(f"{name}/health", health_facts(self.fleet.health()))
        book.fact(f"{name}/streams", [self.fleet.streams, self.fleet.names, self.fleet.rounds])


def fleets(place: Place) -> Book:
    book = Book(recording=place.recording)
    cases = [*((name, name, False) for name in hs.catalog()), *((f"{name}, packed", name, True) for name in PACKED)]
    for label, name, packed in cases:
        with book.part(label):
            fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **told(name))
            fleet.add(20)
            play = FleetPlay(fleet)
            play.play(range(FLEET_SAVED))
            file = place.scratch / "fleet.hs"
            fleet.save(file)
            with book.part(f"{label}/from the recorded file"):  # files of fleets have another format now
                recorded = play.at(hs.load(file))
                recorded.play(range(FLEET_SAVED, FLEET_ROUNDS))
                recorded.write(book, f"{label}/from the recorded file")
            play.fleet = hs.load(file)
            play.play(range(FLEET_SAVED, FLEET_ROUNDS))
            play.write(book, label)
            moved(book, label, play.fleet, packed)
    return book


def moved(book: Book, label: str, fleet: hs.Fleet, packed: bool) -> None:
    """A stream as a single agent, and adopted by another fleet."""
    agent = fleet.agent(4)
    elsewhere = hs.Fleet(fleet.name, observed=OBSERVED, arms=ARMS, **told(fleet.name))
    number = elsewhere.adopt(agent, "four")
    logs, about = (Log(), Log()), story(8, seed=13)
    for x, y in zip(about.contexts, about.seen, strict=True):
        one = agent.decide(y, **shown(fleet.name, x))
        logs[0].add(one.index, one.expected, one.propensities, one.context)
        agent.learn(one, 0.5)
        many = elsewhere.decide([y], **({"contexts": [x]} if shown(fleet.name, x) else {}))
        logs[1].add(int(many.indices[0]), many.expected[0], many.propensities[0], many.contexts[0])
        elsewhere.learn(many.ids, [0.5])
    book.streams[f"{label}/as an agent"] = logs[0].stream(fleet.name)
    book.streams[f"{label}/adopted"] = logs[1].stream(fleet.name)
    book.fact(f"{label}/adopted/number", number)


# ---------------------------------------------------------------------------------------------------------------------
# 4. Models
# ---------------------------------------------------------------------------------------------------------------------


def models(place: Place) -> Book:
    book = Book(recording=place.recording)
    rng = np.random.default_rng(21)
    straight, change = small_model(), rng.normal(size=(LATENT, LATENT)) + 3 * np.eye(LATENT)
    inverse = np.linalg.inv(change)
    bent = hs.LinearGaussianModel(
        transition=change @ straight.transition @ inverse,
        process_cov=change @ straight.process_cov @ change.T,
        observation_cov=straight.observation_cov,
        observation=np.eye(OBSERVED, LATENT) @ inverse,
        initial_mean=change @ straight.initial_mean,
        initial_cov=change @ straight.initial_cov @ change.T,
    )
    noiseless = hs.LinearGaussianModel(
        transition=small_model(10, 20).transition, process_cov=0.1, observation_cov=np.zeros(10)
    )
    cases = {
        "small": straight,
        "in other coordinates": bent,
        "one dimension": small_model(1, 1),
        "all seen": small_model(4, 4),
        "large": small_model(10, 20),
        "large without noise": noiseless,
    }
    for label, model in cases.items():
        with book.part(label):
            series_of(book, label, model, small_model(10, 20) if model is noiseless else model)
    fits(book, straight, bent)
    return book


def series_of(book: Book, label: str, model: hs.LinearGaussianModel, origin: hs.LinearGaussianModel) -> None:
    """Series of the model `origin`, filtered, smoothed and tracked."""
    book.numbers(f"{label}/model", radius=model.spectral_radius, canonical=model.canonical().model.transition)
    complete, gaps = (story(150, seed=31, missing=share, model=origin).seen for share in (0.0, 0.2))
    dark = gaps.copy()
    dark[40:60] = np.nan  # nothing is seen for a while
    batch = np.array([story(150, seed=32 + one, missing=0.3 * one, model=origin).seen for one in range(3)])
    for kind, ys in {"complete": complete, "gaps": gaps, "dark": dark, "batch": batch}.items():
        found, smooth = model.filter(ys), model.smooth(ys)
        book.numbers(
            f"{label}/{kind}/filter",
            means=found.means,
            covs=found.covs,
            predicted_means=found.predicted_means,
            predicted_covs=found.predicted_covs,
            log_likelihood=found.log_likelihood,
        )
        book.numbers(
            f"{label}/{kind}/smooth",
            means=smooth.means,
            covs=smooth.covs,
            lag_one_covs=smooth.lag_one_covs,
            log_likelihood=smooth.log_likelihood,
            initial_mean=smooth.initial.mean,
            initial_cov=smooth.initial.cov,
        )
        if kind != "batch":
            tracker = model.tracker()
            beliefs = [tracker.belief, *(tracker.step(y) for y in ys)]
            means, covs = zip(*((belief.mean, belief.cov) for belief in beliefs), strict=True)
            book.numbers(f"{label}/{kind}/tracker", means=means, covs=covs)


def fits(book: Book, straight: hs.LinearGaussianModel, bent: hs.LinearGaussianModel) -> None:
    gaps, complete = story(250, seed=41, missing=0.1).seen, story(250, seed=41, missing=0.0).seen
    cases: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
        "as usual": (gaps, {"latent": LATENT}),
        "complete": (complete, {"latent": LATENT, "max_iterations": 40}),
        "full noise": (gaps, {"latent": LATENT, "observation_cov": "full", "max_iterations": 30}),
        "known noise": (gaps, {"latent": LATENT, "observation_cov": straight.observation_cov, "max_iterations": 30}),
        "number for the noise": (gaps, {"latent": LATENT, "observation_cov": 0.3, "max_iterations": 10}),
        "other seed": (gaps, {"latent": LATENT + 1, "seed": 9, "max_iterations": 30}),
        "nothing hidden": (gaps, {"latent": OBSERVED, "tolerance": 1e-4}),
        "from a start": (gaps, {"latent": LATENT, "start": straight, "max_iterations": 30}),
        "from a start in other coordinates": (gaps, {"latent": LATENT, "start": bent, "max_iterations": 30}),
        "dimension found": (gaps[:150], {"latent": "auto", "max_iterations": 25}),
        "few rounds": (gaps[:12], {"latent": LATENT, "max_iterations": 5}),
    }
    for label, (ys, options) in cases.items():
        with book.part(f"fit/{label}"):
            heard: list[tuple[int, float]] = []
            found = hs.fit(ys, progress=lambda *step, to=heard: to.append(step), **options)
            model = found.model
            book.numbers(
                f"fit/{label}",
                transition=model.transition,
                process_cov=model.process_cov,
                observation_cov=model.observation_cov,
                observation=model.observation,
                initial_mean=model.initial_mean,
                initial_cov=model.initial_cov,
                log_likelihoods=found.log_likelihoods,
                progress=np.array(heard),
            )
            book.fact(f"fit/{label}/rest", [found.iterations, found.converged, found.notes, model.latent])


# ---------------------------------------------------------------------------------------------------------------------
# 5. Health, examinations, evaluations
# ---------------------------------------------------------------------------------------------------------------------


def judged(place: Place) -> Book:
    book = Book(recording=place.recording)
    n = 260
    about = story(n, seed=51, missing=0.1)
    pays = about.contexts @ ARM_PARAMS[:ARMS].T
    noisy = pays + 0.5 * np.random.default_rng(52).normal(size=pays.shape)
    for name in ("adaptive", "adaptive-ids"):
        with book.part(name):
            agent = hs.make(name, observed=OBSERVED, arms=["a", "b", "c", "d"], seed=3)
            log = Log()
            for t in range(n):
                decision = agent.decide(about.seen[t])
                log.add(decision.index, decision.expected, decision.propensities)
                if about.fates[t] >= 0:
                    agent.learn(decision, float(noisy[t, decision.index]))
            book.streams[f"{name}/live"] = log.stream(name)
            book.fact(f"{name}/health", health_facts(agent.health()))
            examined(book, f"{name}/examined", hs.examine(agent))
            more = hs.examine(agent, rewards=noisy, contexts=about.contexts, hidden=about.contexts[:, OBSERVED:])
            examined(book, f"{name}/examined with the truth", more)
    with book.part("in trouble"):
        poor = hs.make("ts-pco", observed=OBSERVED, arms=ARMS, max_pending=5)
        for y in np.where(np.arange(OBSERVED) == 1, np.nan, about.seen)[:120]:
            poor.decide(y)
        book.fact("in trouble/health", health_facts(poor.health()))

    arms = np.random.default_rng(53).integers(ARMS, size=n)
    played = noisy[np.arange(n), arms]
    right, wrong = small_model(), small_model(seed=1)
    seen: dict[str, Any] = {"observations": about.seen}
    truth: dict[str, Any] = {"rewards": noisy, "contexts": about.contexts, "alternatives": [right], "fitted": False}
    named: dict[str, Any] = {"sensors": ["x", "y", "z"], "arm_names": ["a", "b", "c", "d"]}
    with book.part("examined"):
        examined(book, "examined/right model", hs.examine(model=right, arms=arms, rewards=played, **seen))
        examined(book, "examined/wrong model", hs.examine(model=wrong, **seen, **truth, **named))
        examined(book, "examined/without rewards", hs.examine(model=right, **seen))
    evaluated(book, about, noisy)
    return book


def examined(book: Book, name: str, examination: hs.Examination) -> None:
    found = {
        "findings": [finding_facts(one) for one in examination.findings],
        "ok": examination.ok,
        "summary": examination.summary(),
    }
    book.fact(name, found)


def evaluated(book: Book, about: Story, pays: np.ndarray) -> None:
    """A log made by lot with a preference, so that nothing of ours has to agree for the log to."""
    rng, n = np.random.default_rng(54), len(pays)
    names = ["low", "mid", "high", "off"]
    chances = rng.dirichlet([2.0, 1.0, 1.0, 0.5], size=n)
    arms = np.array([rng.choice(ARMS, p=row) for row in chances])
    rewards = pays[np.arange(n), arms]
    rewards[rng.uniform(size=n) < 0.1] = np.nan
    log = {
        "observation": about.seen.tolist(),
        "arm": [names[arm] for arm in arms],
        "propensity": chances[np.arange(n), arms].tolist(),
        "propensities": chances.tolist(),
        "reward": rewards.tolist(),
    }

    def by_the_first(seen: Any) -> list[float]:
        return [0.7, 0.1, 0.1, 0.1] if seen[0] > 0 else [0.1, 0.2, 0.6, 0.1]

    policies: list[Any] = [
        "logged",
        "uniform",
        "always:mid",
        "ts-pco",
        "lag-ts:lags=3",
        "emkf-ts:latent=5,window=40",
        "meb",
        "hmm-ts:warm_up=40",
        "adaptive",
        hs.AgentSpec("kf-ts", {"model": small_model()}, "kf"),
        by_the_first,
    ]
    poorer = {name: column for name, column in log.items() if name != "propensities"}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "hac": (log, {}),
        "bootstrap": (log, {"intervals": "bootstrap", "seed": 5}),
        "missing counts": (log, {"missing": 0.0, "regularisation": 3.0}),
        "without propensities": (poorer, {}),
    }
    for label, (table, options) in cases.items():
        with book.part(f"evaluate/{label}"):
            found = hs.evaluate(table, policies, arms=names, **options)
            book.fact(f"evaluate/{label}/summary", found.summary())
            book.fact(f"evaluate/{label}/warnings", found.warnings)
            for policy, value in found.policies.items():
                book.numbers(f"evaluate/{label}/{policy}", weights=value.weights)
    with book.part("evaluate/unasked"):
        book.fact("evaluate/unasked", hs.evaluate(log, arms=names).summary())


# ---------------------------------------------------------------------------------------------------------------------
# 6. The journal of the service
# ---------------------------------------------------------------------------------------------------------------------

STREAMS: dict[str, dict[str, Any]] = {
    "prices": {"observed": ["load", "temperature", "wind"], "arms": ["low", "mid", "high", "off"], "agent": "ts-pco"},
    "valves": {
        "observed": OBSERVED,
        "arms": ARMS,
        "agent": "emkf-ts",
        "options": {"latent": LATENT, "window": 30},
        "reward_wait": 100_000,
        "default_reward": 0.0,
        "late_rewards": "fold",
    },
    "pumps": {"observed": OBSERVED, "arms": ARMS, "agent": "hmm-ucb", "options": {"warm_up": 20}},
    "lamps": {"observed": OBSERVED, "arms": ARMS, "agent": "meb", "options": {"floor": 0.05}},
}
UNASKED = "plants"  # a stream of the service's usual agent, `adaptive`: when its models come is a matter of time
SERVED, SERVED_ON = 60, 30


def command(*words: str, cwd: Path, **environment: str) -> str:
    """`python -m halfseen`, the same halfseen as here; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "halfseen", *words],
        cwd=cwd,
        env=_environment() | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"halfseen {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    home = str(Path(hs.__file__).resolve().parents[1])
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))}


@contextmanager
def served(database: Path) -> Iterator[hs.Client]:
    """A service on this machine, which ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--database", str(database), "--host", "127.0.0.1", "--port", str(port)]
    with open(database.with_suffix(".log"), "w+", encoding="utf-8") as said:
        service = subprocess.Popen(
            [sys.executable, "-m", "halfseen", *words],
            cwd=database.parent,
            env=_environment(),
            stdout=said,
            stderr=said,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_ready(service, address, said)
            with hs.Client(address) as client:
                yield client
        finally:
            service.terminate()
            try:
                service.wait(20)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


def _wait_until_ready(service: subprocess.Popen[bytes], address: str, said: Any) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and service.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    said.seek(0)
    raise RuntimeError(f"the service did not get ready: {said.read()[-500:]}")


def journal(place: Place) -> Book:
    book = Book(recording=place.recording)
    database, exported = place.scratch / "journal.db", place.scratch / "journal.ndjson"
    kept_events, kept_database = place.kept / "journal.ndjson", place.kept / "journal.db"
    with book.part("served"):
        with served(database) as client:
            first_rounds(book, client)
            usual_agent(book, client)
        command("export", "--database", str(database), str(exported), cwd=place.scratch)
        place.keep(exported, kept_events.name)
        place.keep(database, kept_database.name)
        events(book, exported)
        exported_table(book, place, database)
    with book.part("evaluated"):
        for name in STREAMS:
            found = hs.evaluate(kept_events, ["uniform", "ts-pco", "random"], stream=name)
            book.fact(f"evaluated/{name}", {key: value for key, value in found.summary().items() if key != "log"})
    with book.part("imported"):
        imported = place.scratch / "imported.db"
        command("import", "--database", str(imported), str(kept_events), cwd=place.scratch)
        with served(imported) as client:
            more_rounds(book, "imported", client, kept_events)
    with book.part("recorded database"):
        opened = place.scratch / "opened.db"
        shutil.copyfile(kept_database, opened)
        with served(opened) as client:
            more_rounds(book, "recorded database", client, kept_events)
    return book


def first_rounds(book: Book, client: hs.Client) -> None:
    late: dict[int, list[tuple[str, Any, float]]] = {}
    stands = {name: client.create_stream(name, seed=60, **spec) for name, spec in STREAMS.items()}
    for t in range(SERVED):
        for place, name in enumerate(STREAMS):
            about = story(SERVED + SERVED_ON, seed=61 + place)
            if name == "prices" and t == 25:
                stands[name] = client.add_arm(name, "wild")
            if name == "prices" and t == 40:
                stands[name] = client.retire_arm(name, "mid")
            available = stands[name]["active"][::2] if t % 9 == 8 else None
            decision = client.decide(name, _seen(about.seen[t], name), available=available)
            fate = int(about.fates[t])
            if fate >= 0:
                paid = _paid(stands[name]["arms"].index(decision.arm), about, t)
                late.setdefault(t + fate, []).append((name, decision, paid))
        for name, decision, value in late.pop(t, []):
            client.reward(name, decision, value)
    for name in STREAMS:
        book.fact(f"served/{name}/health", client.health(name))
        now = client.stream(name)
        wanted = ("name", "spec", "arms", "active", "version", "decisions", "rewards", "retired")
        book.fact(f"served/{name}/stands", {key: now[key] for key in wanted})


def usual_agent(book: Book, client: hs.Client) -> None:
    """Rounds of `adaptive`, until models have been found and none is due. Its numbers are not compared here."""
    about = story(SERVED + SERVED_ON, seed=66)
    client.create_stream(UNASKED, observed=OBSERVED, arms=ARMS, seed=67)
    for t in range(SERVED):
        decision = client.decide(UNASKED, _seen(about.seen[t], UNASKED))
        client.reward(UNASKED, decision, _paid(decision.arm, about, t))
    found, same_since, until = -1, time.monotonic(), time.monotonic() + 60
    while time.monotonic() < until and not (found > 0 and time.monotonic() > same_since + 4):
        now = client.health(UNASKED)["facts"]["identifications"]
        if now != found:
            found, same_since = now, time.monotonic()
        time.sleep(0.1)
    book.fact(f"served/{UNASKED}/a model was found", found > 0)


def _seen(y: np.ndarray, name: str) -> Any:
    entries = [None if np.isnan(entry) else float(entry) for entry in y]
    named = STREAMS.get(name, {}).get("observed", 0)
    return entries if isinstance(named, int) else dict(zip(named, entries, strict=True))


def _paid(arm: int, about: Story, t: int) -> float:
    return float(ARM_PARAMS[arm] @ about.contexts[t] + about.noise[t])


def more_rounds(book: Book, source: str, client: hs.Client, recorded: Path) -> None:
    """The rounds that follow those of the recorded file, the first after a late reward of one of those."""
    lines = [json.loads(line) for line in recorded.read_text(encoding="utf-8").splitlines()]
    about, log = story(SERVED + SERVED_ON, seed=66), Log()
    asked = [_seen(y, UNASKED) for y in about.seen[SERVED:]]
    for decision in client.decide_many(UNASKED, asked):  # all in one request: no new model comes in between
        log.add(decision.arm, decision.expected, decision.propensities)
    book.streams[f"{source}/{UNASKED}/decisions"] = log.stream("adaptive")
    for place, name in enumerate(STREAMS):
        about, log, how = story(SERVED + SERVED_ON, seed=61 + place), Log(), []
        own = [line for line in lines if line["stream"] == name]
        rewarded = {line["decision"] for line in own if line["kind"] == "rewarded"}
        waits = next(line["id"] for line in own if line["kind"] == "decided" and line["id"] not in rewarded)
        how.append(client.reward(name, waits, 0.5).how)
        arms = client.stream(name)["arms"]
        for t in range(SERVED, SERVED + SERVED_ON):
            decision = client.decide(name, _seen(about.seen[t], name))
            arm = arms.index(decision.arm)
            log.add(arm, decision.expected, decision.propensities)
            if about.fates[t] >= 0:
                answer = client.reward(name, decision, _paid(arm, about, t))
                how.append(f"{answer.how}, {answer.folded}")
        book.streams[f"{source}/{name}/decisions"] = log.stream(STREAMS[name]["agent"])
        book.fact(f"{source}/{name}/rewards", how)
        book.fact(f"{source}/{name}/health", client.health(name))


def events(book: Book, exported: Path) -> None:
    """The exported events: decisions as streams, the rest as facts; ids as the number of the decision, no times."""
    lines = [json.loads(line) for line in exported.read_text(encoding="utf-8").splitlines()]
    for name, spec in STREAMS.items():
        own = [line for line in lines if line["stream"] == name]
        arms = list(range(ARMS)) if isinstance(spec["arms"], int) else list(spec["arms"])
        numbers: dict[str, int] = {}
        log, rest = Log(), []
        for line in own:
            line = {key: value for key, value in line.items() if key not in ("time", "key", "clock")}
            if line["kind"] == "arm_added":
                arms.append(line["arm"])
            if line["kind"] == "decided":
                numbers[line["id"]] = len(numbers)
                expected = [np.nan if value is None else value for value in line.pop("expected")]
                log.add(arms.index(line.pop("arm")), expected, line.pop("propensities"))
                line.pop("propensity")
            for key in ("id", "decision"):
                if line.get(key) is not None:
                    line[key] = numbers[line[key]]
            rest.append(line)
        book.streams[f"exported/{name}/decisions"] = log.stream(spec["agent"])
        book.fact(f"exported/{name}/events", rest)


def exported_table(book: Book, place: Place, database: Path) -> None:
    """The table of decisions that `export` writes as Parquet."""
    import pyarrow.parquet

    file = place.scratch / "journal.parquet"
    command("export", "--database", str(database), str(file), *STREAMS, cwd=place.scratch)
    table = pyarrow.parquet.read_table(file)
    book.fact("exported/columns", {one.name: str(one.type) for one in table.schema})
    rows = table.select(["stream", "seq", "round", "observation", "available", "reward", "how", "folded"]).to_pylist()
    book.fact("exported/rows", rows)


# ---------------------------------------------------------------------------------------------------------------------
# 7. Commands
# ---------------------------------------------------------------------------------------------------------------------


def commands(place: Place) -> Book:
    book, here = Book(recording=place.recording), place.scratch

    def read(path: str) -> Any:
        return without_timings(json.loads((here / path).read_text(encoding="utf-8")))

    with book.part("reproduce"):
        command("reproduce", "--rounds", "400", "--seeds", "3", "--jobs", "1", "--out", "paper", cwd=here)
        paper = read("paper/summary.json")
        for claim in paper["claims"]:
            if "time" not in claim["measure"]:
                about = {key: claim[key] for key in ("findings", "verdict", "measure")}
                book.fact(f"reproduce/claims/{claim['title']}", about)
        by_world(book, "reproduce", paper)
        played_rounds(book, "reproduce", here / "paper" / "rounds.parquet")

    with book.part("leaderboard"):
        words = ["--agents", "ts-pco,adaptive,mts,emkf-ts:window=100", "--worlds", "keyhole,regimes,switch:at=100"]
        command("leaderboard", *words, "--rounds", "300", "--seeds", "4", "--jobs", "1", "--out", "board", cwd=here)
        board = read("board/leaderboard.json")
        book.fact("leaderboard/agents", board["agents"])
        book.fact("leaderboard/rest", {key: board[key] for key in ("rounds", "seeds", "baseline", "cells", "failures")})
        by_world(book, "leaderboard", board)

    with book.part("run"):
        words = ["keyhole", "blurred", "--agents", "kf-ts,ts-pco:width=0.5,hmm-ts", "--first-seed", "3"]
        command("run", *words, "--rounds", "250", "--seeds", "4", "--jobs", "2", "--out", "run", cwd=here)
        by_world(book, "run", read("run/summary.json"))
        played_rounds(book, "run", here / "run" / "rounds.parquet")

    write_plant(here / "plant.csv")
    words = ["plant.csv", "--observed", "sensor", "--hidden", "demand", "--rewards", "high,low,hold"]
    with book.part("run on a table"):
        command("run", *words, "--reward-every", "5", "--seeds", "2", "--jobs", "1", "--out", "recorded", cwd=here)
        by_world(book, "run on a table", read("recorded/summary.json"))
        played_rounds(book, "run on a table", here / "recorded" / "rounds.parquet")
    with book.part("health"):
        command("health", *words, "--out", "health", cwd=here)
        book.fact("health/plant", read("health/health.json"))
        command("health", "keyhole", "--rounds", "300", "--seed", "2", "--out", "health2", cwd=here)
        book.fact("health/keyhole", read("health2/health.json"))

    with book.part("evaluate"):
        write_log(here / "log.csv")
        words = ["log.csv", "--policy", "uniform,always:b", "--policy", "ts-pco:width=0.5", "--seed", "3"]
        command("evaluate", *words, "--arms", "a,b,c", "--intervals", "bootstrap", "--out", "evaluation", cwd=here)
        book.fact("evaluate/log", read("evaluation/evaluation.json"))

    with book.part("lists"):
        listed = command("agents", cwd=here, COLUMNS="400", TERM="dumb").split()
        book.fact("lists/all agents", all(name in listed for name in hs.catalog()))
        listed = command("worlds", cwd=here, COLUMNS="400", TERM="dumb").split()
        book.fact("lists/all worlds", all(name in listed for name in (*WORLDS, *DATA_WORLDS)))
        book.fact("lists/version", command("--version", cwd=here).split()[-1])
    return book


def by_world(book: Book, name: str, summary: dict[str, Any]) -> None:
    """A fact an agent and world, so that differences have a short name."""
    for world, about in summary["worlds"].items():
        for agent, found in about.pop("agents", {}).items():
            book.fact(f"{name}/{world}/{agent}", found)
        book.fact(f"{name}/{world}/rest", about)


def played_rounds(book: Book, name: str, file: Path) -> None:
    """`rounds.parquet` as streams."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(file).to_pydict()
    columns = {key: np.array(values) for key, values in table.items()}
    for world in dict.fromkeys(table["world"]):
        for agent in dict.fromkeys(table["agent"]):
            for seed in dict.fromkeys(table["seed"]):
                rows = (columns["world"] == world) & (columns["agent"] == agent) & (columns["seed"] == seed)
                numbers = {key: np.asarray(columns[key][rows], float) for key in ("error", "regret", "reward")}
                stream = Stream(agent.partition(":")[0], columns["arm"][rows].astype(np.int64), {}, numbers)
                stream.weighed["error"] = stream.followed.pop("error")
                book.streams[f"{name}/{world}/{agent}/seed {seed}"] = stream


def write_plant(path: Path) -> None:
    rng, n = np.random.default_rng(71), 500
    demand = np.zeros(n)
    for t in range(1, n):
        demand[t] = 0.97 * demand[t - 1] + rng.normal()
    noise = 0.5 * rng.normal(size=(2, n))
    table = {"sensor": demand + 3 * rng.normal(size=n), "demand": demand}
    table |= {"high": demand + noise[0], "low": noise[1] - demand, "hold": 0 * demand}
    write_csv(path, table)


def write_log(path: Path) -> None:
    rng, n = np.random.default_rng(72), 300
    seen, arms = rng.normal(size=(n, 2)), rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    table = {"observation_1": seen[:, 0], "observation_2": seen[:, 1], "arm": np.array(["a", "b", "c"])[arms]}
    table |= {"propensity": np.array([0.5, 0.3, 0.2])[arms]}
    table |= {"reward": np.choose(arms, [seen[:, 0], seen[:, 1], 0.2 + 0 * seen[:, 0]]) + 0.5 * rng.normal(size=n)}
    write_csv(path, table)


def write_csv(path: Path, table: dict[str, np.ndarray]) -> None:
    rows = zip(*(column.tolist() for column in table.values()), strict=True)
    lines = [",".join(table), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# 8. Options of commands, arguments of functions
# ---------------------------------------------------------------------------------------------------------------------

CALLED = ("make", "load", "run", "fit", "evaluate", "examine", "leaderboard")
BUILT = ("LinearGaussianModel", "AgentSpec", "Fleet")


def options(place: Place) -> Book:
    book = Book(recording=place.recording)
    described(book, (), place)
    for name in (*CALLED, *BUILT):
        parameters = inspect.signature(getattr(hs, name)).parameters.values()
        empty = inspect.Parameter.empty
        found = [[one.name, one.kind.name, None if one.default is empty else repr(one.default)] for one in parameters]
        book.fact(f"arguments/{name}", found)
    for name, entry in hs.catalog().items():
        book.fact(f"agents/{name}", {"options": sorted(entry.options), "required": sorted(entry.required)})
    book.fact("names", sorted(hs.__all__))
    return book


def described(book: Book, words: tuple[str, ...], place: Place) -> None:
    """A help page, and those of its subcommands: names, defaults, what is required; not the sentences."""
    page = command(*words, "--help", cwd=place.scratch, COLUMNS="1000", TERM="dumb", NO_COLOR="1")
    found: dict[str, dict[str, Any]] = {}
    panel, below = "", []
    for line in page.splitlines():
        title = re.match(r"\s*[╭┌+]─*\s*([A-Z][a-z]+)", line)
        row = re.match(r"\s*[│|]\s*(\*\s+)?(\S+)(.*)", line)
        if title:
            panel = title[1]
        elif row and panel == "Commands":
            below.append(row[2])
        elif row and panel in ("Options", "Arguments"):
            default = re.search(r"\[default: (.*?)\](?=\s|$)", row[3])
            variable = re.search(r"\[env var: (.*?)\]", row[3])
            limits = re.search(r"\[([^\]\s]*[<>][^\]\s]*)\]", row[3])
            about = {"default": default, "variable": variable, "limits": limits}
            found[row[2]] = {"kind": panel} | {key: match[1] for key, match in about.items() if match}
            found[row[2]]["required"] = bool(row[1])
    if not found:
        raise RuntimeError(f"halfseen {' '.join(words)} --help: no options could be read from it")
    book.fact(f"options/halfseen {' '.join(words)}".rstrip(), found)
    for name in below:
        described(book, (*words, name), place)


# ---------------------------------------------------------------------------------------------------------------------
# Comparing
# ---------------------------------------------------------------------------------------------------------------------

NO_DRAWS = {"pco-greedy", "bayes"}  # they play the highest `expected`; so do those ending in -ucb, with a bonus


class Comparison:
    """What a section has in common with its record."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.notes: list[str] = []
        self.worst, self.where = 0.0, ""
        self.compared = 0
        self.parted: set[str] = set()  # places where a stream took another way

    def books(self, old: Book, new: Book) -> None:
        self.failures += [f"{name}: could not be finished: {why}" for name, why in new.stopped.items()]
        for kind in ("streams", "arrays", "facts"):
            recorded, found = getattr(old, kind), getattr(new, kind)
            for name in sorted(recorded.keys() - found.keys()):
                if not any(f"{name}/".startswith(f"{stopped}/") for stopped in new.stopped):
                    self.failures.append(f"{name}: recorded, not there now")
            self.failures += [f"{name}: not recorded, there now" for name in sorted(found.keys() - recorded.keys())]
        for name, stream in old.streams.items():
            if name in new.streams:
                self.stream(name, stream, new.streams[name])
        for name, array in old.arrays.items():
            if name in new.arrays and not self._sums_up_what_parted(name):
                self.numbers(name, array, new.arrays[name])
        for name, fact in old.facts.items():
            if name in new.facts and not self._sums_up_what_parted(name):
                self.fact(name, fact, new.facts[name])

    def _sums_up_what_parted(self, name: str) -> bool:
        return name in self.parted or name.rpartition("/")[0] in self.parted

    def stream(self, name: str, old: Stream, new: Stream) -> None:
        if len(old.arms) != len(new.arms):
            self.failures.append(f"{name}: {len(new.arms)} rounds, recorded {len(old.arms)}")
            return
        self.compared += 1
        other = np.flatnonzero(old.arms != new.arms)
        first = int(other[0]) if len(other) else len(old.arms)
        if old.weighed.keys() != new.weighed.keys() or old.followed.keys() != new.followed.keys():
            self.failures.append(f"{name}: other numbers of a round than were recorded")
            return
        for part, array in old.weighed.items():
            self.numbers(f"{name}/{part}", array, new.weighed[part], upto=first + 1)
        for part, array in old.followed.items():
            self.numbers(f"{name}/{part}", array, new.followed[part], upto=first)
        if not len(other):
            return
        self.parted.add(name.rpartition("/")[0])
        mine, theirs = int(old.arms[first]), int(new.arms[first])
        line = f"{name}: round {first + 1} of {len(old.arms)}: arm {theirs}, recorded {mine}"
        if self.tie(old, new, first):
            self.notes.append(f"{line}: their scores are equal; what follows is not compared")
        else:
            self.failures.append(line)

    @staticmethod
    def tie(old: Stream, new: Stream, at: int) -> bool:
        """Whether public numbers show that the two arms had the same score."""
        if "propensities" not in old.weighed or not (old.agent in NO_DRAWS or old.agent.endswith("-ucb")):
            return False
        pair = [int(old.arms[at]), int(new.arms[at])]
        for stream in (old, new):
            shares = stream.weighed["propensities"][at][pair]
            if shares.min() > 0.0 and np.ptp(shares) <= TIE:  # arms share only what they are equal in
                return True
        expected = old.weighed["expected"][at]
        size = max(1.0, float(np.nanmax(np.abs(expected))))
        return old.agent in NO_DRAWS and bool(np.ptp(expected[pair]) <= TIE * size)

    def numbers(self, name: str, old: np.ndarray, new: np.ndarray, upto: int | None = None, size: float = 0.0) -> None:
        """`size` is that of the numbers beside these, if larger."""
        if old.shape != new.shape:
            self.failures.append(f"{name}: shape {new.shape}, recorded {old.shape}")
            return
        self.compared += 1
        finite = np.abs(old[np.isfinite(old)])
        largest = max(float(finite.max(initial=0.0)), size) or 1.0  # nothing but zeros counts as of size 1
        old, new = old[:upto] if upto is not None else old, new[:upto] if upto is not None else new
        with np.errstate(invalid="ignore"):
            apart = np.where((old == new) | (np.isnan(old) & np.isnan(new)), 0.0, np.abs(new - old))
            off = np.where(apart == 0.0, 0.0, apart / (np.abs(old) + FLOOR / RELATIVE * largest))
        off = np.where(np.isnan(off), np.inf, off)  # a number where there was none, or the reverse
        if not off.size:
            return
        at = np.unravel_index(int(off.argmax()), off.shape)
        if off[at] > self.worst:
            self.worst, self.where = float(off[at]), name
        if off[at] > RELATIVE:
            count = int((off > RELATIVE).sum())
            where = f" at {tuple(map(int, at))}" if off.ndim else ""
            what = f"{count} of {off.size} numbers differ, the most" if off.size > 1 else "differs"
            self.failures.append(
                f"{name}: {what} by {off[at]:.1e}{where}: {float(new[at])!r}, recorded {float(old[at])!r}"
            )

    def fact(self, name: str, old: Any, new: Any, size: float = 1.0) -> None:
        """Plain data: the same structure and text, numbers as above; `size` is that of the numbers beside them.

        They are figures for people, some of them 0 up to rounding: none counts as of a size below 1.
        """
        if _number(old) and _number(new) and isinstance(old, float) | isinstance(new, float):
            self.numbers(name, np.array(old, float), np.array(new, float), size=size)
        elif isinstance(old, dict) and isinstance(new, dict):
            if old.keys() != new.keys():
                gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
                self.failures.append(f"{name}: without {gone or 'none'}, with {come or 'none'} that were not recorded")
            for key in (key for key in old if key in new):
                self.fact(f"{name}/{key}", old[key], new[key], _largest(old.values()))
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            if old and all(map(_number, old)) and all(map(_number, new)):
                self.numbers(name, np.array(old, float), np.array(new, float), size=1.0)
            else:
                for place, (one, other) in enumerate(zip(old, new, strict=True)):
                    self.fact(f"{name}/{place}", one, other, _largest(old))
        else:
            self.compared += 1
            if type(old) is not type(new) or old != new:
                self.failures.append(f"{name}: {_short(new)}, recorded {_short(old)}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _largest(values: Iterable[Any]) -> float:
    return max([1.0, *(abs(one) for one in values if _number(one) and np.isfinite(one))])


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:157]}…"


# ---------------------------------------------------------------------------------------------------------------------
# The two commands
# ---------------------------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[Place], Book]] = {
    "worlds": worlds,
    "online": online,
    "fleets": fleets,
    "models": models,
    "judged": judged,
    "journal": journal,
    "commands": commands,
    "options": options,
}


def made(section: str, folder: Path, recording: bool) -> Book:
    """What a section finds with the present code."""
    with tempfile.TemporaryDirectory(prefix="halfseen-goldens-") as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SECTIONS[section](Place(folder, Path(scratch), recording))


class Clock:
    """Seconds since it was made: on the clock, and of the processor, ended child processes included."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), sum(os.times()[:4])

    def __str__(self) -> str:
        return f"{time.perf_counter() - self._began:6.1f} s ({sum(os.times()[:4]) - self._used:5.1f} s of processor)"


def surroundings() -> dict[str, str]:
    """What results may depend on besides the code."""
    return {"python": platform.python_version(), "numpy": np.__version__, "machine": f"{platform.machine()}, {_cpu()}"}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def record(folder: Path, chosen: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    there = [section for section in chosen if (folder / f"{section}.json").exists()]
    if there:
        print(f"error: {folder} has a record of {', '.join(there)}; remove it, or choose another folder")
        return 2
    (folder / "about.json").write_text(json.dumps(surroundings(), indent=1) + "\n", encoding="utf-8")
    total = Clock()
    for section in chosen:
        clock = Clock()
        book = made(section, folder, recording=True)
        book.save(folder, section)
        sizes = f"{len(book.streams)} streams, {len(book.arrays)} arrays, {len(book.facts)} facts"
        print(f"{section:9} {clock}  {sizes}", flush=True)
    print(f"{'all':9} {total}  recorded into {folder}")
    return 0


def compare(folder: Path, chosen: list[str], everything: bool) -> int:
    if not (folder / "about.json").is_file():
        print(f"error: {folder} has no record")
        return 2
    before = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    for name, value in surroundings().items():
        if before.get(name) != value:
            print(f"note: {name} is {value}, recorded with {before.get(name)}: numbers may differ for that alone")
    failed, listing, total = 0, [], Clock()
    for section in chosen:
        found, clock = Comparison(), Clock()
        try:
            old = Book.load(folder, section)
            found.books(old, made(section, folder, recording=False))
        except Exception as error:
            found.failures.append(f"the section could not be finished: {type(error).__name__}: {error}")
            found.failures += traceback.format_exc().splitlines()[-7:-1]
        failed += bool(found.failures)
        said = f"{len(found.failures)} differences" if found.failures else "equal"
        said += f", {len(found.notes)} ties" if found.notes else ""
        worst = f"largest relative deviation {found.worst:.1e}" + (f" ({found.where})" if found.worst else "")
        print(f"{section:9} {clock}  {found.compared:5} compared, {worst}: {said}", flush=True)
        lines = [*(f"  FAIL {line}" for line in found.failures), *(f"  tie  {line}" for line in found.notes)]
        if lines:
            shown_ = lines if everything else lines[:LINES]
            left = [f"  … and {len(lines) - len(shown_)} more: --all shows them"] if len(shown_) < len(lines) else []
            listing += [section, *shown_, *left]
    verdict = f"{failed} of {len(chosen)} sections differ" if failed else f"all {len(chosen)} sections are equal"
    print(f"{'all':9} {total}  {verdict}")
    print("\n".join(listing), end="\n" if listing else "")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("folder", type=Path, help="where the record is kept")
    parser.add_argument("--only", help=f"some sections, separated by commas: {', '.join(SECTIONS)}")
    parser.add_argument("--all", action="store_true", help=f"show all differences, not the first {LINES} of a section")
    asked = parser.parse_args()
    chosen = list(SECTIONS) if asked.only is None else asked.only.split(",")
    unknown = [section for section in chosen if section not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a service that was started is ended
    print(f"halfseen {hs.__version__} of {Path(hs.__file__).resolve().parent}", flush=True)
    folder = asked.folder.resolve()
    return record(folder, chosen) if asked.what == "record" else compare(folder, chosen, asked.all)


if __name__ == "__main__":
    sys.exit(main())
