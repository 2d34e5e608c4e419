"""The jobs themselves, ours and NumPy's, for real but small: without the peers, who are then named."""

import numpy as np
import pytest
from benchmarks import harness, linear_thompson, monte_carlo, online
from benchmarks.harness import measure
from benchmarks.monte_carlo import LearntStart, draws_of


@pytest.fixture
def nobody(monkeypatch):
    """No peer is installed."""

    def missing(package):
        raise harness.PackageNotFoundError(package)

    monkeypatch.setattr(harness, "version", missing)


def test_linear_thompson_without_peers_names_them(nobody):
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
def test_an_online_round_decides_as_plain_numpy_does(agent):
    job = online.job(agent)
    ours, plain = (contender.work() for contender in job.contenders)
    job.agree(ours, plain)
    with pytest.raises(AssertionError):
        job.agree(ours, 14 - plain)


@pytest.mark.parametrize("learns", [False, True])
def test_batched_numpy_decides_as_one_stream_does(learns):
    draws, start = draws_of(range(3), 450), LearntStart.of(range(3)) if learns else None
    together = monte_carlo.batched(draws, start)
    alone = monte_carlo.one_stream(draws.first(1, 450), start)
    assert together.shape == (3, 450)
    np.testing.assert_array_equal(together[:1, :150], alone[:, :150])
    assert (together[0] == alone[0]).mean() > 0.8  # through the first refits, though rounding may tip a decision


def test_monte_carlo_lets_a_few_streams_go_their_own_way_and_no_more():
    played = np.random.default_rng(0).integers(15, size=(40, 200))
    other = played.copy()
    other[:2, 100] += 1
    other[:, 190] += 1  # so late that rounding may have tipped it
    monte_carlo.agree(played, other)
    other[:3, 100] += 1
    with pytest.raises(AssertionError, match="37 of 40"):
        monte_carlo.agree(played, other)
