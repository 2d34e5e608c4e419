"""Measures the regret of `adaptive` as a multiple of the regret of `kf-ts`, which is given the true model.

    python -m benchmarks.adaptive --seeds 200 --first-seed 8000
    python -m benchmarks.adaptive --only orbit fog --seeds 20 --first-seed 1000

"Ratio" is the ratio of the mean regrets over all seeds, with the standard error of the paired bootstrap. "Tail" is the
mean regret of `adaptive` on its worst tenth of the seeds, divided by the mean regret of `kf-ts` on its own worst tenth.
In "switch", only the regret after the change counts. In "late", the rewards of both agents arrive 50 rounds late. In
"wild-reward" and "wild-observation", one number in round 1,500 is wrong. There, only the regret in the next 1,000
rounds counts, and the reference is the same agent without the wrong number. The last column is the agent's processor
time per round.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halfseen.agents.catalogue import AgentSpec
from halfseen.experiments.play import build_policy
from halfseen.kernels.random import Floats
from halfseen.reports.tables import Table
from halfseen.worlds import named

WRONG_ROUND = 1500  # the round with a wrong number
BOOTSTRAP = 2000  # resamples
BATCH = 10  # seeds that are played together


@dataclass(frozen=True)
class Case:
    """A world, how rewards arrive in it, and the rounds whose regret counts."""

    world: str
    options: dict[str, Any] = field(default_factory=dict)
    first: int = 0  # the first round that counts, from 0
    last: int | None = None
    delay: int = 0  # rounds after which rewards arrive
    wrong: str | None = None  # "reward" or "observation"


CASES = {
    "orbit": Case("orbit"),
    "keyhole": Case("keyhole"),
    "foggy-keyhole": Case("foggy-keyhole"),
    "fog": Case("fog"),
    "paper-.01": Case("paper", {"noise": 0.01}),
    "paper-.1": Case("paper", {"noise": 0.1}),
    "paper-1": Case("paper", {"noise": 1.0}),
    "switch": Case("switch", first=1500),
    "deep": Case("deep"),
    "two-scales": Case("two-scales"),
    "late": Case("keyhole", delay=50),
    "wild-reward": Case("keyhole", first=WRONG_ROUND, last=WRONG_ROUND + 1000, wrong="reward"),
    "wild-observation": Case("keyhole", first=WRONG_ROUND, last=WRONG_ROUND + 1000, wrong="observation"),
}


def regrets(
    agent: AgentSpec, case: Case, seeds: tuple[int, ...], rounds: int, wrong: str | None
) -> tuple[Floats, float]:
    """Return the regret (S,) in the rounds that count, and the processor time in seconds."""
    world = named(case.world, **case.options)
    episodes = world.begin(seeds)
    policy = build_policy(agent, world, episodes, seeds, rounds)
    played, waiting, rows, spent = episodes.advance(rounds), [], np.arange(len(seeds)), 0.0
    regret = np.zeros((rounds, len(seeds)))
    for t in range(rounds):
        y = played.observations[t]
        if wrong == "observation" and t == WRONG_ROUND:
            y = y.copy()
            y[:, 0] += 100.0 * np.sqrt(np.mean(played.observations[:t, :, 0] ** 2, axis=0))
        began = time.thread_time()
        choices = policy.decide(y)
        spent += time.thread_time() - began
        expected = played.expected[t]
        regret[t] = expected.max(axis=1) - expected[rows, choices.arms]
        reward = expected[rows, choices.arms] + played.reward_noise[t]
        if wrong == "reward" and t == WRONG_ROUND:
            reward = reward + 500.0 * np.std(played.reward_noise)
        waiting.append((choices, reward))
        if len(waiting) > case.delay:
            past, arrived = waiting.pop(0)
            began = time.thread_time()
            policy.learn(past.rounds, past.features, past.arms, arrived)
            spent += time.thread_time() - began
    return regret[case.first : case.last].sum(axis=0), spent


def tail(regret: Floats) -> float:
    """Return the mean regret of the worst tenth of the seeds, or of the worst seed if there are fewer than 20."""
    return float(np.sort(regret)[-max(1, len(regret) // 10) :].mean())


def compare(case: Case, agent: AgentSpec, seeds: tuple[int, ...], rounds: int) -> tuple[Floats, Floats, float]:
    """Return the regrets of the agent and of its reference (S,), and the agent's time per round in microseconds."""
    ours, theirs, spent = [], [], 0.0
    for start in range(0, len(seeds), BATCH):
        part = seeds[start : start + BATCH]
        regret, seconds = regrets(agent, case, part, rounds, case.wrong)
        reference = agent if case.wrong else AgentSpec("kf-ts", {}, "kf-ts")
        ours.append(regret)
        theirs.append(regrets(reference, case, part, rounds, None)[0])
        spent += seconds
    return np.concatenate(ours), np.concatenate(theirs), 1e6 * spent / (len(seeds) * rounds)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--agent", default="adaptive")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    given = parser.parse_args(arguments)
    seeds = tuple(range(given.first_seed, given.first_seed + given.seeds))
    rows, rng = [], np.random.default_rng(0)
    for name in given.only:
        case = CASES[name]
        ours, theirs, time_per_round = compare(case, AgentSpec(given.agent, {}, given.agent), seeds, given.rounds)
        resampled = rng.integers(len(seeds), size=(BOOTSTRAP, len(seeds)))
        error = float(np.std(ours[resampled].mean(axis=1) / theirs[resampled].mean(axis=1)))
        each = ours / theirs
        rows.append(
            {
                "world": name,
                "ratio": f"{ours.mean() / theirs.mean():.3f} ± {error:.3f}",
                "tail": f"{tail(ours) / tail(theirs):.2f}",
                "median": f"{np.median(each):.2f}",
                "worst seed": f"{each.max():.2f} ({seeds[int(np.argmax(each))]})",
                "µs per round": f"{time_per_round:.0f}",
            }
        )
        print(" | ".join(rows[-1].values()), file=sys.stderr, flush=True)
    print(Table(rows).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
