"""Costs of arms, and a budget for them (docs/mathematics.md, "Costs").

With costs the chooser uses m_a − λ·cost_a in place of the predicted reward m_a. Without a budget costs are in units of
reward and λ is 1. With a budget λ is the price of the budget: the reward that one unit of cost must be worth. The price
rises while more is spent per round than the budget allows, and falls while less is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation
from halfseen.agents.arms import Arm
from halfseen.components import IntegerBounds, Mask, State, Stateful, StreamBatch, distinct_batches
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.statistics.running_moments import add_rewards, check_moments, replace_rewards
from halfseen.validation import LIMIT

OPTION = "budget"  # an option of every agent
MAX_HORIZON = 1_000_000_000
# After n rounds, log `relative_price` changes by STEP·(cost/allowance − 1)/√(n + STEP_ROUNDS), but at most by MAX_STEP.
# The allowance is the rest of the budget per remaining round.
STEP, STEP_ROUNDS, MAX_STEP = 0.3, 100, 1.0
MAX_PRICE = 1e6  # `relative_price` stays between 1/MAX_PRICE and MAX_PRICE


def split_budget(options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the budget (None if there is none) and the other options, from all options of an agent."""
    return options.get(OPTION), {name: value for name, value in options.items() if name != OPTION}


def check_costs(given: ArrayLike | Mapping[Arm, float], rows: int, arms: Sequence[Arm]) -> Floats:
    """Check the costs that a user has given and return them as an array (n, K).

    `given` is a mapping from all arms to costs, a list in the order of `arms`, or an array with one such list per row.
    """
    argument, expected = "costs", f"{len(arms)} numbers from 0 to {LIMIT:g}, one per arm"
    if isinstance(given, Mapping):
        if given.keys() != set(arms):
            raise invalid(argument, f"a cost of each of {', '.join(map(str, arms))}", repr(dict(given)))
        given = [given[arm] for arm in arms]
    costs = validation.numbers(argument, given, expected)
    if costs.shape == (len(arms),):
        costs = np.tile(costs, (rows, 1))
    if costs.shape != (rows, len(arms)):
        raise invalid(argument, expected, f"shape {costs.shape}")
    if not ((costs >= 0.0) & (costs <= LIMIT)).all():
        raise invalid(argument, expected, "a number that is negative, missing or too large")
    return np.ascontiguousarray(costs)


@dataclass(frozen=True)
class Budget:
    """An amount that may be spent on costs within a number of rounds.

    Parameters
    ----------
    amount : float
        The most that all decisions together may cost.
    rounds : int
        The number of rounds over which the amount is spread. Afterwards, what is left may still be spent.
    """

    amount: float
    rounds: int

    @classmethod
    def checked(cls, given: Any) -> Budget:
        """Return the budget that a user has given as a pair of an amount and a number of rounds."""
        if isinstance(given, np.ndarray):
            given = given.tolist()
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
            raise invalid(OPTION, "an amount and a number of rounds, such as (100.0, 5000)", repr(given))
        amount = validation.number(f"{OPTION}, amount", given[0])
        if not 1.0 / LIMIT <= amount <= LIMIT:
            raise invalid(f"{OPTION}, amount", f"a number from {1.0 / LIMIT:g} to {LIMIT:g}", repr(given[0]))
        rounds = given[1]
        if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or not 1 <= rounds <= MAX_HORIZON:
            raise invalid(f"{OPTION}, rounds", f"an integer from 1 to {MAX_HORIZON:,}", repr(rounds))
        return cls(float(amount), int(rounds))


class StreamBudgets(Stateful):
    """What B streams have spent of their budgets, and the price of the budget in each stream.

    The price λ is the product of `relative_price` and the standard deviation of the rewards, divided by the amount of
    the budget per round. So `relative_price` has no unit and needs no tuning. It is learnt by stochastic dual ascent on
    its logarithm, as in the multiplicative updates of bandits with knapsacks (Badanidiyuru, Kleinberg & Slivkins 2013).
    """

    state_names = ("spent", "relative_price", "reward_counts", "reward_means", "reward_squares")

    def __init__(self, streams: StreamBatch, budget: Budget) -> None:
        self.budget = budget
        count = streams.count
        self.spent: Floats = np.zeros(count)
        self.relative_price: Floats = np.ones(count)
        self.reward_counts: Ints = np.zeros(count, dtype=np.int64)
        self.reward_means: Floats = np.zeros(count)
        self.reward_squares: Floats = np.zeros(count)  # sums of squared deviations from the mean

    def prices(self, rows: Ints) -> Floats:
        """Return λ (n,), the reward that one unit of cost must be worth."""
        deviations = np.sqrt(self.reward_squares[rows] / np.maximum(self.reward_counts[rows], 1))
        price = self.relative_price[rows] * deviations * (self.budget.rounds / self.budget.amount)
        return np.minimum(price, LIMIT)  # so that no penalty overflows

    def affordable(self, rows: Ints, rounds: Ints, costs: Floats, available: Mask) -> Mask:
        """Return the `available` arms (n, K) that the budget allows after `rounds` (n,) rounds.

        An arm is left out if, after paying for it, the rest of the budget would not pay for the cheapest arm in all
        remaining rounds. If no arm passes this test, the arms that can be paid for now are returned. Raises an error if
        no arm can be paid for.
        """
        cheapest = np.where(available, costs, np.inf).min(axis=1)
        after = self.spent[rows, None] + costs
        within = available & (after <= self.budget.amount)
        reserve = (self._rounds_left(rounds) - 1) * cheapest
        lasting = within & (after <= self.budget.amount - reserve[:, None])
        poor = ~within.any(axis=1)
        if poor.any():
            left = self.budget.amount - float(self.spent[rows[poor][0]])
            expected = f"an available arm that costs at most {max(left, 0.0):.6g}, which is left of the budget"
            raise invalid("costs", expected, f"arms that cost at least {float(cheapest[poor][0]):.6g}")
        return np.where(lasting.any(axis=1, keepdims=True), lasting, within)

    def _rounds_left(self, rounds: Ints) -> Ints:
        return np.maximum(self.budget.rounds - rounds, 1)

    def spend(self, rows: Ints, rounds: Ints, costs: Floats) -> None:
        """Charge the costs (n,) of the arms played after `rounds` (n,) rounds, and update the price."""
        allowance = np.maximum(self.budget.amount - self.spent[rows], 0.0) / self._rounds_left(rounds)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            excess = np.where(costs > 0.0, costs / allowance, 0.0) - 1.0
        step = np.minimum(STEP * excess / np.sqrt(rounds + STEP_ROUNDS), MAX_STEP)
        self.relative_price[rows] = np.clip(self.relative_price[rows] * np.exp(step), 1.0 / MAX_PRICE, MAX_PRICE)
        self.spent[rows] += costs

    def learn(self, rows: Ints, rewards: Floats) -> None:
        """Update the mean and the variance of the rewards of each stream with rewards (n,), in the given order."""
        for part in distinct_batches(rows):
            add_rewards(self.reward_counts, self.reward_means, self.reward_squares, rows[part], rewards[part])

    def replace(self, rows: Ints, old: Floats, new: Floats) -> None:
        """Replace rewards (n,) that `learn` has added."""
        replace_rewards(self.reward_counts, self.reward_means, self.reward_squares, rows, old, new)

    def facts(self, row: int, rounds: int) -> dict[str, object]:
        """Return what `health` reports about the budget of stream `row` after `rounds` rounds."""
        rows = np.array([row])
        return {
            "budget": self.budget.amount,
            "spent": float(self.spent[row]),
            "rounds left of the budget": max(0, self.budget.rounds - rounds),
            "price of the budget (reward per unit of cost)": float(self.prices(rows)[0]),
        }

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"reward_counts": (0, np.asarray(state["rounds"]))}

    def check_consistency(self, state: State) -> None:
        spent, price = np.asarray(state["spent"]), np.asarray(state["relative_price"])
        if not (spent >= 0.0).all():
            raise invalid("state 'budget.spent'", "amounts of at least 0", "other numbers")
        if not ((price >= 1.0 / MAX_PRICE) & (price <= MAX_PRICE)).all():
            expected = f"numbers from {1.0 / MAX_PRICE:g} to {MAX_PRICE:g}"
            raise invalid("state 'budget.relative_price'", expected, "other numbers")
        check_moments("budget", *(np.asarray(state[name]) for name in self.state_names[2:]))
