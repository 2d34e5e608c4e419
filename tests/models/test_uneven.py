"""Filter, smoother, tracker and EM over rounds that are unequal numbers of steps apart."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.kalman import several_steps
from halfseen.models.identification.em import em_sequence

ELAPSED = np.array([1, 4, 1, 2, 1, 1, 7, 1, 3, 1])


@pytest.fixture(params=[None, [[1.0, 1.0, 0.0]]], ids=["canonical", "mixed"])
def model(request):
    transition = [[0.7, 0.4, 0.0], [-0.4, 0.7, 0.2], [0.0, 0.1, 0.9]]
    return hs.LinearGaussianModel(
        transition=transition, process_cov=[0.3, 0.1, 0.2], observation_cov=[0.2], observation=request.param,
        initial_mean=[0.5, -0.2, 0.1],
    )  # fmt: skip


@pytest.fixture
def series():
    y = np.random.default_rng(3).normal(size=(len(ELAPSED), 1))
    y[4] = np.nan
    return y


def expanded(y, elapsed):
    """Return the series with a missing round for every step in which nothing was seen, and the rounds that were."""
    at = np.cumsum(elapsed) - 1
    full = np.full((at[-1] + 1, y.shape[1]), np.nan)
    full[at] = y
    return full, at


def test_a_gap_equals_missing_rounds_in_the_filter(model, series):
    full, at = expanded(series, ELAPSED)
    expected, result = model.filter(full), model.filter(series, elapsed=ELAPSED)
    for name in ("means", "covs", "predicted_means", "predicted_covs"):
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name)[at], rtol=0, atol=1e-12)
    assert result.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-12)


def test_a_gap_equals_missing_rounds_in_the_smoother(model, series):
    full, at = expanded(series, ELAPSED)
    expected, result = model.smooth(full), model.smooth(series, elapsed=ELAPSED)
    for name in ("means", "covs"):
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name)[at], rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.initial.cov, expected.initial.cov, rtol=0, atol=1e-12)
    same = np.flatnonzero(ELAPSED == 1)  # where the round before is one step away in both
    np.testing.assert_allclose(result.lag_one_covs[same], expected.lag_one_covs[at[same]], rtol=0, atol=1e-12)


def test_a_batch_equals_its_series(model, series):
    batch = model.smooth(np.stack([series, -series]), elapsed=ELAPSED)
    for one, y in enumerate((series, -series)):
        np.testing.assert_array_equal(batch.means[one], model.smooth(y, elapsed=ELAPSED).means)
    filtered = model.filter(np.stack([series, -series]), elapsed=ELAPSED)
    np.testing.assert_array_equal(filtered.predicted_means[1], model.filter(-series, elapsed=ELAPSED).predicted_means)


def test_steps_of_one_change_nothing(model, series):
    np.testing.assert_array_equal(model.filter(series, elapsed=np.ones(10)).means, model.filter(series).means)


def test_another_look_at_the_same_moment_is_a_second_measurement():
    one = hs.LinearGaussianModel(transition=[[0.9]], process_cov=1.0, observation_cov=[0.5])
    both = hs.LinearGaussianModel(transition=[[0.9]], process_cov=1.0, observation_cov=[0.25])
    twice, mean = one.filter([[1.0], [3.0]], elapsed=[1, 0]), both.filter([[2.0]])
    np.testing.assert_allclose(twice.means[1], mean.means[0], rtol=1e-12)
    np.testing.assert_allclose(twice.covs[1], mean.covs[0], rtol=1e-12)
    smoothed = one.smooth([[1.0], [3.0]], elapsed=[1, 0])
    np.testing.assert_allclose(smoothed.means[0], smoothed.means[1], rtol=1e-12)


def test_the_tracker_equals_the_filter(model, series):
    tracker, expected = model.tracker(), model.filter(series, elapsed=ELAPSED)
    for t, (y, elapsed) in enumerate(zip(series, ELAPSED, strict=True)):
        belief = tracker.step(y, elapsed=int(elapsed))
        np.testing.assert_allclose(belief.mean, expected.means[t], rtol=0, atol=1e-12)
        np.testing.assert_allclose(belief.cov, expected.covs[t], rtol=0, atol=1e-12)


def test_the_gain_of_the_tracker_converges_again_after_a_gap():
    model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=1.0, observation_cov=[0.5])
    tracker = model.tracker()
    covs = [tracker.step([0.1], elapsed=50 if t == 40 else 1).cov[0, 0] for t in range(120)]
    assert covs[40] > covs[39]
    assert covs[-1] == pytest.approx(covs[39], rel=1e-10)
    assert tracker._steady


@pytest.mark.parametrize("elapsed", [-1, 1.5, float("nan"), "two", 2e12, None])
def test_bad_steps_leave_the_tracker_unchanged(model, elapsed):
    tracker = model.tracker()
    before = tracker.step([0.3])
    with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
        tracker.step([0.1], elapsed=elapsed)
    assert tracker.belief is before
    assert tracker.rounds == 1


@pytest.mark.parametrize("elapsed", [[1, 2], [1, -1, 1], [1, 0.5, 1], [1, np.nan, 1], "no"])
def test_bad_steps_of_a_series_are_refused(model, elapsed):
    for method in (model.filter, model.smooth):
        with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
            method([[0.1], [0.2], [0.3]], elapsed=elapsed)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10, 1000, 10**6])
def test_several_steps_are_a_power_and_a_sum(steps):
    D, Q = np.array([[0.9, 0.3], [-0.3, 0.9]]), np.array([[0.4, 0.1], [0.1, 0.2]])
    power, total = np.eye(2), np.zeros((2, 2))
    for _ in range(min(steps, 5000)):
        power, total = D @ power, D @ total @ D.T + Q
    D_n, Q_n = np.empty((2, 2)), np.empty((2, 2))
    several_steps(D, Q, steps, D_n, Q_n, np.empty((4, 2, 2)))
    np.testing.assert_allclose(D_n, power if steps <= 5000 else 0.0, rtol=1e-12, atol=1e-100)
    np.testing.assert_allclose(Q_n, total, rtol=1e-12)


def test_unstable_dynamics_stay_finite():
    D_n, Q_n = np.empty((1, 1)), np.empty((1, 1))
    several_steps(np.array([[1.5]]), np.eye(1), 10**9, D_n, Q_n, np.empty((4, 1, 1)))
    assert np.isfinite(D_n).all()
    assert np.isfinite(Q_n).all()
    assert Q_n[0, 0] > 1e50


# ---------------------------------------------------------------------- EM over several series

START = Parameters(
    np.array([[0.6, 0.3], [-0.2, 0.5]]), 0.4 * np.eye(2), 0.3 * np.eye(1), np.array([0.2, -0.1]), 0.8 * np.eye(2)
)


def _iterate(y, count=3):
    sequence = em_sequence(
        START, y, update_R=1, update_initial=True, q_floor=np.full(2, 1e-9), r_floor=np.full(1, 1e-9)
    )
    return [next(sequence) for _ in range(count + 1)]


def test_em_on_segments_equals_em_on_separate_series():
    """The reference adds the moments of each series, computed on its own, before it maximises."""
    rng = np.random.default_rng(5)
    parts = [rng.normal(size=(n, 1)) for n in (40, 25, 60)]
    parts[1][3] = np.nan
    y = np.concatenate([parts[0], [[np.inf]], parts[1], [[np.inf]], parts[2]])
    (_, first, _), (joint, *_), *_ = _iterate(y)
    separate = [_one_iteration(part) for part in parts]
    assert first == pytest.approx(sum(one["loglik"] for one in separate), rel=1e-12)
    S11, S00, S10, noise = (sum(one[name] for one in separate) for name in ("S11", "S00", "S10", "noise"))
    n = sum(map(len, parts))
    D = S10 @ np.linalg.inv(S00)
    np.testing.assert_allclose(joint.D, D, rtol=0, atol=1e-12)
    np.testing.assert_allclose(joint.Q, (S11 - D @ S10.T - S10 @ D.T + D @ S00 @ D.T) / n, rtol=0, atol=1e-12)
    np.testing.assert_allclose(joint.R, noise / n, rtol=0, atol=1e-12)
    starts = np.array([one["start"] for one in separate])
    np.testing.assert_allclose(joint.m0, starts.mean(axis=0), rtol=0, atol=1e-12)
    spread = np.mean([one["start_cov"] for one in separate], axis=0) + np.cov(starts.T, bias=True)
    np.testing.assert_allclose(joint.P0, spread, rtol=0, atol=1e-12)


def _one_iteration(y):
    """Return the moments of one series under START, from the public smoother."""
    model = hs.LinearGaussianModel(
        transition=START.D, process_cov=START.Q, observation_cov=START.R, initial_mean=START.m0, initial_cov=START.P0
    )
    s = model.smooth(y)
    x = np.vstack([s.initial.mean, s.means])
    P = np.concatenate([s.initial.cov[None], s.covs])
    second = P + x[:, :, None] * x[:, None, :]
    lag = s.lag_one_covs + x[1:, :, None] * x[:-1, None, :]
    residual = np.where(np.isnan(y[:, 0]), START.R[0, 0], (y[:, 0] - x[1:, 0]) ** 2 + P[1:, 0, 0])
    return {
        "S11": second[1:].sum(axis=0), "S00": second[:-1].sum(axis=0), "S10": lag.sum(axis=0),
        "noise": residual.sum().reshape(1, 1), "loglik": s.log_likelihood, "start": x[0], "start_cov": P[0],
    }  # fmt: skip


def test_the_likelihood_of_segments_never_decreases():
    rng = np.random.default_rng(6)
    y = rng.normal(size=(200, 1))
    y[[50, 51, 130]] = np.inf  # two breaks in a row leave an empty series
    values = [loglik for _, loglik, _ in _iterate(y, 8)]
    assert (np.diff(values) > -1e-9).all()
