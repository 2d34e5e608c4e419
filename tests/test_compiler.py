"""Compiling: where it may be kept, and what is said about it."""

import os
import subprocess
import sys
from pathlib import Path

from halfseen.compiler import NOTICE, QUIET

DRAW = (
    "from halfseen.randomness import normals, stream_keys; import numpy; "
    "normals(stream_keys(1), numpy.array([1]), 1, 2)"
)


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key not in (QUIET, "NUMBA_CACHE_DIR")}
    return subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, check=False
    )


def test_compiling_is_announced_once_and_loading_is_not(tmp_path: Path) -> None:
    first = run(DRAW, NUMBA_CACHE_DIR=str(tmp_path))
    assert (first.returncode, first.stderr.splitlines()) == (0, [NOTICE])
    again = run(DRAW, NUMBA_CACHE_DIR=str(tmp_path))
    assert (again.returncode, again.stderr) == (0, "")


def test_the_notice_can_be_silenced(tmp_path: Path) -> None:
    assert run(DRAW, NUMBA_CACHE_DIR=str(tmp_path), **{QUIET: "1"}).stderr == ""


def test_other_peoples_functions_are_not_announced(tmp_path: Path) -> None:
    code = "import numba, halfseen.compiler; numba.njit(lambda: 1)()"
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""


def test_where_nothing_else_can_be_written_the_cache_is_temporary(tmp_path: Path) -> None:
    """The usual container: the package belongs to root, the service runs as nobody, without a home."""
    code = f"import os; os.access = lambda *_: False; {DRAW}"
    for _ in range(2):
        done = run(code, TMPDIR=str(tmp_path))
        assert done.returncode == 0
    assert done.stderr == ""  # the second time it is loaded from there
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_cache_of_somebody_elses_is_not_used(tmp_path: Path) -> None:
    """Loading compiled code that another user could have put there would be running it."""
    planted = tmp_path / f"halfseen-cache-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    planted.symlink_to(tmp_path / "elsewhere")
    assert run(f"import os; os.access = lambda *_: False; {DRAW}", TMPDIR=str(tmp_path)).returncode == 0
    assert list((tmp_path / "elsewhere").iterdir()) == []
