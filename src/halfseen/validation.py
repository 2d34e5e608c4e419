"""Functions that check user input and convert it to the arrays and numbers that the package computes with.

Every function takes the name of the argument first and raises `InvalidInput` with that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.errors import HalfseenError, InvalidInput, invalid, missing_extra

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LIMIT = 1e100  # the largest absolute value allowed, so that sums of squares stay finite
MAX_DIMENSIONS = 1_000  # of a model
MAX_INTEGER = 2**53  # the largest value of integer options, so that products with small numbers fit into int64
MAX_ELAPSED = 10**12  # steps between two rounds
_FLOAT64, _ARRAY = np.dtype(np.float64), np.ndarray
_NEVER_FRAMES = (np.ndarray, list, tuple, float, int)
_FRAME_PACKAGES = {"pandas", "polars", "pyarrow"}


def is_missing(cell: object) -> bool:
    """Return whether a cell is empty: None or a missing value of pandas. Pandas is not imported for this."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


_are_missing = np.frompyfunc(is_missing, 1, 1)


def _objects_to_floats(array: NDArray[np.object_]) -> Floats:
    try:
        return np.array(array, dtype=np.float64, order="C")
    except TypeError:  # unlike None, pandas.NA cannot be converted
        return np.array(np.where(_are_missing(array), np.nan, array), dtype=np.float64, order="C")


def narwhals_frame(argument: str, value: object) -> Any:
    """Return a DataFrame, an Arrow table or a Series as narwhals' DataFrame or Series, and None for anything else."""
    if isinstance(value, _NEVER_FRAMES):
        return None
    if not any(base.__module__.partition(".")[0] in _FRAME_PACKAGES for base in type(value).__mro__):
        return None
    try:
        import narwhals.stable.v2 as nw
        from narwhals.exceptions import DuplicateError
    except ImportError:
        raise missing_extra("narwhals", "experiments", "reading a DataFrame") from None
    try:
        frame = nw.from_native(value, eager_only=True, allow_series=True, pass_through=True)
    except DuplicateError as error:
        repeated = ", ".join(line.removeprefix("- ") for line in str(error).splitlines()[1:])
        raise invalid(argument, "distinct column names", f"column {repeated}") from None
    return frame if isinstance(frame, nw.DataFrame | nw.Series) else None


def without_frame(argument: str, value: Any) -> Any:
    """Return the numbers of a DataFrame (n, columns) or a Series (n,), and anything else unchanged.

    Columns are taken in order, whatever their names. Missing values become NaN.
    """
    frame = narwhals_frame(argument, value)
    if frame is None:
        return value
    if not hasattr(frame, "columns"):
        return _column_numbers(argument, frame)
    columns = [_column_numbers(f"{argument}, column '{column.name}'", column) for column in frame.iter_columns()]
    return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))


def _column_numbers(where: str, column: Any) -> Floats:
    import narwhals.stable.v2 as nw

    if column.null_count() == len(column):  # the data type of a column without values is arbitrary
        return np.full(len(column), np.nan)
    if column.dtype.is_numeric() or column.dtype in (nw.Boolean, nw.Object):
        try:
            return real_numbers(where, column.to_numpy())
        except HalfseenError:
            pass
    raise invalid(where, "numbers", f"{column.dtype} values")


def real_numbers(argument: str, value: ArrayLike) -> Floats:
    """Return a new float64 array. NaN and infinities are allowed. None and masked entries become NaN."""
    if isinstance(value, np.ma.MaskedArray):
        value = np.ma.filled(value.astype(np.float64), np.nan)
    if not isinstance(value, _NEVER_FRAMES):
        value = without_frame(argument, value)
    try:
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            return np.array(array, dtype=np.float64, order="C")
        if array.dtype.kind == "O":
            return _objects_to_floats(array)
    except (TypeError, ValueError):
        pass
    raise invalid(argument, "an array of real numbers", type(value).__name__)


def as_list(argument: str, items: Iterable[Any], expected: str) -> list[Any]:
    if isinstance(items, np.ndarray):
        items = items.tolist()
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise invalid(argument, expected, repr(items))
    return list(items)


def numbers(argument: str, value: ArrayLike, expected: str) -> Floats:
    """Return `value` as a C-contiguous, writable float64 array, without a copy if it is such an array already."""
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value if value.flags.carray else value.copy()  # kernels need C arrays, and some kernels write to them
    if not isinstance(value, _NEVER_FRAMES):
        value = without_frame(argument, value)
    try:
        return real_numbers(argument, value)
    except (HalfseenError, OverflowError):
        raise invalid(argument, expected, repr(value)) from None


def number(argument: str, value: ArrayLike) -> float:
    array = numbers(argument, value, f"a number within ±{LIMIT:g}")
    if array.ndim:
        raise invalid(argument, f"a number within ±{LIMIT:g}", repr(value))
    return float(array)


def vector(argument: str, value: ArrayLike, length: int) -> Floats:
    """Return `length` numbers as an array (length,)."""
    if type(value) is _ARRAY and value.dtype is _FLOAT64 and value.shape == (length,) and value.flags.carray:
        return value  # the usual case, four times faster than the general one
    array = numbers(argument, value, f"{length} numbers")
    if array.shape != (length,):
        raise invalid(argument, f"{length} numbers", f"shape {np.shape(value)}")
    return array


def row_vector(argument: str, value: ArrayLike, length: int) -> Floats:
    """Return `length` numbers as an array (1, length)."""
    if type(value) is _ARRAY and value.dtype is _FLOAT64 and value.shape == (length,) and value.flags.carray:
        return value[None]
    return vector(argument, value, length)[None]


def table(argument: str, value: ArrayLike, columns: int) -> Floats:
    """Return numbers in `columns` columns as an array (rows, columns)."""
    array = numbers(argument, value, f"a table of {columns} columns")
    if array.ndim != 2 or array.shape[1] != columns:
        raise invalid(argument, f"a table of {columns} columns", f"shape {array.shape}")
    return array


def stack_for_streams(
    argument: str, value: ArrayLike, streams: int, shape: tuple[int, ...], limit: float = LIMIT
) -> Floats:
    """Return an array (B, *shape) of numbers within ±limit.

    `value` has this shape or, if it is the same for all B streams, the shape `shape`.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise invalid(argument, f"numbers of shape {shape}", repr(value)) from None
    if array.shape not in (shape, (streams, *shape)):
        raise invalid(argument, f"shape {shape}", f"shape {array.shape}")
    if not np.isfinite(array).all():
        raise invalid(argument, "finite numbers", "an entry that is not finite")
    if (np.abs(array) > limit).any():
        raise invalid(argument, f"numbers within ±{limit:g}", f"{array[np.abs(array) > limit][0]:g}")
    return np.array(np.broadcast_to(array, (streams, *shape)), order="C")  # a writable copy


def covariances(argument: str, value: ArrayLike, streams: int, size: int) -> Floats:
    """Return covariances (B, size, size).

    `value` is one matrix per stream, or one matrix, diagonal or variance for all B streams.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise invalid(argument, f"numbers of shape {(size, size)}", repr(value)) from None
    if array.shape in ((), (size,)):
        array = np.diag(np.broadcast_to(array, size))
    cov = stack_for_streams(argument, array, streams, (size, size), LIMIT * LIMIT)
    if (np.linalg.eigvalsh(cov) < -1e-9 * np.abs(cov).max()).any() or (cov != cov.swapaxes(1, 2)).any():
        raise invalid(argument, "a symmetric positive semi-definite matrix", "a matrix of another kind")
    return cov


def check_range(argument: str, values: NDArray[np.generic], low: ArrayLike, high: ArrayLike) -> None:
    """Raise if an integer is below `low` or above `high`."""
    least, most = np.asarray(low), np.asarray(high)
    if not ((values >= least) & (values <= most)).all():
        expected = f"integers from {least.min()} to {most.max()}"
        raise invalid(argument, expected, f"integers from {values.min()} to {values.max()}")


def arrays(argument: str, values: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the values of a mapping as arrays."""
    try:
        return {name: np.asarray(value) for name, value in values.items()}
    except (TypeError, ValueError):
        raise invalid(argument, "arrays by name", "something that is not an array") from None


def check_finite(argument: str, values: Floats, *, recorded: bool = False) -> None:
    """Raise if a number is infinite or NaN. If `recorded` is true, allow NaN, but no numbers outside of ±LIMIT."""
    valid = ~(np.abs(values) > LIMIT) if recorded else np.isfinite(values)
    if not valid.all():
        expected = f"numbers within ±{LIMIT:g}, NaN where missing" if recorded else "finite numbers"
        raise invalid(argument, expected, f"{values[~valid][0]}")


def at_least(argument: str, value: object, least: int, most: int = MAX_INTEGER) -> int:
    """Return `value` as an integer if it is at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise invalid(argument, f"an integer of at least {least}", repr(value))
    if value > most:
        raise invalid(argument, f"an integer of at most {most}", repr(value))
    return int(value)


def elapsed_steps(argument: str, value: object) -> int:
    """Return `value`, the number of steps since the last round, as a whole number of at least 0."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    if isinstance(value, np.ndarray):
        raise invalid(argument, "one whole number", f"an array of shape {value.shape}")
    return at_least(argument, value, 0, MAX_ELAPSED)


def elapsed_series(argument: str, value: ArrayLike, length: int, per: str) -> Ints:
    """Return the numbers of steps since the last round as an array (length,).

    `value` is one number per round or per stream, or one number for all. `per` is "round" or "stream".
    """
    expected = f"whole numbers from 0 to {MAX_ELAPSED:,}, one per {per}"
    array = numbers(argument, value, expected)
    if array.ndim == 0:
        array = np.repeat(array, length)
    if array.shape != (length,):
        raise invalid(argument, f"{length} {expected}", f"shape {array.shape}")
    valid = (array >= 0.0) & (array <= MAX_ELAPSED) & (array == np.floor(array))
    if not valid.all():
        raise invalid(argument, expected, f"{array[~valid][0]:g}")
    return array.astype(np.int64)


def seed_number(argument: str, value: object) -> int:
    """Return `value` as a seed, an unsigned integer of 64 bits."""
    return at_least(argument, value, 0, 2**64 - 1)


def positive(argument: str, value: object, *, zero_allowed: bool = False) -> float:
    """Return `value` as a number from 1/LIMIT to LIMIT. If `zero_allowed`, the value 0 is accepted too."""
    expected = "a finite number of at least 0" if zero_allowed else "a finite number above 0"
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise invalid(argument, expected, repr(value))
    number = float(value)
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero_allowed):
        raise invalid(argument, expected, repr(value))
    if number and not 1.0 / LIMIT <= number <= LIMIT:
        raise invalid(argument, f"a number from {1.0 / LIMIT:g} to {LIMIT:g}", repr(value))
    return number


def probability(argument: str, value: object) -> float:
    """Return `value` as a number strictly between 0 and 1."""
    number = positive(argument, value)
    if number >= 1:
        raise invalid(argument, "a number between 0 and 1", repr(value))
    return number


def too_large(argument: str) -> InvalidInput:
    """Return the exception for observations with an entry outside of ±LIMIT."""
    return invalid(argument, f"numbers within ±{LIMIT:g}, NaN where missing", "an entry that is too large")


class RewardRange(NamedTuple):
    """The rewards that a family of distributions allows, from `low` to `high`."""

    family: str
    low: float
    high: float

    def __str__(self) -> str:
        if self.low < 0.0:
            return f"a number within ±{LIMIT:g}"
        return f"a number from {self.low:g} to {self.high:g}, because the reward family is '{self.family}'"

    def check(self, argument: str, rewards: Floats) -> None:
        """Raise an error if one of the rewards is outside of the range. NaN marks a reward that is missing."""
        if ((rewards < self.low) | (rewards > self.high)).any():
            outside = rewards[(rewards < self.low) | (rewards > self.high)]
            raise invalid(argument, str(self).replace("a number", "numbers"), f"{outside[0]}")


REWARD_RANGES = {
    "gaussian": RewardRange("gaussian", -LIMIT, LIMIT),
    "binary": RewardRange("binary", 0.0, 1.0),
    "count": RewardRange("count", 0.0, LIMIT),
}
ANY_REWARD = REWARD_RANGES["gaussian"]


def rewards_of_decisions(value: ArrayLike, count: int, allowed: RewardRange = ANY_REWARD) -> Floats:
    """Return the argument `rewards`, one number per decision, as an array (count,)."""
    array = numbers("rewards", value, f"{count} numbers, one per decision")
    if array.shape != (count,):
        raise invalid("rewards", f"{count} numbers, one per decision", f"shape {array.shape}")
    if not (valid := (array >= allowed.low) & (array <= allowed.high)).all():
        raise invalid("rewards", str(allowed).replace("a number", "numbers"), f"{array[~valid][0]}")
    return array


def check_propensities(argument: str, values: Floats) -> None:
    """Refuse propensities that are 0, negative or NaN, or that exceed 1 by more than rounding errors."""
    if not (valid := (values > 0.0) & (values < 1.0 + 1e-6)).all():
        raise invalid(argument, "probabilities above 0 and at most 1", f"{values[~valid][0]}")


def file_path(argument: str, value: object) -> Path:
    if not isinstance(value, str | Path):
        raise invalid(argument, "the path of a file", repr(value))
    return Path(value)


# ---------------------------------------------------------------------- bounds of options
# An option of an agent is annotated with its bound, as in `restarts: Annotated[int, Integers(0, 10)]`. The catalogue
# checks these bounds. A value of another type, such as the string "auto", is checked by the component with the option.


class Bound(Protocol):
    """The values that an option may have. `str(bound)` describes them."""

    def check(self, argument: str, value: object) -> None:
        """Raise an error if the value is out of bounds."""


class Integers(NamedTuple):
    """The integers from `low` to `high`."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"an integer between {self.low} and {self.high}"

    def check(self, argument: str, value: object) -> None:
        if isinstance(value, int | float | np.number) and not (
            isinstance(value, int | np.integer) and not isinstance(value, bool) and self.low <= value <= self.high
        ):
            raise invalid(argument, str(self), repr(value))


class Numbers(NamedTuple):
    """The numbers from `low` to `high`."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"a number between {self.low:g} and {self.high:g}"

    def check(self, argument: str, value: object) -> None:
        if isinstance(value, int | float | np.number) and not self.low <= value <= self.high:
            raise invalid(argument, str(self), repr(value))


class Arrays(NamedTuple):
    """Arrays of numbers within ±LIMIT whose last `axes` axes have at most `size` entries each.

    If there are earlier axes, they have one entry per stream.
    """

    size: int
    axes: int = 2

    def __str__(self) -> str:
        within = f"within ±{LIMIT:g}"
        if self.axes == 0:
            return f"a number {within}"
        return f"at most {self.size} {'numbers' if self.axes == 1 else 'rows and columns of numbers'} {within}"

    def check(self, argument: str, value: object) -> None:
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            return
        if max(array.shape[max(0, array.ndim - self.axes) :], default=0) > self.size:
            raise invalid(argument, str(self), f"shape {array.shape}")
        if np.abs(array).max(initial=0.0) > LIMIT:
            raise invalid(argument, str(self), f"{np.abs(array).max():g}")


class Models(NamedTuple):
    """Models of at most `dimensions` observed or latent dimensions: one model, or one per stream."""

    dimensions: int

    def __str__(self) -> str:
        return f"a model of at most {self.dimensions} dimensions"

    def check(self, argument: str, value: object) -> None:
        for model in value if isinstance(value, Sequence) else [value]:
            largest = max(getattr(model, "latent", 0), getattr(model, "observed", 0))
            if largest > self.dimensions:
                raise invalid(argument, str(self), f"one of {largest}")


class Words(NamedTuple):
    """The words that an option may have as its value."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return " or ".join(f"'{word}'" for word in self.words)

    def check(self, argument: str, value: object) -> None:
        if value not in self.words:
            raise invalid(argument, str(self), repr(value))
