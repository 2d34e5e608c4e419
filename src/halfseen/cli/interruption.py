"""What Ctrl-C meets: the signals heard, and what a command keeps when it is cut short."""

from __future__ import annotations

NOTHING_WRITTEN = "nothing was written"

signals: list[int] = []  # their numbers, first heard first
kept: list[str] = [NOTHING_WRITTEN]  # one line, which a command may replace while it works


def heard(number: int, _: object) -> None:
    """Remember the signal: what it interrupts, a compilation for one, may turn it into an error of another kind."""
    signals.append(number)
    raise KeyboardInterrupt
