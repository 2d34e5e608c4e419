"""Data frames and the HTML of notebooks contain what the objects contain, as numbers."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from own_agents import EpsilonGreedy, ts_pco
from reports.page import Page

import halfseen as hs
from halfseen.reports import frames
from halfseen.reports.frames import data_frame
from halfseen.reports.tables import GROWTH_NOTE, Table


def test_the_library_is_pandas_unless_another_is_chosen(monkeypatch):
    columns = {"a": np.arange(2), "b": ["x", "y"]}
    kinds = {None: pd.DataFrame, "pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}
    for library, kind in kinds.items():
        assert isinstance(data_frame(columns, library), kind)
    with pytest.raises(hs.HalfseenError, match="library: expected 'pandas' or 'polars' or 'pyarrow', got 'excel'"):
        data_frame(columns, "excel")
    monkeypatch.setattr(frames, "find_spec", lambda name: None if name == "pandas" else True)
    assert isinstance(data_frame(columns), pl.DataFrame)
    with pytest.raises(hs.HalfseenError, match="to_frame needs pandas; install it with: pip install pandas"):
        data_frame(columns, "pandas")


@pytest.fixture(scope="module")
def result():
    return hs.run([ts_pco, EpsilonGreedy, "ts-pco"], world=["keyhole", "orbit"], rounds=40, seeds=[3, 7])


def test_the_frame_of_a_result_has_a_row_per_agent_seed_or_round(result):
    per_agent = result.to_frame()
    assert list(zip(per_agent["world"], per_agent["agent"], strict=True)) == list(result.tracks)
    means = [track.regret.sum(axis=1).mean() for track in result.tracks.values()]
    np.testing.assert_allclose(per_agent["regret_mean"], means)
    assert all(dtype.kind == "f" for dtype in per_agent.dtypes.iloc[2:])
    per_seed = result.to_frame("seed")
    assert per_seed["seed"].tolist() == [3, 7] * 6
    rows = per_seed[(per_seed["world"] == "orbit") & (per_seed["agent"] == "ts-pco")]
    np.testing.assert_allclose(rows["regret"], result.total_regret("orbit", "ts-pco"))
    per_round = result.to_frame("round", library="polars")
    assert len(per_round) == 6 * 2 * 40
    one = per_round.filter((pl.col("agent") == "ts_pco") & (pl.col("world") == "keyhole") & (pl.col("seed") == 7))
    track = result.tracks["keyhole", "ts_pco"]
    np.testing.assert_array_equal(one["reward"].to_numpy(), track.reward[1])
    np.testing.assert_array_equal(one["propensity"].to_numpy(), track.propensity[1])
    assert np.isnan(per_round.filter(pl.col("agent") == "ts-pco")["propensity"].to_numpy()).all()
    with pytest.raises(hs.HalfseenError, match="per: expected 'agent' or 'seed' or 'round', got 'world'"):
        result.to_frame("world")


def test_rounds_parquet_has_propensities_if_an_agent_offers_them(result, tmp_path):
    result.save(tmp_path)
    saved = pd.read_parquet(tmp_path / "rounds.parquet")
    np.testing.assert_allclose(saved["propensity"], result.to_frame("round")["propensity"], rtol=1e-6)


def test_decisions_have_frames():
    agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
    decision = agent.decide([0.5, -1.0])
    frame = decision.to_frame()
    assert frame["arm"].tolist() == ["low", "high"]
    assert frame.loc[frame["chosen"], "arm"].item() == decision.arm
    np.testing.assert_array_equal(frame["propensity"], decision.propensities)
    fleet = hs.Fleet("ts-pco", observed=2, arms=["low", "high"], floor=0.1)
    fleet.add(12)
    decisions = fleet.decide(np.ones((12, 2)))
    frame = decisions.to_frame()
    np.testing.assert_array_equal(frame["propensity"], decisions.propensity)
    assert list(frame) == ["decision", "stream", "arm", "expected", "propensity", "branch"]
    assert "arm low" in decision._repr_html_() or "arm high" in decision._repr_html_()
    assert "and 2 more" in decisions._repr_html_()


def test_health_and_examinations_have_frames():
    model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=[[1.0]], observation_cov=[0.5])
    examination = hs.examine(model=model, observations=np.random.default_rng(0).normal(size=(200, 1)))
    frame = examination.to_frame()
    assert frame["finding"].tolist() == [finding.name for finding in examination.findings]
    assert frame["value"].dtype == float
    assert set(frame["verdict"]) <= {"fine", "look", "bad"}
    assert examination.answer[:20] in examination._repr_html_()
    health = hs.make("ts-pco", observed=1, arms=2).health()
    assert list(health.to_frame()) == list(frame)
    assert "nothing wrong" in health._repr_html_()


def test_leaderboards_have_frames():
    board = hs.leaderboard("random", worlds="keyhole", rounds=20, seeds=2)
    frame = board.to_frame()
    assert frame["agent"].tolist() == ["kf-ts", "random"]
    assert frame["ratio"].iloc[0] == 1.0
    assert "random" in board._repr_html_()


def test_tables_are_escaped_and_numbers_are_aligned_to_the_right(result):
    html = Table([{"a<b": "<x>", "n": "1.5"}, {"a<b": "&", "n": "–"}])._repr_html_()
    assert "<x>" not in html
    assert Page(html).rows == [["a<b", "n"], ["<x>", "1.5"], ["&", "–"]]
    assert html.count("text-align: right") == 3
    assert GROWTH_NOTE in Page(result._repr_html_()).text
    assert "<table>" in hs.catalog()._repr_html_()


def test_the_growth_exponent_is_explained_where_it_is_printed(result):
    assert "β can be negative" in repr(result).replace("\n", " ")
