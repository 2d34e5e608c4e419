"""The map of the paper's claims: its cells, its verdicts and its sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.synthetic import fabricate, power, record_calls
from reports.page import Page
from scipy import stats

import halfseen as hs
from halfseen.experiments import claim_map, slice_schedule
from halfseen.experiments.cache import SliceStore
from halfseen.experiments.claim_map import (
    NOISE,
    REFERENCES,
    SENSOR_NOISE,
    STARTS,
    SUBJECTS,
    AgentRegret,
    Cell,
    ClaimMap,
    MapPlan,
    StartRegrets,
    describe_cells,
    long_plan,
    map_plan,
    play_map,
)
from halfseen.experiments.claims import ClaimVerdict, evaluate_claims
from halfseen.experiments.plan import check_memory
from halfseen.experiments.reproduce import save_reproduction
from halfseen.experiments.slice_summary import CURVE_POINTS, SliceSummary
from halfseen.reports.files import write_json
from halfseen.statistics.growth import log_grid

FIRST, SECOND = STARTS
CELL = Cell(0.001, 0.1)
ALL = [Cell(noise, sensor_noise) for noise in NOISE for sensor_noise in SENSOR_NOISE]
EXPONENTS = {"oracle-ts": 0.5, "kf-ts": 0.55, "ts-pco": 0.9, "emkf-ts": 0.5, "emkf-ucb": 0.52}


def synthetic_map(cells: Sequence[Cell] = ALL, *, seeds: int = 5, rounds: int = 1600) -> ClaimMap:
    """Return a map with random regrets whose size depends on the cell, so that all verdicts occur."""
    rng = np.random.default_rng(4)
    regrets = {}
    for cell in cells:
        for agent in [*REFERENCES, *(start.label(subject) for start in STARTS for subject in SUBJECTS)]:
            name = agent.partition(", ")[0]
            extra = cell.noise * (2.0 if name in SUBJECTS else 0.0) - (
                0.2 if cell.sensor_noise and name == "emkf-ts" else 0
            )
            scale = (1.0 + extra) * rng.uniform(0.9, 1.1, size=(seeds, 1))
            per_round = scale * power(EXPONENTS[name] + 0.2 * (cell.noise == 0.1), rounds=rounds)
            blocks = np.stack([per_round[:, rounds // n : 2 * rounds // n].mean(axis=1) for n in (16, 8, 4, 2)], axis=1)
            curve = np.cumsum(per_round, axis=1)[:, log_grid(rounds, CURVE_POINTS) - 1]
            regrets[cell.world.name, agent] = AgentRegret(per_round.sum(axis=1), blocks, curve)
    plan = MapPlan((tuple(cells),) * len(STARTS), rounds, tuple(range(seeds)))
    worlds = tuple(cell.world.name for cell in cells)
    return ClaimMap(plan, tuple(StartRegrets(worlds, rounds, regrets, start) for start in STARTS), 1.0)


def test_every_cell_is_played_with_both_starts() -> None:
    slices = map_plan(100, range(3)).slices()
    by_world: dict[str, dict[str, Any]] = {}
    for task in slices:
        by_world.setdefault(task.world.name, {})[task.agents[0].label] = dict(task.agents[0].options)
    assert list(by_world) == [cell.world.name for cell in sorted(ALL)]
    assert len(slices) == len(ALL) * (len(REFERENCES) + 2 * len(SUBJECTS))
    agents = by_world["paper ε=0.001 Σ=0.1"]
    assert list(agents)[:3] == ["oracle-ts", "kf-ts", "ts-pco"]
    assert agents["emkf-ts, Q̂₀ = I, L = 200"] == {"initial_process_var": 1.0, "window": 200}
    assert agents["emkf-ucb, Q̂₀ = εI, L = 1000"] == {"initial_process_var": 0.001, "window": 1000}


def test_regrets_are_those_of_a_run() -> None:
    plan = MapPlan(((CELL,), ()), 320, (4, 5))
    played = play_map(plan)
    result = hs.run(
        ["oracle-ts", "ts-pco", "emkf-ts"], world="paper:noise=0.001,sensor_noise=0.1", rounds=320, seeds=[4, 5]
    )
    for agent in result.agents:
        np.testing.assert_allclose(
            played.regrets[0].total_regret(CELL.world.name, agent), result.total_regret(CELL.world.name, agent)
        )
        expected, got = (
            result.growth_exponent(CELL.world.name, agent),
            played.regrets[0].growth_exponent(CELL.world.name, agent),
        )
        assert (got.value, got.low, got.high) == pytest.approx(
            (expected.value, expected.low, expected.high), nan_ok=True
        )


def test_an_interrupted_map_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = record_calls(monkeypatch, slice_schedule, "play_and_summarise")
    plan, store = MapPlan(((CELL,), (CELL,)), 40, (1,)), SliceStore(tmp_path)
    seen = []
    first = play_map(plan, store=store, progress=seen.append)
    assert len(played) == 7
    assert (seen[-1].done, seen[-1].total) == (7, 7)
    again = play_map(plan, store=store)
    assert len(played) == 7
    assert json.dumps(first.summary()["cells"]) == json.dumps(again.summary()["cells"])


def test_an_agent_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_schedule, "play_and_summarise", lambda *_: SliceSummary(0.1, "ValueError: no"))
    with pytest.raises(hs.HalfseenError, match=r"'oracle-ts' failed in 'paper ε=0\.001 Σ=0\.1': ValueError: no"):
        play_map(MapPlan(((CELL,), ()), 40, (1,)))


def student(values: np.ndarray) -> float:
    """Return half of the 95 % interval of a mean."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def interval_of_difference(ours: list[float], rival: list[float]) -> tuple[float, float]:
    a, b = np.array(ours), np.array(rival)
    ratio = a.mean() / b.mean() - 1.0
    half = student(a - b - ratio * b) / b.mean()
    return ratio - half, ratio + half


def interval_of_growth(blocks: list[list[float]]) -> tuple[float, float]:
    table = np.array(blocks)
    log_t = np.log([1.5, 3.0, 6.0, 12.0])  # the middles of the blocks, in units of T/16

    def exponent(rows: np.ndarray) -> float:
        return 1.0 + np.polyfit(log_t, np.log(rows.mean(axis=0)), 1)[0]

    n = len(table)
    left_out = np.array([exponent(np.delete(table, i, axis=0)) for i in range(n)])
    half = stats.t.ppf(0.975, n - 1) * np.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    return exponent(table) - half, exponent(table) + half


def expected_verdict(title: str, agents: dict[str, Any], start: str | None) -> str:
    """Return the verdict by the rules of decision 5, computed from the stored regrets alone."""

    def judge(subject: str) -> str:
        own = agents[f"{subject}, {start}" if start else subject]
        if "sub-linear" in title or "linear regret" in title:
            low, high = interval_of_growth(own["blocks_by_seed"])
            below, above = high < 0.75, low >= 0.75
            holds, fails = (below, above) if "sub-linear" in title else (above, below)
        elif "closely" in title:
            low, high = interval_of_difference(own["regret_by_seed"], agents["oracle-ts"]["regret_by_seed"])
            holds, fails = high < 0.1, low >= 0.1
        else:
            low, high = interval_of_difference(own["regret_by_seed"], agents["ts-pco"]["regret_by_seed"])
            holds, fails = high < 0.0, high >= 0.0 and low > -0.05
        return "holds" if holds else "does not hold" if fails else "undecided"

    verdicts = [judge(subject) for subject in (SUBJECTS if start else ("ts-pco",))]
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if set(verdicts) == {"holds"} else "undecided"


def test_verdicts_follow_from_the_regrets_in_the_summary(tmp_path: Path) -> None:
    write_json(tmp_path / "summary.json", synthetic_map().summary())
    summary = json.loads((tmp_path / "summary.json").read_text())
    cells = {(cell["noise"], cell["sensor_noise"]): cell["agents"] for cell in summary["cells"]}
    verdicts = []
    for panel in summary["panels"]:
        assert len(panel["cells"]) == 20
        for cell in panel["cells"]:
            agents = cells[cell["noise"], cell["sensor_noise"]]
            verdicts.append(cell["verdict"])
            assert cell["verdict"] == expected_verdict(panel["title"], agents, panel["start"]), (panel["title"], cell)
        held = sum(cell["verdict"] == "holds" for cell in panel["cells"])
        assert f"it holds in {held} of 20 cells" in panel["statement"]
    assert [panel["start"] for panel in summary["panels"]] == [*[start.name for start in STARTS] * 3, None]
    assert set(verdicts) == {"holds", "does not hold", "undecided"}


def test_a_long_map_repeats_the_cells_that_hold() -> None:
    first = synthetic_map()
    held = {(panel.number, panel.start): panel.where(ClaimVerdict.HOLDS) for panel in first.panels()}
    plan = long_plan(first, 9600)
    assert (plan.rounds, plan.seeds) == (9600, first.plan.seeds)
    for start, cells in zip(STARTS, plan.cells, strict=True):
        assert set(cells) == set().union(*(own for (_, other), own in held.items() if other in (None, start)))
    summary = first.summary(before=first)
    for panel, own in zip(summary["panels"], held.values(), strict=True):
        assert {(cell["noise"], cell["sensor_noise"]) for cell in panel["cells"]} == set(own)
        if own:
            assert f"in {len(own)} of the {len(own)} cell" in panel["statement"]
            assert "in which it holds at T = 1,600" in panel["statement"]
        else:
            assert panel["statement"].endswith("it holds in no cell, so none was repeated.")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (ALL, "everywhere"),
        ([CELL], "where Σ = 0.1 I and ε = 0.001"),
        ([cell for cell in ALL if cell.sensor_noise >= 0.01 and cell.noise <= 0.01], "where Σ ≥ 0.01 I and ε ≤ 0.01"),
        ([cell for cell in ALL if cell.sensor_noise == 0 or cell.noise == 1], "where Σ = 0; where ε = 1"),
        (
            [cell for cell in ALL if 0.001 <= cell.noise <= 0.1 and cell.sensor_noise == 1],
            "where Σ = I and 0.001 ≤ ε ≤ 0.1",
        ),
    ],
)
def test_a_set_of_cells_in_words(cells: list[Cell], words: str) -> None:
    assert describe_cells(cells) == words


def test_the_report_opens_every_cell(tmp_path: Path) -> None:
    result = fabricate(["emkf-ts", "ts-pco"], lambda *_: power(0.5))
    cells = ALL[:3]
    first, long = synthetic_map(cells), synthetic_map(cells, rounds=9600)
    paths = save_reproduction(result, evaluate_claims(result), tmp_path, [first.summary(), long.summary(before=first)])
    assert {"map-1600.png", "map-1600.svg", "map-9600.png", "map-9600.svg"} <= {path.name for path in paths}
    assert [one["rounds"] for one in json.loads((tmp_path / "summary.json").read_text())["maps"]] == [1600, 9600]
    text = (tmp_path / "report.html").read_text()
    for rounds in (1600, 9600):
        assert [text.count(f'id="cell-{rounds}-{number}"') for number in range(4)] == [1, 1, 1, 0]
    assert text.count('href="#cell-1600-') == 7 * len(cells)
    held = sum(len(panel.where(ClaimVerdict.HOLDS)) for panel in first.panels())
    assert text.count('href="#cell-9600-') == held
    page = Page(text)
    for panel in first.panels():
        assert panel.statement(1600, None) in page.text
    assert "halfseen reproduce --long --rounds" in page.text
    assert "--map-seeds 5" in page.text


def test_a_run_that_does_not_fit_into_memory_is_refused() -> None:
    line = (
        r"rounds: expected few enough rounds and seeds for \d+ GB of memory, got 1,000,000,000,000 rounds, which need "
    )
    with pytest.raises(hs.HalfseenError, match=line):
        hs.run("random", world="orbit", rounds=10**12, seeds=1)
    with pytest.raises(hs.HalfseenError, match=line):
        play_map(map_plan(10**12, range(2)))
    check_memory(10_000, 100)


def test_the_figure_and_the_map_share_their_worlds() -> None:
    assert claim_map.Cell(0.01, 0.0).world == hs.worlds.named("paper", noise=0.01)
