"""The harness: results are compared before anything is timed, and every missing contender is listed."""

import numpy as np
import pytest
from benchmarks.harness import SHORTEST, Contender, Job, measure

from halfseen.errors import HalfseenError


def make_job(*contenders, absent=(), **options):
    return Job("a job", "unit", 10, list(contenders), np.testing.assert_array_equal, list(absent), **options)


def claims_to_take(seconds):
    """Return arguments for a contender that reports this time and whose result is 7."""
    return {"work": lambda: seconds, "result": lambda: 7, "seconds": float}


def test_the_ratio_uses_the_best_time_per_unit():
    times = iter([0.4, 0.3, 0.35, 9.0])
    ours = Contender("ours", lambda: next(times), 10, result=lambda: 7, seconds=float)
    rows = measure(make_job(ours, Contender("peer", units=2, **claims_to_take(0.3)), repeats=3))
    assert [row["microseconds"] for row in rows] == pytest.approx([30_000, 150_000])
    assert [row["times_ours"] for row in rows] == pytest.approx([1.0, 5.0])


def test_different_results_stop_the_run_before_anything_is_timed():
    timed = []
    ours = Contender("ours", lambda: 7, 1)
    wrong = Contender("wrong", lambda: timed.append(1), 1, result=lambda: 8)
    with pytest.raises(HalfseenError, match=r"^The results of 'wrong' and 'ours' differ in 'a job'") as caught:
        measure(make_job(ours, wrong))
    assert "\n" not in str(caught.value)
    assert len(timed) <= 1  # at most the call that compiles


def test_a_contender_with_its_own_check_must_pass_it():
    def positive(result):
        assert result > 0, "negative"

    other = Contender("other", lambda: 3, 1, differs="threes", check=positive)
    assert measure(make_job(Contender("ours", lambda: 7, 1), other))[1]["differs"] == "threes"
    other.check = lambda result: positive(-result)
    with pytest.raises(HalfseenError, match="negative"):
        measure(make_job(Contender("ours", lambda: 7, 1), other))


def test_a_contender_that_fails_is_listed_and_the_others_continue():
    calls = []

    def fails_when_timed():
        calls.append(1)
        if len(calls) > 2:
            raise ValueError("no\nluck")
        return 7

    def broken():
        raise RuntimeError("not today")

    job = make_job(
        Contender("ours", lambda: 7, 1),
        Contender("broken 1.0", broken, 1),
        Contender("late 2.0", fails_when_timed, 1),
        Contender("fine", lambda: 7, 1),
    )
    assert [row["contender"] for row in measure(job)] == ["ours", "fine"]
    assert job.absent == ["broken 1.0: failed: RuntimeError: not today", "late 2.0: failed: ValueError: no luck"]


def test_an_exception_of_the_first_contender_is_raised():
    def broken():
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        measure(make_job(Contender("ours", broken, 1), Contender("peer", lambda: 7, 1)))


def test_missing_and_incompatible_libraries_are_listed():
    def incompatible(module, label):
        raise TypeError("another API")

    job = make_job()
    job.enter("no-such-package", "no_such_package", incompatible)
    job.enter("numpy", "numpy", incompatible)
    job.enter("numpy", "numpy", lambda module, label: Contender(label, lambda: module.pi, 1))
    label = f"numpy {np.__version__}"
    assert job.absent == ["no-such-package: not installed", f"{label}: failed: TypeError: another API"]
    assert [one.name for one in job.contenders] == [label]


def test_progress_increases_to_the_end():
    shares = []
    measure(
        make_job(*(Contender(name, lambda: 7, 1) for name in "ab"), repeats=3), lambda _, share: shares.append(share)
    )
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] < 0.2 < 0.8 < shares[-1] < 1.0


def test_short_work_is_repeated():
    calls = []
    rows = measure(
        make_job(Contender("ours", lambda: calls.append(sum(range(20_000))), 1, result=lambda: 7), repeats=1)
    )
    seconds = rows[0]["microseconds"] / 1e6
    assert len(calls) > 10
    assert seconds < SHORTEST / 4


def test_a_job_that_is_not_rehearsed_runs_once():
    calls = []

    def compiles():
        calls.append(1)
        return 4.0

    job = make_job(Contender("ours", compiles, 2, seconds=float), repeats=1, rehearsed=False)
    assert measure(job)[0]["microseconds"] == 2e6
    assert len(calls) == 1
