"""Compares the reward of an agent that has a budget with the reward of the same agent at the best fixed price.

    python -m benchmarks.costs                                    # about ten minutes on one core
    python -m benchmarks.costs --figure costs.png                 # the figure of docs/how-to/costs.md

An agent with a budget multiplies the costs of the arms by a price, which it learns. The reference is the same agent
without a budget, with costs that are multiplied by a fixed price from a grid. For each seed, the reference uses the
price with the highest reward among those that spend at most the budget. This price is known only in hindsight. All runs
of a seed have the same contexts and noise. In these worlds, playing the same arm in all rounds earns nothing on
average, so the whole reward comes from choosing well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import halfseen as hs
from halfseen.kernels.random import Floats
from halfseen.reports.tables import Table
from halfseen.statistics.confidence_intervals import ratio_of_means

AGENTS = ("ts-pco", "lag-ts", "adaptive")
WORLDS = ("keyhole", "orbit")
# Budgets, as positions between the cost of the cheapest arm (0) and what the agent spends at price 0 (1).
SHARES = (0.2, 0.5, 0.8)
PRICES = (0.0, *np.geomspace(0.1, 30.0, 19))


def arm_costs(arms: int) -> Floats:
    """Return costs from 0.1 to 1 that double about every second arm, like prices of language models."""
    return np.geomspace(0.1, 1.0, arms)


def play(
    agent: str, world_name: str, rounds: int, seeds: Sequence[int], price: float = 1.0, **options: object
) -> tuple[Floats, Floats]:
    """Return the expected reward and the cost of the arm played in each round and seed, both (rounds, seeds)."""
    world = hs.worlds.named(world_name)
    played, costs, rows = world.begin(list(seeds)).advance(rounds), arm_costs(world.arms), np.arange(len(seeds))
    rewards, spent = np.empty((rounds, len(seeds))), np.empty((rounds, len(seeds)))
    fleet = hs.Fleet(agent, observed=world.observed, arms=world.arms, **options)
    fleet.add(len(seeds), seeds=list(seeds))
    for t in range(rounds):
        decisions = fleet.decide(played.observations[t], costs=price * costs)
        rewards[t] = played.expected[t, rows, decisions.indices]
        spent[t] = costs[decisions.indices]
        fleet.learn(decisions, rewards[t] + played.reward_noise[t])
    return rewards, spent


def compare(agent: str, world: str, rounds: int, seeds: Sequence[int]) -> list[dict[str, str]]:
    """Return one row per budget."""
    fixed = [play(agent, world, rounds, seeds, price) for price in PRICES]
    rewards, spent = (np.array([part.sum(axis=0) for part in parts]) for parts in zip(*fixed, strict=True))
    cheapest = arm_costs(hs.worlds.named(world).arms)[0] * rounds
    rows = []
    for share in SHARES:
        budget = float(cheapest + share * (spent[0].mean() - cheapest))
        best = np.where(spent <= budget, rewards, -np.inf).max(axis=0)
        earned, paid = (part.sum(axis=0) for part in play(agent, world, rounds, seeds, budget=(budget, rounds)))
        rows.append(
            {
                "world": world,
                "agent": agent,
                "budget per round": f"{budget / rounds:.2f}",
                "largest share spent": f"{(paid / budget).max():.3f}",
                "reward": f"{earned.mean():,.0f}",
                "best fixed price": f"{best.mean():,.0f}",
                "ratio": f"{ratio_of_means(earned, best):.3f}",
            }
        )
    return rows


def draw(path: Path, rounds: int) -> None:
    """Draw what is left of the budget, and the price that the agent has learnt, over the rounds of one seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    world = hs.worlds.named("keyhole")
    played, costs = world.begin([0]).advance(rounds), arm_costs(world.arms)
    budget = 0.25 * rounds
    agent = hs.make("adaptive", observed=world.observed, arms=world.arms, seed=0, budget=(budget, rounds))
    left, prices = np.empty(rounds), np.empty(rounds)
    for t in range(rounds):
        decision = agent.decide(played.observations[t, 0], costs=costs)
        reward = played.expected[t, 0, decision.index] + played.reward_noise[t, 0]
        agent.learn(decision, float(reward))
        facts = agent.policy.health(0)[0]
        left[t] = budget - float(str(facts["spent"]))
        prices[t] = float(str(facts["price of the budget (reward per unit of cost)"]))
    figure, (above, below) = plt.subplots(2, 1, figsize=(6.4, 4.4), layout="constrained", sharex=True)
    above.plot([0, rounds], [budget, 0.0], color="grey", linewidth=0.8, linestyle="--", label="even spending")
    above.plot(np.arange(1, rounds + 1), left, label="left of the budget")
    above.set(ylabel="cost", ylim=(0.0, budget), xlim=(0, rounds))
    above.legend(frameon=False)
    below.plot(np.arange(1, rounds + 1), prices)
    below.set(xlabel="decisions", ylabel="price (reward per cost)", ylim=(0.0, None))
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--world", choices=WORLDS, action="append")
    parser.add_argument("--agent", choices=AGENTS, action="append")
    parser.add_argument("--figure", type=Path, help="draw spending and price of one stream instead of measuring")
    given = parser.parse_args(arguments)
    if given.figure is not None:
        draw(given.figure, given.rounds)
        return
    rows: list[dict[str, str]] = []
    for world in given.world or WORLDS:
        for agent in given.agent or AGENTS:
            rows += compare(agent, world, given.rounds, range(given.seeds))
    print(Table(rows).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
