"""One online round of an agent through the public API: decide + learn, one stream at a time.

The flops of a round are those of the filter with a converged gain, of the scores of all arms and of the update of one
arm. `emkf-ts` also needs the sums for its refits (benchmarks/monte_carlo.py). For `adaptive`, only the flops of `kf-ts`
are counted, so its ratio shows the cost of identifying the model.

Two further jobs measure the mean time of `adaptive` including identification, and its slowest decisions without
identification. Both exclude the time of the world.
"""

from __future__ import annotations

import gc
import time

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job
from benchmarks.monte_carlo import LearntStart, agent_flops, draws_of, one_stream
from benchmarks.problem import ARMS, LATENT, OBSERVED, filter_flops, score_flops
from halfseen.agents.catalogue import AgentSpec
from halfseen.experiments.play import build_policy
from halfseen.worlds import named

ROUNDS, COMPARED = 600, 150
WARM, STEPS, INLINE = 1000, 300, 3000
AMORTISED_ROUNDS = 10_000
MANUAL_ROUNDS, HISTORY, BETWEEN = 6000, 1000, 500  # refits every BETWEEN rounds; a short HISTORY is full early


def job(agent: str, quick: bool = False) -> Job:
    """Return the job that compares an agent with the same agent in NumPy. The time in NumPy includes the world."""
    draws, learns = draws_of([0], ROUNDS), agent == "emkf-ts"
    start = LearntStart.of([0]) if learns else None
    episodes = named("orbit").begin([0])
    facts = {"latent": LATENT, "observation_cov": np.zeros((OBSERVED, OBSERVED)), "initial_transition": "orthogonal"}
    options = facts if learns else {"model": episodes.models[0]}
    rounds = episodes.advance(ROUNDS)
    observations = list(rounds.observations[:, 0])
    payoffs = (rounds.expected[:, 0] + rounds.reward_noise[:, :1]).tolist()

    def ours() -> np.ndarray:
        player = hs.make(agent, observed=OBSERVED, arms=ARMS, seed=0, **options)
        played = np.empty((1, ROUNDS), dtype=np.int64)
        for t, y in enumerate(observations):
            decision = player.decide(y)
            arm = played[0, t] = decision.arm
            player.learn(decision.id, payoffs[t][arm])
        return played

    def agree(one: np.ndarray, other: np.ndarray) -> None:
        np.testing.assert_array_equal(one[:, :COMPARED], other[:, :COMPARED])

    return Job(
        f"Online round of {agent}",
        "round",
        agent_flops(LATENT, OBSERVED, ARMS, learns_model=learns),
        [
            Contender("halfseen", ours, ROUNDS, "from the first round on"),
            Contender("NumPy loop", lambda: one_stream(draws, start), ROUNDS),
        ],
        agree,
    )


def adaptive_job(quick: bool = False) -> Job:
    """Return the job that compares `adaptive`, with and without refits, with `kf-ts`."""
    inline = INLINE // 3 if quick else INLINE
    episodes = named("orbit").begin([0])
    model, rounds = episodes.models[0], episodes.advance(inline)
    observations = list(rounds.observations[:, 0])
    payoffs = (rounds.expected[:, 0] + rounds.reward_noise[:, :1]).tolist()

    def play(player: hs.Agent, first: int, last: int) -> np.ndarray:
        for t in range(first, last):
            decision = player.decide(observations[t])
            player.learn(decision.id, payoffs[t][decision.index])
        return np.array([player.rounds > 0])

    def warmed(player: hs.Agent) -> hs.Agent:
        play(player, 0, WARM - STEPS)
        return player

    between = warmed(hs.make("adaptive", observed=OBSERVED, arms=ARMS, seed=0, refit="manual"))
    between.refit()
    knowing = warmed(hs.make("kf-ts", observed=OBSERVED, arms=ARMS, seed=0, model=model))

    def with_refits() -> np.ndarray:
        return play(hs.make("adaptive", observed=OBSERVED, arms=ARMS, seed=0), 0, inline)

    return Job(
        "Online round of adaptive",
        "round",
        agent_flops(LATENT, OBSERVED, ARMS),
        [
            Contender("kf-ts", lambda: play(knowing, WARM - STEPS, WARM), STEPS, "given the model"),
            Contender("adaptive, between refits", lambda: play(between, WARM - STEPS, WARM), STEPS, 'refit="manual"'),
            Contender("adaptive, refits included", with_refits, inline, f"rounds 1 to {inline:,}"),
        ],
        np.testing.assert_array_equal,
        ["all other libraries: none identifies a hidden context by itself"],
        repeats=3,
    )


def amortised_job(streams: int, quick: bool = False) -> Job:
    """Return the job that compares `adaptive` with `kf-ts` on the same streams of `orbit`."""
    total = AMORTISED_ROUNDS // 5 if quick else AMORTISED_ROUNDS
    seeds, world = tuple(range(streams)), named("orbit")
    rounds = world.begin(seeds).advance(total)

    def played(agent: str) -> tuple[float, np.ndarray]:
        policy = build_policy(AgentSpec(agent), world, world.begin(seeds), seeds, total)
        began = time.thread_time()
        for t in range(total):
            choices = policy.decide(rounds.observations[t])
            rewards = rounds.expected[t, policy.all_rows, choices.arms] + rounds.reward_noise[t]
            policy.learn(choices.rounds, choices.features, choices.arms, rewards)
        return time.thread_time() - began, policy.rounds

    def contender(agent: str, note: str, at_most: float | None = None) -> Contender:
        work = {"work": lambda: played(agent), "units": streams * total, "seconds": lambda done: done[0]}
        return Contender(agent, note=note, at_most=at_most, **work)

    batch = "one stream" if streams == 1 else f"{streams} streams in a batch"
    return Job(
        f"adaptive compared with kf-ts, {total:,} rounds, {batch}",
        "round",
        agent_flops(LATENT, OBSERVED, ARMS),
        [contender("kf-ts", "given the model"), contender("adaptive", "identification included", 30.0)],
        lambda one, other: np.testing.assert_array_equal(one[1], other[1]),
        repeats=1,
    )


def slowest_job(quick: bool = False) -> Job:
    """Return the job that measures the slowest decisions with refit="manual". It fails if the agent's state grows."""
    world, total = named("orbit"), MANUAL_ROUNDS // 2 if quick else MANUAL_ROUNDS
    rounds = world.begin((0,)).advance(total)
    megabytes = 0.0

    def one_run() -> np.ndarray:
        nonlocal megabytes
        agent = hs.make("adaptive", observed=OBSERVED, arms=ARMS, refit="manual", history=HISTORY)
        taken, sizes = np.empty(total), set()
        gc.disable()  # garbage collection is not part of the agent's time
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
        assert len(sizes) == 1, f"The state of the agent grows: {sorted(sizes)} bytes"
        megabytes = sizes.pop() / 1e6
        return np.sort(taken)

    runs = [one_run() for _ in range(2)]  # the first run compiles, and both contenders use the second
    note = (
        f"history={HISTORY}; state of {megabytes:.1f} MB, constant from round {2 * HISTORY:,} on; "
        "garbage collection disabled"
    )
    return Job(
        'Slowest 0.1 % of decide, adaptive with refit="manual"',
        "decision",
        filter_flops(LATENT, OBSERVED) + score_flops(LATENT, ARMS),
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
