"""Reads named columns from a file, a DataFrame, an Arrow table, a dictionary or a structured array."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import InvalidInput, invalid, missing_extra, unknown
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.tables import count
from halfseen.validation import is_missing, narwhals_frame

FILE_ENDINGS = (".csv", ".csv.gz", ".parquet", ".pq")
MOST_CATEGORIES = 50  # largest number of different texts in a column that is encoded
MOSTLY_DATES = 0.9  # if at least this share of the texts of a column are dates, its other texts count as mistakes
_SECONDS_PER_DAY = 86_400.0
_EXPECTED = "a CSV or Parquet file, a dictionary of columns, a DataFrame, an Arrow table or a structured array"


class Columns:
    """A table with named columns. `source` is the name of the table in messages.

    `dates_in_index` says whether the table was a pandas DataFrame with dates in its index, which is not a column.
    """

    def __init__(self, columns: Mapping[str, Any], source: str, *, dates_in_index: bool = False) -> None:
        self._columns, self.source, self.dates_in_index = columns, source, dates_in_index

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self._columns]

    def __getitem__(self, name: str) -> Floats:
        """Return the column as numbers, with NaN for empty cells."""
        return _as_numbers(self.as_given(name), f"{self.source}, column '{name}'")

    def features(self, names: Iterable[str]) -> tuple[dict[str, Floats], list[str]]:
        """Return columns as features by name, and one sentence for each column that had to be encoded.

        A column of numbers is taken as it is. A column of dates becomes the number of days since the date in its first
        row. A column of texts becomes one column of zeros and ones, called "name=text", for every text except the most
        frequent one, which is the reference: with a column for it, the columns would always sum to 1. An empty cell is
        NaN. A column of dates with a few other texts is refused.
        """
        features: dict[str, Floats] = {}
        notes = []
        for name in names:
            cells = self.as_given(name)
            if are_dates(cells):
                seconds = self.times(name)
                features[name] = (seconds - next(iter(seconds[~np.isnan(seconds)]), 0.0)) / _SECONDS_PER_DAY
                notes.append(f"column '{name}' contains dates and is taken as time, in days since its first row")
            elif (mistake := _mistake_among_dates(cells)) is not None:
                raise InvalidInput(f"{self.source}, column '{name}': {mistake}")
            elif are_texts(cells):
                encoded, reference = self._zeros_and_ones(name, cells)
                features |= encoded
                shown = ", ".join(f"'{column}'" for column in list(encoded)[:3])
                shown += ", …" * (len(encoded) > 3)
                shown += "" if reference is None else f" ('{reference}' is the reference)"
                notes.append(
                    f"column '{name}' contains text and becomes {count(encoded, 'column')} of 0 and 1: {shown}"
                )
            else:
                features[name] = self[name]
        return features, notes

    def _zeros_and_ones(self, name: str, cells: Any) -> tuple[dict[str, Floats], str | None]:
        """Return one column per text except the reference, and the reference itself (None if all texts are equal)."""
        texts = [None if is_missing(cell) or not str(cell).strip() else str(cell).strip() for cell in cells]
        rows = Counter(text for text in texts if text is not None)
        categories = sorted(rows)
        if len(categories) > MOST_CATEGORIES:
            where = f"{self.source}, column '{name}'"
            raise invalid(where, f"numbers, or at most {MOST_CATEGORIES} different texts", f"{len(categories)} texts")
        reference = max(categories, key=rows.__getitem__) if len(categories) > 1 else None
        missing = np.array([text is None for text in texts])
        return {
            f"{name}={category}": np.where(missing, np.nan, np.array([text == category for text in texts], dtype=float))
            for category in categories
            if category != reference
        }, reference

    def times(self, name: str, rows: Ints | None = None) -> Floats:
        """Return a column of times in seconds, with NaN for empty cells. Texts are dates and times in ISO 8601."""
        given = np.asarray(self.as_given(name))
        numbers = np.arange(len(given)) if rows is None else rows
        given = given[numbers]
        if given.dtype.kind == "M":
            seconds = given.astype("datetime64[us]").astype(np.int64) / 1e6
            return np.where(np.isnat(given), np.nan, seconds)
        found = np.empty(len(given))
        for at, cell in enumerate(given):
            try:
                found[at] = _seconds(cell)
            except (TypeError, ValueError):
                where = f"{self.source}, column '{name}', row {numbers[at] + 1}"
                raise invalid(where, "a time", f"'{cell}'") from None
        return found

    def as_given(self, name: str) -> Any:
        """Return the column without conversion. It may contain text, lists or times."""
        if name not in self._columns:
            raise unknown("column", name, self.names, self.source)
        return self._columns[name]


def read_columns(table: Any) -> Columns:
    """Return the columns of a table. A string or a path is the name of a file."""
    if isinstance(table, str | Path):
        return _read_file(Path(table))
    if isinstance(table, Mapping):
        return Columns({str(name): _positional(values) for name, values in table.items()}, "the table")
    if isinstance(table, np.ndarray) and table.dtype.names:
        return Columns({name: np.atleast_1d(table)[name] for name in table.dtype.names}, "the table")
    return _frame_columns(table, "the table")


def file_ending(path: Path) -> str:
    """Return the ending of a file name in lower case, with both parts of ".csv.gz"."""
    endings = [ending.lower() for ending in path.suffixes]
    return "".join(endings[-2:]) if endings[-1:] == [".gz"] else "".join(endings[-1:])


def _read_file(path: Path) -> Columns:
    try:
        import pyarrow as pa
        from pyarrow import csv, parquet
    except ImportError:
        raise missing_extra("pyarrow", "experiments", "reading a table from a file") from None
    kind = file_ending(path)
    if kind not in FILE_ENDINGS:
        raise invalid("table", "a file whose name ends in .csv, .csv.gz, .parquet or .pq", f"'{path}'")
    if not path.is_file():
        raise invalid("table", "an existing file", f"'{path}'")
    try:
        if kind.startswith(".csv"):
            _check_separator(path)
            # With one thread, error messages contain the line number. An empty string is read as an empty cell.
            table = csv.read_csv(
                path,
                read_options=csv.ReadOptions(use_threads=False),
                convert_options=csv.ConvertOptions(strings_can_be_null=True),
            )
        else:
            table = parquet.read_table(path)
        return _frame_columns(table, str(path))
    except UnicodeDecodeError:
        raise invalid("table", "a file in UTF-8", f"'{path}' in another encoding") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise invalid("table", "a readable file", f"'{path}' ({_first_line(error)})") from None


def _check_separator(path: Path) -> None:
    """Raise if the header is separated by semicolons.

    Only the header is checked, because decimal commas in other lines look like separators.
    """
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        header = file.readline().decode("utf-8")
    if ";" in header and "," not in header:
        raise InvalidInput(
            f"table: expected columns separated by commas, got '{path}', which seems to be separated by semicolons"
        )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].replace("Row #", "line ")  # pyarrow counts the header as row 1


def _frame_columns(table: Any, source: str) -> Columns:
    frame = narwhals_frame(source, table)
    if frame is None or not hasattr(frame, "columns"):
        raise invalid("table", _EXPECTED, type(table).__name__)
    columns = {str(column.name): _cells(column) for column in frame.iter_columns()}
    if len(columns) < len(frame.columns):
        raise invalid(source, "distinct column names", f"columns {frame.columns}")
    return Columns(columns, source, dates_in_index=type(getattr(table, "index", None)).__name__ == "DatetimeIndex")


def _positional(values: Any) -> Any:
    """Return a Series as an array, because a pandas Series takes a number as a label and not as a position."""
    series = narwhals_frame("the table", values)
    return values if series is None else _cells(series)


def _cells(column: Any) -> Any:
    """Return the column as an array. In an array of objects, empty cells are None."""
    cells = column.to_numpy()
    return np.where(column.is_null().to_numpy(), None, cells) if cells.dtype == object else cells


def are_dates(cells: Any) -> bool:
    """Return whether all cells are dates: values of a date type, or texts in ISO 8601."""
    try:
        array = np.asarray(cells)
    except ValueError:  # lists of different lengths
        return False
    if array.dtype.kind == "M":
        return True
    if array.dtype.kind not in "OU":
        return False
    given = [cell for cell in array.ravel().tolist() if not is_missing(cell) and cell != ""]
    return bool(given) and all(map(_is_date, given))


def _is_date(cell: Any) -> bool:
    return isinstance(cell, date) or (isinstance(cell, str) and _is_written_date(cell))


def _is_written_date(text: str) -> bool:
    if not any(mark in text for mark in "-:"):  # "20240131" is more likely a number
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _mistake_among_dates(cells: Any) -> str | None:
    """Return a sentence about the first text that is not a date, if nearly all cells of a column are dates."""
    array = np.asarray(cells)
    if array.ndim != 1 or array.dtype.kind not in "OU":
        return None
    given = {row: cell for row, cell in enumerate(array.tolist(), 1) if not is_missing(cell) and str(cell).strip()}
    others = [row for row, cell in given.items() if not _is_date(cell)]
    dates = len(given) - len(others)
    if not others or dates < MOSTLY_DATES * len(given):
        return None
    return f"{dates:,} of {len(given):,} cells are dates, and row {others[0]} is '{given[others[0]]}'"


def are_texts(cells: Any) -> bool:
    """Return whether all cells are texts and none is a number. A mixture of both is refused later."""
    array = np.asarray(cells)
    if array.ndim != 1 or array.dtype.kind not in "OU":
        return False
    given = [cell for cell in array.tolist() if not is_missing(cell) and str(cell).strip()]
    return bool(given) and all(isinstance(cell, str) and not _is_number(cell) for cell in given)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _seconds(cell: Any) -> float:
    """Return a time in seconds since 1970, or NaN for an empty cell."""
    if is_missing(cell) or cell == "" or cell != cell:
        return math.nan
    if isinstance(cell, str):
        cell = datetime.fromisoformat(cell)
    if isinstance(cell, date) and not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day)
    if isinstance(cell, datetime) and cell.tzinfo is None:
        cell = cell.replace(tzinfo=UTC)
    return float(cell.timestamp() if hasattr(cell, "timestamp") else cell)


def _as_numbers(values: Any, where: str) -> Floats:
    array: Any = np.asarray(values.tolist() if np.ma.isMaskedArray(values) else values)
    if array.ndim != 1:
        raise invalid(where, "one number per row", f"shape {array.shape}")
    if array.dtype.kind in "fiub":
        numbers: Floats = array.astype(np.float64)
    elif array.dtype.kind in "OUS":
        numbers = np.array([_as_number(value, where, row) for row, value in enumerate(array, 1)], dtype=np.float64)
    else:
        raise invalid(where, "numbers", f"{array.dtype} values")
    if np.isinf(numbers).any():
        raise invalid(f"{where}, row {np.flatnonzero(np.isinf(numbers))[0] + 1}", "a finite number", "an infinity")
    return numbers


def _as_number(value: Any, where: str, row: int) -> float:
    if is_missing(value) or (isinstance(value, str | bytes) and not value.strip()):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        got = f"'{value}'" if isinstance(value, str) else repr(value)
        raise invalid(f"{where}, row {row}", "a number or an empty cell", got) from None
