"""The adaptive agent: a round with its share of identification, and the decisions that must not wait for one.

Only the time of the agent counts, not that of the world. Flops as in benchmarks/online.py.
"""

from __future__ import annotations

import gc
import time

import numpy as np

import halfseen as hs
from benchmarks.flops import score, steady_filter_step
from benchmarks.harness import Contender, Job
from benchmarks.online import flops
from benchmarks.settings import ARMS, LATENT, OBSERVED
from halfseen.agents.catalogue import AgentSpec
from halfseen.experiments.play import build_policy
from halfseen.worlds import named

ROUNDS = 10_000
ONLINE_ROUNDS, HISTORY, BETWEEN = 6000, 1000, 500  # HISTORY: so that the cap is reached early on


def amortised(streams: int, quick: bool = False) -> Job:
    """Rounds of `orbit` with identification inline, beside `kf-ts`, which is told the model, on the same streams."""
    total = ROUNDS // 5 if quick else ROUNDS
    seeds, world = tuple(range(streams)), named("orbit")
    rounds = world.begin(seeds).advance(total)

    def played(agent: str) -> tuple[float, np.ndarray]:
        policy = build_policy(AgentSpec(agent), world, world.begin(seeds), seeds, total)
        began = time.thread_time()
        for t in range(total):
            choices = policy.decide(rounds.observations[t])
            paid = rounds.expected[t, policy.everyone, choices.arms] + rounds.reward_noise[t]
            policy.learn(choices.rounds, choices.features, choices.arms, paid)
        return time.thread_time() - began, policy.rounds

    def contender(agent: str, note: str, at_most: float | None = None) -> Contender:
        work = {"work": lambda: played(agent), "units": streams * total, "seconds": lambda done: done[0]}
        return Contender(agent, note=note, at_most=at_most, **work)

    together = "one stream" if streams == 1 else f"{streams} streams in a batch"
    return Job(
        f"adaptive against kf-ts, {total:,} rounds, {together}",
        "round",
        flops(LATENT, OBSERVED, ARMS),
        [contender("kf-ts", "told the model"), contender("adaptive", "identification inline", 30.0)],
        lambda one, other: np.testing.assert_array_equal(one[1], other[1]),
        repeats=1,
    )


def slowest(quick: bool = False) -> Job:
    """Decisions with refit="manual" and a refit between some of them; fails if the agent's state keeps growing."""
    world, total = named("orbit"), ONLINE_ROUNDS // 2 if quick else ONLINE_ROUNDS
    rounds = world.begin((0,)).advance(total)
    megabytes = 0.0

    def one_run() -> np.ndarray:
        nonlocal megabytes
        agent = hs.make("adaptive", observed=OBSERVED, arms=ARMS, refit="manual", history=HISTORY)
        taken, sizes = np.empty(total), set()
        gc.disable()  # a collection is Python's time, not the agent's
        try:
            for t in range(total):
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
        steady_filter_step(LATENT, OBSERVED) + score(LATENT, ARMS),
        [
            Contender("median", lambda: runs[-1], 1, note, seconds=lambda taken: float(np.median(taken))),
            Contender(
                "slowest 0.1 %, mean",
                lambda: runs[-1],
                1,
                seconds=lambda taken: float(taken[-len(taken) // 1000 :].mean()),
                at_most=20.0,
            ),
        ],
        np.testing.assert_array_equal,
        repeats=1,
    )
