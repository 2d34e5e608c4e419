"""The state of an interrupted command: the signals received, and what the command has written."""

from __future__ import annotations

NOTHING_WRITTEN = "Nothing was written."

signals: list[int] = []  # numbers of the signals received, in order
written: list[str] = [NOTHING_WRITTEN]  # one message, which a command replaces when it has written something


def handle(number: int, _: object) -> None:
    """Record the signal and raise `KeyboardInterrupt`, which the interrupted code may turn into another exception."""
    signals.append(number)
    raise KeyboardInterrupt
