"""The Kalman kernels against the dense Gaussian, a plain recursion, statsmodels and each other."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian
from reference.peers import statsmodels_of

from halfseen.kernels.filter import filter_series
from halfseen.kernels.kalman import MAX_VARIANCE, advance_gain, advance_mean
from halfseen.kernels.linalg import raise_pivots, subtract_outer


class Online:
    """Streams that are filtered with the online kernels. `group` is the group of each stream."""

    def __init__(self, systems, group):
        self.group = np.asarray(group)
        D, Q, _, R, m0, P0 = (np.stack(part) for part in zip(*systems, strict=True))
        first = [int(np.flatnonzero(self.group == m)[0]) for m in range(self.group.max() + 1)]
        self.D, self.Q, self.R, self.P = D[first], Q[first], R[first], P0[first]
        self.G = np.zeros((len(first), D.shape[1], R.shape[1]))
        self.frozen = np.zeros(len(first), np.bool_)
        self.x = m0.copy()
        self.first = first

    def step(self, y):
        groups, rows = np.arange(len(self.first)), np.arange(len(self.x))
        seen = ~np.isnan(y[self.first])
        advance_gain(groups, self.D, self.Q, self.R, self.P, self.G, self.frozen, seen)
        advance_mean(rows, self.group, self.D, self.G, self.x, y)


def run_online(system, y):
    streams = Online([system], [0])
    means, covs, frozen = [], [], []
    for row in y:
        streams.step(row[None].copy())
        means.append(streams.x[0].copy())
        covs.append(streams.P[0].copy())
        frozen.append(bool(streams.frozen[0]))
    return np.array(means), np.array(covs), np.array(frozen)


def run_series(system, y):
    D, Q, _, R, m0, P0 = system
    x, loglik, rows, P_filt, P_pred, frozen = filter_series(D, Q, R, m0, P0, np.ascontiguousarray(y[None]))
    return x[0, 1:], P_filt[rows[0, 1:]], loglik[0], P_pred[rows[0, 1:]], (rows[0], frozen)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (4, 2), (3, 3), (7, 1)])
@pytest.mark.parametrize("gaps", [False, True])
def test_series_and_online_filter_equal_the_dense_gaussian(d, k, gaps):
    missing = {"share": 0.3, "blank": (0, 5, 6)} if gaps else None
    system, y = gaussian.random_series(100 * d + k, d, k, 12, gaps=missing)
    means, covs, loglik, _, _ = run_series(system, y)
    online_means, online_covs, _ = run_online(system, y)
    for t in range(1, 13):
        mean, cov, _ = gaussian.posterior(*system, y[:t])
        np.testing.assert_allclose(means[t - 1], mean[-1], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(covs[t - 1], gaussian.block(cov, d, t, t), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(online_means, means, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(online_covs, covs, rtol=1e-10, atol=1e-11)
    assert loglik == pytest.approx(gaussian.posterior(*system, y)[2], rel=1e-10)


@pytest.mark.parametrize("noise", [0.3, 0.0])
@pytest.mark.parametrize("gaps", [False, True])
def test_the_converged_filter_equals_the_exact_recursion(noise, gaps):
    """The series is long enough to converge, to be interrupted by gaps and to converge again, also with Σ = 0."""
    rng = np.random.default_rng(7)
    D, Q, A, R, m0, P0 = gaussian.random_system(rng, 6, 3, radius=0.9)
    system = D, Q, A, R * (noise / 0.3), m0, P0
    y = gaussian.simulate(rng, *system, 900)[1]
    if gaps:
        y[200, 1] = y[201] = y[640, 2] = np.nan
    means, covs, loglik, _, (rows, frozen) = run_series(system, y)
    exact_means, exact_covs, exact_loglik = gaussian.exact_filter(*system, y)
    assert frozen > 0
    assert (rows == frozen).mean() > 0.7
    np.testing.assert_allclose(means, exact_means, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(covs, exact_covs, rtol=1e-10, atol=1e-10)
    assert loglik == pytest.approx(exact_loglik, rel=1e-10)
    online_means, online_covs, was_frozen = run_online(system, y)
    np.testing.assert_allclose(online_means, exact_means, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(online_covs, exact_covs, rtol=1e-10, atol=1e-10)
    assert was_frozen[-1]
    assert not was_frozen[0]
    if gaps:
        assert was_frozen[199]
        assert not was_frozen[200:202].any()
        assert was_frozen[639]
        assert not was_frozen[640]


def test_the_table_stays_small_and_equal_gaps_share_rows():
    rng = np.random.default_rng(8)
    system = gaussian.random_system(rng, 5, 2, radius=0.8)
    y = gaussian.simulate(rng, *system, 2000)[1]
    complete = run_series(system, y)[4][0]
    assert complete.max() < 100
    y[400::200, 1] = np.nan
    rows = run_series(system, y)[4][0]
    assert rows[401] > complete.max()
    np.testing.assert_array_equal(rows[401:601], rows[601:801])
    assert rows.max() < 2.5 * complete.max()


def test_a_path_with_another_limit_does_not_join_the_complete_path():
    """x_2 is constant and never observed. Only y_1 informs about x_2, so P has another limit if y_1 is missing."""
    D, Q, P0 = np.diag([0.5, 1.0]), np.diag([0.3, 0.0]), np.array([[1.4, 1.1], [1.1, 1.2]])
    system = D, Q, np.eye(1, 2), np.array([[0.2]]), np.array([0.3, -0.4]), P0
    rng = np.random.default_rng(19)
    y = gaussian.simulate(rng, *system, 200)[1]
    assert run_series(system, y)[4][1] > 0
    y[0] = np.nan
    np.testing.assert_allclose(run_series(system, y)[1], gaussian.exact_filter(*system, y)[1], atol=1e-10)


def test_the_tables_can_grow():
    rng = np.random.default_rng(9)
    system = gaussian.random_system(rng, 4, 3)
    y = gaussian.with_gaps(rng, gaussian.simulate(rng, *system, 300)[1], share=0.4)
    means, covs, loglik, _, (rows, _) = run_series(system, y)
    assert rows.max() > 256
    exact_means, exact_covs, exact_loglik = gaussian.exact_filter(*system, y)
    np.testing.assert_allclose(means, exact_means, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(covs, exact_covs, rtol=1e-9, atol=1e-10)
    assert loglik == pytest.approx(exact_loglik, rel=1e-10)


@pytest.mark.parametrize("gaps", [False, True])
def test_filter_equals_statsmodels(gaps):
    system, y = gaussian.random_series(10, 6, 2, 150, gaps={"share": 0.1} if gaps else None)
    expected = statsmodels_of(*system, y).filter()
    means, covs, loglik, pred, _ = run_series(system, y)
    np.testing.assert_allclose(means, expected.filtered_state.T, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(covs, np.moveaxis(expected.filtered_state_cov, -1, 0), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(pred, np.moveaxis(expected.predicted_state_cov[..., :-1], -1, 0), rtol=1e-8, atol=1e-9)
    assert loglik == pytest.approx(expected.llf, rel=1e-9)


def test_a_batch_of_series_equals_single_series_bit_for_bit():
    rng = np.random.default_rng(11)
    D, Q, _, R, m0, P0 = system = gaussian.random_system(rng, 20, 10)
    ys = np.stack([gaussian.simulate(rng, *system, 400)[1] for _ in range(4)])
    ys[1, 3, 2] = ys[1, 300] = ys[2, 3, 2] = ys[2, 150:160, 4] = np.nan
    batch = filter_series(D, Q, R, m0, P0, ys)
    for b in range(4):
        one = filter_series(D, Q, R, m0, P0, ys[b : b + 1].copy())
        np.testing.assert_array_equal(batch[0][b], one[0][0])
        assert batch[1][b] == one[1][0]
        np.testing.assert_array_equal(batch[3][batch[2][b]], one[3][one[2][0]])


def test_online_streams_do_not_depend_on_each_other():
    """B streams together, each in its own group, equal B single streams, bit for bit."""
    rng = np.random.default_rng(12)
    systems = [gaussian.random_system(rng, 20, 10) for _ in range(5)]
    ys = np.stack([gaussian.with_gaps(rng, gaussian.simulate(rng, *s, 60)[1], share=0.02) for s in systems])
    together = Online(systems, range(5))
    alone = [Online([system], [0]) for system in systems]
    for t in range(60):
        together.step(ys[:, t].copy())
        for b, streams in enumerate(alone):
            streams.step(ys[b : b + 1, t].copy())
            np.testing.assert_array_equal(together.x[b], streams.x[0])
            np.testing.assert_array_equal(together.P[b], streams.P[0])


def test_streams_of_one_group_equal_streams_of_separate_groups_bit_for_bit():
    rng = np.random.default_rng(13)
    system = gaussian.random_system(rng, 8, 3)
    ys = np.stack([gaussian.simulate(rng, *system, 120)[1] for _ in range(4)])
    ys[:, 60, 1] = np.nan
    shared, private = Online([system] * 4, [0] * 4), Online([system] * 4, range(4))
    for t in range(120):
        shared.step(ys[:, t].copy())
        private.step(ys[:, t].copy())
        np.testing.assert_array_equal(shared.x, private.x)
        np.testing.assert_array_equal(shared.P[0], private.P[3])


def test_any_streams_can_be_updated_in_any_order():
    rng = np.random.default_rng(14)
    streams = Online([gaussian.random_system(rng, 4, 2) for _ in range(3)], range(3))
    streams.step(rng.normal(size=(3, 2)))
    before, y = streams.x.copy(), rng.normal(size=(2, 2))
    rows = np.array([2, 0])
    advance_mean(rows, streams.group, streams.D, streams.G, streams.x, y)
    np.testing.assert_array_equal(streams.x[1], before[1])
    for s, row in enumerate(rows):
        pred = streams.D[row] @ before[row]
        np.testing.assert_allclose(streams.x[row], pred + streams.G[row] @ (y[s] - pred[:2]), rtol=1e-12)


def test_an_observation_that_is_missing_only_predicts():
    rng = np.random.default_rng(16)
    D, Q, _, _, m0, P0 = system = gaussian.random_system(rng, 4, 2)
    streams = Online([system], [0])
    streams.step(np.full((1, 2), np.nan))
    np.testing.assert_allclose(streams.x[0], D @ m0, rtol=1e-12)
    np.testing.assert_allclose(streams.P[0], D @ P0 @ D.T + Q, rtol=1e-12)
    assert not streams.G.any()


def test_noise_free_features_are_known_exactly_in_any_units():
    """With Σ = 0 the observed coordinates are known up to 1e-9 of their variance, in any units."""
    rng = np.random.default_rng(17)
    D, Q, A, R, m0, P0 = gaussian.random_system(rng, 5, 2)
    units = np.array([1e-4, 1e3, 1.0, 1.0, 1.0])
    D, Q, P0 = D * np.outer(units, 1 / units), Q * np.outer(units, units), P0 * np.outer(units, units)
    system = D, Q, A, 0.0 * R, m0 * units, P0
    y = gaussian.simulate(rng, *system, 200)[1]
    means, covs, loglik, _, _ = run_series(system, y)
    np.testing.assert_allclose(means[:, :2], y, rtol=1e-6, atol=1e-7 * units[0])
    assert (np.diagonal(covs, axis1=1, axis2=2)[:, :2] < 1e-8 * np.diag(P0)[:2]).all()
    assert np.linalg.eigvalsh(covs / np.outer(units, units)).min() > -1e-12
    assert np.isfinite(loglik)


def test_a_large_system():
    rng = np.random.default_rng(18)
    system = gaussian.random_system(rng, 120, 30)
    y = gaussian.simulate(rng, *system, 6)[1]
    means, covs, loglik, _, _ = run_series(system, y)
    exact_means, exact_covs, exact_loglik = gaussian.exact_filter(*system, y)
    np.testing.assert_allclose(means, exact_means, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(covs, exact_covs, rtol=1e-8, atol=1e-8)
    assert loglik == pytest.approx(exact_loglik, rel=1e-9)


@pytest.mark.parametrize("unit", [1.0, 1e2, 1e4])
def test_convergence_does_not_depend_on_units(unit):
    """A fast coordinate in large units must not end the updates of a slow one in small units."""
    units = np.array([unit, 1.0 / unit])
    D = np.diag([0.5, 0.99])
    Q, R, P0 = (np.diag(c * units**2) for c in (0.3, 0.2, 1.7))
    y = np.random.default_rng(3).normal(size=(400, 2)) * units
    system = D, Q, np.eye(2), R, np.zeros(2), P0
    means, covs, loglik = gaussian.exact_filter(*system, y)
    streams = Online([system], [0])
    for row in y:
        streams.step(row[None].copy())
    assert streams.frozen[0]
    np.testing.assert_allclose(streams.P[0] / np.outer(units, units), covs[-1] / np.outer(units, units), atol=1e-10)
    np.testing.assert_allclose(streams.x[0] / units, means[-1] / units, atol=1e-9)
    x, got, *_ = filter_series(D, Q, R, np.zeros(2), P0, y[None])
    np.testing.assert_allclose(x[0, 1:] / units, means / units, atol=1e-9)
    assert got[0] == pytest.approx(loglik, rel=1e-9)


def test_positive_noise_is_not_increased():
    """A small Σ is not increased, even with a very wide prior. Only a Σ of 0 is increased."""
    D, Q, R, P0 = np.array([[0.9]]), np.array([[0.1]]), np.array([[1e-2]]), np.array([[1e10]])
    _, _, rows, P, *_ = filter_series(D, Q, R, np.zeros(1), P0, np.ones((1, 1, 1)))
    predicted = 0.81e10 + 0.1
    assert P[rows[0, 1], 0, 0] == pytest.approx(predicted * 1e-2 / (predicted + 1e-2), rel=1e-3)


def test_covariances_that_shrink_by_many_orders_stay_positive_semi_definite():
    """Without noise in the dynamics, P becomes much smaller than P_0, and its rounding error is that of P_0."""
    rng, (d, k) = np.random.default_rng(5), (5, 3)
    rotation, root = np.linalg.qr(rng.normal(size=(d, d)))[0], rng.normal(size=(d, d))
    P, G, frozen = 1e12 * (root @ root.T)[None], np.zeros((1, d, k)), np.zeros(1, dtype=np.bool_)
    P = 0.5 * (P + P.swapaxes(1, 2))
    model = rotation[None], np.zeros((1, d, d)), np.zeros((1, k, k))
    for _ in range(60):
        advance_gain(np.array([0]), *model, P, G, frozen, np.ones((1, k), dtype=np.bool_))
        np.testing.assert_array_equal(P, P.swapaxes(1, 2))
        assert np.linalg.eigvalsh(P[0] / np.abs(P).max())[0] > -1e-12
        assert np.abs(G).max() < 1e6


def test_unstable_dynamics_without_observations_stay_finite():
    d, k, rows = 2, 1, np.array([0])
    D, Q, R = np.diag([3.0, 2.0])[None], np.eye(d)[None], np.ones((1, k, k))
    P, G, frozen, x = np.eye(d)[None].copy(), np.zeros((1, d, k)), np.zeros(1, dtype=np.bool_), np.ones((1, d))
    for _ in range(2_000):
        advance_gain(rows, D, Q, R, P, G, frozen, np.zeros((1, k), dtype=np.bool_))
        advance_mean(rows, rows, D, G, x, np.full((1, k), np.nan))
    assert 1e190 < P[0, 0, 0] <= MAX_VARIANCE
    assert x[0].tolist() == [1e100, 1e100]
    advance_gain(rows, D, Q, R, P, G, frozen, np.ones((1, k), dtype=np.bool_))
    advance_mean(rows, rows, D, G, x, np.zeros((1, k)))
    assert np.isfinite(P).all()
    assert abs(x[0, 0]) < 1e90  # the observation counts again


def test_pivots_are_raised_only_if_they_are_rounding_errors():
    root = np.random.default_rng(6).normal(size=(4, 4))
    regular = root @ root.T
    unchanged = regular.copy()
    raise_pivots(unchanged, 1e10 * np.diag(regular))
    np.testing.assert_array_equal(unchanged, regular)
    damaged = np.outer(root[0], root[0]) - 1e-13 * np.eye(4)
    raised = damaged.copy()
    raise_pivots(raised, np.diag(damaged).copy())
    assert np.linalg.eigvalsh(damaged)[0] < -5e-14
    assert np.linalg.eigvalsh(raised)[0] > -1e-15
    np.testing.assert_allclose(raised, damaged, atol=1e-11)


def test_an_outer_product_is_subtracted_and_no_variance_grows():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 4))
    C, c = root @ root.T, rng.normal(size=4)
    gain = C @ c
    for safe in (True, False):
        reduced = C.copy()
        subtract_outer(reduced, gain, 1.0 / (1.0 + c @ gain), safe)
        np.testing.assert_allclose(np.linalg.inv(reduced), np.linalg.inv(C) + np.outer(c, c), rtol=1e-9)
    # Correlations above 1, which are rounding errors of a covariance reduced by many orders of magnitude.
    damaged = np.array([[1e-80, 1e-60, 0.0], [1e-60, 1e-55, 1e-30], [0.0, 1e-30, 1.0]])
    before = damaged.copy()
    subtract_outer(damaged, np.array([1e-41, 1e-30, 1e-3]), 1.0, False)
    np.testing.assert_array_equal(damaged, before)
