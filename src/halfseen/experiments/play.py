"""Play a slice of an experiment: every agent plays the same rounds of one world, with all seeds in one batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from halfseen.agents.catalogue import FAMILY_OPTION, AgentSpec, CatalogueEntry, Entry
from halfseen.agents.plain import PlainEntry, decided_arm
from halfseen.agents.policy import Policy
from halfseen.components import Choices, Payoffs, StreamBatch
from halfseen.experiments.plan import CHUNK, Slice
from halfseen.experiments.theory import largest_eigenvalues
from halfseen.kernels.random import Floats, Ints, stream_keys
from halfseen.learners.ridge import Ridge
from halfseen.worlds.world import Episodes, Rounds, World, largest_arm_norm

OnProgress = Callable[[int], None]  # called with the number of stream-rounds played since the last call


class Cancelled(Exception):
    """Raised by `on_progress` when the run was cancelled."""


@dataclass
class Trajectories:
    """Every round of one agent in one world, for S seeds and T rounds."""

    regret: Floats  # Δ_t (S, T), computed from expected rewards
    reward: Floats  # r_t (S, T)
    arm: Ints  # (S, T)
    error: Floats  # ‖x_t − x̂_t‖ (S, T), NaN if the features do not estimate the context
    context_norm: Floats  # ‖x_t‖ (S, T)
    arm_norm: Floats  # max_a ‖μ_a‖ (S,)
    checkpoints: Ints  # rounds t (C,) at which `gram` was computed
    gram: Floats  # max_a t·‖B_a⁻¹(t)‖ (S, C), NaN if the learner is not a ridge regression
    seconds: Floats  # (chunks,) processor time to decide and learn per chunk of rounds, summed over seeds
    propensity: Floats | None = None  # of the arm played (S, T), if a plain agent offers it

    def select_seeds(self, rows: list[int]) -> Trajectories:
        """Return the trajectories of the seeds at `rows`, with a proportional share of the time."""
        chosen: dict[str, Any] = {name: getattr(self, name)[rows] for name in _PER_SEED}
        return Trajectories(
            **chosen,
            checkpoints=self.checkpoints,
            seconds=self.seconds * (len(rows) / len(self.regret)),
            propensity=None if self.propensity is None else self.propensity[rows],
        )

    @classmethod
    def concatenate(cls, several: Sequence[Trajectories]) -> Trajectories:
        """Join trajectories of different seeds, in the order given."""
        joined: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in several]) for name in _PER_SEED}
        seconds = np.sum([one.seconds for one in several], axis=0)
        offered = [one.propensity for one in several if one.propensity is not None]
        propensity = np.concatenate(offered) if len(offered) == len(several) else None
        return cls(**joined, checkpoints=several[0].checkpoints, seconds=seconds, propensity=propensity)


_PER_SEED = ("regret", "reward", "arm", "error", "context_norm", "arm_norm", "gram")


def play(task: Slice, on_progress: OnProgress) -> dict[str, Trajectories]:
    """Play every agent of the slice and return the trajectories by agent label.

    If `on_progress` raises an exception, the play stops.
    """
    episodes = task.world.begin(task.seeds)
    players = {spec.label: _player(spec, task, episodes) for spec in task.agents}
    trajectories = {label: _empty_trajectories(task, episodes) for label in players}
    for start in range(0, task.rounds, CHUNK):
        chunk = _Chunk(episodes.advance(min(CHUNK, task.rounds - start)), task.world.reward_unit)
        for label, player in players.items():
            began = time.thread_time()  # the processor time of this thread, which excludes other load on the machine
            played = player.play(chunk)
            trajectories[label].seconds[start // CHUNK] = time.thread_time() - began
            _record(trajectories[label], start, chunk, played)
            if isinstance(player, Player):
                _record_estimates(trajectories[label], start, chunk, player.policy, episodes.canonical, played)
            if task.world.costs is not None:
                _record_costs(trajectories[label], start, chunk, np.array(task.world.costs), played.arms)
            on_progress(chunk.context_norms.size)
    return trajectories


class Played(NamedTuple):
    """What an agent did in n rounds of B streams."""

    arms: Ints  # (B, n)
    rewards: Floats  # (B, n)
    features: Floats | None = None  # (B, n, p), None for plain agents
    propensity: Floats | None = None  # (B, n) of the arms played, if a plain agent offers them


def _player(spec: AgentSpec, task: Slice, episodes: Episodes) -> Player | PlainPlayer:
    if isinstance(spec.entry, PlainEntry):
        return PlainPlayer(spec, task)
    return Player(build_policy(spec, task.world, episodes, task.seeds, task.rounds), task.world)


class PlainPlayer:
    """A plain agent (`agents.plain`) in one world. One object per seed plays the rounds 1, 2, … in a Python loop.

    If rewards arrive together after several rounds (`World.reward_every`), they are learnt in the order of the rounds.
    """

    def __init__(self, spec: AgentSpec, task: Slice) -> None:
        assert isinstance(spec.entry, PlainEntry)
        self._label, self._world, self._seeds, self._round = spec.label, task.world, task.seeds, 0
        sizes = {"observed": task.world.observed, "arms": task.world.arms, "rounds": task.rounds}
        self._agents = []
        for seed in task.seeds:
            try:
                self._agents.append(spec.entry.make(**sizes, seed=seed, options=spec.options))
            except Exception as error:
                error.add_note(f"'{self._label}' in '{self._world.name}', when it was made, seed {seed}")
                raise
        self._delayed: list[list[tuple[int, float]]] = [[] for _ in task.seeds]  # rewards that have not arrived yet

    def play(self, chunk: _Chunk) -> Played:
        """Play some rounds."""
        streams, n = chunk.payoffs.noise.shape
        played = Played(np.empty((streams, n), dtype=np.int64), np.empty((streams, n)), None, np.empty((streams, n)))
        for stream in range(streams):
            for t in range(n):
                try:
                    self._play_round(chunk, stream, t, played)
                except Exception as error:
                    where = f"round {self._round + t + 1}, seed {self._seeds[stream]}"
                    error.add_note(f"'{self._label}' in '{self._world.name}', {where}")
                    raise
        self._round += n
        assert played.propensity is not None
        return played._replace(propensity=None) if np.isnan(played.propensity).all() else played

    def _play_round(self, chunk: _Chunk, stream: int, t: int, played: Played) -> None:
        agent, number, unit = self._agents[stream], self._round + t + 1, self._world.reward_unit
        decision = agent.decide(chunk.rounds.observations[t, stream].copy())
        arm, propensities = decided_arm(f"'{self._label}', round {number}", decision, self._world.arms)
        reward = float(chunk.payoffs.expected[stream, t, arm] + chunk.payoffs.noise[stream, t])
        played.arms[stream, t], played.rewards[stream, t] = arm, reward
        played.propensity[stream, t] = np.nan if propensities is None else propensities[arm]  # type: ignore[index]
        delayed = self._delayed[stream]
        delayed.append((number, reward / unit))
        if len(delayed) == self._world.reward_every:
            for past, arrived in delayed:
                agent.learn(past, arrived)
            delayed.clear()


class Player:
    """One agent in one world, whose rewards may arrive together after several rounds (`World.reward_every`)."""

    def __init__(self, policy: Policy, world: World) -> None:
        self.policy, self._world = policy, world
        self._delayed: list[tuple[Choices, Floats]] = []  # rounds whose rewards have not arrived yet

    def play(self, chunk: _Chunk) -> Played:
        """Play some rounds, in one call for all rounds if the agent can do so."""
        return Played(*(self.play_batch(chunk) or self.play_round_by_round(chunk.rounds)))

    def play_round_by_round(self, rounds: Rounds) -> tuple[Ints, Floats, Floats]:
        """Play round by round. Returns arms and rewards (B, n) and features (B, n, p)."""
        policy = self.policy
        n, streams = rounds.reward_noise.shape
        arms = np.empty((streams, n), dtype=np.int64)
        rewards = np.empty((streams, n))
        features = np.empty((streams, n, policy.estimator.dimension))
        costs = None
        if self._world.costs is not None:
            costs = np.tile(self._world.costs, (streams, 1)) / self._world.reward_unit
        for t in range(n):
            contexts = rounds.contexts[t] if policy.estimator.reveals_context else None
            elapsed = None if rounds.elapsed is None else np.full(streams, rounds.elapsed[t])
            choices = policy.decide(rounds.observations[t], contexts=contexts, costs=costs, elapsed=elapsed)
            reward = rounds.reward_of(t, policy.all_rows, choices.arms)
            self._learn(choices, reward)
            arms[:, t], rewards[:, t], features[:, t] = choices.arms, reward, choices.features
        return arms, rewards, features

    def _learn(self, choices: Choices, reward: Floats) -> None:
        """Learn from delayed rewards once all have arrived, in the order of their rounds."""
        self._delayed.append((choices, reward / self._world.reward_unit))
        if len(self._delayed) == self._world.reward_every:
            for past, arrived in self._delayed:
                self.policy.learn(past.rounds, past.features, past.arms, arrived)
            self._delayed.clear()

    def play_batch(self, chunk: _Chunk) -> tuple[Ints, Floats, Floats] | None:
        """Play all rounds in one call. The result is identical to the result of `play_round_by_round`.

        Returns None if arms have costs, if rewards are delayed, if time passes between rounds, or if the policy cannot
        play many rounds at once (see `Policy.play_rounds`).
        """
        if self._world.reward_every > 1 or self._world.costs is not None or chunk.rounds.elapsed is not None:
            return None
        contexts = chunk.rounds.contexts if self.policy.estimator.reveals_context else None
        return self.policy.play_rounds(chunk.rounds.observations, chunk.payoffs, contexts=contexts)


class _Chunk:
    """Some rounds of the world, in arrays that all agents share. The first axis of each array is the stream."""

    def __init__(self, rounds: Rounds, unit: float) -> None:
        self.rounds = rounds
        # The sum of `given` and `reward_noise` is the reward. If `rounds.rewards` is not None, `reward_noise` is 0.
        given = rounds.expected if rounds.rewards is None else rounds.rewards
        payoffs, noise = (np.ascontiguousarray(one.swapaxes(0, 1)) for one in (given, rounds.reward_noise))
        self.payoffs = Payoffs(payoffs, noise, unit)
        self.expected = payoffs if rounds.rewards is None else np.ascontiguousarray(rounds.expected.swapaxes(0, 1))
        self.contexts = np.ascontiguousarray(rounds.contexts.swapaxes(0, 1))
        self.context_norms = _distances(self.contexts, np.empty((*noise.shape, 0)))


def _record(trajectories: Trajectories, start: int, chunk: _Chunk, played_rounds: Played) -> None:
    arms = played_rounds.arms
    stop = start + arms.shape[1]
    expected = chunk.expected
    played = np.take_along_axis(expected, arms[:, :, None], axis=2)[:, :, 0]
    trajectories.regret[:, start:stop] = expected.max(axis=2) - played
    trajectories.reward[:, start:stop] = played_rounds.rewards
    trajectories.arm[:, start:stop] = arms
    trajectories.context_norm[:, start:stop] = chunk.context_norms
    if played_rounds.propensity is not None:
        if trajectories.propensity is None:
            trajectories.propensity = np.full(trajectories.regret.shape, np.nan)
        trajectories.propensity[:, start:stop] = played_rounds.propensity


def _record_estimates(
    trajectories: Trajectories, start: int, chunk: _Chunk, policy: Policy, canonical: bool, played: Played
) -> None:
    """Record the estimation error and, at checkpoints, the quantity that assumption A3 of the paper bounds."""
    features = played.features
    assert features is not None
    stop = start + features.shape[1]
    coordinates = policy.estimator.coordinates
    comparable = coordinates == "context" or (coordinates == "canonical" and canonical)
    trajectories.error[:, start:stop] = _distances(chunk.contexts, features) if comparable else np.nan
    at = np.flatnonzero(trajectories.checkpoints == stop)
    if len(at) and type(policy.learner) is Ridge:
        learner = policy.learner
        most = 1.0 / learner.prior_precision
        trajectories.gram[:, at[0]] = stop * largest_eigenvalues(learner.cov_packed, learner.mean.shape[-1], most)


def _record_costs(trajectories: Trajectories, start: int, chunk: _Chunk, costs: Floats, arms: Ints) -> None:
    """Replace the regret by the regret computed from expected rewards minus costs."""
    net = chunk.expected - costs
    played = np.take_along_axis(net, arms[:, :, None], axis=2)[:, :, 0]
    trajectories.regret[:, start : start + arms.shape[1]] = net.max(axis=2) - played


def _distances(contexts: Floats, features: Floats) -> Floats:
    """Return ‖x_t − x̂_t‖. If x̂ has fewer dimensions than the context, its missing entries count as 0."""
    gap = contexts.copy()
    gap[:, :, : features.shape[2]] -= features
    return np.asarray(np.linalg.norm(gap, axis=2))


def _empty_trajectories(task: Slice, episodes: Episodes) -> Trajectories:
    shape = (len(task.seeds), task.rounds)
    gram_rounds = checkpoints(task.rounds)
    return Trajectories(
        regret=np.empty(shape),
        reward=np.empty(shape),
        arm=np.empty(shape, dtype=np.int16),
        error=np.full(shape, np.nan),
        context_norm=np.empty(shape),
        arm_norm=largest_arm_norm(episodes, len(task.seeds)),
        checkpoints=gram_rounds,
        gram=np.full((len(task.seeds), len(gram_rounds)), np.nan),
        seconds=np.zeros(-(-task.rounds // CHUNK)),
    )


def checkpoints(rounds: int) -> Ints:
    """Return up to six rounds, geometrically spaced, each of which ends a chunk."""
    ends = np.unique(np.minimum(np.arange(CHUNK, rounds + CHUNK, CHUNK), rounds))
    wanted = np.geomspace(ends[0], rounds, 6)
    return np.unique(ends[np.searchsorted(ends, np.floor(wanted))]).astype(np.int64)


def microseconds_per_round(seconds: Floats, streams: int, rounds: int) -> Floats:
    """Return the time per stream and round in every chunk. `seconds` (chunks,) is the time of all streams together."""
    lengths = np.diff(np.append(np.arange(0, rounds, CHUNK), rounds))
    return np.asarray(1e6 * seconds / (lengths * streams))


def mean_without_first_chunk(timings: Floats) -> float:
    """Return the mean over all chunks but the first, in which kernels may have been compiled.

    If there is only one chunk, its time is returned.
    """
    return float(np.mean(timings[len(timings) > 1 :]))


def takes_fact(entry: Entry, fact: str) -> bool:
    """Return whether the world gives this fact to the agent.

    The fact is given if the agent has an option with the name of the fact, if the catalogue sets no value for the
    option, and if the default of the option is not "auto".
    """
    if isinstance(entry, PlainEntry) or fact not in entry.options or fact in entry.defaults:
        return False
    default = entry.options[fact].default
    return not (isinstance(default, str) and default == "auto")


def build_policy(spec: AgentSpec, world: World, episodes: Episodes, seeds: tuple[int, ...], rounds: int) -> Policy:
    """Build the agent for this world. The agent is given only those facts about the world that its options accept."""
    entry = spec.entry
    assert isinstance(entry, CatalogueEntry)
    facts = episodes.facts() | {"horizon": rounds, FAMILY_OPTION: world.reward_family}
    taken = [name for name in facts if takes_fact(entry, name) and name not in spec.options]
    given = {name: facts[name]() if callable(facts[name]) else facts[name] for name in taken}
    streams = StreamBatch(stream_keys(seeds), world.observed, world.arms)
    return entry.build(streams, given | dict(spec.options))
