"""Sweeps: which combinations are played, and the table, the frame, the figure and the files of a sweep."""

import numpy as np
import pytest
from own_agents import EpsilonGreedy

import halfseen as hs
from halfseen.cli.app import run_app
from halfseen.cli.arguments import split_grid

GRID = {"lags": [1, 2], "width": [0.5, 1.0]}


@pytest.fixture(scope="module")
def result():
    return hs.run(["lag-ts", "ts-pco", "random"], world="keyhole", rounds=30, seeds=2, grid=GRID)


def test_agents_are_played_with_the_options_that_they_have(result):
    assert result.agents == (
        "lag-ts:lags=1,width=0.5",
        "lag-ts:lags=1,width=1.0",
        "lag-ts:lags=2,width=0.5",
        "lag-ts:lags=2,width=1.0",
        "ts-pco:width=0.5",
        "ts-pco:width=1.0",
        "random",
    )
    alone = hs.run("lag-ts:lags=2,width=0.5", world="keyhole", rounds=30, seeds=2)
    label = "lag-ts:lags=2,width=0.5"
    np.testing.assert_array_equal(result.tracks["keyhole", label].arm, alone.tracks["keyhole", label].arm)


def test_the_table_marks_the_best_of_each_agent(result):
    rows = result.grid_table().rows
    assert [row["lags"] for row in rows] == ["1", "1", "2", "2", "–", "–", "–"]
    for agent in ("lag-ts", "ts-pco"):
        own = [(row, label) for row, label in zip(rows, result.agents, strict=True) if row["agent"] == agent]
        best = min(own, key=lambda pair: result.total_regret("keyhole", pair[1]).mean())
        assert [row["best"] for row, _ in own].count("best") == 1
        assert best[0]["best"] == "best"
    assert rows[-1]["best"] == ""


def test_the_frame_has_a_column_per_option(result):
    frame = result.to_frame()
    assert frame["lags"].tolist()[:4] == [1, 1, 2, 2]
    assert frame["lags"].isna().tolist() == [False] * 4 + [True] * 3


def test_the_figure_has_a_line_per_combination_of_the_other_options(result, tmp_path):
    figure = result.plot_grid(tmp_path / "grid.png")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "lags"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "lag-ts:width=0.5",
        "lag-ts:width=1.0",
        "ts-pco:width=0.5",
        "ts-pco:width=1.0",
        "random",
    ]
    means = [result.total_regret("keyhole", f"lag-ts:lags={lags},width=0.5").mean() for lags in (1, 2)]
    np.testing.assert_allclose(axes.lines[0].get_ydata().astype(float), means)


def test_words_arrays_and_own_agents_can_be_swept():
    model = hs.LinearGaussianModel(transition=0.9 * np.eye(3), process_cov=0.1, observation_cov=[0.1, 0.1, 0.1])
    swept = hs.run(
        ["kf-ts", hs.AgentSpec(EpsilonGreedy, label="mine")],
        world="keyhole",
        rounds=10,
        seeds=1,
        grid={"model": [model], "epsilon": [0.1, 0.2]},
    )
    assert swept.agents == ("kf-ts:model=#1", "mine:epsilon=0.1", "mine:epsilon=0.2")
    swept.plot_grid()
    words = hs.run("ts-pco", world="keyhole", rounds=10, seeds=1, grid={"width": ["theory", 1.0]})
    assert words.to_frame()["width"].tolist() == ["theory", "1.0"]
    assert [text.get_text() for text in words.plot_grid().axes[0].get_xticklabels()] == ["theory", "1.0"]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_values_of_several_kinds_are_texts_in_a_data_frame(library):
    class Moody(EpsilonGreedy):
        def __init__(self, arms, seed, mode="a"):
            super().__init__(arms=arms, seed=seed)

    swept = hs.run([Moody, "random"], world="keyhole", rounds=10, seeds=1, grid={"mode": ["a", None, 3]})
    frame = swept.to_frame(library=library)
    values = frame["mode"].to_pylist() if library == "pyarrow" else frame["mode"].to_list()
    assert values[:3] == ["a", "None", "3"]
    assert values[3] is None or values[3] != values[3]  # the last agent has no such option


@pytest.mark.parametrize(
    ("grid", "line"),
    [
        ({"windw": [1]}, "grid: expected options that at least one of the agents has, got 'windw'"),
        ({"lags": []}, "grid: expected at least one value of 'lags', got none"),
        ({"lags": 3}, "grid: expected a dictionary from names of options to lists of values, got lags=3"),
        ({"lags": "auto"}, "grid: expected a dictionary from names of options to lists of values, got lags='auto'"),
        ({}, "grid: expected a dictionary from names of options to lists of values, got {}"),
        ([1], "grid: expected a dictionary from names of options to lists of values, got [1]"),
        ({"width": [1.0]}, "grid: expected options that 'lag-ts:width=2' does not set itself, got 'width'"),
        ({"lags": [1, 1]}, "agents: expected no duplicates, got lag-ts:width=2,lags=1, lag-ts:width=2,lags=1"),
        ({"lags": [-1]}, "lags: expected an integer between 0 and 1000, got -1"),
    ],
)
def test_invalid_grids_are_refused(grid, line):
    with pytest.raises(hs.HalfseenError) as refused:
        hs.run("lag-ts:width=2", world="keyhole", rounds=10, seeds=1, grid=grid)
    assert str(refused.value) == line


def test_a_result_without_a_sweep_has_no_table_of_options():
    result = hs.run("random", world="keyhole", rounds=10, seeds=1)
    for method in (result.grid_table, result.plot_grid):
        with pytest.raises(hs.HalfseenError, match="grid: expected the result of"):
            method()


def test_a_sweep_on_recorded_data_compares_rewards(tmp_path):
    rows = np.arange(100.0)
    world = hs.worlds.recorded({"y": rows % 7, "a": rows % 7, "b": 3 - rows % 7}, observed=["y"], rewards=["a", "b"])
    result = hs.run(["ts-pco", "random"], world=world, seeds=2, grid={"width": [0.5, 1.0]}, out=tmp_path)
    assert "mean reward ± s.e. over seeds" in result.grid_table().columns
    assert (tmp_path / "grid.png").is_file()
    assert "Every combination of the options" in (tmp_path / "report.html").read_text()


def test_the_command_line_takes_a_grid(tmp_path, capsys):
    assert split_grid(["lags=1,2", "width=theory"]) == {"lags": [1, 2], "width": ["theory"]}
    words = ["run", "keyhole", "--agents", "lag-ts,random", "--rounds", "20", "--seeds", "2", "--jobs", "1"]
    assert run_app([*words, "--grid", "lags=1,2", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Options" in shown
    assert "β can be negative" in " ".join(shown.split())
    page = (tmp_path / "report.html").read_text()
    assert "Every combination of the options" in page
    assert "halfseen run keyhole --rounds 20 --seeds 2 --agents lag-ts:lags=1,lag-ts:lags=2,random" in page
    assert run_app([*words, "--grid", "lags"]) == 2
    assert "grid: expected an option and its values, such as window=100,200,500, got 'lags'" in capsys.readouterr().err
