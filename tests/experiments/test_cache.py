"""Interrupted runs continue from their saved slices, and never from the slices of another experiment."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.synthetic import assert_same_result, record_calls

import halfseen as hs
from halfseen.cli import interruption
from halfseen.cli.app import run_app
from halfseen.experiments import cache
from halfseen.experiments import run as module
from halfseen.experiments.cache import reachable, source_hash
from halfseen.experiments.plan import Slice, experiment
from halfseen.experiments.play import OnProgress, play
from halfseen.experiments.run import SavedSlices, run_experiment, slice_size

AGENTS, WORLDS = ["kf-ts", "ts-pco"], ["keyhole", "fog"]
PLAN = experiment(AGENTS, WORLDS, 60, 5)
SIZE = 2 * 2 * 5 * 60


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Slice]:
    """Record the slices that are played. A slice has at most two seeds."""
    monkeypatch.setattr(module, "MOST_SEEDS", 2)
    return record_calls(monkeypatch, module, "play")


@pytest.fixture(scope="module")
def whole() -> hs.Result:
    return run_experiment(PLAN)


def run_until(folder: Path, after: int, plan: Any = PLAN, **options: Any) -> None:
    def interrupt(now: SavedSlices) -> None:
        if now.done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(plan, out=folder, on_saved=interrupt, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_missing_slices_are_played(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    run_until(tmp_path / "out", after=4)
    assert len(list((tmp_path / "out" / "slices").iterdir())) == 4
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["slices"]
    played.clear()
    calls: list[tuple[int, int]] = []
    saved: list[SavedSlices] = []
    again = run_experiment(
        PLAN, out=tmp_path / "out", resume=True, progress=lambda *now: calls.append(now), on_saved=saved.append
    )
    assert_same_result(whole, again)
    assert [(task.world.name, task.seeds) for task in played] == [("fog", (2, 3)), ("fog", (4,))]
    assert calls[0] == (SIZE * 7 // 10, SIZE)
    assert calls[-1] == (SIZE, SIZE)
    assert (saved[0], saved[-1]) == (SavedSlices(4, 6, 4), SavedSlices(6, 6, 4))
    played.clear()
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path / "out", resume=True))
    assert played == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_with_other_slice_sizes_or_processes_can_continue(
    tmp_path: Path, played: list[Slice], whole: hs.Result, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    run_until(tmp_path, after=2)
    monkeypatch.setattr(module, "MOST_SEEDS", 3)
    monkeypatch.setattr(module, "play", play)  # unlike the recording function, it can be sent to other processes
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path, resume=True, jobs=jobs))


def test_timings_count_every_stream_once(tmp_path: Path, played: list[Slice]) -> None:
    run_experiment(PLAN, out=tmp_path)
    fewer = run_experiment(experiment(AGENTS, WORLDS, 60, [1, 4, 2]), out=tmp_path, resume=True)
    stored = {
        (world.name, seed): (seeds, outcome["tracks"])
        for world in PLAN.worlds
        for seeds, outcome in cache.SliceStore(tmp_path / "slices").read_same_key(PLAN.slice_of(world))
        for seed in seeds
    }
    for (world, agent), track in fewer.tracks.items():
        shares = [
            tracks[AGENTS.index(agent)]["seconds"] / len(seeds)
            for seeds, tracks in (stored[world, s] for s in (1, 4, 2))
        ]
        assert (track.seconds > 0).all()
        np.testing.assert_allclose(track.seconds, sum(shares))


def test_a_resumed_run_may_have_other_seeds(tmp_path: Path, played: list[Slice]) -> None:
    run_experiment(PLAN, out=tmp_path)
    played.clear()
    for seeds in (7, [4, 1], [9, 3, 0]):
        plan = experiment(AGENTS, WORLDS, 60, seeds)
        assert_same_result(run_experiment(plan), run_experiment(plan, out=tmp_path, resume=True))


def test_worlds_can_be_added_to_a_run(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    run_experiment(experiment(AGENTS, "keyhole", 60, 5), out=tmp_path)
    played.clear()
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path, resume=True))
    assert {task.world.name for task in played} == {"fog"}


def test_a_damaged_slice_is_played_again(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    run_experiment(PLAN, out=tmp_path)
    paths = sorted((tmp_path / "slices").iterdir())
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[: len(content) // 2])
    middle = len(content) // 2
    paths[1].write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    played.clear()
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path, resume=True))
    assert len(played) == 2


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"rounds": 61}, "with 60 rounds"),
    ({"agents": ["kf-ts", "random"]}, "with kf-ts, ts-pco"),
    ({"agents": ["kf-ts", "ts-pco:width=0.5"]}, "with other options of the agents"),
    ({"world": ["orbit", "paper:noise=0.3"]}, "in the world 'keyhole'"),
]


@pytest.mark.parametrize(("changed", "difference"), OTHERS, ids=[difference for _, difference in OTHERS])
def test_the_folder_of_another_experiment_is_refused(
    tmp_path: Path, played: list[Slice], changed: dict[str, Any], difference: str
) -> None:
    run_until(tmp_path, after=3)
    before = files(tmp_path)
    played.clear()
    settings = {"agents": AGENTS, "world": WORLDS, "rounds": 60, "seeds": 5} | changed
    line = (
        "^resume: expected the folder of an interrupted run of this experiment, got another experiment "
        f"\\({difference}\\) in '.*"
    )
    with pytest.raises(hs.HalfseenError, match=line):
        hs.run(settings.pop("agents"), **settings, out=tmp_path, resume=True)
    assert played == []
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "value", "difference"),
    [
        ("source_hash", lambda: "edited", "played by other code"),
        ("versions", lambda: {"numpy": "9"}, "played with numpy"),
    ],
    ids=["source", "versions"],
)
def test_other_code_is_another_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Callable[[], Any], difference: str
) -> None:
    run_until(tmp_path, after=1)
    before = files(tmp_path)
    monkeypatch.setattr(cache, name, value)
    with pytest.raises(hs.HalfseenError, match=difference):
        run_experiment(PLAN, out=tmp_path, resume=True)
    assert files(tmp_path) == before


def test_a_folder_without_slices_is_refused_and_a_new_folder_is_accepted(tmp_path: Path, whole: hs.Result) -> None:
    (tmp_path / "summary.json").write_text("somebody's")
    with pytest.raises(hs.HalfseenError, match=r"^resume: expected .*, got no slice of this experiment in '"):
        run_experiment(PLAN, out=tmp_path, resume=True)
    assert files(tmp_path) == {"summary.json": b"somebody's"}
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path / "new", resume=True))


def test_two_experiments_in_a_folder_are_not_mixed(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    other = experiment(AGENTS, WORLDS, 50, 5)
    run_until(tmp_path, after=3)
    run_until(tmp_path, after=2, plan=other)
    before = files(tmp_path)
    assert len(before) == 5
    played.clear()
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path, resume=True))
    assert len(played) == 3
    assert before.items() <= files(tmp_path).items()
    run_experiment(PLAN, out=tmp_path)  # a new run deletes the slices of other runs at its end
    assert len(files(tmp_path)) == 6
    with pytest.raises(hs.HalfseenError, match="another experiment"):
        run_experiment(other, out=tmp_path, resume=True)


def test_old_slices_are_deleted_only_when_the_new_run_is_finished(tmp_path: Path, played: list[Slice]) -> None:
    run_experiment(experiment(AGENTS, WORLDS, 50, 5), out=tmp_path)
    before = files(tmp_path)
    run_until(tmp_path, after=5)
    assert before.items() <= files(tmp_path).items()


def test_recorded_worlds_with_different_data_are_different(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=100) for name in ("seen", "left", "right")}

    def plan() -> Any:
        return experiment("ts-pco", hs.worlds.recorded(table, observed=["seen"], rewards=["left", "right"]), seeds=2)

    first = run_experiment(plan(), out=tmp_path)
    assert_same_result(first, run_experiment(plan(), out=tmp_path, resume=True))
    table["left"][90] += 1e-9
    with pytest.raises(hs.HalfseenError, match="got another experiment \\(in the world 'recorded'\\)"):
        run_experiment(plan(), out=tmp_path, resume=True)


def test_hs_run_saves_its_result_and_can_continue(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    names = {"regret.png", "regret.svg", "report.html", "rounds.parquet", "slices", "summary.json"}
    settings: dict[str, Any] = {"world": WORLDS, "rounds": 60, "seeds": 5, "out": tmp_path / "out"}
    assert_same_result(whole, hs.run(AGENTS, **settings))
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    played.clear()
    assert_same_result(whole, hs.run(AGENTS, **settings, resume=True))
    assert played == []
    with pytest.raises(
        hs.HalfseenError, match="resume: expected out, the folder of the interrupted run, got no folder"
    ):
        hs.run(AGENTS, world="fog", resume=True)


COMMAND = ["run", *WORLDS, "--agents", ",".join(AGENTS), "--rounds", "60", "--seeds", "5", "--jobs", "1"]


def test_a_full_disk_does_not_lose_saved_slices(
    tmp_path: Path,
    played: list[Slice],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    whole: hs.Result,
) -> None:
    """The disk is full when the fourth slice is written, and later again when the result is written."""
    out, real, room = tmp_path / "out", os.fsync, 3

    def full(handle: int) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    words = [*COMMAND, "--out", str(out)]
    monkeypatch.setattr(os, "fsync", full)
    assert run_app(words) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "No space left on device" in line
    assert line.endswith(f". 3 of 6 slices are saved in {out}. To continue, run the same command with --resume.")
    assert len(files(out)) == 3
    assert all(name.endswith(".slice") for name in files(out))

    room = 5  # enough for three slices and two files of the result
    assert run_app([*words, "--resume"]) == 2
    captured = capsys.readouterr().err.splitlines()
    assert captured[-1].startswith(("error: out: expected a writable folder", "error: Cannot write '"))
    assert "No space left on device" in captured[-1]
    assert "resuming: 3 of 6 slices done" in captured
    assert len(files(out)) == 6

    monkeypatch.setattr(os, "fsync", real)
    played.clear()
    assert run_app([*words, "--resume"]) == 0
    assert played == []
    assert {"summary.json", "rounds.parquet"} <= files(out).keys()
    assert_same_result(whole, run_experiment(PLAN, out=out, resume=True))


def test_the_message_of_an_interruption_says_how_to_continue(
    tmp_path: Path, played: list[Slice], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut(task: Slice, on_progress: OnProgress) -> Any:
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(task)
        return play(task, on_progress)

    monkeypatch.setattr(module, "play", cut)
    words = [*COMMAND, "--out", str(tmp_path / "out")]
    assert run_app(words) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        f"Interrupted. 2 of 6 slices are saved in {tmp_path / 'out'}. To continue, run the same command with --resume."
    )
    assert run_app([*words, "--resume"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("To continue, run the same command.")
    assert interruption.signals == []


@pytest.mark.parametrize(
    ("seeds", "worlds", "workers", "safe", "size"),
    [
        (20, 1, 1, False, 20),
        (20, 1, 2, False, 10),
        (200, 1, 1, False, 50),
        (20, 4, 2, True, 10),  # eight slices, four per worker
        (20, 3, 2, False, 10),  # three slices of twenty would leave one worker idle
        (20, 4, 40, True, 2),
        (3, 1, 8, True, 1),
        (1000, 1, 2, True, 56),
        (1000, 4, 2, True, 63),
    ],
)
def test_size_of_slices(seeds: int, worlds: int, workers: int, safe: bool, size: int) -> None:
    assert slice_size(seeds, worlds, workers, safe) == size


def test_the_source_hash_includes_every_module_that_playing_imports() -> None:
    """Every module that is imported when a slice is played is among the modules that are hashed."""
    code = """
import sys
from halfseen.experiments.slice_summary import one_agent_slices, play_and_summarise
from halfseen.agents.catalogue import CATALOG
from halfseen.experiments.plan import experiment
for task in one_agent_slices(experiment(list(CATALOG), ["keyhole", "switch:at=3"], 5, 1)):
    assert play_and_summarise(task, lambda _: None).error is None, task.agents
print(*[name for name in sys.modules if name.startswith("halfseen.")])
"""
    source = str(Path(hs.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source, "PATH": ""}, capture_output=True, text=True, check=True
    )
    reached = reachable("halfseen.experiments.slice_summary")
    assert set(done.stdout.split()) <= set(reached)
    assert {"halfseen.worlds.named", "halfseen.kernels.kalman", "halfseen.estimators.emkf"} <= set(reached)
    assert not set(reached) & {"halfseen.cli.app", "halfseen.cli.terminal", "halfseen.experiments.html"}
    assert len(source_hash()) == 64
