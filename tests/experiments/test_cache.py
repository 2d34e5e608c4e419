"""Runs that are cut short: what is done is kept, is gone on with in any other cut, and is never taken for another's."""

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

AGENTS, PLACES = ["kf-ts", "ts-pco"], ["keyhole", "fog"]
PLAN = experiment(AGENTS, PLACES, 60, 5)
SIZE = 2 * 2 * 5 * 60


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Slice]:
    """The slices that were really played, of two seeds at most."""
    monkeypatch.setattr(module, "MOST_SEEDS", 2)
    return record_calls(monkeypatch, module, "play")


@pytest.fixture(scope="module")
def whole() -> hs.Result:
    return run_experiment(PLAN)


def cut_short(folder: Path, after: int, plan: Any = PLAN, **options: Any) -> None:
    def impatient(now: SavedSlices) -> None:
        if now.done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(plan, out=folder, on_saved=impatient, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_what_is_missing_is_played(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    cut_short(tmp_path / "out", after=4)
    assert len(list((tmp_path / "out" / "slices").iterdir())) == 4
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["slices"]
    played.clear()
    told: list[tuple[int, int]] = []
    saved: list[SavedSlices] = []
    again = run_experiment(
        PLAN, out=tmp_path / "out", resume=True, progress=lambda *now: told.append(now), on_saved=saved.append
    )
    assert_same_result(whole, again)
    assert [(task.world.name, task.seeds) for task in played] == [("fog", (2, 3)), ("fog", (4,))]
    assert told[0] == (SIZE * 7 // 10, SIZE)
    assert told[-1] == (SIZE, SIZE)
    assert (saved[0], saved[-1]) == (SavedSlices(4, 6, 4), SavedSlices(6, 6, 4))
    played.clear()
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path / "out", resume=True))
    assert played == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_any_other_cut_may_go_on(
    tmp_path: Path, played: list[Slice], whole: hs.Result, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    cut_short(tmp_path, after=2)
    monkeypatch.setattr(module, "MOST_SEEDS", 3)
    monkeypatch.setattr(module, "play", play)  # which other processes can be given
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path, resume=True, jobs=jobs))


def test_timings_count_every_stream_once(tmp_path: Path, played: list[Slice]) -> None:
    run_experiment(PLAN, out=tmp_path)
    fewer = run_experiment(experiment(AGENTS, PLACES, 60, [1, 4, 2]), out=tmp_path, resume=True)
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


def test_more_seeds_or_fewer_or_in_another_order(tmp_path: Path, played: list[Slice]) -> None:
    run_experiment(PLAN, out=tmp_path)
    played.clear()
    for seeds in (7, [4, 1], [9, 3, 0]):
        plan = experiment(AGENTS, PLACES, 60, seeds)
        assert_same_result(run_experiment(plan), run_experiment(plan, out=tmp_path, resume=True))


def test_more_worlds_add_to_those_that_are_there(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
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
    ({"rounds": 61}, "of 60 rounds"),
    ({"agents": ["kf-ts", "random"]}, "of kf-ts, ts-pco"),
    ({"agents": ["kf-ts", "ts-pco:width=0.5"]}, "of agents with other options"),
    ({"world": ["orbit", "paper:noise=0.3"]}, "of the world 'keyhole'"),
]


@pytest.mark.parametrize(("changed", "said"), OTHERS, ids=[said for _, said in OTHERS])
def test_the_folder_of_another_experiment_is_refused(
    tmp_path: Path, played: list[Slice], changed: dict[str, Any], said: str
) -> None:
    cut_short(tmp_path, after=3)
    before = files(tmp_path)
    played.clear()
    settings = {"agents": AGENTS, "world": PLACES, "rounds": 60, "seeds": 5} | changed
    line = f"^resume: expected the folder of a run of this one, got another experiment \\({said}\\) in '.*"
    with pytest.raises(hs.HalfseenError, match=line):
        hs.run(settings.pop("agents"), **settings, out=tmp_path, resume=True)
    assert played == []
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("source_hash", lambda: "edited", "played by other code"),
        ("versions", lambda: {"numpy": "9"}, "played with numpy"),
    ],
    ids=["source", "versions"],
)
def test_other_code_is_another_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Callable[[], Any], said: str
) -> None:
    cut_short(tmp_path, after=1)
    before = files(tmp_path)
    monkeypatch.setattr(cache, name, value)
    with pytest.raises(hs.HalfseenError, match=said):
        run_experiment(PLAN, out=tmp_path, resume=True)
    assert files(tmp_path) == before


def test_a_folder_without_slices_is_refused_and_a_new_one_is_not(tmp_path: Path, whole: hs.Result) -> None:
    (tmp_path / "summary.json").write_text("somebody's")
    with pytest.raises(hs.HalfseenError, match="resume: got no slice of this experiment in '"):
        run_experiment(PLAN, out=tmp_path, resume=True)
    assert files(tmp_path) == {"summary.json": b"somebody's"}
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path / "new", resume=True))


def test_two_experiments_in_a_folder_are_not_mixed(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    other = experiment(AGENTS, PLACES, 50, 5)
    cut_short(tmp_path, after=3)
    cut_short(tmp_path, after=2, plan=other)
    before = files(tmp_path)
    assert len(before) == 5
    played.clear()
    assert_same_result(whole, run_experiment(PLAN, out=tmp_path, resume=True))
    assert len(played) == 3
    assert before.items() <= files(tmp_path).items()
    run_experiment(PLAN, out=tmp_path)  # from the start: in the end the folder is this run's alone
    assert len(files(tmp_path)) == 6
    with pytest.raises(hs.HalfseenError, match="another experiment"):
        run_experiment(other, out=tmp_path, resume=True)


def test_an_old_run_is_there_until_the_new_one_is_done(tmp_path: Path, played: list[Slice]) -> None:
    run_experiment(experiment(AGENTS, PLACES, 50, 5), out=tmp_path)
    before = files(tmp_path)
    cut_short(tmp_path, after=5)
    assert before.items() <= files(tmp_path).items()


def test_recorded_worlds_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=100) for name in ("seen", "left", "right")}

    def plan() -> Any:
        return experiment("ts-pco", hs.worlds.recorded(table, observed=["seen"], rewards=["left", "right"]), seeds=2)

    first = run_experiment(plan(), out=tmp_path)
    assert_same_result(first, run_experiment(plan(), out=tmp_path, resume=True))
    table["left"][90] += 1e-9
    with pytest.raises(hs.HalfseenError, match="resume: got another experiment \\(of the world 'recorded'\\)"):
        run_experiment(plan(), out=tmp_path, resume=True)


def test_the_public_run_saves_and_goes_on(tmp_path: Path, played: list[Slice], whole: hs.Result) -> None:
    names = {"regret.png", "regret.svg", "rounds.parquet", "slices", "summary.json"}
    settings: dict[str, Any] = {"world": PLACES, "rounds": 60, "seeds": 5, "out": tmp_path / "out"}
    assert_same_result(whole, hs.run(AGENTS, **settings))
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    played.clear()
    assert_same_result(whole, hs.run(AGENTS, **settings, resume=True))
    assert played == []
    with pytest.raises(
        hs.HalfseenError, match="resume: expected out, the folder of the run to go on with, got no folder"
    ):
        hs.run(AGENTS, world="fog", resume=True)


WORDS = ["run", *PLACES, "--agents", ",".join(AGENTS), "--rounds", "60", "--seeds", "5", "--jobs", "1"]


def test_a_full_disk_costs_nothing_that_is_there(
    tmp_path: Path,
    played: list[Slice],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    whole: hs.Result,
) -> None:
    """The disk fills up while the fourth slice is written, and later again while the result is."""
    out, real, room = tmp_path / "out", os.fsync, 3

    def full(handle: int) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    words = [*WORDS, "--out", str(out)]
    monkeypatch.setattr(os, "fsync", full)
    assert run_app(words) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "No space left on device" in line
    assert line.endswith(f"; 3 of 6 slices are kept in {out}; the same command with --resume goes on from there")
    assert len(files(out)) == 3
    assert all(name.endswith(".slice") for name in files(out))

    room = 5  # three slices, and two files of the result
    assert run_app([*words, "--resume"]) == 2
    captured = capsys.readouterr().err.splitlines()
    assert captured[-1].startswith("error: out: got '") or captured[-1].startswith("error: path: got '")
    assert "No space left on device" in captured[-1]
    assert "resuming: 3 of 6 slices done" in captured
    assert len(files(out)) == 6

    monkeypatch.setattr(os, "fsync", real)
    played.clear()
    assert run_app([*words, "--resume"]) == 0
    assert played == []
    assert {"summary.json", "rounds.parquet"} <= files(out).keys()
    assert_same_result(whole, run_experiment(PLAN, out=out, resume=True))


def test_an_interruption_says_how_to_go_on(
    tmp_path: Path, played: list[Slice], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut(task: Slice, on_progress: OnProgress) -> Any:
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(task)
        return play(task, on_progress)

    monkeypatch.setattr(module, "play", cut)
    words = [*WORDS, "--out", str(tmp_path / "out")]
    assert run_app(words) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        f"interrupted; 2 of 6 slices are kept in {tmp_path / 'out'}; the same command with --resume goes on from there"
    )
    assert run_app([*words, "--resume"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("the same command goes on from there")
    assert interruption.signals == []


@pytest.mark.parametrize(
    ("seeds", "worlds", "workers", "safe", "size"),
    [
        (20, 1, 1, False, 20),
        (20, 1, 2, False, 10),
        (200, 1, 1, False, 50),
        (20, 4, 2, True, 10),  # eight slices, four each
        (20, 3, 2, False, 10),  # three of twenty would leave one worker idle
        (20, 4, 40, True, 2),
        (3, 1, 8, True, 1),
        (1000, 1, 2, True, 56),
        (1000, 4, 2, True, 63),
    ],
)
def test_slices_give_every_worker_enough(seeds: int, worlds: int, workers: int, safe: bool, size: int) -> None:
    assert slice_size(seeds, worlds, workers, safe) == size


def test_every_module_that_plays_is_in_the_hash() -> None:
    """Whatever is loaded when a slice is played is among what a changed file of would change the hash."""
    code = """
import sys
from halfseen.experiments.leaderboard_summary import one_agent_slices, play_and_summarise
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
    reached = reachable("halfseen.experiments.leaderboard_summary")
    assert set(done.stdout.split()) <= set(reached)
    assert {"halfseen.worlds.named", "halfseen.kernels.kalman", "halfseen.estimators.emkf"} <= set(reached)
    assert not set(reached) & {"halfseen.cli.app", "halfseen.cli.terminal", "halfseen.experiments.html"}
    assert len(source_hash()) == 64
