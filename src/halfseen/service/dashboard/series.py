"""Compute the data of the charts from the most recent decisions of a stream. The results are sent as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from halfseen.agents.forecast import Forecast
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
MAX_ARMS = 12  # arms that are drawn separately; all other arms are drawn as one
MAX_FORECAST_ARMS = 6  # arms whose values are drawn with intervals
AHEAD = 20  # rounds that are forecast
MAX_LISTED = 20  # length of the list of the decisions that have waited longest for a reward
_AGES = ((1, "under 1 s"), (10, "1–10 s"), (60, "10–60 s"), (600, "1–10 min"), (3_600, "10–60 min"), (86_400, "1–24 h"))
_OLDEST = "over 24 h"
_MICROSECONDS = 1e6  # per second
_WARM_UP = 500  # rounds that are filtered before the first round that is drawn
_MAX_COVARIANCES = 4_000_000  # entries of all filtered covariances; with a larger context, fewer rounds are filtered

Numbers = list[float | None]  # null where there is no number


class IntervalSeries(Struct, frozen=True):
    """Values with the lower and upper ends of their 95 % intervals, one per point."""

    value: Numbers = []
    low: Numbers = []
    high: Numbers = []


class UniformPolicySeries(Struct, frozen=True):
    """The estimated mean reward of the uniform policy, by inverse propensity scoring and other estimators."""

    ips: IntervalSeries = IntervalSeries()
    snips: IntervalSeries = IntervalSeries()
    dr: IntervalSeries = IntervalSeries()  # with the agent's expected rewards as the reward model
    uncovered: float | None = None  # share of the uniform policy's choices whose propensity in the log is 0
    effective: float = 0.0  # effective sample size
    told: bool = False  # whether the estimates are reliable
    note: str | None = None  # why the estimates are not reliable, or what they assume


class RewardSeries(Struct, frozen=True):
    """Mean rewards up to `round`: `mean` since the start of the window, `recent` over the last `span` rewards."""

    round: list[int]
    time: list[float]  # seconds since 1970
    count: list[int]
    mean: IntervalSeries
    recent: Numbers
    span: int
    uniform: UniformPolicySeries


class ArmShareSeries(Struct, frozen=True):
    """The share of each arm in the decisions between two points of the chart."""

    round: list[int]
    arms: list[str]
    share: list[list[float]]  # one list per arm
    total: list[float]  # per arm, in the whole window


class ContextSeries(Struct, frozen=True):
    """Estimates of one coordinate of the context by the current model. If there are none, `why` gives the reason."""

    coordinates: list[str]
    coordinate: int
    round: list[int]
    line: IntervalSeries
    seen: Numbers  # the observations of the coordinate
    why: str | None = None


class ForecastSeries(Struct, frozen=True):
    """Forecasts of arm values and of one coordinate of the context. If there are none, `why` gives the reason.

    The series contain the arms that are most likely to be the best, the most likely first. `others` is the number of
    arms that are left out. The intervals are 90 % intervals.
    """

    ahead: list[int]
    arms: list[str]
    others: int
    value: list[IntervalSeries]  # one per arm
    best: list[Numbers]  # the probability of being the best arm, one list per arm
    coordinate: str
    context: IntervalSeries
    why: str | None = None


class DelaySeries(Struct, frozen=True):
    """Quantiles of the seconds from a decision to its reward, for the decisions between two points of the chart."""

    round: list[int]
    p50: Numbers
    p90: Numbers


class WaitingDecision(Struct, frozen=True):
    """A decision that has no reward yet."""

    id: str
    arm: Arm
    age: float  # seconds


class WaitingDecisions(Struct, frozen=True):
    """The number of decisions without a reward, by age, and a list of those that have waited longest."""

    count: int
    oldest: float | None
    ages: list[str]
    counts: list[int]
    decisions: list[WaitingDecision]


class WindowSummary(Struct, frozen=True):
    """The range of decisions in the series, up to event number `version`."""

    decisions: int
    first: int | None
    last: int | None
    since: float | None  # time of the first decision, in seconds since 1970
    version: int
    all: bool  # whether these are all decisions of the stream


class StreamSeries(Struct, frozen=True):
    """The data of the page of one stream."""

    stream: str
    now: float
    shown: WindowSummary
    rewards: RewardSeries
    arms: ArmShareSeries
    context: ContextSeries
    forecast: ForecastSeries
    delays: DelaySeries
    waiting: WaitingDecisions
    service: dict[str, Any]


def stream_series(
    name: str,
    window: DecisionWindow,
    context: ContextFilter,
    forecast: Forecast | str = "There is no forecast.",
    *,
    features: Sequence[str] | None = None,
    points: int,
    coordinate: int,
    now: int,
    service: dict[str, Any],
) -> StreamSeries:
    """Compute the data of all charts, with at most `points` points per chart. `now` is in microseconds.

    If the agent cannot forecast, `forecast` is the reason. `features` are the names of the observed features, if any.
    """
    decisions = list(window.decisions.values())
    summary = WindowSummary(
        len(decisions),
        decisions[0].round if decisions else None,
        decisions[-1].round if decisions else None,
        decisions[0].time / _MICROSECONDS if decisions else None,
        window.version,
        window.is_whole_stream,
    )
    return StreamSeries(
        name,
        now / _MICROSECONDS,
        summary,
        reward_series(decisions, window.arms, points),
        arm_shares(decisions, window.arms, points),
        context_series(decisions, context, points, coordinate),
        forecast_series(forecast, features, coordinate),
        reward_delays(decisions, points),
        waiting_decisions(decisions, window.arms, now),
        service,
    )


def reward_series(decisions: Sequence[WindowDecision], arms: Sequence[Arm], points: int) -> RewardSeries:
    rewarded = [one for one in decisions if one.reward is not None]
    ends = block_ends(len(rewarded), points, min_length=round(len(rewarded) ** (1 / 3)))
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
        [rewarded[end - 1].time / _MICROSECONDS for end in ends],
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
        earlier = slice(len(one.possible))  # arms that were added later could not be played
        possible[row, earlier] = one.possible
        propensities[row, earlier] = one.propensities
        expected[row, earlier] = one.expected
    # Imported decisions have no expected rewards. The mean of the rewards before the decision takes their place.
    mean_before = np.concatenate([[0.0], np.cumsum(values[:-1]) / np.arange(1, len(values))])
    expected = np.where(np.isnan(expected), mean_before[:, None], expected)
    estimated = sum(one.estimated == "all" for one in rewarded)
    all_known = not any(one.estimated for one in rewarded)
    log = Log(
        source="the window",
        arms=tuple(arms),
        first_arms=len(arms),
        observations=np.stack([one.observation for one in rewarded]),
        played=np.array([one.arm for one in rewarded]),
        propensity=np.maximum(LEAST_PROPENSITY, [one.propensity for one in rewarded]),
        propensities=propensities if all_known else None,
        possible=possible,
        rewards=values,
        defaults=0,
        steps=(),
        estimated=estimated > 0,
    )
    rounds, probabilities = rewarded_rounds(log, values, expected), policies.uniform(log)
    value = policy_value("uniform", rounds, probabilities)
    running = running_values(rounds, probabilities, value, ends)
    ips, snips, dr = (_intervals(running[name]) for name in ("ips", "snips", "dr"))
    notes = []
    if not value.sure:
        notes.append(
            f"Uniform policy: {'; '.join(value.notes)}. The dashed line uses the rewards that the agent expects."
        )
    if estimated:
        notes.append(
            f"The propensities of {estimated} of the {len(rewarded)} decisions were estimated before they were "
            "imported. The value of the uniform policy holds only if nothing outside of the log influenced them."
        )
    note = " ".join(notes) or None
    return UniformPolicySeries(ips, snips, dr, value.uncovered, value.effective_size, value.sure, note)


def arm_shares(decisions: Sequence[WindowDecision], arms: Sequence[Arm], points: int) -> ArmShareSeries:
    """Compute the shares of the most played arms, and the share of all other arms together."""
    ends = block_ends(len(decisions), min(points, 60), min_length=20)
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
    """Estimate a coordinate of the context in the last `points` decisions.

    All of these decisions are drawn, because the context changes quickly. The filter starts earlier, so that it has
    converged at the first decision that is drawn.
    """
    if context.filter is None or not decisions:
        why = context.why or "There are no decisions yet."
        return ContextSeries(list(context.coordinates), 0, [], IntervalSeries(), [], why)
    at = min(max(0, coordinate), len(context.coordinates) - 1)
    most = max(100, _MAX_COVARIANCES // len(context.coordinates) ** 2)
    decisions = decisions[-(points + _WARM_UP) :]
    rows = np.cumsum([1 + len(one.observed_before) for one in reversed(decisions)])  # observations
    decisions = decisions[-max(1, int(np.searchsorted(rows, most, side="right"))) :]
    series = [row for one in decisions for row in (*one.observed_before, (one.observation, one.elapsed))]
    ends = np.cumsum([1 + len(one.observed_before) for one in decisions]) - 1
    elapsed = np.array([steps for _, steps in series])
    uneven = () if (elapsed == 1).all() else (elapsed,)
    mean, std = (part[ends] for part in context.filter(np.stack([y for y, _ in series]), at, *uneven))
    ys = np.stack([one.observation for one in decisions])
    half = float(normal_quantile(0.5 + CONFIDENCE / 2)) * std
    last = slice(-points, None)
    seen = ys[last, at] if at < ys.shape[1] else np.full(len(ys[last]), np.nan)
    line = _intervals(RunningEstimate(mean[last], (mean - half)[last], (mean + half)[last]))
    return ContextSeries(list(context.coordinates), at, [one.round for one in decisions[last]], line, _numbers(seen))


def forecast_series(forecast: Forecast | str, features: Sequence[str] | None, coordinate: int) -> ForecastSeries:
    """Return the values of the arms that are most likely to be the best, and a coordinate of the context."""
    if isinstance(forecast, str):
        return ForecastSeries([], [], 0, [], [], "", IntervalSeries(), forecast)
    best, (lower, upper) = forecast.best_arm_probability, forecast.interval()
    likely = np.argsort(-best.max(axis=0), kind="stable")[:MAX_FORECAST_ARMS].tolist()
    names = forecast.context_named(features or ())
    at = min(max(0, coordinate), len(names) - 1)
    mean, low, high = (part[:, at] for part in forecast.context_in_units())
    return ForecastSeries(
        list(range(1, forecast.horizon + 1)),
        [arm if isinstance(arm := forecast.arms[a], str) else f"arm {arm}" for a in likely],
        len(forecast.arms) - len(likely),
        [_intervals(RunningEstimate(forecast.expected[:, a], lower[:, a], upper[:, a])) for a in likely],
        [_numbers(best[:, a]) for a in likely],
        names[at],
        _intervals(RunningEstimate(mean, low, high)),
    )


def reward_delays(decisions: Sequence[WindowDecision], points: int) -> DelaySeries:
    """Compute the delays of rewards sent by clients. Default rewards are ignored, as their delay is the reward wait."""
    given = [one for one in decisions if one.reward_time is not None and one.how != "default"]
    ends = block_ends(len(given), min(points, 60), min_length=20)
    delays = np.array([(one.reward_time or 0) - one.time for one in given]) / _MICROSECONDS
    blocks = np.split(delays, ends[:-1]) if len(ends) else []
    return DelaySeries(
        [given[end - 1].round for end in ends],
        [float(np.quantile(block, 0.5)) for block in blocks],
        [float(np.quantile(block, 0.9)) for block in blocks],
    )


def waiting_decisions(decisions: Sequence[WindowDecision], arms: Sequence[Arm], now: int) -> WaitingDecisions:
    waiting = [one for one in decisions if one.reward is None and not one.expired]  # oldest first
    ages = np.maximum(0.0, np.array([now - one.time for one in waiting]) / _MICROSECONDS)
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


def block_ends(count: int, points: int, *, min_length: int) -> Ints:
    """Divide `count` items into at most `points` blocks of about the same length, and return where the blocks end.

    Each block has at least `min_length` items, unless there are fewer items in all.
    """
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    blocks = max(1, min(points, count // min_length))
    return np.linspace(0, count, blocks + 1).round().astype(np.int64)[1:]


def _intervals(line: RunningEstimate) -> IntervalSeries:
    return IntervalSeries(_numbers(line.value), _numbers(line.low), _numbers(line.high))


def _numbers(values: Floats) -> Numbers:
    return [value if np.isfinite(value) else None for value in values.tolist()]
