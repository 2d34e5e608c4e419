"""Figures: their curves, their layout, and their files, which are reproducible."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from experiments.synthetic import fabricate, power
from matplotlib.backends.backend_agg import FigureCanvasAgg

import halfseen
from halfseen.errors import HalfseenError, MissingExtra
from halfseen.experiments.report import result_figure
from halfseen.experiments.reproduce import AGENTS
from halfseen.experiments.result import Result
from halfseen.reports.figures import arm_shares, arms_figure, render_figure, reward_figure, theory_figure
from halfseen.reports.files import save_figure

WORLDS = ("paper:noise=0.01", "paper:noise=0.1", "paper:noise=1", "orbit", "keyhole", "fog")


def synthetic_result(
    agents: list[str], worlds: tuple[str, ...] = WORLDS[:1], seeds: int = 3, rounds: int = 2000
) -> Result:
    return fabricate(
        agents,
        lambda w, a, s: power(0.6, scale=1.0 + 0.1 * s, rounds=rounds),
        worlds=worlds,
        seeds=seeds,
        rounds=rounds,
    )


def theory_of(result: Result):
    return theory_figure(result.summary)


def visible_axes(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def test_curves_are_the_mean_over_seeds_and_the_moving_average() -> None:
    result = synthetic_result(["kf-ts"])
    top, bottom = visible_axes(result_figure(result))
    regret = result.tracks[result.worlds[0], "kf-ts"].regret
    at, drawn = top.lines[0].get_data()
    np.testing.assert_allclose(drawn, np.cumsum(regret, axis=1).mean(axis=0)[at.astype(int) - 1])
    at, drawn = bottom.lines[0].get_data()
    np.testing.assert_allclose(drawn[-1], regret[:, -100:].mean())
    np.testing.assert_allclose(drawn[0], regret[:, :100].mean())
    assert at[0] == 100
    assert "100 rounds" in bottom.get_ylabel()


def test_band_is_one_standard_error() -> None:
    result = synthetic_result(["kf-ts"])
    total = result.total_regret(result.worlds[0], "kf-ts")
    band = visible_axes(result_figure(result))[0].collections[0].get_paths()[0].vertices
    at_end = band[band[:, 0] == 2000][:, 1]
    error = total.std(ddof=1) / np.sqrt(len(total))
    assert at_end.min() == pytest.approx(total.mean() - error)
    assert at_end.max() == pytest.approx(total.mean() + error)


def test_one_seed_has_no_band() -> None:
    figure = result_figure(synthetic_result(["kf-ts"], seeds=1))
    assert not visible_axes(figure)[0].collections
    assert figure.legends[0].get_title().get_text() == "one seed"


@pytest.mark.parametrize("worlds", [WORLDS[:1], WORLDS[:4], WORLDS])
@pytest.mark.parametrize("draw", [result_figure, theory_of])
def test_the_legend_is_inside_and_overlaps_no_panel(draw, worlds: tuple[str, ...]) -> None:
    agents = [*AGENTS, "emkf-ts:window=400,initial_process_var=2"]
    figure = draw(synthetic_result(agents, worlds))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    legend = figure.legends[0].get_window_extent(renderer)
    assert len(visible_axes(figure)) == 2 * len(worlds)
    for axes in visible_axes(figure):
        assert not legend.overlaps(axes.get_tightbbox(renderer))
        assert axes.get_tightbbox(renderer).width > 0
        assert axes.get_title() or axes.get_xlabel()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.width
    assert legend.y0 >= 0


def test_agents_have_distinct_and_consistent_styles() -> None:
    agents = [*AGENTS, "random", "lag-ts", "kf-ucb", "ts-pco:width=0.5", "ts-pco:width=2"]

    def styles(names: list[str]) -> dict[str, tuple[object, ...]]:
        lines = result_figure(synthetic_result(names)).legends[0].get_lines()
        return {
            line.get_label(): (line.get_color(), line.get_linestyle(), line._unscaled_dash_pattern) for line in lines
        }

    all_styles = styles(agents)
    assert list(all_styles) == agents
    assert len(set(map(str, all_styles.values()))) == len(agents)
    assert styles(["ts-pco", "emkf-ts"]) == {name: all_styles[name] for name in ("ts-pco", "emkf-ts")}


def test_the_bound_equals_the_regret_in_the_last_round() -> None:
    top, bottom = visible_axes(theory_of(synthetic_result(["kf-ts"])))
    measured, bound = (line.get_ydata() for line in top.lines)
    assert bound[-1] == pytest.approx(measured[-1])
    assert bound[0] != pytest.approx(measured[0])
    marks, gram = bottom.lines[0].get_data()
    np.testing.assert_allclose(gram, np.sqrt(marks))
    assert top.get_xscale() == top.get_yscale() == "log"


def test_saved_files(tmp_path: Path) -> None:
    result = synthetic_result(["kf-ts", "ts-pco"], rounds=9000)
    save_figure(result_figure(result), tmp_path / "a.svg")
    save_figure(result_figure(result), tmp_path / "b.svg")
    save_figure(result_figure(result), tmp_path / "a.png")
    svg = (tmp_path / "a.svg").read_text()
    assert svg == (tmp_path / "b.svg").read_text()
    assert "<dc:date>" not in svg
    assert len(svg) < 300_000  # a curve does not contain all 9000 points
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.svg"]
    with pytest.raises(HalfseenError, match=r"\.png or \.svg"):
        save_figure(result_figure(result), tmp_path / "a.gif")


def test_pyplot_is_not_imported() -> None:
    code = (
        "import sys; from reports.test_figures import render_figure, result_figure, synthetic_result; "
        "render_figure(result_figure(synthetic_result(['kf-ts'])), 'png'); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    path = [str(Path(halfseen.__file__).parents[1]), str(Path(__file__).parents[1])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"halfseen\[experiments\]"):
        result_figure(synthetic_result(["kf-ts"]))


ARMS = ["up <b>", "down", "flat"]


def test_rewards_are_drawn_relative_to_the_baseline() -> None:
    result = synthetic_result(["ts-pco", "random"])
    reward = {world: {agent: result.tracks[world, agent].reward for agent in result.agents} for world in result.worlds}
    figure = reward_figure(reward, "random")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(result.agents)
    assert figure.axes[0].get_ylabel() == "cumulative reward\nminus random"
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    earned = [result.tracks[result.worlds[0], agent].reward.mean(axis=0).sum() for agent in result.agents]
    np.testing.assert_allclose([line.get_ydata()[-1] for line in lines], np.array(earned) - earned[-1], atol=1e-9)
    alone = {world: {"ts-pco": agents["ts-pco"]} for world, agents in reward.items()}
    assert reward_figure(alone, "random").axes[0].get_ylabel() == "cumulative reward"


def test_all_agents_and_arms_are_drawn() -> None:
    rng = np.random.default_rng(1)
    arms = {agent: rng.integers(3, size=(2, 500)) for agent in ("oracle-ts", "lag-ts", "adaptive", "random")}
    figure = arms_figure(arms, ARMS)
    assert [axes.get_title() for axes in visible_axes(figure)] == list(arms)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ARMS
    assert render_figure(figure, "svg") == render_figure(arms_figure(arms, ARMS), "svg")


def test_shares_between_edges() -> None:
    arms = np.array([[0, 0, 1, 2], [0, 1, 1, 2]])
    np.testing.assert_allclose(arm_shares(arms, 3, np.array([0, 2, 4])), [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])
