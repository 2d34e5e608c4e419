"""Tables in all supported forms, and the messages for invalid tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from halfseen.errors import HalfseenError
from halfseen.worlds import columns, recorded

ROWS = 60
RNG = np.random.default_rng(5)
DATA = {name: RNG.normal(size=ROWS) for name in ("a", "b", "c", "r", "s")}
ROLES = {"observed": ["a", "b"], "hidden": ["c"], "rewards": ["r", "s"]}


def csv_text(data: dict[str, np.ndarray]) -> str:
    lines = [",".join(data), *(",".join(map(str, row)) for row in zip(*data.values(), strict=True))]
    return "\n".join(lines) + "\n"


def structured() -> np.ndarray:
    out = np.empty(ROWS, dtype=[(name, float) for name in DATA])
    for name, values in DATA.items():
        out[name] = values
    return out


@pytest.mark.parametrize(
    "form", ["mapping", "lists", "series", "pandas", "nullable", "polars", "arrow", "structured", "csv", "parquet"]
)
def test_all_forms_of_a_table_give_the_same_world(form, tmp_path):
    path = tmp_path / f"data.{form}"
    if form == "csv":
        path.write_text(csv_text(DATA))
    if form == "parquet":
        parquet.write_table(pa.table(DATA), path)
    table = {
        "mapping": lambda: DATA,
        "lists": lambda: {name: list(values) for name, values in DATA.items()},
        "series": lambda: {name: pd.Series(values, index=range(ROWS, 0, -1)) for name, values in DATA.items()},
        "pandas": lambda: pd.DataFrame(DATA, index=range(ROWS, 2 * ROWS)),
        "nullable": lambda: pd.DataFrame(DATA).convert_dtypes(),
        "polars": lambda: pl.DataFrame(DATA),
        "arrow": lambda: pa.table(DATA),
        "structured": structured,
        "csv": lambda: str(path),
        "parquet": lambda: path,
    }[form]()
    world, plain = recorded(table, **ROLES), recorded(DATA, **ROLES)
    np.testing.assert_array_equal(world.contexts, plain.contexts)
    np.testing.assert_array_equal(world.rewards, plain.rewards)


@pytest.mark.parametrize("empty", ["", "NA", "nan"])
def test_an_empty_cell_of_a_csv_file_is_nan(empty, tmp_path):
    lines = csv_text(DATA).splitlines()
    lines[31] = f"{empty}," + lines[31].partition(",")[2]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    assert np.flatnonzero(np.isnan(columns.read_columns(tmp_path / "data.csv")["a"])).tolist() == [30]


def test_empty_cells_of_other_forms_are_nan():
    for values in (
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series([1.0, None, 3.0]),
        np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False]),
        [1, None, 3],
        ["1", " ", "3.0"],
        pa.array([1, None, 3]),
        pa.chunked_array([[1, None, 3]]),
        pl.Series([1, None, 3]),
        pl.Series(["1", None, "3"]),
    ):
        tables = [{"a": values}]
        if isinstance(values, pd.Series | pl.Series):
            tables.append(pd.DataFrame(tables[0]) if isinstance(values, pd.Series) else pl.DataFrame(tables[0]))
        for table in tables:
            np.testing.assert_array_equal(columns.read_columns(table)["a"], [1.0, np.nan, 3.0])


FRAMES = {
    "pandas": pd.DataFrame,
    "nullable": lambda cells: pd.DataFrame(cells).convert_dtypes(),
    "polars": pl.DataFrame,
    "arrow": pa.table,
}


@pytest.mark.parametrize("form", FRAMES)
@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        ([True, False, None], [1, 0, np.nan]),
        ([1, 2, None], [1, 2, np.nan]),
        ([1, 2, 3], [1, 2, 3]),
        (["1.5", " ", None], [1.5, np.nan, np.nan]),
        ([None, None, None], [np.nan, np.nan, np.nan]),
        ([], []),
    ],
)
def test_columns_of_a_frame_become_numbers(form, cells, numbers):
    table = columns.read_columns(FRAMES[form]({"b": [0.5] * len(cells), "a": cells}))
    assert table.names == ["b", "a"]
    np.testing.assert_array_equal(table["a"], numbers)


@pytest.mark.parametrize("form", FRAMES)
def test_empty_cells_of_text_are_none(form):
    assert list(columns.read_columns(FRAMES[form]({"a": ["x", None]})).as_given("a")) == ["x", None]


def break_line(number: int, line: str) -> str:
    lines = csv_text(DATA).splitlines()
    lines[number] = line
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (break_line(17, "1,2,x,4,5"), "data.csv, column 'c', row 17: expected a number or an empty cell, got 'x'"),
        (break_line(17, "1,2,3,,5"), "data.csv, column 'r', row 17: expected the reward of the arm, got an empty cell"),
        (break_line(17, "1,2,3,4,-inf"), "data.csv, column 's', row 17: expected a finite number, got an infinity"),
        (break_line(17, "1,2,3,4"), "(CSV parse error: line 18: Expected 5 columns, got 4: 1,2,3,4)"),
        (break_line(0, "a,b,a,r,s"), "data.csv: expected distinct column names, got column 'a' 2 times"),
        (break_line(0, "a,b,d,r,s"), "data.csv has no column 'c'. Its columns are: a, b, d, r, s"),
        (break_line(0, "a;b;c;r;s"), "commas, got 'data.csv', which seems to be separated by semicolons"),
        (csv_text(DATA).replace(",", ";"), "commas, got 'data.csv', which seems to be separated by semicolons"),
        ("", "table: expected a readable file, got 'data.csv' (Empty CSV file)"),
        ("a,b,c,r,s\n", "data.csv: expected at least 50 rows, 10 of them for scaling (scale_on=0.2), got 0 rows"),
    ],
)
def test_bad_files(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(HalfseenError) as caught:
        recorded("data.csv", **ROLES)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            DATA | {"s": DATA["s"][:-1]},
            "the table: expected columns of the same length, got 60 rows of 'a' and 59 of 's'",
        ),
        (DATA | {"r": ["x"] * ROWS}, "the table, column 'r', row 1: expected a number or an empty cell, got 'x'"),
        (
            DATA | {"a": ["x", *["1"] * (ROWS - 1)]},
            "the table, column 'a', row 1: expected a number or an empty cell, got 'x'",
        ),
        (DATA | {"a": np.ones((ROWS, 2))}, "the table, column 'a': expected one number per row, got shape (60, 2)"),
        (
            DATA | {"r": np.zeros(ROWS, dtype="M8[D]")},
            "the table, column 'r': expected numbers, got datetime64[D] values",
        ),
        (DATA | {"a": [object()] * ROWS}, "the table, column 'a', row 1: expected a number or an empty cell, got <obj"),
        (
            pd.DataFrame(np.zeros((60, 2)), columns=["a", "a"]),
            "the table: expected distinct column names, got column 'a' 2 times",
        ),
        (
            pa.table([[1.0], [2.0]], names=["a", "a"]),
            "the table: expected distinct column names, got column 'a' 2 times",
        ),
        (
            pd.DataFrame([[1.0, 2.0]], columns=[1, "1"]),
            "the table: expected distinct column names, got columns [1, '1']",
        ),
        (
            pl.DataFrame(DATA | {"r": ["x"] * ROWS}),
            "the table, column 'r', row 1: expected a number or an empty cell, got 'x'",
        ),
        (pl.DataFrame(DATA).lazy(), "an Arrow table or a structured array, got LazyFrame"),
        (pl.Series(DATA["a"]), "an Arrow table or a structured array, got Series"),
        ({name: values[:49] for name, values in DATA.items()}, "the table: expected at least 50 rows"),
        (3, "table: expected a CSV or Parquet file, a dictionary of columns"),
        (3, "an Arrow table or a structured array, got int"),
        ("data.xlsx", "table: expected a file whose name ends in .csv, .csv.gz, .parquet or .pq, got 'data.xlsx'"),
        ("data.csv", "table: expected an existing file, got 'data.csv'"),
    ],
)
def test_bad_tables(table, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HalfseenError) as caught:
        recorded(table, **ROLES)
    assert message in str(caught.value)


def test_a_damaged_parquet_file(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"PAR0 nonsense")
    with pytest.raises(HalfseenError, match="expected a readable file"):
        recorded(tmp_path / "data.parquet", **ROLES)


def test_files_need_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(HalfseenError, match=r"from a file needs the package 'pyarrow'.*\[experiments\]"):
        recorded("data.csv", **ROLES)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding(encoding, tmp_path):
    (tmp_path / "data.csv").write_bytes(break_line(0, "a,b,c,r,größe").encode(encoding))
    with pytest.raises(HalfseenError, match=r"expected a file in UTF-8, got .* in another encoding$"):
        recorded(tmp_path / "data.csv", **ROLES)


def test_column_names_may_contain_any_letters(tmp_path):
    (tmp_path / "data.csv").write_text(break_line(0, "a,b,c,r,größe"), encoding="utf-8")
    assert recorded(tmp_path / "data.csv", **(ROLES | {"rewards": ["r", "größe"]})).arm_names == ("r", "größe")
