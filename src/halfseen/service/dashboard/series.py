"""From the last decisions of a stream to what the charts draw: pure functions, whose results go out as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from halfseen.evaluation import policies
from halfseen.evaluation.estimators import (
    RunningEstimate,
    hac_estimate,
    policy_value,
    rewarded_rounds,
    running_ratio,
    running_values,
)
from halfseen.evaluation.log import LEAST_PROPENSITY, Log
from halfseen.kernels.random import Floats, Ints
from halfseen.service.dashboard.context import ContextFilter
from halfseen.service.dashboard.window import DecisionWindow, WindowDecision
from halfseen.service.schemas import Arm
from halfseen.statistics.confidence_intervals import CONFIDENCE
from halfseen.statistics.distributions import normal_quantile

MAX_POINTS = 1_000
MAX_ARMS = 12  # drawn each for itself; the others are one
MAX_LISTED = 20  # of the decisions that wait longest
_AGES = ((1, "under 1 s"), (10, "1–10 s"), (60, "10–60 s"), (600, "1–10 min"), (3_600, "10–60 min"), (86_400, "1–24 h"))
_OLDEST = "over 24 h"
_MICRO = 1e6
_WARM_UP = 500  # rounds of a filter before those that are drawn
_MAX_COVARIANCES = 4_000_000  # numbers in the covariances of a filter: of a large context, the last rounds only

Numbers = list[float | None]  # null where there is no number


class IntervalSeries(Struct, frozen=True):
    """Values and the ends of their 95 % intervals, one of each per point."""

    value: Numbers = []
    low: Numbers = []
    high: Numbers = []


class UniformPolicySeries(Struct, frozen=True):
    """What choosing arms at random would have earned, estimated from the propensities (`halfseen.evaluation`)."""

    ips: IntervalSeries = IntervalSeries()
    snips: IntervalSeries = IntervalSeries()
    dr: IntervalSeries = IntervalSeries()  # with the agent's own expectations as the reward model
    uncovered: float | None = None  # share of its choices that had no chance
    effective: float = 0.0  # sample size
    told: bool = False  # whether the estimates can be believed
    note: str | None = None  # why not


class RewardSeries(Struct, frozen=True):
    """Mean rewards from the first decision of the window up to `round`, and of the last `span` decisions."""

    round: list[int]
    time: list[float]  # seconds since 1970
    count: list[int]
    mean: IntervalSeries
    recent: Numbers
    span: int
    uniform: UniformPolicySeries


class ArmShareSeries(Struct, frozen=True):
    """The share of each arm in the decisions since the point before."""

    round: list[int]
    arms: list[str]
    share: list[list[float]]  # by arm
    total: list[float]  # in the whole window


class ContextSeries(Struct, frozen=True):
    """One coordinate of the context as the model in force estimates it. `why` says why there is none."""

    coordinates: list[str]
    coordinate: int
    round: list[int]
    line: IntervalSeries
    seen: Numbers  # what was observed of it
    why: str | None = None


class DelaySeries(Struct, frozen=True):
    """Seconds from a decision to its reward, of the decisions since the point before."""

    round: list[int]
    p50: Numbers
    p90: Numbers


class WaitingDecision(Struct, frozen=True):
    """A decision without a reward so far."""

    id: str
    arm: Arm
    age: float  # seconds


class WaitingDecisions(Struct, frozen=True):
    """The decisions of the window without a reward, by age, and those that wait longest."""

    count: int
    oldest: float | None
    ages: list[str]
    counts: list[int]
    decisions: list[WaitingDecision]


class WindowSummary(Struct, frozen=True):
    """Which decisions the series are about: the last ones, up to event `version`."""

    decisions: int
    first: int | None
    last: int | None
    since: float | None  # seconds since 1970
    version: int
    all: bool  # there are no others


class StreamSeries(Struct, frozen=True):
    """What the page of one stream draws."""

    stream: str
    now: float
    shown: WindowSummary
    rewards: RewardSeries
    arms: ArmShareSeries
    context: ContextSeries
    delays: DelaySeries
    waiting: WaitingDecisions
    service: dict[str, Any]


def stream_series(
    name: str,
    window: DecisionWindow,
    context: ContextFilter,
    *,
    points: int,
    coordinate: int,
    now: int,
    service: dict[str, Any],
) -> StreamSeries:
    """Everything, in at most `points` points a chart; `now` in microseconds."""
    decisions = list(window.decisions.values())
    summary = WindowSummary(
        len(decisions),
        decisions[0].round if decisions else None,
        decisions[-1].round if decisions else None,
        decisions[0].time / _MICRO if decisions else None,
        window.version,
        window.is_whole_stream,
    )
    return StreamSeries(
        name,
        now / _MICRO,
        summary,
        reward_series(decisions, window.arms, points),
        arm_shares(decisions, window.arms, points),
        context_series(decisions, context, points, coordinate),
        reward_delays(decisions, points),
        waiting_decisions(decisions, window.arms, now),
        service,
    )


def reward_series(decisions: Sequence[WindowDecision], arms: Sequence[Arm], points: int) -> RewardSeries:
    rewarded = [one for one in decisions if one.reward is not None]
    ends = block_ends(len(rewarded), points, least=round(len(rewarded) ** (1 / 3)))
    values = np.array([one.reward for one in rewarded], dtype=np.float64)
    sums = np.cumsum(np.concatenate([[0.0], values]))
    span = max(20, len(rewarded) // 10)
    back = np.maximum(0, ends - span)
    recent = (sums[ends] - sums[back]) / np.maximum(1, ends - back)
    mean, uniform = IntervalSeries(), UniformPolicySeries()
    if rewarded:
        ones = np.ones(len(rewarded))
        mean = _intervals(running_ratio(values, ones, ones, ends, hac_estimate(values, len(values))))
        uniform = _uniform_policy(rewarded, arms, values, ends)
    return RewardSeries(
        [rewarded[end - 1].round for end in ends],
        [rewarded[end - 1].time / _MICRO for end in ends],
        ends.tolist(),
        mean,
        _numbers(recent),
        span,
        uniform,
    )


def _uniform_policy(
    rewarded: Sequence[WindowDecision], arms: Sequence[Arm], values: Floats, ends: Ints
) -> UniformPolicySeries:
    shape = len(rewarded), len(arms)
    possible, propensities, expected = np.zeros(shape, dtype=np.bool_), np.zeros(shape), np.zeros(shape)
    for row, one in enumerate(rewarded):
        there = slice(len(one.possible))  # arms that came later could not be played
        possible[row, there] = one.possible
        propensities[row, there] = one.propensities
        expected[row, there] = one.expected
    log = Log(
        source="the window",
        arms=tuple(arms),
        first_arms=len(arms),
        observations=np.stack([one.observation for one in rewarded]),
        played=np.array([one.arm for one in rewarded]),
        propensity=np.maximum(LEAST_PROPENSITY, [one.propensity for one in rewarded]),
        propensities=propensities,
        possible=possible,
        rewards=values,
        defaults=0,
        steps=(),
    )
    rounds, probabilities = rewarded_rounds(log, values, expected), policies.uniform(log)
    value = policy_value("uniform", rounds, probabilities)
    running = running_values(rounds, probabilities, value, ends)
    ips, snips, dr = (_intervals(running[name]) for name in ("ips", "snips", "dr"))
    note = None
    if not value.sure:
        note = f"Uniform policy: {'; '.join(value.notes)}. The dashed line fills in what the agent expects."
    return UniformPolicySeries(ips, snips, dr, value.uncovered, value.effective_size, value.sure, note)


def arm_shares(decisions: Sequence[WindowDecision], arms: Sequence[Arm], points: int) -> ArmShareSeries:
    """The arms played most, each for itself, and the others together."""
    ends = block_ends(len(decisions), min(points, 60), least=20)
    played = np.array([one.arm for one in decisions], dtype=np.int64)
    counts = np.bincount(played, minlength=len(arms))
    most_played = np.sort(np.argsort(-counts, kind="stable")[:MAX_ARMS])
    names = [arm if isinstance(arm := arms[at], str) else f"arm {arm}" for at in most_played]
    groups = [played == at for at in most_played]
    if len(arms) > MAX_ARMS:
        names.append(f"{len(arms) - MAX_ARMS} others")
        groups.append(~np.isin(played, most_played))
    blocks = np.split(np.array(groups), ends[:-1], axis=1) if len(ends) else []
    share = [[float(block[at].mean()) for block in blocks] for at in range(len(groups))]
    total = [float(group.mean()) if decisions else 0.0 for group in groups]
    return ArmShareSeries([decisions[end - 1].round for end in ends], names, share, total)


def context_series(
    decisions: Sequence[WindowDecision], context: ContextFilter, points: int, coordinate: int
) -> ContextSeries:
    """`coordinate` of the context in the last `points` decisions: it moves too quickly to be thinned.

    The filter starts earlier, so that it has settled when those begin.
    """
    if context.filter is None or not decisions:
        why = context.why or "No decisions yet."
        return ContextSeries(list(context.coordinates), 0, [], IntervalSeries(), [], why)
    at = min(max(0, coordinate), len(context.coordinates) - 1)
    decisions = decisions[-min(points + _WARM_UP, max(100, _MAX_COVARIANCES // len(context.coordinates) ** 2)) :]
    ys = np.stack([one.observation for one in decisions])
    mean, std = context.filter(ys, at)
    half = float(normal_quantile(0.5 + CONFIDENCE / 2)) * std
    last = slice(-points, None)
    seen = ys[last, at] if at < ys.shape[1] else np.full(len(ys[last]), np.nan)
    line = _intervals(RunningEstimate(mean[last], (mean - half)[last], (mean + half)[last]))
    return ContextSeries(list(context.coordinates), at, [one.round for one in decisions[last]], line, _numbers(seen))


def reward_delays(decisions: Sequence[WindowDecision], points: int) -> DelaySeries:
    """Of rewards that callers gave; defaults come when the wait is over and say nothing."""
    given = [one for one in decisions if one.reward_time is not None and one.how != "default"]
    ends = block_ends(len(given), min(points, 60), least=20)
    took = np.array([(one.reward_time or 0) - one.time for one in given]) / _MICRO
    blocks = np.split(took, ends[:-1]) if len(ends) else []
    return DelaySeries(
        [given[end - 1].round for end in ends],
        [float(np.quantile(block, 0.5)) for block in blocks],
        [float(np.quantile(block, 0.9)) for block in blocks],
    )


def waiting_decisions(decisions: Sequence[WindowDecision], arms: Sequence[Arm], now: int) -> WaitingDecisions:
    waiting = [one for one in decisions if one.reward is None and not one.expired]  # oldest first
    ages = np.maximum(0.0, np.array([now - one.time for one in waiting]) / _MICRO)
    bounds = np.array([bound for bound, _ in _AGES])
    counts = np.bincount(np.searchsorted(bounds, ages, side="right"), minlength=len(_AGES) + 1)
    return WaitingDecisions(
        len(waiting),
        float(ages.max()) if waiting else None,
        [label for _, label in _AGES] + [_OLDEST],
        counts.tolist(),
        [
            WaitingDecision(one.id, arms[one.arm], float(age))
            for one, age in zip(waiting[:MAX_LISTED], ages, strict=False)
        ],
    )


def block_ends(count: int, points: int, *, least: int) -> Ints:
    """Where at most `points` blocks of about the same length end, each at least `least` long but for a short whole."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    blocks = max(1, min(points, count // least))
    return np.linspace(0, count, blocks + 1).round().astype(np.int64)[1:]


def _intervals(line: RunningEstimate) -> IntervalSeries:
    return IntervalSeries(_numbers(line.value), _numbers(line.low), _numbers(line.high))


def _numbers(values: Floats) -> Numbers:
    return [value if np.isfinite(value) else None for value in values.tolist()]
