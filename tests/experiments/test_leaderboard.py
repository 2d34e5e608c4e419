"""The leaderboard: its results equal those of `hs.run`, it continues from saved slices, and failures stay local."""

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
from halfseen.experiments import cache, slice_schedule, slice_summary
from halfseen.experiments.engines import local
from halfseen.experiments.leaderboard import FILES, WORLDS, leaderboard_plan
from halfseen.experiments.leaderboard_summary import BASELINE, FIELDS
from halfseen.experiments.plan import Slice, experiment
from halfseen.experiments.play import OnProgress
from halfseen.experiments.slice_schedule import Progress, Schedule
from halfseen.experiments.slice_summary import SliceSummary, one_agent_slices, play_and_summarise, world_and_agent
from halfseen.learners.ridge import Ridge

AGENTS, WORLD_SPECS = ["kf-ts", "ts-pco", "random"], ["keyhole", "switch:at=30"]
SMALL: dict[str, Any] = {"worlds": WORLD_SPECS, "rounds": 60, "seeds": 3}
SLICES = len(AGENTS) * len(WORLD_SPECS) * 2  # slices of two seeds and of one seed


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_summary, "SEEDS_PER_SLICE", 2)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Slice]:
    """Record the slices that are played."""
    return record_calls(monkeypatch, slice_schedule, "play_and_summarise")


def small_board(folder: Path | None = None, **options: Any) -> hs.Leaderboard:
    return hs.leaderboard(**({"agents": AGENTS, "out": folder} | SMALL | options))


def regret_by_seed(board: hs.Leaderboard) -> dict[tuple[str, str], list[float]]:
    return {(w, a): board.entry(w, a)["regret_by_seed"] for w in board.worlds for a in board.agents}


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_regrets_equal_those_of_run(jobs: int, tmp_path: Path) -> None:
    result = hs.run(AGENTS, world=WORLD_SPECS, rounds=60, seeds=3)
    board = small_board(tmp_path if jobs > 1 else None, jobs=jobs)
    for (world, agent), regret in regret_by_seed(board).items():
        assert regret == result.total_regret(world, agent).tolist()
        mine, theirs = board.entry(world, agent), result.summary["worlds"][world]["agents"][agent]
        for name in ("regret_mean", "regret_median", "regret_standard_error"):
            assert mine[name] == theirs[name]
        np.testing.assert_allclose(mine["curve"]["mean"], theirs["curve"]["mean"], rtol=1e-12)
        np.testing.assert_allclose(mine["curve"]["standard_error"], theirs["curve"]["standard_error"], rtol=1e-9)
        assert mine["curve"]["rounds"] == theirs["curve"]["rounds"]
        assert mine["microseconds_per_round"] > 0


def test_regret_before_and_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_summary, "WINDOW", 10)
    monkeypatch.setattr(slice_summary, "ROUNDS_AFTER_CHANGE", 25)
    board, result = small_board(), hs.run(AGENTS, world="switch:at=30", rounds=60, seeds=3)
    world_name = "switch at=30"
    assert board.summary["worlds"][world_name]["change"] == {
        "after_round": 30,
        "rounds_before": [21, 30],
        "rounds_after": [46, 55],
    }
    for agent in AGENTS:
        regret, found = result.tracks[world_name, agent].regret, board.entry(world_name, agent)["change"]
        assert found["before"] == pytest.approx(regret[:, 20:30].mean())
        assert found["after"] == pytest.approx(regret[:, 45:55].mean())
        assert found["ratio"]["value"] == pytest.approx(regret[:, 45:55].mean() / regret[:, 20:30].mean())
    assert board.summary["worlds"]["keyhole"]["change"] is None
    assert {"before", "after", "after / before"} <= set(board.table(world_name).columns)
    assert "before" not in board.table("keyhole").columns
    never = small_board(rounds=30, worlds=world_name.replace(" ", ":"))
    assert never.summary["worlds"][world_name]["change"] is None


def test_windows_around_a_change() -> None:
    world = hs.worlds.named("switch", at=100)
    assert slice_summary.change_windows(world, 100) is None
    assert slice_summary.change_windows(world, 150) == (slice(0, 100), slice(100, 150))
    assert slice_summary.change_windows(hs.worlds.named("switch"), 3000) == (slice(1200, 1500), slice(2700, 3000))
    assert slice_summary.change_windows(hs.worlds.named("switch"), 9000) == (slice(1200, 1500), slice(2700, 3000))
    assert slice_summary.change_windows(hs.worlds.named("orbit"), 3000) is None


def test_only_missing_slices_are_played(tmp_path: Path, played: list[Slice]) -> None:
    first = small_board(tmp_path)
    files = sorted((tmp_path / "cells").iterdir())
    assert len(played) == len(files) == SLICES
    for path in files[::4]:
        path.unlink()
    played.clear()
    calls: list[Progress] = []
    again = small_board(tmp_path, progress=calls.append)
    assert len(played) == len(files[::4])
    assert (calls[0].done, calls[0].resumed, calls[0].total) == (SLICES - len(played), SLICES - len(played), SLICES)
    assert (calls[-1].done, calls[-1].seconds_left) == (SLICES, 0)
    assert again.summary["cells"] == {"total": SLICES, "resumed": SLICES - len(played)}
    assert regret_by_seed(again) == regret_by_seed(first)
    played.clear()
    assert regret_by_seed(small_board(tmp_path, jobs=2)) == regret_by_seed(first)
    assert played == []


def test_damaged_slices_are_played_again(tmp_path: Path, played: list[Slice]) -> None:
    first = small_board(tmp_path)
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
    with pytest.raises(hs.HalfseenError, match="Cannot write '"):
        small_board(tmp_path)
    (os_error / "in the way").unlink()
    os_error.rmdir()
    again = small_board(tmp_path)
    assert len(played) >= len(damages) + 2
    assert regret_by_seed(again) == regret_by_seed(first)
    played.clear()
    small_board(tmp_path)
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
def test_slices_with_other_settings_are_not_used(tmp_path: Path, played: list[Slice], changed: dict[str, Any]) -> None:
    first = small_board(tmp_path)
    played.clear()
    calls: list[Progress] = []
    other = small_board(tmp_path, progress=calls.append, **changed)
    resumed = calls[0].resumed
    assert len(played) == calls[0].total - resumed
    assert calls[0].others == SLICES - resumed
    if "agents" in changed:  # `random` and the baseline, which is always added, did not change
        assert resumed == 2 * SLICES // 3
    else:
        assert resumed == 0
    assert regret_by_seed(other) != regret_by_seed(first)
    played.clear()
    assert regret_by_seed(small_board(tmp_path)) == regret_by_seed(first)
    assert played == []


def test_slices_of_other_code_or_versions_are_not_used(
    tmp_path: Path, played: list[Slice], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_board(tmp_path)
    for name, value in (("source_hash", lambda: "edited"), ("versions", lambda: {"halfseen": "9"})):
        played.clear()
        monkeypatch.setattr(cache, name, value)
        small_board(tmp_path)
        assert len(played) == SLICES


def test_a_run_ends_if_the_code_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import the code later than this process."""
    monkeypatch.setattr(local, "source_hash", lambda: "edited")
    with pytest.raises(hs.HalfseenError, match="The source code of halfseen changed during the run"):
        small_board(tmp_path, jobs=2)
    assert list(tmp_path.iterdir()) == []


def test_seeds_can_be_added(tmp_path: Path, played: list[Slice]) -> None:
    fewer = small_board(tmp_path, seeds=2)
    played.clear()
    more = small_board(tmp_path, seeds=5)
    assert {task.seeds for task in played} == {(2, 3), (4,)}
    for world_name, regret in regret_by_seed(fewer).items():
        assert regret_by_seed(more)[world_name][:2] == regret


def test_fresh_discards_slices_and_nothing_else(tmp_path: Path, played: list[Slice]) -> None:
    small_board(tmp_path, rounds=50)
    (tmp_path / "cells" / "notes.txt").write_text("mine")
    played.clear()
    small_board(tmp_path, fresh=True)
    assert len(played) == SLICES
    assert len(list((tmp_path / "cells").glob("*.slice"))) == SLICES
    assert (tmp_path / "cells" / "notes.txt").read_text() == "mine"


def test_finished_slices_remain_after_an_interruption(tmp_path: Path, played: list[Slice]) -> None:
    def interrupt(now: Progress) -> None:
        if now.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_board(tmp_path, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["cells"]
    assert len(list((tmp_path / "cells").iterdir())) == 5
    played.clear()
    small_board(tmp_path)
    assert len(played) == SLICES - 5


class Failing(Observed):
    """An estimator that raises an exception in round 7 of a world with three observed features."""

    def observe(self, rows: Any, observations: Any, rounds: Any, complete: bool, contexts: Any) -> Any:
        if observations.shape[1] == 3 and rounds[0] == 7:
            raise RuntimeError("three | features\nare too many")
        return super().observe(rows, observations, rounds, complete, contexts)


@pytest.fixture
def failing_agent(monkeypatch: pytest.MonkeyPatch) -> str:
    entry = CatalogueEntry("failing", Failing, Ridge, Uniform, "the observation", "a test")
    monkeypatch.setitem(CATALOG._entries, "failing", entry)
    return "failing"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_agent_does_not_affect_others(tmp_path: Path, failing_agent: str, jobs: int) -> None:
    board = small_board(tmp_path, agents=[failing_agent, *AGENTS], jobs=jobs)
    failed = ["keyhole"]
    assert {(f["world"], f["agent"]) for f in board.summary["failures"]} == {(world, failing_agent) for world in failed}
    assert [f["seeds"] for f in board.summary["failures"]] == ["0 to 1", "2 to 2"] * len(failed)
    entry = board.entry("keyhole", failing_agent)
    assert "RuntimeError: three | features are too many (test_leaderboard.py:" in entry["error"]
    assert entry["regret_mean"] is None
    assert {a: r for (w, a), r in regret_by_seed(board).items() if w == "keyhole" and a != failing_agent} == {
        agent: regret for (world, agent), regret in regret_by_seed(small_board()).items() if world == "keyhole"
    }
    assert board.summary["agents"][failing_agent]["overall_ratio"] is None
    assert board.agents[-1] == failing_agent
    row = next(row for row in board.matrix().rows if row["agent"] == failing_agent)
    assert (row["keyhole"], row["all worlds"]) == ("failed", "–")
    assert "failed" in str(board.table("keyhole"))
    assert entry["error"] in Page((tmp_path / "leaderboard.html").read_text()).text
    markdown = (tmp_path / "leaderboard.md").read_text()
    assert f"## Failures\n\n* failing in {', '.join(failed)} ({2 * len(failed)} slices): {entry['error']}\n" in markdown
    assert len({line.count("|") for line in markdown.splitlines() if line.startswith("| `")}) <= 4


def test_a_failed_slice_is_played_again(tmp_path: Path, played: list[Slice], failing_agent: str) -> None:
    small_board(tmp_path, agents=[failing_agent, *AGENTS])
    played.clear()
    calls: list[Progress] = []
    small_board(tmp_path, agents=[failing_agent, *AGENTS], progress=calls.append)
    assert {world_and_agent(task) for task in played} == {("keyhole", failing_agent)}
    assert (calls[0].failed, calls[-1].failed) == (0, len(played))


def test_without_a_baseline_there_are_no_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(task: Slice, on_progress: OnProgress) -> SliceSummary:
        broken = world_and_agent(task) == ("keyhole", BASELINE)
        return SliceSummary(0.1, "ValueError: no") if broken else play_and_summarise(task, on_progress)

    monkeypatch.setattr(slice_schedule, "play_and_summarise", failing)
    board = small_board(tmp_path)
    entry = board.entry("keyhole", "ts-pco")
    assert entry["regret_mean"] > 0
    assert entry["ratio"] is entry["p_holm"] is entry["worst_seed"] is entry["median_ratio"] is None
    assert board.entry("switch at=30", "ts-pco")["ratio"]["value"] > 0


def test_the_json_file(tmp_path: Path) -> None:
    board = small_board(tmp_path)
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


def test_the_html_page(tmp_path: Path) -> None:
    board = small_board(tmp_path)
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
    assert len(shades) == len(AGENTS) * (len(WORLD_SPECS) + 1)
    assert any("213 94 0" in (shade or "") for shade in shades)


def test_the_markdown_page(tmp_path: Path) -> None:
    board = small_board(tmp_path)
    text = (tmp_path / "leaderboard.md").read_text()
    assert text == board.markdown()
    assert "    halfseen leaderboard --rounds 60 --seeds 3 --agents kf-ts,ts-pco,random" in text
    assert "| `ts-pco` |" in text
    assert all(f"\n## {world}\n" in text for world in board.worlds)
    assert "    halfseen leaderboard --else\n" in board.markdown("halfseen leaderboard --else")
    assert "nan" not in text


def test_one_seed_has_no_intervals() -> None:
    board = small_board(seeds=1)
    text = board.markdown()
    assert "nan" not in text
    assert "| 1.00 |" in text
    assert "1 seed (0 to 0)" in text


def test_the_plan() -> None:
    plan = leaderboard_plan(None, None, 3000, 50)
    assert [spec.label for spec in plan.agents] == list(CATALOG)
    assert [world.name for world in plan.worlds] == [
        "paper ε=0.01", "paper ε=0.1", "paper ε=1", "orbit", "keyhole", "foggy-keyhole", "fog", "switch",
        "regimes", "blurred", "clicks", "counts",
    ]  # fmt: skip
    assert len(plan.worlds) == len(WORLDS)
    assert [spec.label for spec in leaderboard_plan("ts-pco", "fog", 9, 1).agents] == ["kf-ts", "ts-pco"]
    assert [spec.label for spec in leaderboard_plan(["ts-pco", "kf-ts"], "fog", 9, 1).agents] == ["ts-pco", "kf-ts"]


def test_objects_and_arbitrary_seeds_have_no_command() -> None:
    own = hs.worlds.named("fog")
    assert small_board(worlds=[own], agents="ts-pco", rounds=5).summary["command"] is None
    assert small_board(seeds=[4, 9], agents="ts-pco", rounds=5).summary["command"] is None
    assert small_board(agents=[hs.AgentSpec("ts-pco")], rounds=5).summary["command"] is None
    command = small_board(seeds=[4, 5], agents="ts-pco:width=0.5,delta=0.2", rounds=5).summary["command"]
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
def test_invalid_arguments_are_refused(tmp_path: Path, options: dict[str, Any], line: str) -> None:
    with pytest.raises(hs.HalfseenError) as caught:
        small_board(tmp_path / "out", **options)
    assert str(caught.value).startswith(line)
    assert list(tmp_path.iterdir()) == []


def _slices() -> list[Slice]:
    return one_agent_slices(experiment(AGENTS, ["fog", "orbit"], 10, 4))


def test_agents_without_timings_come_first_then_the_slowest_slices() -> None:
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


def test_remaining_time_is_estimated_from_finished_slices() -> None:
    slices = _slices()
    schedule = Schedule(slices[1:])
    schedule.finished(slices[0], 2.0)  # kf-ts in fog, from an earlier run
    assert schedule.seconds_left() is None
    for task in (one for one in slices if one.agents[0].label != "kf-ts"):
        schedule.finished(task, 1.0)
    assert schedule.seconds_left() == pytest.approx(3 * 2.0 + 8 * 1.0)  # all slices are still in the schedule
    assert next(iter(schedule)).agents[0].label == "kf-ts"
