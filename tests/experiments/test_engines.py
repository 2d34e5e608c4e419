"""Dask executors: results equal those of one process, also after lost workers, and errors are one line."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from experiments.processes import SOURCE, RealCluster, dask_client, real_cluster
from experiments.synthetic import assert_same_result, unstable_world

import halfseen as hs
from halfseen.experiments import run as run_module
from halfseen.experiments.engines import choose_executor
from halfseen.experiments.engines import dask as dask_engine
from halfseen.experiments.engines.dask import DaskExecutor
from halfseen.experiments.plan import Slice, experiment
from halfseen.experiments.play import OnProgress
from halfseen.experiments.run import SavedSlices, run_experiment

AGENTS = ["oracle-ts", "kf-ts", "emkf-ts", "ts-pco", "random"]
PLAN = experiment(AGENTS, ["keyhole", "fog"], 300, 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Start a scheduler and two workers."""
    with real_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def expected_result() -> hs.Result:
    return run_experiment(PLAN)


class Progress(list[tuple[int, int]]):
    """Records the progress of a run. It must increase to the total."""

    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))

    def check(self, total: int) -> None:
        assert self == sorted(self)
        assert {of for _, of in self} == {total}
        assert self[-1] == (total, total)


@pytest.fixture
def _frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers report progress often, so that a test can kill a worker that is playing."""
    monkeypatch.setattr(dask_engine, "_REPORT_SECONDS", 0.02)


def long_plan() -> Any:
    """Return a plan that takes two workers at least a second."""
    return experiment(["meb", "bayes"], "orbit", 6_000, 8)


def wait_for_workers(address: str, count: int) -> None:
    with dask_client(address) as client:
        client.wait_for_workers(count, timeout=60)


def test_the_result_equals_the_result_of_one_process(cluster: RealCluster, expected_result: hs.Result) -> None:
    wait_for_workers(cluster.address, 2)
    calls = Progress()
    result = run_experiment(PLAN, cluster=cluster.address, progress=calls)
    assert_same_result(expected_result, result)
    assert result.jobs == 2
    calls.check(5 * 2 * 4 * 300)


def test_tables_and_arrays_are_sent_to_workers(cluster: RealCluster) -> None:
    """The world is a large table, and an option contains arrays."""
    rng = np.random.default_rng(1)
    table = {name: rng.normal(size=150_000) for name in ("a", "b", "hidden", "left", "right")}
    world = hs.worlds.recorded(table, observed=["a", "b"], hidden=["hidden"], rewards=["left", "right"])
    model = hs.LinearGaussianModel(transition=0.9 * np.eye(4), process_cov=0.1, observation_cov=np.eye(3))
    agents = ["ts-pco", hs.AgentSpec("kf-ts", {"model": model}, "with-model")]
    here, there = (hs.run(agents, world=world, rounds=250, seeds=3, cluster=at) for at in (None, cluster.address))
    assert_same_result(here, there)


def test_a_leaderboard_on_a_cluster_equals_a_local_one(cluster: RealCluster, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"agents": ["ts-pco", "emkf-ts:window=3"], "worlds": ["keyhole", "fog"], "rounds": 60}
    boards = [
        hs.leaderboard(**settings, seeds=12, out=tmp_path / name, cluster=at)
        for name, at in (("here", None), ("there", cluster.address))
    ]
    summaries = [board.summary for board in boards]
    assert summaries[0]["failures"] == summaries[1]["failures"] != []
    for world, found in summaries[0]["worlds"].items():
        for agent, entry in found["agents"].items():
            assert summaries[1]["worlds"][world]["agents"][agent]["regret_by_seed"] == entry["regret_by_seed"]
    names = [sorted(path.name for path in (tmp_path / name / "cells").iterdir()) for name in ("here", "there")]
    assert names[0] == names[1]
    assert len(names[0]) == 8  # slices of kf-ts and ts-pco


def test_a_cancelled_slice_is_played_again(
    cluster: RealCluster, expected_result: hs.Result, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker may cancel a slice by mistake after it lost its connection to the scheduler for a moment."""

    def stop_once(task: Slice, on_progress: OnProgress) -> Any:
        from halfseen.experiments.play import Cancelled, play  # imported here because the function is sent by value

        mark = tmp_path / f"{task.world.name}-{task.seeds[0]}"
        if not mark.exists():
            mark.touch()
            raise Cancelled
        return play(task, on_progress)

    monkeypatch.setattr(run_module, "play", stop_once)
    calls = Progress()
    assert_same_result(expected_result, run_experiment(PLAN, cluster=cluster.address, progress=calls))
    assert len(list(tmp_path.iterdir())) >= 2
    calls.check(5 * 2 * 4 * 300)


def test_an_exception_in_a_worker_is_raised_here(cluster: RealCluster) -> None:
    with pytest.raises(hs.HalfseenError, match="world: expected bounded dynamics, got contexts beyond ±1e\\+100"):
        hs.run("ts-pco", world=unstable_world(), rounds=10, seeds=1, cluster=cluster.address)


@pytest.mark.slow
@pytest.mark.usefixtures("_frequent_reports")
def test_the_slice_of_a_killed_worker_is_played_again(tmp_path: Path) -> None:
    plan = long_plan()
    with real_cluster(tmp_path, workers=3) as cluster:
        wait_for_workers(cluster.address, 3)
        calls, killed = Progress(), list[int]()
        with dask_client(cluster.address) as client:
            pids = client.run(os.getpid)

            def kill_one(done: int, total: int) -> None:
                calls(done, total)
                busy = [pids[worker] for worker, slices in client.processing().items() if slices]
                if total // 10 < done < total and busy and not killed:
                    killed.append(busy[0])
                    os.kill(busy[0], signal.SIGKILL)

            result = run_experiment(plan, cluster=cluster.address, progress=kill_one)
            assert killed, "no worker was seen playing"
            assert killed[0] not in client.run(os.getpid).values()
    calls.check(2 * 8 * 6_000)
    assert len(set(calls)) > 9  # more reports than slices, of which there are at most eight
    assert_same_result(run_experiment(plan), result)


@pytest.mark.slow
@pytest.mark.usefixtures("_frequent_reports")
def test_a_local_cluster_continues_after_a_worker_was_killed() -> None:
    plan = long_plan()
    calls, seen = Progress(), dict[str, Any]()
    me = psutil.Process()

    def kill_one(done: int, total: int) -> None:
        calls(done, total)
        if done > total // 10 and not seen:
            workers = [one for one in me.children(recursive=True) if "spawn_main" in " ".join(one.cmdline())]
            family = [me, *workers]
            seen["ports"] = [at.laddr.ip for one in family for at in one.net_connections() if at.status == "LISTEN"]
            seen["threads"] = {one.environ().get("OPENBLAS_NUM_THREADS") for one in workers}
            seen["workers"] = workers
            workers[0].kill()

    result = run_experiment(plan, cluster="local:2", progress=kill_one)
    assert len(seen["workers"]) == 2
    assert set(seen["ports"]) == {"127.0.0.1"}
    assert seen["threads"] == {"1"}
    calls.check(2 * 8 * 6_000)
    assert_same_result(run_experiment(plan), result)
    assert not [one for one in seen["workers"] if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_a_run_continues_after_its_process_was_killed(cluster: RealCluster, tmp_path: Path) -> None:
    """A run is started on a cluster, killed, and continued by processes. A third run has nothing left to play."""
    words = ["run", "orbit", "fog", "--agents", "kf-ts,ts-pco", "--rounds", "3000", "--seeds", "20", "--out", "out"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "halfseen", *words, "--cluster", cluster.address],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SOURCE), "HALFSEEN_QUIET": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    slices = tmp_path / "out" / "slices"
    while not list(slices.glob("*.slice")) and driver.poll() is None:
        time.sleep(0.02)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    saved_count = len(list(slices.glob("*.slice")))
    assert 1 <= saved_count < 4
    with dask_client(cluster.address) as client:  # the workers stop, because the run has ended
        deadline = time.monotonic() + 20
        while any(client.processing().values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(client.processing().values())
    plan = experiment(["kf-ts", "ts-pco"], ["orbit", "fog"], 3000, 20)
    saved: list[SavedSlices] = []
    result = run_experiment(plan, jobs=2, out=tmp_path / "out", resume=True, on_saved=saved.append)
    assert saved[0].done == saved[0].resumed == saved_count
    assert_same_result(run_experiment(plan), result)
    saved.clear()
    again = run_experiment(plan, cluster=cluster.address, out=tmp_path / "out", resume=True, on_saved=saved.append)
    assert_same_result(result, again)
    assert [now.done for now in saved] == [saved[0].total]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow)]
)
def test_a_local_cluster_ends_with_its_parent(tmp_path: Path, number: signal.Signals, code: int) -> None:
    words = ["run", "orbit", "--agents", "kf-ts,ts-pco", "--rounds", "100000", "--seeds", "4", "--out", "out"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "halfseen", *words, "--cluster", "local:2"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SOURCE), "HALFSEEN_QUIET": "1", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    family: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while (
        len(family) < 3 and driver.poll() is None and time.monotonic() < deadline
    ):  # two workers and the resource tracker
        time.sleep(0.1)
        family = psutil.Process(driver.pid).children(recursive=True)
    time.sleep(2.0)
    assert driver.poll() is None
    if number == signal.SIGINT:
        os.killpg(driver.pid, number)  # a terminal also sends the signal to the children
    else:
        driver.send_signal(number)
    out, err = driver.communicate(timeout=30)
    assert driver.returncode == code
    assert out == ""
    _, left = psutil.wait_procs(family, timeout=10)
    assert left == []
    if number == signal.SIGINT:
        assert err.splitlines() == [
            "playing 2 agents × 1 world × 4 seeds × 100,000 rounds",
            "Interrupted. Nothing was written.",
        ]
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    ["", "local", "local:", "local:0", "local:two", "local:-1", "somewhere", "tcp://host", "tcp://host:0", "host:99999",
     "ftp://host:1", "tcp://a b:1", "tcp://host:8786/x", 8786],
)  # fmt: skip
def test_malformed_addresses_are_refused(address: Any) -> None:
    line = "^cluster: expected 'local:N', or the address of a scheduler such as tcp://host:8786, got "
    with pytest.raises(hs.HalfseenError, match=line):
        hs.run("ts-pco", world="fog", rounds=10, seeds=1, cluster=address)


@pytest.mark.parametrize("listening", [False, True], ids=["no server", "silent server"])
def test_a_scheduler_that_does_not_answer_is_an_error(tmp_path: Path, listening: bool) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        if listening:
            held.listen()
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(
            hs.HalfseenError, match=f"^cluster: expected a running scheduler, got no answer from '{address}' in 5 s"
        ):
            hs.run("ts-pco", world="fog", rounds=10, seeds=1, out=tmp_path / "out", cluster=address)
        assert time.monotonic() - began < 15
    assert list(tmp_path.iterdir()) == []


def edited_copy(folder: Path) -> Path:
    """Copy the package and add a comment to a module that is used for playing."""
    shutil.copytree(SOURCE / "halfseen", folder / "halfseen", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "halfseen" / "agents" / "policy.py").open("a") as file:
        file.write("# edited\n")
    return folder


def other_version(folder: Path) -> Path:
    """Return a folder with the same modules and metadata of another version."""
    (folder / "halfseen-99.0.dist-info").mkdir(parents=True)
    (folder / "halfseen-99.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: halfseen\nVersion: 99.0\n"
    )
    (folder / "halfseen").symlink_to(SOURCE / "halfseen")
    return folder


def no_package(folder: Path) -> Path:
    """Return a folder with an empty package of the same name."""
    (folder / "halfseen").mkdir(parents=True)
    (folder / "halfseen" / "__init__.py").write_text("")
    return folder


def test_workers_with_other_code_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = experiment("ts-pco", "fog", 10, 1)
    with real_cluster(tmp_path, workers=0) as cluster:
        monkeypatch.setattr(dask_engine, "CONNECT_SECONDS", 1.0)
        with pytest.raises(
            hs.HalfseenError, match=f"^cluster: expected at least one worker .*, got no workers at '{cluster.address}'"
        ):
            run_experiment(plan, cluster=cluster.address)
        monkeypatch.undo()
        for make, expected, got in (
            (edited_copy, "the same code", "other code"),
            (other_version, ".*", "halfseen 99.0"),
            (no_package, ".*", "halfseen another or none"),
        ):
            worker = cluster.add_worker(make(tmp_path / make.__name__))
            wait_for_workers(cluster.address, 1)
            line = f"^cluster: expected workers with {expected}, got a worker at tcp://127.0.0.1:[0-9]+ with {got}$"
            with pytest.raises(hs.HalfseenError, match=line):
                run_experiment(plan, cluster=cluster.address, out=tmp_path / "out")
            with monkeypatch.context() as late:  # as if the worker had joined after the check
                late.setattr(DaskExecutor, "_check_workers", lambda _: None)
                line = f"^cluster: expected workers with {expected}, got a worker with {got}$"
                with pytest.raises(hs.HalfseenError, match=line):
                    run_experiment(plan, cluster=cluster.address, out=tmp_path / "out")
            assert not (tmp_path / "out").exists()
            worker.kill()
            worker.wait()
            with dask_client(cluster.address) as client:
                while client.nthreads():
                    time.sleep(0.05)


def test_a_lost_scheduler_ends_the_run(tmp_path: Path) -> None:
    plan = experiment(["kf-ts", "ts-pco"], "orbit", 4_000, 40)
    with real_cluster(tmp_path, workers=1) as cluster:
        wait_for_workers(cluster.address, 1)
        saved: list[SavedSlices] = []

        def end_it(now: SavedSlices) -> None:
            saved.append(now)
            if now.done == 1:
                cluster.scheduler.kill()

        line = f"^The cluster at '{cluster.address}' failed: the scheduler does not answer$"
        with pytest.raises(hs.HalfseenError, match=line):
            run_experiment(plan, cluster=cluster.address, out=tmp_path / "out", on_saved=end_it)
    assert len(list((tmp_path / "out" / "slices").iterdir())) == saved[-1].done >= 1


def test_without_dask_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "halfseen.experiments.engines.dask")
    monkeypatch.setitem(sys.modules, "distributed", None)
    line = "^running on a cluster needs the package 'distributed', which is not installed; install it with: pip install"
    with pytest.raises(hs.HalfseenError, match=line + r" 'halfseen\[cluster\]'$"):
        choose_executor(1, "local:2", 4)


def test_jobs_and_cluster_exclude_each_other() -> None:
    with pytest.raises(hs.HalfseenError, match="jobs: expected either jobs or cluster, got jobs=2 and a cluster"):
        hs.run("ts-pco", world="fog", rounds=10, seeds=1, jobs=2, cluster="local:2")
