"""DataFrames and Series wherever numbers are taken: pandas, polars and Arrow give what NumPy gives."""

from __future__ import annotations

import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import halfseen as hs
from halfseen import validation
from halfseen.client import _decide, _decide_many
from halfseen.errors import InvalidInput, MissingExtra

COLUMNS = {"b": [1.5, None, -2.0, 0.25], "a": [3.0, 1.0, None, None]}
ARRAY = np.array([[1.5, 3.0], [np.nan, 1.0], [-2.0, np.nan], [0.25, np.nan]])
FRAMES = {
    "pandas": lambda columns: pd.DataFrame(columns, index=range(7, 7 + len(columns["a"]))),
    "pandas objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas on Arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "Arrow": pa.table,
}


@pytest.fixture(params=FRAMES)
def frame(request):
    return FRAMES[request.param]


def test_columns_are_taken_in_order_and_missing_values_are_nan(frame):
    np.testing.assert_array_equal(validation.real_numbers("ys", frame(COLUMNS)), ARRAY)
    np.testing.assert_array_equal(validation.table("ys", frame(COLUMNS), 2), ARRAY)


def test_the_numbers_of_a_frame_are_a_copy():
    given = pd.DataFrame({"a": [1.0, 2.0]})
    validation.numbers("ys", given, "numbers")[:] = 9.0
    assert given["a"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        ([True, False, None], [1, 0, np.nan]),
        ([1, 2, None], [1, 2, np.nan]),
        ([1, 2, 3], [1, 2, 3]),
        ([Decimal("1.5"), None, Decimal(2)], [1.5, np.nan, 2]),
        ([None, None, None], [np.nan, np.nan, np.nan]),
        ([], []),
    ],
)
def test_columns_of_other_types(frame, cells, numbers):
    columns = {"a": cells, "b": [0.5] * len(cells)}
    found = validation.real_numbers("ys", frame(columns))
    np.testing.assert_array_equal(found, np.column_stack([np.array(numbers, dtype=float), columns["b"]]))


@pytest.mark.parametrize("series", [pd.Series, pl.Series, lambda cells: pa.chunked_array([cells])])
def test_a_series_is_a_vector(series):
    np.testing.assert_array_equal(validation.vector("y", series([1.0, None]), 2), [1.0, np.nan])
    np.testing.assert_array_equal(validation.vector("y", series([True, None]), 2), [1.0, np.nan])
    with pytest.raises(InvalidInput, match=r"^y: .*String values"):
        validation.vector("y", series(["1", "2"]), 2)


def test_a_row_of_a_nullable_frame_is_a_vector():
    nullable = pd.DataFrame({"a": [1, 2], "b": [True, None], "c": [0.5, 1.5]}).convert_dtypes()
    np.testing.assert_array_equal(validation.vector("y", nullable.iloc[1], 3), [2.0, np.nan, 1.5])
    row = next(nullable.iloc[1:].itertuples(index=False))
    np.testing.assert_array_equal(validation.vector("y", row, 3), [2.0, np.nan, 1.5])


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["x", "y", None], "String"),
        (["1", "2", "3"], "String"),
        (list(np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="datetime64[us]").tolist()), "Datetime"),
    ],
)
def test_a_column_that_has_no_numbers_is_named(cells, kind):
    for frame in (pd.DataFrame, pl.DataFrame, pa.table):
        for read in (lambda given: hs.fit(given, latent=2), lambda given: validation.table("ys", given, 2)):
            with pytest.raises(InvalidInput) as caught:
                read(frame({"a": [1.0, 2.0, 3.0], "place": cells}))
            assert str(caught.value).startswith("ys, column 'place': ")
            assert kind in str(caught.value)
            assert "\n" not in str(caught.value)


def test_columns_of_the_same_name_are_refused():
    with pytest.raises(InvalidInput, match=r"^ys: .*column 'a' 2 times"):
        validation.table("ys", pd.DataFrame(np.eye(2), columns=["a", "a"]), 2)


def test_frames_need_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals.stable.v2", None)
    with pytest.raises(MissingExtra, match=r"a DataFrame needs the package 'narwhals'.*\[experiments\]"):
        validation.table("ys", pd.DataFrame({"a": [1, 2]}), 1)


def test_what_is_not_a_table():
    for value in (pl.LazyFrame(COLUMNS), pd.Timestamp("2020-01-01"), pl.Float64):
        with pytest.raises(InvalidInput, match="an array of real numbers"):
            validation.real_numbers("ys", value)


# ---------------------------------------------------------------------- every call that takes a table

RNG = np.random.default_rng(8)
YS = RNG.normal(size=(120, 2))
YS[3, 1] = np.nan
ARMS = RNG.integers(0, 3, size=120)
REWARDS = RNG.normal(size=120)
REWARDS[5] = np.nan


def as_frame(frame, array):
    columns = {name: [None if np.isnan(x) else x for x in column] for name, column in zip("abc", array.T, strict=False)}
    return frame(columns)


def as_series(frame, values):
    cells = [None if np.isnan(value) else value for value in values.tolist()]
    return {"polars": pl.Series, "Arrow": lambda given: pa.chunked_array([given])}.get(frame, pd.Series)(cells)


@pytest.mark.parametrize("kind", FRAMES)
def test_models_take_frames(kind):
    given = as_frame(FRAMES[kind], YS)
    model = hs.fit(YS, latent=2, max_iterations=3).model
    np.testing.assert_array_equal(hs.fit(given, latent=2, max_iterations=3).model.transition, model.transition)
    np.testing.assert_array_equal(model.filter(given).means, model.filter(YS).means)
    np.testing.assert_array_equal(model.smooth(given).means, model.smooth(YS).means)
    by_series, by_array = model.tracker(), model.tracker()
    for row in YS[:5]:
        step = by_series.step(as_series(kind, row))
        np.testing.assert_array_equal(step.mean, by_array.step(row).mean)


@pytest.mark.parametrize("kind", ["pandas", "pandas nullable", "polars"])
def test_agents_and_fleets_take_frames(kind):
    frame, given = FRAMES[kind], as_frame(FRAMES[kind], YS)
    series = {"polars": pl.Series}.get(kind, pd.Series)
    by_frame, by_array = (hs.make("ts-pco", observed=2, arms=3, seed=4) for _ in range(2))
    by_frame.fold(given, series(ARMS), as_series(kind, REWARDS), propensities=series(np.full(120, 0.3)))
    by_array.fold(YS, ARMS, REWARDS, propensities=np.full(120, 0.3))
    np.testing.assert_equal(by_frame.state(), by_array.state())
    assert by_frame.decide(as_series(kind, YS[3])).propensities.tolist() == by_array.decide(YS[3]).propensities.tolist()
    ids = [by_frame.decide(YS[0]).id, by_frame.decide(YS[1]).id]
    by_frame.learn_many(series(ids), series([1.0, 2.0]))

    mask = np.array([[True, False, True]] * 120)
    arms = []
    for numbers, available in ((given, frame(dict(zip("abc", mask.T.tolist(), strict=True)))), (YS, mask)):
        fleet = hs.Fleet("ts-pco", observed=2, arms=["a", "b", "c"])
        fleet.add(120)
        decisions = fleet.decide(numbers, available=available)
        fleet.learn(series(decisions.ids), series(np.nan_to_num(REWARDS)))
        arms.append(decisions.arms)
    np.testing.assert_array_equal(*arms)
    assert "b" not in arms[0]


@pytest.mark.parametrize("kind", ["pandas nullable", "polars", "Arrow"])
def test_examinations_take_frames(kind):
    model = hs.fit(YS, latent=2, max_iterations=3).model
    tables = {"observations": YS, "contexts": np.nan_to_num(YS), "hidden": YS[:, :1]}
    found = [
        hs.examine(
            model=model,
            arms=ARMS,
            rewards=rewards,
            **{name: read(table) for name, table in tables.items()},
        )
        for rewards, read in (
            (as_series(kind, REWARDS), lambda table: as_frame(FRAMES[kind], table)),
            (REWARDS, np.asarray),
        )
    ]
    assert str(found[0]) == str(found[1])


def test_the_client_takes_frames():
    frame = pl.DataFrame(COLUMNS)
    by_frame = _decide_many("s", frame, None, None).body["decisions"]
    assert [one["observation"] for one in by_frame] == [[1.5, 3.0], [None, 1.0], [-2.0, None], [0.25, None]]
    assert _decide("s", pd.Series([1, None], dtype="Int64"), None, None).body["observation"] == [1.0, None]
    assert _decide("s", {"x": pd.NA}, None, None).body["observation"] == {"x": None}


@pytest.mark.parametrize("value", [1e-101, 1e101, 5e-324, 1e308])
def test_options_whose_squares_could_overflow_are_refused(value):
    with pytest.raises(InvalidInput, match=r"^regularisation: expected a number between 1e-100 and 1e\+100, got"):
        hs.make("ts-pco", observed=2, arms=2, regularisation=value)


def test_arrays_beyond_the_limits_are_refused():
    many = r"at most \d+ rows and columns of numbers within ±1e\+100"
    with pytest.raises(InvalidInput, match=rf"^state_rewards: expected {many}, got 1e\+101$"):
        hs.make("mts", observed=1, arms=2, state_rewards=[[1e101], [0.0]], state_transition=[[1.0]])
    with pytest.raises(InvalidInput, match=rf"^observation_cov: expected {many}, got 1e\+201$"):
        hs.make("emkf-ts", observed=1, arms=2, latent=2, observation_cov=1e201)
    with pytest.raises(InvalidInput, match=r"^process_cov: expected numbers within ±1e\+200, got 1e\+201 at \[\]$"):
        hs.LinearGaussianModel(transition=[[1.0]], process_cov=1e201, observation_cov=[1.0])
