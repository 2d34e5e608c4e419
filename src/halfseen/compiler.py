"""Numba, with a cache that can be written to and a word when it compiles.

Everything compiled imports `njit` from here, so that both are settled before the first function is decorated.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numba
from numba.core import config, event

settings: Any = config  # its fields are set at run time, out of the type checker's sight
QUIET = "HALFSEEN_QUIET"  # set in the environment, it silences the notice
NOTICE = (
    "halfseen: compiling the numerical kernels that this needs, once for this installation; "
    "`halfseen warmup` compiles all"
)
_BAR = 24  # cells


def _own(folder: Path) -> Path | None:
    """`folder`, made if need be, if it can be written to and is nobody else's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        theirs = hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()
        if theirs or folder.is_symlink():
            return None  # never load code that somebody else may have put there
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def _cache_folder() -> Path | None:
    """Where compiled kernels are kept: None for beside the code; else a folder of the user's, or a temporary one.

    Numba refuses to start where it can write neither beside the code nor to a home folder, as in many containers.
    """
    if settings.CACHE_DIR:
        return Path(settings.CACHE_DIR)
    package = Path(__file__).parent
    if all(_writable(folder) for folder in (package, package / "kernels")):
        return None
    wanted = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(wanted) if os.path.isabs(wanted) else Path(os.path.expanduser("~")) / ".cache"
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return (
        _own(home / "halfseen")
        or _own(Path(tempfile.gettempdir()) / f"halfseen-cache-{user}")
        or Path(tempfile.mkdtemp(prefix="halfseen-cache-"))
    )


def _writable(folder: Path) -> bool:
    beside = folder / "__pycache__"
    return os.access(beside if beside.exists() else folder, os.W_OK | os.X_OK)


CACHE = _cache_folder()


def _digest_of_sources() -> str:
    """Of every file with compiled code. A kernel carries the code of what it calls, so it is as old as the newest."""
    package = files("halfseen")  # in a folder or in a zip
    kernels = [one for one in package.joinpath("kernels").iterdir() if one.name.endswith(".py")]
    sources = [*map(package.joinpath, COMPILED), *sorted(kernels, key=lambda one: one.name)]
    return sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()


COMPILED = ("compiler.py", "linker.py", "box_muller.py", "randomness.py")  # beside the folder `kernels`
_SOURCES = _digest_of_sources()


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with the cache in CACHE, which other people's functions do not get to see.

    Numba takes a kernel from its cache if the file that it is in has not changed, whatever has become of the functions
    it calls in others. Here all of them count.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        before = settings.CACHE_DIR
        settings.CACHE_DIR = before if CACHE is None else str(CACHE)
        try:
            dispatcher = numba.njit(**options)(function)
            if options.get("cache") and hasattr(dispatcher, "_cache"):  # it has none under NUMBA_DISABLE_JIT
                dispatcher._cache._cache_file._source_stamp = _SOURCES
            return dispatcher
        finally:
            settings.CACHE_DIR = before

    return decorate


class _Announcer(event.Listener):
    """Says once that kernels are being compiled, and draws a bar meanwhile where stderr is a terminal.

    Loading them from the cache is no such event. Meanwhile no garbage is looked for: compiling makes very many objects
    and hardly a cycle, and to look would take a tenth of the time.
    """

    def __init__(self) -> None:
        self.told = QUIET in os.environ
        self._drawn = not self.told and sys.stderr is not None and sys.stderr.isatty()
        self._open: list[str] = []  # the functions being compiled, the outermost first
        self._done, self._total, self._began = 0, 1, 0.0
        self._collects = True

    def on_start(self, started: event.Event) -> None:
        dispatcher = started.data["dispatcher"]
        if not (self._open or _ours(dispatcher)):
            return
        if not self.told:
            self.told = True
            print(NOTICE, file=sys.stderr, flush=True)
        if not self._open:
            self._collects = gc.isenabled()
            gc.disable()
            self._done, self._total, self._began = 0, len(_closure(dispatcher, {})), time.monotonic()
        self._open.append(dispatcher.py_func.__name__)
        self._draw()

    def on_end(self, ended: event.Event) -> None:
        if not self._open:
            return
        self._open.pop()
        self._done += _ours(ended.data["dispatcher"])
        if self._collects and not self._open:
            gc.enable()
        self._draw()

    def _draw(self) -> None:
        if not self._drawn:
            return
        line = ""
        if self._open:
            full = min(_BAR, _BAR * self._done // self._total)
            seconds = time.monotonic() - self._began
            line = f"  {self._open[0]} {'━' * full}{'╌' * (_BAR - full)} {seconds:.0f} s"
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _ours(dispatcher: Any) -> bool:
    return str(dispatcher.py_func.__module__).startswith("halfseen.")


def _closure(dispatcher: Any, found: dict[int, Any]) -> dict[int, Any]:
    """A kernel and the kernels it calls, directly or not: as many as are compiled for it at most."""
    found[id(dispatcher)] = dispatcher
    code, names = dispatcher.py_func.__code__, dispatcher.py_func.__globals__
    for name in code.co_names:
        callee = names.get(name)
        if hasattr(callee, "py_func") and id(callee) not in found:
            _closure(callee, found)
    return found


event.register("numba:compile", _Announcer())
