"""From the last decisions of a stream to what the charts show: pure functions; their results go out as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from halfseen.kernels.random import Floats, Ints
from halfseen.service.dashboard.context import Context
from halfseen.service.dashboard.window import Row, Window
from halfseen.service.schemas import Arm
from halfseen.service.specs import Arm
from halfseen.statistics.confidence_intervals import CONFIDENCE
from halfseen.statistics.distributions import normal_quantile, student_quantile

MOST_POINTS = 1_000
MOST_ARMS = 12  # drawn each for itself; the others are one
MOST_LISTED = 20  # decisions that wait longest
UNCOVERED = 0.01  # share of the uniform policy's choices that may have been without a chance
ENOUGH = 50  # effective sample size from which an interval means something
_AGES = ((1, "under 1 s"), (10, "1–10 s"), (60, "10–60 s"), (600, "1–10 min"), (3_600, "10–60 min"), (86_400, "1–24 h"))
_OLDEST = "over 24 h"
_MICRO = 1e6
_WARM_UP = 500  # rounds of a filter before those that are shown
_MOST_COVARIANCES = 4_000_000  # numbers in the covariances of a filter: of a large context, the last rounds only

Numbers = list[float | None]  # null where there is no number


class Line(Struct, frozen=True):
    """Values and the ends of their 95 % intervals, a point each."""

    value: Numbers
    low: Numbers
    high: Numbers


class Uniform(Struct, frozen=True):
    """What choosing at random would have earned, from the propensities; `told`: they cover enough of its choices."""

    ips: Line
    snips: Line
    dr: Line  # with the agent's own expectations for what the propensities do not cover
    uncovered: float | None  # share of its choices that had no chance
    effective: float  # sample size
    told: bool
    note: str | None


class Rewards(Struct, frozen=True):
    """Mean rewards, each from the first decision shown up to `round`, and of the last `span` of them."""

    round: list[int]
    time: list[float]  # seconds since 1970
    count: list[int]
    mean: Line
    recent: Numbers
    span: int
    uniform: Uniform


class Shares(Struct, frozen=True):
    """Of the decisions since the point before, the share of each arm."""

    round: list[int]
    arms: list[str]
    share: list[list[float]]  # by arm
    total: list[float]  # of all decisions shown


class Estimated(Struct, frozen=True):
    """One coordinate of the context as the model in force sees it. `why` says why there is none."""

    coordinates: list[str]
    coordinate: int
    round: list[int]
    line: Line
    seen: Numbers  # what was observed of it
    why: str | None = None


class Delays(Struct, frozen=True):
    """Seconds from a decision to its reward, of the decisions since the point before."""

    round: list[int]
    p50: Numbers
    p90: Numbers


class Open(Struct, frozen=True):
    """A decision that waits for its reward."""

    id: str
    arm: Arm
    age: float  # seconds


class Waiting(Struct, frozen=True):
    """All decisions shown that wait, by age, and those that wait longest."""

    count: int
    oldest: float | None
    ages: list[str]
    counts: list[int]
    decisions: list[Open]


class Shown(Struct, frozen=True):
    """Which decisions all of this is about: the last ones, up to event `version`."""

    decisions: int
    first: int | None
    last: int | None
    since: float | None  # seconds since 1970
    version: int
    all: bool  # there are no others


class Series(Struct, frozen=True):
    """What the page of one stream draws."""

    stream: str
    now: float
    shown: Shown
    rewards: Rewards
    arms: Shares
    context: Estimated
    delays: Delays
    waiting: Waiting
    service: dict[str, Any]


def series(
    name: str, window: Window, context: Context, *, points: int, coordinate: int, now: int, service: dict[str, Any]
) -> Series:
    """Everything, in at most `points` points a chart; `now` in microseconds."""
    rows = list(window.rows.values())
    shown = Shown(
        len(rows),
        rows[0].round if rows else None,
        rows[-1].round if rows else None,
        rows[0].time / _MICRO if rows else None,
        window.version,
        window.reaches_back,
    )
    return Series(
        name,
        now / _MICRO,
        shown,
        rewards(rows, points),
        shares(rows, window.arms, points),
        estimated(rows, context, points, coordinate),
        delays(rows, points),
        waiting(rows, window.arms, now),
        service,
    )


# ---------------------------------------------------------------------- rewards


def rewards(rows: Sequence[Row], points: int) -> Rewards:
    paid = [row for row in rows if row.reward is not None]
    values = np.array([row.reward for row in paid], dtype=np.float64)
    ends = block_ends(len(paid), points)
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    one = np.ones(len(paid))
    sums = np.cumsum(np.concatenate([[0.0], values]))
    span = max(20, len(paid) // 10)
    back = np.maximum(0, ends - span)
    recent = (sums[ends] - sums[back]) / np.maximum(1, ends - back)
    return Rewards(
        [paid[end - 1].round for end in ends],
        [paid[end - 1].time / _MICRO for end in ends],
        ends.tolist(),
        running_ratio(values, one, starts),
        _numbers(recent),
        span,
        _uniform(paid, values, starts),
    )


def block_ends(count: int, points: int) -> Ints:
    """Where blocks of a series end: at most `points` of them, none shorter than the cube root of the whole.

    Neighbouring rewards are alike, because contexts move slowly. Sums of blocks are less so: intervals are from those.
    """
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    length = max(-(-count // max(1, points)), round(count ** (1 / 3)))
    return np.asarray(np.minimum(np.arange(1, -(-count // length) + 1) * length, count))


def running_ratio(above: Floats, below: Floats, starts: Ints) -> Line:
    """Σ above / Σ below up to the end of each block, with Student's interval of the linearised ratio by blocks.

    With v the ratio and A_b, C_b the sums of block b: var v = m/(m−1) Σ_b (A_b − v C_b)² / (Σ_b C_b)², m blocks.
    """
    if len(starts) == 0:
        return Line([], [], [])
    a, c = np.add.reduceat(above, starts), np.add.reduceat(below, starts)
    total_a, total_c = np.cumsum(a), np.cumsum(c)
    m = np.arange(1, len(starts) + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        v = total_a / total_c
        left = np.cumsum(a * a) - 2 * v * np.cumsum(a * c) + v * v * np.cumsum(c * c)
        half = np.sqrt(np.maximum(0.0, left) * m / (m - 1)) / np.abs(total_c)
        half = half * student_quantile(0.5 + CONFIDENCE / 2, m - 1)
    half[m < 3] = np.nan  # two blocks give an interval that fills the chart and says nothing
    return Line(_numbers(v), _numbers(v - half), _numbers(v + half))


def _uniform(paid: Sequence[Row], values: Floats, starts: Ints) -> Uniform:
    weights = np.array([1.0 / (row.choices * row.propensity) if row.propensity > 0 else 0.0 for row in paid])
    expected = np.array([row.expected for row in paid])
    level = np.array([row.expected_uniform for row in paid])
    one = np.ones(len(paid))
    uncovered = float(np.mean([row.uncovered for row in paid])) if paid else None
    largest = weights.max(initial=0.0)
    scaled = weights / largest if largest > 0 else weights  # squares of large weights stay finite
    effective = float(scaled.sum() ** 2 / (scaled**2).sum()) if largest > 0 else 0.0
    weighed = running_ratio(weights, one, starts)
    told, note = uncovered is not None and uncovered <= UNCOVERED, None
    if uncovered is None:
        pass
    elif not told:
        note = (
            f"{100 * uncovered:.0f} % of what a uniform policy would have chosen had no chance here: propensities "
            "alone cannot tell what it would have earned. The dashed line fills in what the agent expects of them."
        )
    elif _falls_short(weighed):
        told = False
        note = (
            f"Weights for a uniform policy should average 1 and average {weighed.value[-1]:.2f}: some arms had hardly "
            "a chance here: what it would have earned cannot be told. The dashed line fills in what the agent expects."
        )
    elif effective < ENOUGH:
        note = (
            f"The estimate for a uniform policy rests on an effective {effective:.0f} rewards of {len(paid):,}: too "
            "few to rely on its interval."
        )
    return Uniform(
        running_ratio(weights * values, one, starts),
        running_ratio(weights * values, weights, starts),
        running_ratio(level + weights * (values - expected), one, starts),
        uncovered,
        effective,
        told,
        note,
    )


def _falls_short(weighed: Line) -> bool:
    """Whether the mean weight is below 1 by more than chance: 4 standard errors."""
    value, high = (line[-1] if line else None for line in (weighed.value, weighed.high))
    return value is not None and high is not None and 1 - value > 2 * (high - value)


# ---------------------------------------------------------------------- arms, context, delays, what waits


def shares(rows: Sequence[Row], arms: Sequence[Arm], points: int) -> Shares:
    """The arms played most, each for itself, and the others together."""
    ends = _even_ends(len(rows), min(points, 60), least=20)
    places = np.array([row.place for row in rows], dtype=np.int64)
    counts = np.bincount(places, minlength=len(arms))
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_ARMS])
    names = [_called(arms[place]) for place in kept]
    parts = [places == place for place in kept]
    if len(arms) > MOST_ARMS:
        names.append(f"{len(arms) - MOST_ARMS} others")
        parts.append(~np.isin(places, kept))
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    lengths = ends - starts
    share = [
        (np.add.reduceat(part.astype(np.float64), starts) / lengths).tolist() if len(ends) else [] for part in parts
    ]  # fmt: skip
    total = [float(part.mean()) if rows else 0.0 for part in parts]
    return Shares([rows[end - 1].round for end in ends], names, share, total)


def estimated(rows: Sequence[Row], context: Context, points: int, coordinate: int) -> Estimated:
    """`coordinate` of the context in the last `points` decisions: it moves too quickly to be thinned.

    The filter starts earlier, so that it has settled when those begin.
    """
    nothing = Line([], [], [])
    if context.filter is None or not rows:
        why = context.why or "No decisions yet."
        return Estimated(list(context.coordinates), 0, [], nothing, [], why)
    at = min(max(0, coordinate), len(context.coordinates) - 1)
    rows = rows[-min(points + _WARM_UP, max(100, _MOST_COVARIANCES // len(context.coordinates) ** 2)) :]
    ys = np.stack([row.observation for row in rows])
    mean, std = context.filter(ys, at)
    half = float(normal_quantile(0.5 + CONFIDENCE / 2)) * std
    last = slice(-points, None)
    seen = ys[last, at] if at < ys.shape[1] else np.full(len(ys[last]), np.nan)
    line = Line(_numbers(mean[last]), _numbers((mean - half)[last]), _numbers((mean + half)[last]))
    return Estimated(list(context.coordinates), at, [row.round for row in rows[last]], line, _numbers(seen))


def delays(rows: Sequence[Row], points: int) -> Delays:
    """Of rewards that callers gave; defaults come when the wait is over and say nothing."""
    told = [row for row in rows if row.reward_time is not None and row.how != "default"]
    ends = _even_ends(len(told), min(points, 60), least=20)
    took = np.array([(row.reward_time or 0) - row.time for row in told]) / _MICRO
    parts = np.split(took, ends[:-1]) if len(ends) else []
    return Delays(
        [told[end - 1].round for end in ends],
        [float(np.quantile(part, 0.5)) for part in parts],
        [float(np.quantile(part, 0.9)) for part in parts],
    )


def waiting(rows: Sequence[Row], arms: Sequence[Arm], now: int) -> Waiting:
    left = [row for row in rows if row.reward is None and not row.expired]  # oldest first
    ages = np.maximum(0.0, np.array([now - row.time for row in left]) / _MICRO)
    bounds = np.array([bound for bound, _ in _AGES])
    counts = np.bincount(np.searchsorted(bounds, ages, side="right"), minlength=len(_AGES) + 1)
    return Waiting(
        len(left),
        float(ages.max()) if left else None,
        [label for _, label in _AGES] + [_OLDEST],
        counts.tolist(),
        [Open(row.id, arms[row.place], float(age)) for row, age in zip(left[:MOST_LISTED], ages, strict=False)],
    )


def _even_ends(count: int, points: int, *, least: int) -> Ints:
    """Where at most `points` blocks of about the same length end, each at least `least` long but for a short whole."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    blocks = max(1, min(points, count // least))
    return np.linspace(0, count, blocks + 1).round().astype(np.int64)[1:]


def _called(arm: Arm) -> str:
    return arm if isinstance(arm, str) else f"arm {arm}"


def _numbers(values: Floats) -> Numbers:
    return [value if np.isfinite(value) else None for value in values.tolist()]
