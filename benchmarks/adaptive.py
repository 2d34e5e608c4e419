"""The adaptive agent: a round with its share of identification, and the decisions that must not wait for one.

All times are those of the thread, so that a neighbour on the machine is not counted as ours.
"""

from __future__ import annotations

import gc
import time

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job
from benchmarks.settings import ARMS, OBSERVED
from halfseen.experiments.play import build_policy
from halfseen.experiments.specs import AgentSpec
from halfseen.worlds import named

ROUNDS = 10_000
ONLINE_ROUNDS, HISTORY, BETWEEN = 6000, 1000, 500  # HISTORY: so that the cap is reached early on


def amortised(streams: int) -> Job:
    """Rounds of `orbit` with identification inline, beside `kf-ts`, which is told the model, on the same streams."""
    seeds, world = tuple(range(streams)), named("orbit")
    rounds = world.begin(seeds).advance(ROUNDS)

    def played(agent: str) -> tuple[float, np.ndarray]:
        policy = build_policy(AgentSpec(agent), world, world.begin(seeds), seeds, ROUNDS)
        began = time.thread_time()
        for t in range(ROUNDS):
            choices = policy.decide(rounds.observations[t])
            paid = rounds.expected[t, policy.everyone, choices.arms] + rounds.reward_noise[t]
            policy.learn(choices.rounds, choices.features, choices.arms, paid)
        return time.thread_time() - began, policy.rounds

    def contender(agent: str, note: str) -> Contender:
        return Contender(agent, lambda: played(agent), streams * ROUNDS, note, seconds=lambda done: done[0])

    together = "one stream" if streams == 1 else f"{streams} streams in a batch"
    return Job(
        f"adaptive against kf-ts, {ROUNDS:,} rounds of orbit, {together}",
        "round",
        [contender("kf-ts", "told the model"), contender("adaptive", "identification inline")],
        lambda one, other: np.testing.assert_array_equal(one[1], other[1]),
        limits={"adaptive": 30.0},
        repeats=1,
    )


def slowest() -> Job:
    """Decisions with refit="manual" and a refit between some of them; fails if the agent's state keeps growing."""
    world = named("orbit")
    rounds = world.begin((0,)).advance(ONLINE_ROUNDS)
    megabytes = 0.0

    def one_run() -> np.ndarray:
        nonlocal megabytes
        agent = hs.make("adaptive", observed=OBSERVED, arms=ARMS, refit="manual", history=HISTORY)
        taken, sizes = np.empty(ONLINE_ROUNDS), set()
        gc.disable()  # a collection is Python's time, not the agent's
        try:
            for t in range(ONLINE_ROUNDS):
                y = rounds.observations[t, 0]
                began = time.thread_time()
                decision = agent.decide(y)
                taken[t] = time.thread_time() - began
                agent.learn(decision, float(rounds.expected[t, 0, decision.index] + rounds.reward_noise[t, 0]))
                if t % BETWEEN == BETWEEN - 1:
                    agent.refit()
                    if t >= 2 * HISTORY:
                        sizes.add(sum(array.nbytes for array in agent.state().values()))
        finally:
            gc.enable()
        assert len(sizes) == 1, f"the state grows: {sorted(sizes)} bytes"
        megabytes = sizes.pop() / 1e6
        return np.sort(taken)

    runs = [one_run() for _ in range(2)]  # the first compiles; both contenders are read off the second
    note = f"history={HISTORY}; a state of {megabytes:.1f} MB, the same from round {2 * HISTORY:,} on; no collector"
    return Job(
        'Slowest 0.1 % of decide, adaptive with refit="manual"',
        "decide",
        [
            Contender("median", lambda: runs[-1], 1, note, seconds=lambda taken: float(np.median(taken))),
            Contender(
                "slowest 0.1 %, mean",
                lambda: runs[-1],
                1,
                seconds=lambda taken: float(taken[-len(taken) // 1000 :].mean()),
            ),
        ],
        np.testing.assert_array_equal,
        limits={"slowest 0.1 %, mean": 20.0},
        repeats=1,
    )
