"""Small runs of the jobs with halfseen and NumPy, without other libraries."""

import numpy as np
import pytest
from benchmarks import harness, linear_thompson, monte_carlo, online
from benchmarks.harness import measure
from benchmarks.monte_carlo import LearntStart, draws_of


@pytest.fixture
def no_other_libraries(monkeypatch):
    """Pretend that no other library is installed."""

    def missing(package):
        raise harness.PackageNotFoundError(package)

    monkeypatch.setattr(harness, "version", missing)


def test_libraries_that_are_not_installed_are_listed(no_other_libraries):
    job = linear_thompson.job(True)
    rows = measure(job, quick=True)
    assert [row["contender"] for row in rows] == [
        "halfseen",
        "halfseen, with propensities",
        "NumPy, vectorised over arms",
    ]
    assert job.absent == [
        f"{name}: not installed"
        for name in ("mabwiser", "contextualbandits", "bayesianbandits", "river", "vowpalwabbit")
    ]


@pytest.mark.parametrize("agent", ["kf-ts", "emkf-ts"])
def test_online_decisions_equal_those_of_plain_numpy(agent):
    job = online.job(agent)
    ours, plain = (contender.work() for contender in job.contenders)
    job.agree(ours, plain)
    with pytest.raises(AssertionError):
        job.agree(ours, 14 - plain)


@pytest.mark.parametrize("learns", [False, True])
def test_batched_numpy_makes_the_decisions_of_a_single_stream(learns):
    draws, start = draws_of(range(3), 450), LearntStart.of(range(3)) if learns else None
    batched = monte_carlo.batched(draws, start)
    single = monte_carlo.one_stream(draws.first(1, 450), start)
    assert batched.shape == (3, 450)
    np.testing.assert_array_equal(batched[:1, :150], single[:, :150])
    assert (batched[0] == single[0]).mean() > 0.8  # after the first refits, rounding errors may change decisions


def test_monte_carlo_allows_few_streams_to_differ():
    played = np.random.default_rng(0).integers(15, size=(40, 200))
    other = played.copy()
    other[:2, 100] += 1
    other[:, 190] += 1  # after the compared rounds
    monte_carlo.agree(played, other)
    other[:3, 100] += 1
    with pytest.raises(AssertionError, match="37 of 40"):
        monte_carlo.agree(played, other)
