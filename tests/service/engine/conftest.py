"""A clock that tests can set."""

import time

import pytest


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in nanoseconds, which changes only when the test changes it."""
    now = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    return now
