"""Ids of decisions are UUIDs of version 7 and increase within a stream."""

from __future__ import annotations

import uuid

from halfseen.journal.decision_ids import next_ids, stamp_of


def next_id(milliseconds, previous):
    return next_ids(milliseconds, previous, 1)[0]


def test_an_id_is_a_version_7_uuid_of_its_millisecond():
    decision_id = next_id(1_700_000_000_123, None)
    parsed = uuid.UUID(decision_id)
    assert str(parsed) == decision_id
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 80 == 1_700_000_000_123


def test_ids_increase_when_the_clock_stops_or_is_set_back():
    previous = next_id(1_000, None)
    for clock in (1_000, 1_000, 999, 3, 1_001, 500):
        following = next_id(clock, previous)
        assert following > previous
        assert stamp_of(following) > stamp_of(previous)
        previous = following


def test_ids_made_in_one_call_are_consecutive():
    previous = next_id(1_000, None)
    together = next_ids(900, previous, 5_000)
    assert together == sorted(set(together))
    assert together[0] > previous
    assert [stamp_of(one) - stamp_of(previous) for one in together] == list(range(1, 5_001))
    assert {uuid.UUID(one).version for one in together} == {7}
    assert next_ids(7, None, 0) == []


def test_the_counter_overflows_into_the_next_millisecond():
    previous, seen = None, set()
    for _ in range(5_000):
        previous = next_id(7, previous)
        seen.add(previous)
    assert len(seen) == 5_000
    assert sorted(seen)[-1] == previous
    assert uuid.UUID(previous).int >> 80 == 8
    assert uuid.UUID(previous).version == 7
