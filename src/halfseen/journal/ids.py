"""Ids of decisions: UUIDv7, in the order of time; within a stream strictly so, whatever the clock does."""

from __future__ import annotations

import os

_COUNTER_BITS, _TAIL_BITS = 12, 62
_VERSION, _VARIANT = 7, 2
_LOW = _VARIANT << _TAIL_BITS


def next_id(milliseconds: int, previous: str | None) -> str:
    """An id of that time, or if `previous` is not before it, of the moment right after `previous`."""
    return next_ids(milliseconds, previous, 1)[0]


def next_ids(milliseconds: int, previous: str | None, count: int) -> list[str]:
    """So many ids, one right after the other.

    The 12 bits after the milliseconds count within them (and run over into the next); the other 62 are drawn.
    """
    stamp = milliseconds << _COUNTER_BITS
    if previous is not None:
        stamp = max(stamp, stamp_of(previous) + 1)
    drawn = os.urandom(8 * count)
    ids = []
    for place in range(count):
        high = (stamp >> _COUNTER_BITS << 16) | (_VERSION << 12) | (stamp & (1 << _COUNTER_BITS) - 1)
        low = _LOW | (int.from_bytes(drawn[8 * place : 8 * place + 8], "big") >> 2)
        text = f"{high:016x}{low:016x}"
        ids.append("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
        stamp += 1
    return ids


def stamp_of(identity: str) -> int:
    """Milliseconds and counter of an id, as one number."""
    return (int(identity[:8] + identity[9:13], 16) << _COUNTER_BITS) | int(identity[15:18], 16)
