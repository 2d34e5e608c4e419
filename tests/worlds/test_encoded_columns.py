"""Tables with text, dates and compressed files, and rows that are sorted by time."""

import datetime
import gzip
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import halfseen as hs
from halfseen.cli.app import run_app
from halfseen.worlds.columns import read_columns

ROWS = 100


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "y": rng.normal(size=ROWS),
            "weather": rng.permutation(["sun"] * 40 + ["rain"] * 30 + ["fog"] * 30),
            "when": pd.date_range("2026-01-01", periods=ROWS, freq="12h"),
            "a": rng.normal(size=ROWS),
            "b": rng.normal(size=ROWS),
        }
    )


def quietly(table, **options):
    options = {"observed": ["y", "weather"], "rewards": ["a", "b"]} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hs.HalfseenWarning)
        return hs.worlds.recorded(table, **options)


@pytest.mark.parametrize("convert", [lambda t: t, pl.from_pandas, lambda t: t.astype({"weather": "category"})])
def test_text_becomes_columns_of_zeros_and_ones(table, convert):
    table.loc[4, "weather"] = None
    features, notes = read_columns(convert(table)).features(["y", "weather"])
    assert list(features) == ["y", "weather=fog", "weather=rain"]
    for text in ("fog", "rain"):
        expected = np.where(table["weather"].isna(), np.nan, table["weather"] == text)
        np.testing.assert_array_equal(features[f"weather={text}"], expected.astype(float))
    assert notes == [
        "column 'weather' contains text and becomes 2 columns of 0 and 1: 'weather=fog', 'weather=rain' "
        "('sun' is the reference)"
    ]


@pytest.mark.parametrize(
    ("texts", "columns"),
    [
        (["phone", "tablet", "phone"], {"device=tablet": [0, 1, 0]}),
        (["tablet", "phone", None, "phone", "tablet"], {"device=tablet": [1, 0, np.nan, 0, 1]}),  # equally frequent
        (["phone", "", "phone"], {"device=phone": [1, np.nan, 1]}),  # a single text has no reference
    ],
)
def test_the_most_frequent_text_is_the_reference(texts, columns):
    features, (note,) = read_columns({"device": texts}).features(["device"])
    assert list(features) == list(columns)
    for name, values in columns.items():
        np.testing.assert_array_equal(features[name], np.array(values, dtype=float))
    assert ("'phone' is the reference" in note) == ("device=tablet" in columns)


def test_columns_of_a_text_are_not_collinear_with_the_intercept(table):
    features, _ = read_columns(table).features(["weather"])
    design = np.column_stack([np.ones(ROWS), *features.values()])
    assert np.linalg.matrix_rank(design) == design.shape[1] == 3


@pytest.mark.parametrize(
    "cells",
    [
        pd.to_datetime(["2026-01-01T00:00", "2026-01-02T12:00", None]).to_numpy(),
        [datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 2, 12), None],
        ["2026-01-01", "2026-01-02 12:00", ""],
        ["2026-01-01T01:00+01:00", "2026-01-02T12:00+00:00", ""],
    ],
)
def test_dates_become_days(cells):
    features, notes = read_columns({"when": cells}).features(["when"])
    np.testing.assert_array_equal(features["when"], [0.0, 1.5, np.nan])
    assert notes == ["column 'when' contains dates and is taken as time, in days since its first row"]


def test_numbers_written_as_text_stay_numbers():
    features, notes = read_columns({"y": ["1.5", "", "20240131"]}).features(["y"])
    np.testing.assert_array_equal(features["y"], [1.5, np.nan, 20240131.0])
    assert notes == []


def test_a_mixture_of_numbers_and_text_and_too_many_texts_are_refused():
    with pytest.raises(hs.HalfseenError, match="the table, column 'y', row 2: expected a number or an empty cell, got"):
        read_columns({"y": ["1.5", "n/a"]}).features(["y"])
    many = {"y": [f"user {number}" for number in range(51)]}
    line = "the table, column 'y': expected numbers, or at most 50 different texts, got 51 texts"
    with pytest.raises(hs.HalfseenError, match=line):
        read_columns(many).features(["y"])


def test_a_recorded_world_says_what_it_encoded_and_plays(table):
    with pytest.warns(hs.HalfseenWarning, match="the table: column 'weather' contains text and becomes 2 columns"):
        world = hs.worlds.recorded(table, observed=["y", "weather"], rewards=["a", "b"])
    assert world.observed_names == ("y", "weather=fog", "weather=rain")
    result = hs.run(["ts-pco", "adaptive", "emkf-ts"], world=world, seeds=1)
    assert np.isfinite(result.tracks["recorded", "adaptive"].reward).all()


def test_rows_are_sorted_by_time(table):
    shuffled = table.sample(frac=1, random_state=3)
    with pytest.warns(hs.HalfseenWarning, match="the rows were not in order of 'when' and have been sorted"):
        world = hs.worlds.recorded(shuffled, observed=["y"], rewards=["a", "b"], time="when")
    np.testing.assert_array_equal(world.rewards, quietly(table, observed=["y"]).rewards)
    in_order = hs.worlds.recorded(table, observed=["y"], rewards=["a", "b"], time="when")  # no warning
    assert in_order.notes == ()
    np.testing.assert_array_equal(in_order.observations, world.observations)
    with pytest.raises(hs.HalfseenError, match="the table, column 'when', row 3: expected a time, got an empty cell"):
        hs.worlds.recorded(
            table.assign(when=[None if n == 2 else n for n in range(ROWS)]),
            observed=["y"],
            rewards=["a", "b"],
            time="when",
        )
    with pytest.raises(hs.HalfseenError, match="the table, column 'weather', row 1: expected a time"):
        quietly(table, time="weather")
    with pytest.raises(hs.HalfseenError, match="the table has no column 'whe'"):
        quietly(table, time="whe")


def test_a_compressed_file_is_read_like_a_plain_one(table, tmp_path):
    table.to_csv(tmp_path / "data.csv", index=False)
    table.to_csv(tmp_path / "data.csv.gz", index=False)
    plain, compressed = (quietly(tmp_path / name) for name in ("data.csv", "data.csv.gz"))
    np.testing.assert_array_equal(plain.observations, compressed.observations)
    log = table.assign(arm=0, propensity=0.5, reward=1.0)
    log.to_csv(tmp_path / "log.csv.gz", index=False)
    evaluation = hs.evaluate(tmp_path / "log.csv.gz", "always:0", observed=["y", "weather"])
    assert evaluation.warnings[0].startswith("column 'weather' contains text and becomes 2 columns of 0 and 1")
    (tmp_path / "broken.csv.gz").write_bytes(b"not compressed")
    with pytest.raises(hs.HalfseenError, match="table: expected a readable file"):
        quietly(tmp_path / "broken.csv.gz")
    (tmp_path / "short.csv.gz").write_bytes(gzip.compress(b"y,a,b\n1,2,3\n" * 100)[:20])
    with pytest.raises(hs.HalfseenError, match="table: expected a readable file"):
        quietly(tmp_path / "short.csv.gz")


def test_the_command_line_prints_notes(table, tmp_path, capsys):
    table.sample(frac=1, random_state=3).to_csv(tmp_path / "data.csv.gz", index=False)
    words = ["run", str(tmp_path / "data.csv.gz"), "--observed", "y,weather", "--rewards", "a,b", "--time", "when"]
    assert (
        run_app([*words, "--agents", "ts-pco,random", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path / "out")])
        == 0
    )
    shown = capsys.readouterr()
    assert "note: column 'weather' contains text and becomes 2 columns" in shown.err
    assert "note: the rows were not in order of 'when' and have been sorted" in shown.err
    page = (tmp_path / "out/report.html").read_text()
    assert "--time when" in page
    assert "have been sorted" in page
    assert run_app(["run", "keyhole", "--time", "when"]) == 2
    assert "error: time: expected no value unless the world is a table" in capsys.readouterr().err
