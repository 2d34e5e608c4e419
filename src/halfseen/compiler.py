"""Numba, with a cache that can be written to and a word when it compiles.

Everything compiled imports `njit` from here, so that both are settled before the first function is decorated.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from numba import njit as njit
from numba.core import config, event

settings: Any = config  # its fields are set at run time, out of the type checker's sight
QUIET = "HALFSEEN_QUIET"  # set in the environment, it silences the notice
NOTICE = "halfseen: compiling its numerical kernels, once for this installation; this takes some seconds"


def _settle_cache() -> None:
    """Numba refuses to start where it can write neither beside the code nor to a home folder, as in many containers."""
    if settings.CACHE_DIR:
        return
    beside = Path(__file__).parent / "__pycache__"
    for folder in (beside if beside.exists() else beside.parent, os.path.expanduser("~")):
        if os.access(folder, os.W_OK | os.X_OK):
            return
    folder = Path(tempfile.gettempdir()) / f"halfseen-cache-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir() or folder.is_symlink() or (hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()):
        folder = Path(tempfile.mkdtemp(prefix="halfseen-cache-"))  # somebody else's: never load code from there
    settings.CACHE_DIR = str(folder)


class _Announcer(event.Listener):
    """Says once that kernels are being compiled. Loading them from the cache is no such event."""

    def __init__(self) -> None:
        self.done = QUIET in os.environ

    def on_start(self, started: event.Event) -> None:
        ours = str(started.data["dispatcher"].py_func.__module__).startswith("halfseen.")
        if ours and not self.done:
            self.done = True
            print(NOTICE, file=sys.stderr, flush=True)

    def on_end(self, ended: event.Event) -> None:
        """Nothing to say."""


_settle_cache()
event.register("numba:compile", _Announcer())
