"""A word when kernels are compiled, and a bar meanwhile."""

from __future__ import annotations

import os
import sys
import time

QUIET = "HALFSEEN_QUIET"  # set in the environment, it silences the notice
NOTICE = (
    "halfseen: compiling the numerical kernels that this needs, once for this installation; "
    "`halfseen warmup` compiles all"
)
_BAR = 24  # cells
_told: list[bool] = []


class Compiling:
    """Says, once in a process, that units are being compiled, and draws a bar where stderr is a terminal."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._said = bool(total) and QUIET not in os.environ and sys.stderr is not None
        self._drawn = self._said and sys.stderr.isatty()

    def __enter__(self) -> Compiling:
        if self._said and not _told:
            _told.append(True)
            print(NOTICE, file=sys.stderr, flush=True)
        return self

    def starts(self, name: str) -> None:
        """The next of the units."""
        if self._drawn:
            full = min(_BAR, _BAR * self._done // self._total)
            seconds = time.monotonic() - self._began
            self._draw(f"  {name} {'━' * full}{'╌' * (_BAR - full)} {seconds:.0f} s")
        self._done += 1

    def _draw(self, line: str) -> None:
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *of_error: object) -> None:
        if self._drawn:
            self._draw("")
