"""Guardrails: which share of the decisions is made without the chooser, and the rewards of each kind of decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from halfseen.agents.arms import Arm, Arms
from halfseen.components import Choices, IntegerBounds, Mask, State, Stateful, StreamBatch, distinct_batches
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints, Keys, Purpose, uniforms
from halfseen.statistics.lift import Lift, RewardMoments
from halfseen.statistics.running_moments import add_rewards, check_moments, replace_rewards

OPTIONS = ("floor", "holdback", "control")  # options of every agent
Branch = Literal["chooser", "floor", "holdback", "control"]
BRANCHES: tuple[Branch, ...] = get_args(Branch)  # decisions store the index of their branch, or −1 if it is not known
CHOOSER, FLOOR, HOLDBACK, CONTROL = range(4)
ENOUGH_REWARDS = 20  # a finding compares two branches only if each has at least this many rewards


def split_guardrails(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the guardrails among the options of an agent, and the other options."""
    guards = {name: value for name, value in options.items() if name in OPTIONS}
    return guards, {name: value for name, value in options.items() if name not in guards}


@dataclass(frozen=True)
class Guardrails:
    """The guardrails of an agent. K is the number of available arms.

    The propensity of arm a is f + (1 − K f)(h/K + s·[a is the control arm] + (1 − h − s) w_a), where w_a is the
    probability with which the chooser would play the arm.

    Parameters
    ----------
    floor : float
        f, the smallest propensity of an available arm, from 0 to 1/K.
    holdback : float
        h, the share of uniformly random decisions among the decisions that are not due to the floor.
    control : pair of an arm and a float, optional
        The control arm and s, its share of the decisions that are not due to the floor.

    Examples
    --------
    >>> import halfseen as hs
    >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], floor=0.05, control=("low", 0.1))
    >>> agent.guardrails
    Guardrails(floor=0.05, holdback=0.0, control=('low', 0.1))
    """

    floor: float = 0.0
    holdback: float = 0.0
    control: tuple[Arm, float] | None = None

    @classmethod
    def checked(cls, arms: Arms, options: Mapping[str, Any]) -> Guardrails:
        """Return the guardrails that a user has given, after all checks that do not need the number of arms."""
        floor, holdback = (_share(name, options.get(name, 0.0)) for name in ("floor", "holdback"))
        given = options.get("control")
        if given is None:
            return cls(floor, holdback)
        if isinstance(given, np.ndarray):
            given = given.tolist()
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
            raise invalid("control", "an arm and its share, such as ('low', 0.05)", repr(given))
        control = arms.names[arms.index("control", given[0])], _share("control", given[1])
        if holdback + control[1] > 1.0:
            raise invalid("holdback and control", "shares that sum to at most 1", f"{holdback:g} and {control[1]:g}")
        return cls(floor, holdback, control if control[1] else None)

    def __str__(self) -> str:
        parts = [f"floor {self.floor:g}"] * bool(self.floor) + [f"holdback {self.holdback:g}"] * bool(self.holdback)
        if self.control is not None:
            parts.append(f"control {self.control[0]!r} {self.control[1]:g}")
        return ", ".join(parts) or "none"

    @property
    def shares(self) -> tuple[float, float, float]:
        """The floor, the holdback and the share of the control arm."""
        return self.floor, self.holdback, 0.0 if self.control is None else self.control[1]

    def check_arms(self, control: int, active: Mask) -> None:
        """Raise an error if the guardrails do not fit the arms that can be chosen, `active` (n, K).

        `control` is the index of the control arm.
        """
        n = len(active)
        _check_arms(np.tile(self.shares, (n, 1)), np.full(n, control), active)

    def __bool__(self) -> bool:
        """Whether decisions can be made without the chooser."""
        return any(self.shares)


def _share(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise invalid(argument, "a number from 0 to 1", repr(value))
    if not 0.0 <= value <= 1.0:
        raise invalid(argument, "a number from 0 to 1", repr(value))
    return float(value)


class StreamGuardrails(Stateful):
    """The guardrails of B streams, and the moments of the rewards of each branch.

    Only decisions since the last change of `holdback` or `control` are included. If decisions made under different
    shares were pooled, the branches would contain different proportions of early and late decisions.
    """

    state_names = ("shares", "control", "reward_counts", "reward_means", "reward_squares")

    def __init__(self, streams: StreamBatch) -> None:
        self.shares: Floats = np.zeros((streams.count, 3))  # floor, holdback, share of the control arm
        self.control: Ints = np.zeros(streams.count, dtype=np.int64)  # the control arm; arbitrary if its share is 0
        self.reward_counts: Ints = np.zeros((streams.count, len(BRANCHES)), dtype=np.int64)
        self.reward_means: Floats = np.zeros((streams.count, len(BRANCHES)))
        self.reward_squares: Floats = np.zeros((streams.count, len(BRANCHES)))  # sums of squared deviations
        self.in_force = False  # whether decisions of any stream can be made without the chooser

    def set(self, guardrails: Guardrails, control: int) -> Mask:
        """Change the guardrails of all streams. `control` is the index of the control arm.

        Returns the streams (B,) whose `holdback` or `control` has changed.
        """
        shares = np.array(guardrails.shares)
        changed = (self.shares[:, 1:] != shares[1:]).any(axis=1) | (self.control != control)
        self.shares[:], self.control[:] = shares, control
        for name in ("reward_counts", "reward_means", "reward_squares"):
            getattr(self, name)[changed] = 0
        self.rebuild_caches()
        return np.asarray(changed)

    def settings(self, row: int, names: Sequence[Arm]) -> Guardrails:
        """Return the guardrails of stream `row`, whose arms are `names`."""
        floor, holdback, share = self.shares[row].tolist()
        return Guardrails(floor, holdback, (names[int(self.control[row])], share) if share else None)

    # ------------------------------------------------------------------ decisions

    def _parts(self, rows: Ints, available: Mask) -> tuple[Floats, Floats, Floats]:
        """Return the probabilities (n,) of the branches floor, holdback and control."""
        floor, holdback, control = self.shares[rows].T
        all_floors = np.minimum(available.sum(axis=1) * floor, 1.0)
        return all_floors, (1.0 - all_floors) * holdback, (1.0 - all_floors) * control

    def reserved(self, rows: Ints, available: Mask) -> Floats:
        """Return the part (n, K) of each arm's probability that does not depend on the chooser."""
        floor, holdback, control = self._parts(rows, available)
        reserved = ((floor + holdback) / available.sum(axis=1))[:, None] * available
        reserved[np.arange(len(rows)), self.control[rows]] += control
        return np.asarray(reserved)

    def _ends(self, rows: Ints, available: Mask) -> Floats:
        """Return the upper ends (3, n) of the ranges in which a uniform draw selects floor, holdback and control."""
        floor, holdback, control = self._parts(rows, available)
        return np.stack([floor, floor + holdback, floor + holdback + control])

    def possible_branches(self, row: int, available: Mask, arm: int) -> list[Branch]:
        """Return the branches that can have chosen `arm` from the `available` arms (1, K) in stream `row`."""
        ends = self._ends(np.array([row]), available)[:, 0]
        floor, holdback, control, chooser = np.diff(ends, prepend=0.0, append=1.0) > 0.0
        possible = (chooser, floor, holdback, control and arm == self.control[row])
        return [branch for branch, can_be in zip(BRANCHES, possible, strict=True) if can_be]

    def draw(self, rows: Ints, keys: Keys, choices: Choices) -> None:
        """Draw the branch of each decision, and the arm if the branch is not the chooser.

        All random numbers are functions of the keys, the numbers of the decisions and Purpose.GUARDRAILS.
        """
        assert choices.branches is not None
        which, where = uniforms(keys, choices.decisions, Purpose.GUARDRAILS, 2).T
        branches = ((which >= self._ends(rows, choices.available)).sum(axis=0) + 1) % len(BRANCHES)
        counts = choices.available.cumsum(axis=1)
        uniform = (counts > (where * counts[:, -1])[:, None]).argmax(axis=1)
        np.copyto(choices.arms, uniform, where=(branches == FLOOR) | (branches == HOLDBACK))
        np.copyto(choices.arms, self.control[rows], where=branches == CONTROL)
        choices.branches[:] = branches

    # ------------------------------------------------------------------ rewards

    def learn(self, rows: Ints, branches: Ints, rewards: Floats) -> None:
        """Add the rewards (n,) of decisions to the reward moments of their `branches` (n,), in the given order."""
        for part in distinct_batches(rows):
            marked = part[branches[part] >= 0]
            at = rows[marked], branches[marked]
            add_rewards(self.reward_counts, self.reward_means, self.reward_squares, at, rewards[marked])

    def replace(self, row: int, branch: int, old: float, new: float) -> None:
        """Replace a reward that `learn` has added."""
        replace_rewards(self.reward_counts, self.reward_means, self.reward_squares, (row, branch), old, new)

    def rewards(self, rows: Ints) -> list[RewardMoments]:
        """Return the moments of the rewards of each branch, pooled over the streams `rows`."""
        counts, means = self.reward_counts[rows], self.reward_means[rows]
        total = counts.sum(axis=0)
        mean = (counts * means).sum(axis=0) / np.maximum(total, 1)
        squares = (self.reward_squares[rows] + counts * (means - mean) ** 2).sum(axis=0)
        columns = total.tolist(), mean.tolist(), squares.tolist()
        return [RewardMoments(*moments) for moments in zip(*columns, strict=True)]

    def report(self, rows: Ints, names: Sequence[Arm]) -> tuple[dict[str, object], tuple[Finding, ...]]:
        """Return facts about the guardrails of the streams `rows`, and findings about the lifts.

        `names` are the names of the arms.
        """
        if not len(rows):
            return {}, ()
        moments = self.rewards(rows)
        lifts = [Lift(BRANCHES[branch], moments[CHOOSER], moments[branch]) for branch in (CONTROL, HOLDBACK)]
        lifts = [lift for lift in lifts if lift.other.count]
        facts: dict[str, object] = {
            "guardrails": str(self.settings(int(rows[0]), names)),
            "rewards of chooser, floor, holdback, control": [one.count for one in moments],
            "mean rewards of chooser, floor, holdback, control": [one.mean for one in moments],
        }
        for lift in lifts:
            for name, estimate in (("lift", lift.difference), ("relative lift", lift.relative)):
                if not np.isnan(estimate.value):
                    facts[f"{name} over {lift.baseline}, low, high"] = [estimate.value, estimate.low, estimate.high]
        return facts, tuple(finding for finding in map(lift_finding, lifts) if finding is not None)

    # ------------------------------------------------------------------ arms and state

    def check_arms(self, active: Mask) -> None:
        """Raise an error if the guardrails do not fit the arms that can be chosen, `active` (B, K)."""
        _check_arms(self.shares, self.control, active)

    def check_available(self, rows: Ints, available: Mask, names: Sequence[Arm]) -> None:
        """Raise an error unless the control arm of each stream in `rows` is `available` (n, K)."""
        missing = (self.shares[rows, 2] > 0.0) & ~available[np.arange(len(rows)), self.control[rows]]
        if missing.any():
            control = names[int(self.control[rows[missing]][0])]
            raise invalid("available", f"arms with the control arm {control!r} among them", "arms without it")

    def check_affordable(self, rows: Ints, affordable: Mask) -> None:
        """Raise an error unless the control arm of each stream in `rows` is `affordable` (n, K)."""
        if ((self.shares[rows, 2] > 0.0) & ~affordable[np.arange(len(rows)), self.control[rows]]).any():
            raise invalid(
                "costs", "a control arm that the rest of the budget pays for", "a control arm that costs more"
            )

    def integer_bounds(self, state: State) -> IntegerBounds:
        arms = np.shape(state["active"])[1]
        return {"control": (0, arms - 1), "reward_counts": (0, np.asarray(state["rounds"])[:, None])}

    def check_consistency(self, state: State) -> None:
        shares, control, counts, means, squares = (np.asarray(state[name]) for name in self.state_names)
        if not ((shares >= 0.0) & (shares <= 1.0)).all() or (shares[:, 1] + shares[:, 2] > 1.0).any():
            raise invalid("state 'guardrails.shares'", "shares of decisions from 0 to 1", "other numbers")
        _check_arms(shares, control, np.asarray(state["active"]))
        most = counts.sum(axis=1)
        if (most > np.asarray(state["rounds"])).any():
            raise invalid("state 'guardrails.reward_counts'", "at most one reward per round", f"{most.max()} rewards")
        check_moments("guardrails", counts, means, squares)

    def rebuild_caches(self, rows: Ints | None = None) -> None:
        self.in_force = bool(self.shares.any())


def _check_arms(shares: Floats, control: Ints, active: Mask) -> None:
    counts = active.sum(axis=1)
    too_high = shares[:, 0] > 1.0 / counts
    if too_high.any():
        arms, floor = int(counts[too_high].max()), float(shares[too_high, 0][0])
        raise invalid("floor", f"at most 1/{arms}, because {arms} arms can be chosen", f"{floor:g}")
    if ((shares[:, 2] > 0.0) & ~active[np.arange(len(active)), control]).any():
        raise invalid("control", "an arm that can be chosen", "an arm that is retired")


def lift_finding(lift: Lift) -> Finding | None:
    """Return the finding about a lift (see `Lift`), or None if one of its two branches has too few rewards."""
    if min(lift.chooser.count, lift.other.count) < ENOUGH_REWARDS:
        return None
    verdict = Verdict.BAD if lift.difference.high < 0.0 else Verdict.FINE
    return Finding(f"lift over {lift.baseline}", lift.difference.value, lift.shown, "above 0", verdict, lift.sentence)
