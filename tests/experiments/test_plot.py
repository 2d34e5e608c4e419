"""`Result.plot` draws some agents, on some scale, into axes of the caller, and refuses what it cannot draw."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import halfseen as hs


@pytest.fixture(scope="module")
def result():
    return hs.run(["ts-pco", "kf-ts", "random"], world="keyhole", rounds=60, seeds=2)


def test_only_the_given_agents_are_shown(result):
    figure = result.plot(agents=["random", "ts-pco"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["random", "ts-pco"]
    assert all(len(axes.lines) == 2 for axes in figure.axes)


def test_both_axes_are_logarithmic(result):
    scales = {(axes.get_xscale(), axes.get_yscale()) for axes in result.plot(scale="log").axes}
    assert scales == {("log", "log")}


def test_cumulative_regret_is_drawn_into_axes_of_the_caller(result):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert result.plot(ax=left, agents=["kf-ts"]) is figure
    (line,) = left.lines
    regret = result.tracks["keyhole", "kf-ts"].regret
    np.testing.assert_allclose(line.get_ydata(), np.cumsum(regret.mean(axis=0)))
    assert left.get_legend().get_texts()[0].get_text() == "kf-ts"
    result.plot(ax=right, scale="log")
    assert right.get_xscale() == "log"


def test_cumulative_rewards_are_drawn_into_axes_of_the_caller():
    rows = np.arange(100.0)
    world = hs.worlds.recorded({"y": rows % 7, "a": rows % 7, "b": 3 - rows % 7}, observed=["y"], rewards=["a", "b"])
    recorded = hs.run(["ts-pco", "random"], world=world, seeds=2)
    axes = Figure().subplots()
    recorded.plot(ax=axes)
    assert axes.get_ylabel() == "cumulative reward\nminus random"
    with pytest.raises(hs.HalfseenError, match="scale: expected 'linear', because rewards can be negative, got 'log'"):
        recorded.plot(scale="log")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"agents": ["kf"]}, "There is no agent 'kf'. Did you mean 'kf-ts'?"),
        ({"agents": []}, "agents: expected at least one agent, got none"),
        ({"agents": "kf-ts"}, "agents: expected a list of labels of agents, got 'kf-ts'"),
        ({"scale": "square"}, "scale: expected 'linear' or 'log', got 'square'"),
        ({"ax": 3}, "ax: expected the axes of a Matplotlib figure, got int"),
    ],
)
def test_invalid_arguments_are_refused(result, options, line):
    with pytest.raises(hs.HalfseenError) as refused:
        result.plot(**options)
    assert str(refused.value).startswith(line)


def test_axes_take_one_world_only():
    result = hs.run("random", world=["keyhole", "fog"], rounds=20, seeds=1)
    with pytest.raises(hs.HalfseenError, match="ax: expected a result with one world, got 2 worlds"):
        result.plot(ax=Figure().subplots())
