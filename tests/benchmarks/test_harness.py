"""Contenders must agree before they are timed, and none is dropped without a word."""

import numpy as np
import pytest
from benchmarks.harness import SHORTEST, Contender, Job, measure

from halfseen.errors import HalfseenError


def job_of(*contenders, absent=(), **options):
    return Job("a job", "unit", 10, list(contenders), np.testing.assert_array_equal, list(absent), **options)


def spent(seconds):
    """A contender's work that claims to have taken so long; what it computed is 7."""
    return {"work": lambda: seconds, "result": lambda: 7, "seconds": float}


def test_ratios_are_of_the_best_time_of_a_unit():
    times = iter([0.4, 0.3, 0.35, 9.0])
    ours = Contender("ours", lambda: next(times), 10, result=lambda: 7, seconds=float)
    rows = measure(job_of(ours, Contender("peer", units=2, **spent(0.3)), repeats=3))
    assert [row["microseconds"] for row in rows] == pytest.approx([30_000, 150_000])
    assert [row["times_ours"] for row in rows] == pytest.approx([1.0, 5.0])


def test_disagreement_stops_the_run_before_anything_is_timed():
    timed = []
    ours = Contender("ours", lambda: 7, 1)
    wrong = Contender("wrong", lambda: timed.append(1), 1, result=lambda: 8)
    with pytest.raises(HalfseenError, match="another result from 'wrong' than from 'ours'") as caught:
        measure(job_of(ours, wrong))
    assert "\n" not in str(caught.value)
    assert len(timed) <= 1  # what compiles, not what is timed


def test_a_peer_that_computes_something_else_passes_its_own_check_or_stops_the_run():
    def positive(result):
        assert result > 0, "negative"

    other = Contender("other", lambda: 3, 1, differs="threes", check=positive)
    assert measure(job_of(Contender("ours", lambda: 7, 1), other))[1]["differs"] == "threes"
    other.check = lambda result: positive(-result)
    with pytest.raises(HalfseenError, match="negative"):
        measure(job_of(Contender("ours", lambda: 7, 1), other))


def test_a_peer_that_fails_is_named_and_the_others_go_on():
    calls = []

    def fails_when_timed():
        calls.append(1)
        if len(calls) > 2:
            raise ValueError("no\nluck")
        return 7

    def broken():
        raise RuntimeError("not today")

    job = job_of(
        Contender("ours", lambda: 7, 1),
        Contender("broken 1.0", broken, 1),
        Contender("late 2.0", fails_when_timed, 1),
        Contender("fine", lambda: 7, 1),
    )
    assert [row["contender"] for row in measure(job)] == ["ours", "fine"]
    assert job.absent == ["broken 1.0: failed: RuntimeError: not today", "late 2.0: failed: ValueError: no luck"]


def test_our_own_failure_is_not_swallowed():
    def broken():
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        measure(job_of(Contender("ours", broken, 1), Contender("peer", lambda: 7, 1)))


def test_a_missing_peer_and_one_that_cannot_be_set_up_are_named():
    def unfit(module, label):
        raise TypeError("another API")

    job = job_of()
    job.enter("no-such-package", "no_such_package", unfit)
    job.enter("numpy", "numpy", unfit)
    job.enter("numpy", "numpy", lambda module, label: Contender(label, lambda: module.pi, 1))
    label = f"numpy {np.__version__}"
    assert job.absent == ["no-such-package: not installed", f"{label}: failed: TypeError: another API"]
    assert [one.name for one in job.contenders] == [label]


def test_progress_rises_to_the_end():
    told = []
    measure(job_of(*(Contender(name, lambda: 7, 1) for name in "ab"), repeats=3), lambda _, share: told.append(share))
    assert told == sorted(told)
    assert 0.0 <= told[0] < 0.2 < 0.8 < told[-1] < 1.0


def test_short_work_is_repeated():
    calls = []
    rows = measure(job_of(Contender("ours", lambda: calls.append(sum(range(20_000))), 1, result=lambda: 7), repeats=1))
    each = rows[0]["microseconds"] / 1e6
    assert len(calls) > 10
    assert each < SHORTEST / 4


def test_a_first_run_that_is_asked_for_is_the_only_one():
    calls = []

    def compiles():
        calls.append(1)
        return 4.0

    job = job_of(Contender("ours", compiles, 2, seconds=float), repeats=1, rehearsed=False)
    assert measure(job)[0]["microseconds"] == 2e6
    assert len(calls) == 1
