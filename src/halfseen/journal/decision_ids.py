"""Ids of decisions: UUIDv7, increasing strictly within a stream."""

from __future__ import annotations

import os

_COUNTER_BITS, _TAIL_BITS = 12, 62  # of a UUIDv7
_VERSION, _VARIANT = 7, 2
_LOW = _VARIANT << _TAIL_BITS


def next_ids(milliseconds: int, previous: str | None, count: int) -> list[str]:
    """`count` ids of decisions: UUIDv7 of that time or, if `previous` is not before it, right after `previous`.

    The 12 bits after the milliseconds count within them (and run over into the next); the other 62 are random. So
    within a stream ids increase strictly, whatever the clock does.
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


def stamp_of(decision_id: str) -> int:
    """Milliseconds and counter of an id, as one number."""
    return (int(decision_id[:8] + decision_id[9:13], 16) << _COUNTER_BITS) | int(decision_id[15:18], 16)
