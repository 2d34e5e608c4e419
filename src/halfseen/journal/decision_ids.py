"""Ids of decisions: UUIDs of version 7 that increase strictly within a stream."""

from __future__ import annotations

import os
import re

DECISION_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_COUNTER_BITS, _RANDOM_BITS = 12, 62
_VERSION, _VARIANT = 7, 2
_LOW = _VARIANT << _RANDOM_BITS


def next_ids(milliseconds: int, previous: str | None, count: int) -> list[str]:
    """Make `count` ids for a time in milliseconds, all of them greater than the id `previous`.

    An id consists of the milliseconds, a counter of 12 bits and 62 random bits. If the clock has not advanced since
    `previous`, the counter continues from the counter of `previous` and may overflow into the milliseconds. So ids
    increase strictly within a stream even if the clock stops or is set back.
    """
    stamp = milliseconds << _COUNTER_BITS
    if previous is not None:
        stamp = max(stamp, stamp_of(previous) + 1)
    random_bytes = os.urandom(8 * count)
    ids = []
    for i in range(count):
        high = (stamp >> _COUNTER_BITS << 16) | (_VERSION << 12) | (stamp & (1 << _COUNTER_BITS) - 1)
        low = _LOW | (int.from_bytes(random_bytes[8 * i : 8 * i + 8], "big") >> 2)
        text = f"{high:016x}{low:016x}"
        ids.append("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
        stamp += 1
    return ids


def stamp_of(decision_id: str) -> int:
    """Return the milliseconds and the counter of an id as one number."""
    return (int(decision_id[:8] + decision_id[9:13], 16) << _COUNTER_BITS) | int(decision_id[15:18], 16)
