"""Compilation of kernels with Numba when they are first called, and their cache on disk.

Types are inferred from the first call. Callers pass C-contiguous, writable arrays, so that every kernel is compiled for
one set of types. With NUMBA_DISABLE_JIT=1 in the environment, kernels run as plain Python, which is slow but can be
debugged.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import llvmlite.binding
import llvmlite.ir
import numba
import numpy as np
from numba.core import event, types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

# What the compiler may change in floating-point arithmetic. FAST: it may reorder sums, and fuse multiplications with
# additions. FUSED: it may only fuse. AS_WRITTEN: it may do neither. NaN is always respected, because it marks missing
# entries.
FAST, FUSED, AS_WRITTEN = {"reassoc", "contract"}, {"contract"}, False

CACHE_DIR = "HALFSEEN_CACHE_DIR"  # environment variable that names the folder for compiled kernels
QUIET = "HALFSEEN_QUIET"  # environment variable that suppresses NOTICE
NOTICE = (
    "halfseen: compiling numerical kernels on first use, once per installation; "
    "`halfseen warmup` compiles all of them in advance"
)
KERNELS: dict[str, Any] = {}  # all kernels of the modules imported so far, by name
_PACKAGE = Path(__file__).parents[1]
_PACKAGE_CACHE = _PACKAGE / "__pycache__" / "kernels"
_BAR_WIDTH = 40  # characters
_MAX_OLD_FOLDERS = 4  # number of folders of other package versions or processors to keep; older ones are deleted


def kernel(sums: Any = FAST, *, nogil: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with Numba; `sums` is FAST, FUSED or AS_WRITTEN."""

    def decorate(function: Callable[..., Any]) -> Any:
        name = f"{function.__module__}.{function.__qualname__}".removeprefix("halfseen.")
        options = {"error_model": "numpy", "fastmath": sums, "nogil": nogil}
        KERNELS[name] = compiled = _cached(function, options) or numba.njit(**options)(function)
        return compiled

    return decorate


# ---------------------------------------------------------------------- the cache


def _cached(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return `function` compiled with Numba's cache in `cache_folder`, or None if it cannot be cached.

    Numba compiles a cached function again when the file of this function has changed, but not when a function that it
    calls in another file has changed. The name of the folder is therefore a digest of all kernel sources.
    """
    folder = cache_folder()
    if folder is None or numba.config.DISABLE_JIT:
        return None
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)  # restored below, so that functions of other packages are cached as usual
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # the function has no source file
        return None
    finally:
        numba.config.CACHE_DIR = before
    if Path(compiled.stats.cache_path).parent != folder:  # Numba used another folder
        return None
    disk_cache = compiled._cache
    disk_cache.load_overload = _ignoring_errors(disk_cache, disk_cache.load_overload)
    disk_cache.save_overload = _ignoring_errors(disk_cache, disk_cache.save_overload)
    return compiled


def _ignoring_errors(disk_cache: Any, access: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `access`, which reads or writes the cache, so that it returns None instead of raising an exception.

    The disk may be full or a file damaged. The kernel is then compiled in memory.
    """

    def guarded(*arguments: Any) -> Any:
        try:
            return access(*arguments)
        except Exception:  # unpickling a damaged file may raise any exception
            with suppress(OSError):
                disk_cache.flush()
            return None

    return guarded


@cache
def cache_folder() -> Path | None:
    """Return the cache folder for the present sources and processor, or None if no folder is writable."""
    version, parents = _version(), _parent_folders()
    for parent in parents:
        # The first folder is in the package or named by the user. Somebody else could have put code into the other
        # folders, so these are used only if they are private.
        trusted, folder = parent == parents[0], parent / version
        try:
            parent.mkdir(mode=0o777 if trusted else 0o700, parents=True, exist_ok=True)
            if not (trusted or _is_private(parent)):
                continue
            fresh = not folder.exists()
            folder.mkdir(exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        if fresh:
            _remove_old_folders(parent)
        if fresh and not trusted:
            _copy_kernels(parents[0] / version, folder)
        return folder
    return None


def _parent_folders() -> list[Path]:
    """Return the folders in which the cache may be created, in order of preference."""
    named = os.environ.get(CACHE_DIR)
    user = os.getuid() if hasattr(os, "getuid") else "user"
    temporary = Path(tempfile.gettempdir()) / f"halfseen-cache-{user}"
    if named:
        return [Path(named), temporary]  # the temporary folder is used if the named one is read-only
    wanted = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(wanted) if os.path.isabs(wanted) else Path(os.path.expanduser("~")) / ".cache"
    return [_PACKAGE_CACHE, home / "halfseen", temporary]


def _is_private(folder: Path) -> bool:
    """Return whether only the present user can write to the folder."""
    status = folder.stat()
    foreign = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022)
    return not (foreign or folder.is_symlink())


def _version() -> str:
    """Return a digest of everything that the machine code depends on."""
    digest = sha256()
    package = files("halfseen")
    sources = [path for path in package.joinpath("kernels").iterdir() if path.name.endswith(".py")]
    for path in sorted(sources, key=lambda path: path.name):
        digest.update(path.read_bytes() if path.is_file() else b"")
    processor = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = numba.config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    digest.update(f"{numba.__version__} {np.__version__} {processor} {features}".encode())
    return digest.hexdigest()[:24]


def _copy_kernels(source: Path, folder: Path) -> None:
    """Copy kernels from a read-only folder, such as one that was filled when a container image was built."""
    with suppress(OSError):
        for path in source.glob("*/*"):
            (folder / path.parent.name).mkdir(exist_ok=True)
            shutil.copyfile(path, folder / path.parent.name / path.name)


def _remove_old_folders(parent: Path) -> None:
    with suppress(OSError):
        others = [path for path in parent.iterdir() if len(path.name) == 24 and path.is_dir()]
        for old in sorted(others, key=lambda path: -path.stat().st_mtime)[_MAX_OLD_FOLDERS:]:
            shutil.rmtree(old, ignore_errors=True)


if hasattr(os, "register_at_fork"):
    # A child process that is forked while another thread compiles would wait for this lock forever. The lock is
    # therefore held during a fork, and then released in both processes.
    lock = global_compiler_lock
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


# ---------------------------------------------------------------------- the notice


class _Notice(event.Listener):  # type: ignore[misc]
    """Prints once per process that kernels are being compiled. In a terminal it also shows their progress."""

    def __init__(self) -> None:
        self._started, self._depth, self._spent, self._began = 0, 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        name = _name_of(event)
        if not name:
            return
        if self._depth == 0:
            self._began = time.monotonic()
        self._depth += 1
        self._started += 1
        if self._started == 1 and _may_print():
            print(NOTICE, file=sys.stderr, flush=True)
        seconds = self._spent + time.monotonic() - self._began
        self._draw(f"  {'━' * min(self._started, _BAR_WIDTH)} {self._started}: {name}, {seconds:.0f} s")

    def on_end(self, event: Any) -> None:
        if _name_of(event):
            self._depth -= 1
            if self._depth == 0:
                self._spent += time.monotonic() - self._began
                self._draw("")

    def _draw(self, line: str) -> None:
        if _may_print() and sys.stderr.isatty():
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _name_of(event: Any) -> str:
    """Return the name of the compiled kernel, or "" for a function of another package."""
    function = event.data["dispatcher"].py_func
    return str(function.__name__) if function.__module__.startswith("halfseen.") else ""


def _may_print() -> bool:
    return QUIET not in os.environ and sys.stderr is not None


event.register("numba:compile", _Notice())


# ---------------------------------------------------------------------- operations on bits


@intrinsic
def _bits_of(typing: Any, x: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), write


@intrinsic
def _double_of(typing: Any, bits: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), write


@intrinsic
def _multiply_high(typing: Any, a: Any, b: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = llvmlite.ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, wide(64)), arguments[0].type)

    return types.uint64(types.uint64, types.uint64), write


def _bits_in_python(x: Any) -> Any:
    return np.float64(x).view(np.int64)


def _double_in_python(bits: Any) -> Any:
    return np.int64(bits).view(np.float64)


def _multiply_high_in_python(a: Any, b: Any) -> Any:
    return np.uint64(int(a) * int(b) >> 64)


# bits_of: the 64 bits of a float as an integer. double_of: the float with these bits. multiply_high: the upper 64 bits
# of the 128-bit product of two unsigned integers.
bits_of: Any = _bits_in_python if numba.config.DISABLE_JIT else _bits_of
double_of: Any = _double_in_python if numba.config.DISABLE_JIT else _double_of
multiply_high: Any = _multiply_high_in_python if numba.config.DISABLE_JIT else _multiply_high
