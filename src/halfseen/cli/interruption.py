"""Signals that interrupt a command, and what the command has written by then."""

from __future__ import annotations

NOTHING_WRITTEN = "nothing was written"

signals: list[int] = []  # numbers of the signals received, in order
written: list[str] = [NOTHING_WRITTEN]  # one line, which a command may replace while it works


def handle(number: int, _: object) -> None:
    """Remember the signal: what it interrupts, a compilation for one, may turn it into an error of another kind."""
    signals.append(number)
    raise KeyboardInterrupt
