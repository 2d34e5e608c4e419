"""Reads named columns from a file, a DataFrame, an Arrow table, a dictionary or a structured array."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import InvalidInput, invalid, missing_extra, unknown
from halfseen.kernels.random import Floats
from halfseen.validation import is_missing, narwhals_frame

FILE_ENDINGS = (".csv", ".parquet", ".pq")
_EXPECTED = "a CSV or Parquet file, a dictionary of columns, a DataFrame, an Arrow table or a structured array"


class Columns:
    """A table with named columns. `source` is the name of the table in messages."""

    def __init__(self, columns: Mapping[str, Any], source: str) -> None:
        self._columns, self.source = columns, source

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self._columns]

    def __getitem__(self, name: str) -> Floats:
        """Return the column as numbers, with NaN for empty cells."""
        return _as_numbers(self.as_given(name), f"{self.source}, column '{name}'")

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


def _read_file(path: Path) -> Columns:
    try:
        import pyarrow as pa
        from pyarrow import csv, parquet
    except ImportError:
        raise missing_extra("pyarrow", "experiments", "reading a table from a file") from None
    kind = path.suffix.lower()
    if kind not in FILE_ENDINGS:
        raise invalid("table", "a file whose name ends in .csv, .parquet or .pq", f"'{path}'")
    if not path.is_file():
        raise invalid("table", "an existing file", f"'{path}'")
    try:
        if kind == ".csv":
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
    except (pa.ArrowException, OSError) as error:
        raise invalid("table", "a readable file", f"'{path}' ({_first_line(error)})") from None


def _check_separator(path: Path) -> None:
    """Raise if the header is separated by semicolons.

    Only the header is checked, because decimal commas in other lines look like separators.
    """
    with path.open("rb") as file:
        header = file.readline().decode("utf-8")
    if ";" in header and "," not in header:
        raise InvalidInput(
            f"table: expected columns separated by commas, got '{path}', which seems to be separated by semicolons"
        )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].replace("Row #", "line ")  # pyarrow counts the header


def _frame_columns(table: Any, source: str) -> Columns:
    frame = narwhals_frame(source, table)
    if frame is None or not hasattr(frame, "columns"):
        raise invalid("table", _EXPECTED, type(table).__name__)
    columns = {str(column.name): _cells(column) for column in frame.iter_columns()}
    if len(columns) < len(frame.columns):
        raise invalid(source, "distinct column names", f"columns {frame.columns}")
    return Columns(columns, source)


def _positional(values: Any) -> Any:
    """Return a Series as an array, because indexing a pandas Series by a number looks up its label."""
    series = narwhals_frame("the table", values)
    return values if series is None else _cells(series)


def _cells(column: Any) -> Any:
    """Return the column as an array. In an array of objects, empty cells are None."""
    cells = column.to_numpy()
    return np.where(column.is_null().to_numpy(), None, cells) if cells.dtype == object else cells


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
