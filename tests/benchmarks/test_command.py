"""The command `halfseen bench`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from halfseen.cli import bench
from halfseen.cli.app import run_app

ROOT = Path(__file__).parents[2]


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "halfseen", "bench", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "NO_COLOR": "1", "HALFSEEN_QUIET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_job_runs_in_any_folder(tmp_path):
    done = command("import", "--quick", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "import (1 of 1)" in done.stderr
    for part in ("Import in a new process", "≤ 2 ×", "met", "dgemm", "bench.json"):
        assert part in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"bench.json", "bench.md"}


def test_an_unknown_job_is_one_line_on_stderr(tmp_path):
    done = command("marathon", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: job: expected one of: linear-thompson, kalman-step, ")
    assert done.stderr.endswith(", got 'marathon'\n")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_jobs_are_listed(tmp_path):
    done = command("--list", cwd=tmp_path)
    assert done.stdout.split()[:2] == ["linear-thompson", "kalman-step"]


def test_without_a_clone_the_message_names_make_bench(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "CLONE", tmp_path)
    assert run_app(["bench"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: The installed package does not contain the benchmarks.")
    assert "make bench" in message
    assert message.count("\n") == 1


THREADS = """
import os, sys
import numpy  # with several BLAS threads, before the benchmarks can limit them
numpy.dot(numpy.ones((512, 512)), numpy.ones((512, 512)))
sys.path[:0] = {path}
if {restarts}:
    from benchmarks.harness import restart_single_threaded
    restart_single_threaded(["bench", "import", "--quick", "--out", {out!r}])
from benchmarks.harness import dgemm_seconds
print(len(dgemm_seconds(40)))
"""


def run_with_two_blas_threads(restarts, out):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    return subprocess.run(
        [sys.executable, "-c", THREADS.format(path=[str(ROOT), str(ROOT / "src")], restarts=restarts, out=str(out))],
        env=environment | {"PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "2", "HALFSEEN_QUIET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_one_blas_thread_is_used_even_if_numpy_was_imported_before(tmp_path):
    done = run_with_two_blas_threads(True, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Import in a new process" in done.stdout
    saved = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert {len(taken) for taken in saved["dgemm_seconds"].values()} == {5}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two processors")
def test_a_second_blas_thread_is_an_error(tmp_path):
    done = run_with_two_blas_threads(False, tmp_path / "out")
    assert done.returncode != 0
    assert "threads instead of one. Set OMP_NUM_THREADS" in done.stderr
