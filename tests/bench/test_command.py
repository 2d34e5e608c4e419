"""`halfseen bench`: thin, and clear about what it needs."""

import os
import subprocess
import sys
from pathlib import Path

from halfseen.cli import run_app
from halfseen.commands import bench

ROOT = Path(__file__).parents[2]


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "halfseen.cli", "bench", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "NO_COLOR": "1", "HALFSEEN_QUIET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_one_job_from_any_folder(tmp_path):
    done = command("import", "--quick", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "import (1 of 1)" in done.stderr
    for part in ("Import in a new process", "≤ 2 ×", "met", "dgemm", "bench.json"):
        assert part in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"bench.json", "bench.md"}


def test_an_unknown_job_is_refused_in_one_line(tmp_path):
    done = command("marathon", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: job: got 'marathon'; want one of: linear-thompson, ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_jobs_are_listed(tmp_path):
    done = command("--list", cwd=tmp_path)
    assert done.stdout.split()[:2] == ["linear-thompson", "kalman-step"]


def test_an_installed_package_says_where_the_benchmarks_are(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "CLONE", tmp_path)
    assert run_app(["bench"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: bench: got an installed package")
    assert "make bench" in told
    assert told.count("\n") == 1


def test_one_thread_is_settled_before_numpy_is_loaded():
    code = (
        "import sys, os; from halfseen.cli import build_app; build_app(); import benchmarks.single_thread as one; "
        "one.settle(); print('numpy' in sys.modules, os.environ['OMP_NUM_THREADS'], len(os.sched_getaffinity(0)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "1", "1"]
