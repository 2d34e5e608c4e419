"""Play a slice: every agent through the same rounds of one world, in one batch of streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from halfseen.agents.catalogue import CATALOG, Entry
from halfseen.agents.policy import Policy
from halfseen.components import Choices, Payoffs, Streams
from halfseen.experiments.largest_eigenvalue import largest_eigenvalues
from halfseen.experiments.plan import CHUNK, AgentSpec, Slice
from halfseen.kernels.random import Floats, Ints, stream_keys
from halfseen.kernels.record import distances, regrets
from halfseen.learners.ridge import Ridge
from halfseen.worlds.world import Episodes, Rounds, World, largest_arm_norm


class Stopped(Exception):
    """Raised by a `tick` when the run has been given up."""


@dataclass
class Track:
    """What one agent did in one world: S seeds, T rounds."""

    regret: Floats  # Δ_t (S, T), noise-free
    reward: Floats  # r_t (S, T)
    arm: Ints  # (S, T)
    error: Floats  # ‖x_t − x̂_t‖ (S, T), NaN where the feature is no estimate of the context
    context_norm: Floats  # ‖x_t‖ (S, T)
    arm_norm: Floats  # max_a ‖μ_a‖ (S,)
    checkpoints: Ints  # rounds t (C,) at which the next was taken
    gram: Floats  # max_a t·‖B_a⁻¹(t)‖ (S, C), NaN where nothing is learnt
    seconds: Floats  # (slices, chunks) time spent deciding and learning, per chunk of rounds
    streams: Ints  # (slices,) how many streams shared that time


def checkpoints(rounds: int) -> Ints:
    """A few rounds, geometrically spaced, each the end of a chunk."""
    ends = np.unique(np.minimum(np.arange(CHUNK, rounds + CHUNK, CHUNK), rounds))
    wanted = np.geomspace(ends[0], rounds, 6)
    return np.unique(ends[np.searchsorted(ends, np.floor(wanted))]).astype(np.int64)


def asks_for(entry: Entry, fact: str) -> bool:
    """Whether the agent has an option for the fact that it neither fixes itself nor finds out, which "auto" means."""
    if fact not in entry.options or fact in entry.defaults:
        return False
    default = entry.options[fact].default
    return not (isinstance(default, str) and default == "auto")


def build_policy(spec: AgentSpec, world: World, episodes: Episodes, seeds: tuple[int, ...], rounds: int) -> Policy:
    """The agent on this world, told those facts that its options ask for and no others."""
    entry = CATALOG[spec.name]
    facts = episodes.facts() | {"horizon": rounds}
    asked = [name for name in facts if asks_for(entry, name) and name not in spec.options]
    told = {name: facts[name]() if callable(facts[name]) else facts[name] for name in asked}
    streams = Streams(stream_keys(seeds), world.observed, world.arms)
    return entry.build(streams, told | dict(spec.options))


def play(piece: Slice, tick: Callable[[int], None]) -> dict[str, Track]:
    """Run the slice; `tick` hears of every stream-round done, and may raise to stop."""
    episodes = piece.world.begin(piece.seeds)
    policies = {
        spec.label: build_policy(spec, piece.world, episodes, piece.seeds, piece.rounds) for spec in piece.agents
    }
    tracks = {label: _empty_track(piece, episodes) for label in policies}
    tills = {label: _Till(policy, piece.world) for label, policy in policies.items()}
    for number, start in enumerate(range(0, piece.rounds, CHUNK)):
        chunk = _Chunk(episodes.advance(min(CHUNK, piece.rounds - start)), piece.world.reward_unit)
        for label, policy in policies.items():
            _play_chunk(policy, tills[label], chunk, tracks[label], start, number, episodes.canonical)
            tick(chunk.context_norms.size)
    return tracks


class _Chunk:
    """Some rounds of the world, and what all agents' records take from them; streams first."""

    def __init__(self, rounds: Rounds, unit: float) -> None:
        self.rounds = rounds
        expected, noise = (np.ascontiguousarray(one.swapaxes(0, 1)) for one in (rounds.expected, rounds.reward_noise))
        self.payoffs = Payoffs(expected, noise, unit)
        self.contexts = np.ascontiguousarray(rounds.contexts.swapaxes(0, 1))
        self.context_norms = _distances(self.contexts, np.empty((*noise.shape, 0)))


class _Till:
    """Rewards on their way to an agent: those of `reward_every` rounds are learnt after the last of them."""

    def __init__(self, policy: Policy, world: World) -> None:
        self._policy, self._every, self._unit = policy, world.reward_every, world.reward_unit
        self._waiting: list[tuple[Choices, Floats]] = []

    def play_ahead(self, chunk: _Chunk) -> tuple[Ints, Floats, Floats] | None:
        """`Policy.play_ahead`, where every reward is learnt in its round."""
        if self._every > 1:
            return None
        contexts = chunk.rounds.contexts if self._policy.estimator.reveals_context else None
        return self._policy.play_ahead(chunk.rounds.observations, chunk.payoffs, contexts=contexts)

    def pay(self, choices: Choices, rewards: Floats) -> None:
        """Each reward is credited to its own round, in the order of the rounds."""
        self._waiting.append((choices, rewards / self._unit))
        if len(self._waiting) == self._every:
            for past, heard in self._waiting:
                self._policy.learn(past.rounds, past.features, past.arms, heard)
            self._waiting = []


def _play_chunk(
    policy: Policy, till: _Till, chunk: _Chunk, track: Track, start: int, number: int, canonical: bool
) -> None:
    began = time.thread_time()  # of this thread: what else the machine does is not the agent's work
    arms, rewards, features = till.play_ahead(chunk) or _round_by_round(policy, till, chunk.rounds)
    track.seconds[0, number] = time.thread_time() - began

    stop = start + arms.shape[1]
    track.regret[:, start:stop] = regrets(_flat(chunk.payoffs.expected), arms.ravel()).reshape(arms.shape)
    track.reward[:, start:stop] = rewards
    track.arm[:, start:stop] = arms
    track.context_norm[:, start:stop] = chunk.context_norms
    comparable = policy.estimator.estimates == "context" or (policy.estimator.estimates == "canonical" and canonical)
    track.error[:, start:stop] = _distances(chunk.contexts, features) if comparable else np.nan
    at = np.flatnonzero(track.checkpoints == stop)
    if len(at) and isinstance(policy.learner, Ridge):
        learner = policy.learner
        most = 1.0 / learner.prior_precision
        track.gram[:, at[0]] = stop * largest_eigenvalues(learner.cov_packed, learner.mean.shape[-1], most)


def _round_by_round(policy: Policy, till: _Till, rounds: Rounds) -> tuple[Ints, Floats, Floats]:
    """Arms and rewards (B, n) and features (B, n, p) of rounds that have to wait for each other."""
    n, streams = rounds.reward_noise.shape
    revealed = policy.estimator.reveals_context
    everyone = policy.everyone
    arms = np.empty((streams, n), dtype=np.int64)
    rewards = np.empty((streams, n))
    features = np.empty((streams, n, policy.estimator.dimension))
    for t in range(n):
        choices = policy.decide(rounds.observations[t], contexts=rounds.contexts[t] if revealed else None)
        paid = rounds.expected[t, everyone, choices.arms] + rounds.reward_noise[t]
        till.pay(choices, paid)
        arms[:, t], rewards[:, t], features[:, t] = choices.arms, paid, choices.features
    return arms, rewards, features


def _distances(contexts: Floats, features: Floats) -> Floats:
    """‖x_t − x̂_t‖; a feature shorter than the context (y itself) says nothing of the rest, so 0 there."""
    return distances(_flat(contexts), _flat(features)).reshape(contexts.shape[:2])


def _flat(array: Floats) -> Floats:
    """(B, n, m) as (B·n, m)."""
    return array.reshape(array.shape[0] * array.shape[1], array.shape[2])


def _empty_track(piece: Slice, episodes: Episodes) -> Track:
    shape = (len(piece.seeds), piece.rounds)
    marks = checkpoints(piece.rounds)
    return Track(
        regret=np.empty(shape),
        reward=np.empty(shape),
        arm=np.empty(shape, dtype=np.int16),
        error=np.empty(shape),
        context_norm=np.empty(shape),
        arm_norm=largest_arm_norm(episodes, len(piece.seeds)),
        checkpoints=marks,
        gram=np.full((len(piece.seeds), len(marks)), np.nan),
        seconds=np.zeros((1, -(-piece.rounds // CHUNK))),
        streams=np.array([len(piece.seeds)]),
    )


_BY_SEED = ("regret", "reward", "arm", "error", "context_norm", "arm_norm", "gram")


def of_rows(track: Track, rows: list[int]) -> Track:
    """Some seeds of a track, with their share of the time."""
    share = len(rows) / len(track.regret)
    chosen: dict[str, Any] = {name: getattr(track, name)[rows] for name in _BY_SEED}
    return Track(
        **chosen,
        checkpoints=track.checkpoints,
        seconds=track.seconds.sum(axis=0, keepdims=True) * share,
        streams=np.array([len(rows)]),
    )


def in_order(track: Track, rows: list[int]) -> Track:
    """The seeds in another order; the time stays with the slices that took it."""
    return replace(track, **{name: getattr(track, name)[rows] for name in _BY_SEED})


def join(parts: list[Track]) -> Track:
    """The tracks of several slices as one, in the order given."""
    joined: dict[str, Any] = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Track)
    }
    return Track(**(joined | {"checkpoints": parts[0].checkpoints}))
