"""The leaderboard: the numbers of `hs.run`, kept cell by cell, gone on with, and lost to no single failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.synthetic import record_calls
from reports.page import Page

import halfseen as hs
from halfseen.agents import saving
from halfseen.agents.catalogue import CATALOG, CatalogueEntry
from halfseen.choosers.uniform import Uniform
from halfseen.estimators.observed import Observed
from halfseen.experiments import cache
from halfseen.experiments import leaderboard as module
from halfseen.experiments import leaderboard_summary as summary
from halfseen.experiments.engines import local
from halfseen.experiments.leaderboard import FILES, WORLDS, Progress, Schedule, leaderboard_plan
from halfseen.experiments.leaderboard_summary import (
    BASELINE,
    FIELDS,
    SliceSummary,
    one_agent_slices,
    play_and_summarise,
    world_and_agent,
)
from halfseen.experiments.plan import Slice, experiment
from halfseen.experiments.play import OnProgress
from halfseen.learners.ridge import Ridge

AGENTS, PLACES = ["kf-ts", "ts-pco", "random"], ["keyhole", "switch:at=30"]
SMALL: dict[str, Any] = {"worlds": PLACES, "rounds": 60, "seeds": 3}
CELLS = len(AGENTS) * len(PLACES) * 2  # of two seeds and of one


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "SEEDS_PER_SLICE", 2)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Slice]:
    """The slices that were really played."""
    return record_calls(monkeypatch, module, "play_and_summarise")


def board_in(folder: Path | None = None, **options: Any) -> hs.Leaderboard:
    return hs.leaderboard(**({"agents": AGENTS, "out": folder} | SMALL | options))


def totals(board: hs.Leaderboard) -> dict[tuple[str, str], list[float]]:
    return {(w, a): board.entry(w, a)["regret_by_seed"] for w in board.worlds for a in board.agents}


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_numbers_are_those_of_run(jobs: int, tmp_path: Path) -> None:
    result = hs.run(AGENTS, world=PLACES, rounds=60, seeds=3)
    board = board_in(tmp_path if jobs > 1 else None, jobs=jobs)
    for (world, agent), regret in totals(board).items():
        assert regret == result.total_regret(world, agent).tolist()
        mine, theirs = board.entry(world, agent), result.summary["worlds"][world]["agents"][agent]
        for name in ("regret_mean", "regret_median", "regret_standard_error"):
            assert mine[name] == theirs[name]
        np.testing.assert_allclose(mine["curve"]["mean"], theirs["curve"]["mean"], rtol=1e-12)
        np.testing.assert_allclose(mine["curve"]["standard_error"], theirs["curve"]["standard_error"], rtol=1e-9)
        assert mine["curve"]["rounds"] == theirs["curve"]["rounds"]
        assert mine["microseconds_per_round"] > 0


def test_the_regret_around_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "WINDOW", 10)
    monkeypatch.setattr(summary, "ROUNDS_AFTER_CHANGE", 25)
    board, result = board_in(), hs.run(AGENTS, world="switch:at=30", rounds=60, seeds=3)
    place = "switch at=30"
    assert board.summary["worlds"][place]["change"] == {
        "after_round": 30,
        "rounds_before": [21, 30],
        "rounds_after": [46, 55],
    }
    for agent in AGENTS:
        regret, found = result.tracks[place, agent].regret, board.entry(place, agent)["change"]
        assert found["before"] == pytest.approx(regret[:, 20:30].mean())
        assert found["after"] == pytest.approx(regret[:, 45:55].mean())
        assert found["ratio"]["value"] == pytest.approx(regret[:, 45:55].mean() / regret[:, 20:30].mean())
    assert board.summary["worlds"]["keyhole"]["change"] is None
    assert {"before", "after", "after / before"} <= set(board.table(place).columns)
    assert "before" not in board.table("keyhole").columns
    never = board_in(rounds=30, worlds=place.replace(" ", ":"))
    assert never.summary["worlds"][place]["change"] is None


def test_windows_that_do_not_fit() -> None:
    world = hs.worlds.named("switch", at=100)
    assert summary.change_windows(world, 100) is None
    assert summary.change_windows(world, 150) == (slice(0, 100), slice(100, 150))
    assert summary.change_windows(hs.worlds.named("switch"), 3000) == (slice(1200, 1500), slice(2700, 3000))
    assert summary.change_windows(hs.worlds.named("switch"), 9000) == (slice(1200, 1500), slice(2700, 3000))
    assert summary.change_windows(hs.worlds.named("orbit"), 3000) is None


def test_only_what_is_missing_is_played(tmp_path: Path, played: list[Slice]) -> None:
    first = board_in(tmp_path)
    files = sorted((tmp_path / "cells").iterdir())
    assert len(played) == len(files) == CELLS
    for path in files[::4]:
        path.unlink()
    played.clear()
    told: list[Progress] = []
    again = board_in(tmp_path, progress=told.append)
    assert len(played) == len(files[::4])
    assert (told[0].done, told[0].resumed, told[0].total) == (CELLS - len(played), CELLS - len(played), CELLS)
    assert (told[-1].done, told[-1].seconds_left) == (CELLS, 0)
    assert again.summary["cells"] == {"total": CELLS, "resumed": CELLS - len(played)}
    assert totals(again) == totals(first)
    played.clear()
    assert totals(board_in(tmp_path, jobs=2)) == totals(first)
    assert played == []


def test_damaged_cells_are_played_again(tmp_path: Path, played: list[Slice]) -> None:
    first = board_in(tmp_path)
    files = sorted((tmp_path / "cells").iterdir())
    whole = files[0].read_bytes()
    damages = [b"", b"\xff\xfe", b"[]", whole[: len(whole) // 2], b"null", whole[:60] + b"\x00" + whole[61:]]
    for path, content in zip(files, damages, strict=False):
        path.write_bytes(content)
    header, _ = saving.read(files[-3], kind=cache.FORM)
    saving.write(files[-1], {"key": header["key"], "seeds": [0, 1]}, {"wall_seconds": 1.0}, kind=cache.FORM)
    os_error = files[-2]
    os_error.unlink()
    os_error.mkdir()
    (os_error / "in the way").write_text("")
    played.clear()
    with pytest.raises(hs.HalfseenError, match="cannot write there"):
        board_in(tmp_path)
    (os_error / "in the way").unlink()
    os_error.rmdir()
    again = board_in(tmp_path)
    assert len(played) >= len(damages) + 2
    assert totals(again) == totals(first)
    played.clear()
    board_in(tmp_path)
    assert played == []


@pytest.mark.parametrize(
    "changed",
    [
        {"rounds": 61},
        {"seeds": [5, 6, 7]},
        {"agents": ["kf-ts:width=0.5", "ts-pco:width=0.5", "random"]},
        {"worlds": ["fog", "switch:at=31"]},
    ],
    ids=["rounds", "seeds", "agents", "worlds"],
)
def test_other_settings_are_other_cells(tmp_path: Path, played: list[Slice], changed: dict[str, Any]) -> None:
    first = board_in(tmp_path)
    played.clear()
    told: list[Progress] = []
    other = board_in(tmp_path, progress=told.append, **changed)
    kept = told[0].resumed
    assert len(played) == told[0].total - kept
    assert told[0].others == CELLS - kept
    if "agents" in changed:  # `random`, and the yardstick, which is always there, are as before
        assert kept == 2 * CELLS // 3
    else:
        assert kept == 0
    assert totals(other) != totals(first)
    played.clear()
    assert totals(board_in(tmp_path)) == totals(first)
    assert played == []


def test_other_code_and_other_versions_are_other_cells(
    tmp_path: Path, played: list[Slice], monkeypatch: pytest.MonkeyPatch
) -> None:
    board_in(tmp_path)
    for name, value in (("source_hash", lambda: "edited"), ("versions", lambda: {"halfseen": "9"})):
        played.clear()
        monkeypatch.setattr(cache, name, value)
        board_in(tmp_path)
        assert len(played) == CELLS


def test_code_that_changes_under_a_run_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes load the code a little later than this one."""
    monkeypatch.setattr(local, "source_hash", lambda: "edited")
    with pytest.raises(hs.HalfseenError, match="the code was changed"):
        board_in(tmp_path, jobs=2)
    assert list(tmp_path.iterdir()) == []


def test_more_seeds_add_to_those_that_are_there(tmp_path: Path, played: list[Slice]) -> None:
    fewer = board_in(tmp_path, seeds=2)
    played.clear()
    more = board_in(tmp_path, seeds=5)
    assert {task.seeds for task in played} == {(2, 3), (4,)}
    for place, regret in totals(fewer).items():
        assert totals(more)[place][:2] == regret


def test_fresh_discards_every_cell_and_nothing_else(tmp_path: Path, played: list[Slice]) -> None:
    board_in(tmp_path, rounds=50)
    (tmp_path / "cells" / "notes.txt").write_text("mine")
    played.clear()
    board_in(tmp_path, fresh=True)
    assert len(played) == CELLS
    assert len(list((tmp_path / "cells").glob("*.slice"))) == CELLS
    assert (tmp_path / "cells" / "notes.txt").read_text() == "mine"


def test_an_interruption_leaves_what_is_done(tmp_path: Path, played: list[Slice]) -> None:
    def impatient(now: Progress) -> None:
        if now.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        board_in(tmp_path, progress=impatient)
    assert [path.name for path in tmp_path.iterdir()] == ["cells"]
    assert len(list((tmp_path / "cells").iterdir())) == 5
    played.clear()
    board_in(tmp_path)
    assert len(played) == CELLS - 5


class Moody(Observed):
    """An observer that refuses to go on when it has seen enough."""

    def observe(self, rows: Any, observations: Any, rounds: Any, complete: bool, contexts: Any) -> Any:
        if observations.shape[1] == 3 and rounds[0] == 7:
            raise RuntimeError("I have seen | enough\nof this")
        return super().observe(rows, observations, rounds, complete, contexts)


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> str:
    entry = CatalogueEntry("moody", Moody, Ridge, Uniform, "as it pleases", "a test")
    monkeypatch.setitem(CATALOG._entries, "moody", entry)
    return "moody"


@pytest.mark.parametrize("jobs", [1, 2])  # in other processes the agent is unknown, which is a failure as well
def test_one_that_fails_spoils_nothing_else(tmp_path: Path, moody: str, jobs: int) -> None:
    board = board_in(tmp_path, agents=[moody, *AGENTS], jobs=jobs)
    failed = ["keyhole"] if jobs == 1 else ["keyhole", "switch at=30"]
    assert {(f["world"], f["agent"]) for f in board.summary["failures"]} == {(world, moody) for world in failed}
    assert [f["seeds"] for f in board.summary["failures"]] == ["0 to 1", "2 to 2"] * len(failed)
    entry = board.entry("keyhole", moody)
    assert "RuntimeError: I have seen | enough of this (test_leaderboard.py:" in entry["error"] or jobs == 2
    assert entry["regret_mean"] is None
    assert {a: r for (w, a), r in totals(board).items() if w == "keyhole" and a != moody} == {
        agent: regret for (world, agent), regret in totals(board_in()).items() if world == "keyhole"
    }
    assert board.summary["agents"][moody]["overall_ratio"] is None
    assert board.agents[-1] == moody
    row = next(row for row in board.matrix().rows if row["agent"] == moody)
    assert (row["keyhole"], row["all worlds"]) == ("failed", "–")
    assert "failed" in str(board.table("keyhole"))
    assert entry["error"] in Page((tmp_path / "leaderboard.html").read_text()).text
    markdown = (tmp_path / "leaderboard.md").read_text()
    assert f"## Failures\n\n* moody in {', '.join(failed)} ({2 * len(failed)} cells): {entry['error']}\n" in markdown
    assert len({line.count("|") for line in markdown.splitlines() if line.startswith("| `")}) <= 4


def test_one_that_failed_is_tried_again(tmp_path: Path, played: list[Slice], moody: str) -> None:
    board_in(tmp_path, agents=[moody, *AGENTS])
    played.clear()
    told: list[Progress] = []
    board_in(tmp_path, agents=[moody, *AGENTS], progress=told.append)
    assert {world_and_agent(task) for task in played} == {("keyhole", moody)}
    assert (told[0].failed, told[-1].failed) == (0, len(played))


def test_without_a_yardstick_there_are_no_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(task: Slice, on_progress: OnProgress) -> SliceSummary:
        broken = world_and_agent(task) == ("keyhole", BASELINE)
        return SliceSummary(0.1, "ValueError: no") if broken else play_and_summarise(task, on_progress)

    monkeypatch.setattr(module, "play_and_summarise", failing)
    board = board_in(tmp_path)
    entry = board.entry("keyhole", "ts-pco")
    assert entry["regret_mean"] > 0
    assert entry["ratio"] is entry["p_holm"] is entry["worst_seed"] is entry["median_ratio"] is None
    assert board.entry("switch at=30", "ts-pco")["ratio"]["value"] > 0


def test_the_record(tmp_path: Path) -> None:
    board = board_in(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["cells", *FILES])
    record = json.loads((tmp_path / "leaderboard.json").read_text())
    assert set(record) == {
        "command", "rounds", "seeds", "jobs", "baseline", "wall_seconds", "cells", "versions", "source", "failures",
        "agents", "worlds",
    }  # fmt: skip
    assert (record["rounds"], record["seeds"], record["baseline"]) == (60, [0, 1, 2], "kf-ts")
    assert list(record["agents"]) == AGENTS
    assert list(record["worlds"]) == ["keyhole", "switch at=30"]
    for world in record["worlds"].values():
        assert set(world) == {"settings", "change", "agents"}
        for entry in world["agents"].values():
            assert set(entry) == set(FIELDS)
            assert set(entry["ratio"]) == {"value", "low", "high"}
            assert set(entry["worst_seed"]) == {"seed", "ratio"}
            assert entry["regret_by_seed"][entry["worst_seed"]["seed"]] > 0
    assert record["worlds"]["switch at=30"]["settings"]["changes_after"] == 30
    assert record["agents"]["kf-ts"]["told"] == ["model", "noise_std"]
    assert board.entry("keyhole", "kf-ts")["ratio"] == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_the_page(tmp_path: Path) -> None:
    board = board_in(tmp_path)
    text = (tmp_path / "leaderboard.html").read_text()
    page = Page(text)
    assert not {tag for tag, _ in page.seen} & {"script", "link", "iframe", "object"}
    matrix = [row for row in page.rows if len(row) == 4]
    assert matrix[0] == ["agent", "keyhole", "switch at=30", "all worlds"]
    assert [list(row.values()) for row in board.matrix().rows] == matrix[1:4]
    for world in board.worlds:
        for row in board.table(world).rows:
            assert list(row.values()) in page.rows
    assert "Wilcoxon" in page.text
    assert "Holm" in page.text
    assert "halfseen leaderboard --rounds 60 --seeds 3 --agents kf-ts,ts-pco,random" in page.text
    shades = [cell["style"] for cell in page.tags("td") if cell.get("style")]
    assert len(shades) == len(AGENTS) * (len(PLACES) + 1)
    assert any("213 94 0" in (shade or "") for shade in shades)


def test_the_markdown(tmp_path: Path) -> None:
    board = board_in(tmp_path)
    text = (tmp_path / "leaderboard.md").read_text()
    assert text == board.markdown()
    assert "    halfseen leaderboard --rounds 60 --seeds 3 --agents kf-ts,ts-pco,random" in text
    assert "| `ts-pco` |" in text
    assert all(f"\n## {world}\n" in text for world in board.worlds)
    assert "    halfseen leaderboard --else\n" in board.markdown("halfseen leaderboard --else")
    assert "nan" not in text


def test_one_seed_has_no_intervals() -> None:
    board = board_in(seeds=1)
    text = board.markdown()
    assert "nan" not in text
    assert "| 1.00 |" in text
    assert "1 seed (0 to 0)" in text


def test_the_plan() -> None:
    plan = leaderboard_plan(None, None, 3000, 50)
    assert [spec.label for spec in plan.agents] == list(CATALOG)
    assert [world.name for world in plan.worlds] == [
        "paper ε=0.01", "paper ε=0.1", "paper ε=1", "orbit", "keyhole", "foggy-keyhole", "fog", "switch",
        "regimes", "blurred",
    ]  # fmt: skip
    assert len(plan.worlds) == len(WORLDS)
    assert [spec.label for spec in leaderboard_plan("ts-pco", "fog", 9, 1).agents] == ["kf-ts", "ts-pco"]
    assert [spec.label for spec in leaderboard_plan(["ts-pco", "kf-ts"], "fog", 9, 1).agents] == ["ts-pco", "kf-ts"]


def test_what_has_no_name_has_no_command() -> None:
    own = hs.worlds.named("fog")
    assert board_in(worlds=[own], agents="ts-pco", rounds=5).summary["command"] is None
    assert board_in(seeds=[4, 9], agents="ts-pco", rounds=5).summary["command"] is None
    assert board_in(agents=[hs.AgentSpec("ts-pco")], rounds=5).summary["command"] is None
    command = board_in(seeds=[4, 5], agents="ts-pco:width=0.5,delta=0.2", rounds=5).summary["command"]
    assert command.startswith("halfseen leaderboard --rounds 5 --seeds 2 --first-seed 4 --agents ts-pco:width=0.5,")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"agents": []}, "agents: expected at least one, got none"),
        ({"agents": "kf-tss"}, "There is no agent 'kf-tss'. Did you mean 'kf-ts'?"),
        ({"worlds": []}, "world: expected at least one, got none"),
        ({"worlds": "switch:at=0"}, "at: expected an integer of at least 1, got 0"),
        ({"rounds": 0}, "rounds: expected an integer of at least 1, got 0"),
        ({"jobs": 0}, "jobs: expected an integer of at least 1, got 0"),
    ],
)
def test_bad_leaderboards(tmp_path: Path, options: dict[str, Any], line: str) -> None:
    with pytest.raises(hs.HalfseenError) as caught:
        board_in(tmp_path / "out", **options)
    assert str(caught.value).startswith(line)
    assert list(tmp_path.iterdir()) == []


def _slices() -> list[Slice]:
    return one_agent_slices(experiment(AGENTS, ["fog", "orbit"], 10, 4))


def test_unknown_agents_first_then_the_slowest() -> None:
    schedule, cost = Schedule(_slices()), {"kf-ts": 1.0, "ts-pco": 5.0, "random": 3.0}
    assert schedule.seconds_left() is None
    order = []
    for task in schedule:
        order.append(world_and_agent(task))
        schedule.finished(task, cost[task.agents[0].label] * (1 if task.world.name == "fog" else 0.1))
    assert [agent for _, agent in order[:3]] == ["kf-ts", "ts-pco", "random"]
    assert order[3] == ("fog", "ts-pco")
    assert order.index(("fog", "random"), 3) < order.index(("fog", "kf-ts"), 3)
    assert len(order) == len(_slices())
    assert schedule.seconds_left() == 0


def test_time_left_from_what_was_done_before() -> None:
    slices = _slices()
    schedule = Schedule(slices[1:])
    schedule.finished(slices[0], 2.0)  # kf-ts in fog, from an earlier run
    assert schedule.seconds_left() is None
    for task in (one for one in slices if one.agents[0].label != "kf-ts"):
        schedule.finished(task, 1.0)
    assert schedule.seconds_left() == pytest.approx(3 * 2.0 + 8 * 1.0)  # none of them was taken from the schedule
    assert next(iter(schedule)).agents[0].label == "kf-ts"
