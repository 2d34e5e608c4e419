"""How kernels are compiled: by Numba, when they are first called, and cached on disk.

Types are inferred from the first call. Callers pass C-contiguous, writable arrays, so that every kernel has one
specialisation. With NUMBA_DISABLE_JIT=1 in the environment kernels run as plain Python, slowly, for a debugger.
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

# In which order sums may be taken, and whether a product is rounded before it is added. Never the flags that exclude
# NaN: NaN means "not seen".
FAST, FUSED, AS_WRITTEN = {"reassoc", "contract"}, {"contract"}, False

CACHE_DIR = "HALFSEEN_CACHE_DIR"  # set in the environment, the folder for compiled kernels
QUIET = "HALFSEEN_QUIET"  # set in the environment, it silences the notice
NOTICE = (
    "halfseen: compiling the numerical kernels that this needs, once for this installation; "
    "`halfseen warmup` compiles all"
)
KERNELS: dict[str, Any] = {}  # all that were imported so far, by name
_PACKAGE = Path(__file__).parents[1]
_BESIDE = _PACKAGE / "__pycache__" / "kernels"
_BAR = 40  # cells at the most
_VERSIONS = 4  # folders kept of other versions of the package or other processors


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
    """`function` with Numba's cache in our folder; None where nothing can be kept.

    Numba looks at the file of a function to tell whether what it has kept is of the present code, and not at the
    helpers that the function calls. So the folder is named after all sources.
    """
    folder = cache_folder()
    if folder is None or numba.config.DISABLE_JIT:
        return None
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)  # for this function alone
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # a function without a file
        return None
    finally:
        numba.config.CACHE_DIR = before
    if Path(compiled.stats.cache_path).parent != folder:  # Numba found another place, where helpers do not count
        return None
    kept = compiled._cache
    kept.load_overload, kept.save_overload = _forgiving(kept, kept.load_overload), _forgiving(kept, kept.save_overload)
    return compiled


def _forgiving(kept: Any, access: Callable[..., Any]) -> Callable[..., Any]:
    """A full disk or a damaged file is no reason to fail: the kernel is compiled in memory."""

    def guarded(*arguments: Any) -> Any:
        try:
            return access(*arguments)
        except Exception:  # unpickling a damaged file may raise anything
            with suppress(OSError):
                kept.flush()
            return None

    return guarded


@cache
def cache_folder() -> Path | None:
    """The folder for kernels of the present sources and a processor like this; None where there is no place for one."""
    version, places = _version(), _places()
    for place in places:
        trusted, folder = place == places[0], place / version  # the package's own folder, or what the user named
        try:
            place.mkdir(mode=0o777 if trusted else 0o700, parents=True, exist_ok=True)
            if not (trusted or _is_ours(place)):
                continue
            fresh = not folder.exists()
            folder.mkdir(exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        if fresh:
            _remove_old(place)
        if fresh and not trusted:
            _copy(places[0] / version, folder)
        return folder
    return None


def _places() -> list[Path]:
    """Beside the code; where that cannot be written to, the user's cache directory; else a temporary folder."""
    named = os.environ.get(CACHE_DIR)
    user = os.getuid() if hasattr(os, "getuid") else "user"
    temporary = Path(tempfile.gettempdir()) / f"halfseen-cache-{user}"
    if named:
        return [Path(named), temporary]  # the latter for a folder that can only be read
    wanted = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(wanted) if os.path.isabs(wanted) else Path(os.path.expanduser("~")) / ".cache"
    return [_BESIDE, home / "halfseen", temporary]


def _is_ours(folder: Path) -> bool:
    """Whether nobody else could have put code there."""
    status = folder.stat()
    theirs = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022)
    return not (theirs or folder.is_symlink())


def _version() -> str:
    """A digest of everything that machine code depends on."""
    digest = sha256()
    package = files("halfseen")
    sources = [one for one in package.joinpath("kernels").iterdir() if one.name.endswith(".py")]
    for one in sorted(sources, key=lambda one: one.name):
        digest.update(one.read_bytes() if one.is_file() else b"")
    processor = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = numba.config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    digest.update(f"{numba.__version__} {np.__version__} {processor} {features}".encode())
    return digest.hexdigest()[:24]


def _copy(source: Path, folder: Path) -> None:
    """Take over what was compiled when an image was built, in a folder that can only be read here."""
    with suppress(OSError):
        for one in source.glob("*/*"):
            (folder / one.parent.name).mkdir(exist_ok=True)
            shutil.copyfile(one, folder / one.parent.name / one.name)


def _remove_old(place: Path) -> None:
    with suppress(OSError):
        others = [one for one in place.iterdir() if len(one.name) == 24 and one.is_dir()]
        for old in sorted(others, key=lambda one: -one.stat().st_mtime)[_VERSIONS:]:
            shutil.rmtree(old, ignore_errors=True)


if hasattr(os, "register_at_fork"):
    lock = global_compiler_lock  # a child that is forked while another thread holds it would wait for it for ever
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


# ---------------------------------------------------------------------- the notice


class _Notice(event.Listener):  # type: ignore[misc]
    """Says once in a process that kernels are being compiled; in a terminal also which, how many and for how long."""

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
        if self._started == 1 and _may_speak():
            print(NOTICE, file=sys.stderr, flush=True)
        seconds = self._spent + time.monotonic() - self._began
        self._draw(f"  {'━' * min(self._started, _BAR)} {self._started}: {name}, {seconds:.0f} s")

    def on_end(self, event: Any) -> None:
        if _name_of(event):
            self._depth -= 1
            if self._depth == 0:
                self._spent += time.monotonic() - self._began
                self._draw("")

    def _draw(self, line: str) -> None:
        if _may_speak() and sys.stderr.isatty():
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _name_of(event: Any) -> str:
    """The name of the kernel an event is about, or nothing for a function that is not ours."""
    function = event.data["dispatcher"].py_func
    return str(function.__name__) if function.__module__.startswith("halfseen.") else ""


def _may_speak() -> bool:
    return QUIET not in os.environ and sys.stderr is not None


event.register("numba:compile", _Notice())


# ---------------------------------------------------------------------- what Python has no word for


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
        product = builder.mul(*(builder.zext(one, wide) for one in arguments))
        return builder.trunc(builder.lshr(product, wide(64)), arguments[0].type)

    return types.uint64(types.uint64, types.uint64), write


def _bits_in_python(x: Any) -> Any:
    return np.float64(x).view(np.int64)


def _double_in_python(bits: Any) -> Any:
    return np.int64(bits).view(np.float64)


def _multiply_high_in_python(a: Any, b: Any) -> Any:
    return np.uint64(int(a) * int(b) >> 64)


# The 64 bits of a double as an integer; the double with these bits; the upper 64 bits of a 128-bit product.
bits_of: Any = _bits_in_python if numba.config.DISABLE_JIT else _bits_of
double_of: Any = _double_in_python if numba.config.DISABLE_JIT else _double_of
multiply_high: Any = _multiply_high_in_python if numba.config.DISABLE_JIT else _multiply_high
