"""The online filter has the same beliefs as the filter of the whole series, for any pattern of missing entries."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian
from reference.peers import model_of

from halfseen.errors import InvalidInput
from halfseen.models.linear_gaussian import LinearGaussianModel

BLAS = {"rtol": 1e-12, "atol": 1e-12}  # a matrix product over many rows may round differently in the last bit


def model_and_series(d, k, n, *, gaps, canonical=True, seed=5):
    missing = {"share": gaps} if gaps else None
    system, ys = gaussian.random_series(seed, d, k, n, gaps=missing, canonical=canonical)
    return model_of(*system), ys


def track(model, ys):
    tracker = model.tracker()
    beliefs = [tracker.step(y) for y in ys]
    return np.array([belief.mean for belief in beliefs]), np.array([belief.cov for belief in beliefs])


@pytest.mark.parametrize("gaps", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(("d", "k"), [(20, 10), (5, 2), (3, 1), (4, 4)])
def test_beliefs_equal_those_of_the_filter(d, k, gaps):
    model, ys = model_and_series(d, k, 300, gaps=gaps)
    filtered = model.filter(ys)
    means, covs = track(model, ys)
    np.testing.assert_array_equal(covs, filtered.covs)
    np.testing.assert_allclose(means, filtered.means, **BLAS)


def test_means_are_equal_bit_for_bit_until_the_gain_has_converged():
    model, ys = model_and_series(6, 3, 200, gaps=0.4)
    means, covs = track(model, ys)
    changed = np.concatenate([[True], (covs[1:] != covs[:-1]).any(axis=(1, 2))])
    assert changed.all()  # with so many gaps the covariance never converges
    np.testing.assert_array_equal(means, model.filter(ys).means)


def test_missing_entries_before_and_after_the_gain_has_converged():
    model, ys = model_and_series(5, 2, 400, gaps=0.0)
    ys[2, 0] = ys[150] = ys[151, 1] = np.nan
    filtered = model.filter(ys)
    means, covs = track(model, ys)
    assert (covs[140] == covs[149]).all()  # converged
    assert (covs[150] != covs[149]).any()  # changed by the missing entries
    assert (covs[399] == covs[149]).all()  # converged again to the same covariance
    np.testing.assert_array_equal(covs, filtered.covs)
    np.testing.assert_allclose(means, filtered.means, **BLAS)


def test_a_general_observation_matrix():
    model, ys = model_and_series(5, 2, 200, gaps=0.1, canonical=False)
    filtered = model.filter(ys)
    means, covs = track(model, ys)
    np.testing.assert_allclose(covs, filtered.covs, **BLAS)
    np.testing.assert_allclose(means, filtered.means, **BLAS)
    np.testing.assert_allclose(model.tracker().belief.mean, model.initial_mean, **BLAS)
    np.testing.assert_allclose(model.tracker().belief.cov, model.initial_cov, **BLAS)


def test_a_model_whose_covariance_never_converges():
    model = LinearGaussianModel(transition=np.diag([0.9, 1.1]), process_cov=0.1, observation_cov=[0.2])
    ys = np.random.default_rng(0).standard_normal((40, 1))
    ys[5] = np.nan
    means, covs = track(model, ys)
    np.testing.assert_array_equal(covs, model.filter(ys).covs)
    np.testing.assert_array_equal(means, model.filter(ys).means)
    longer = np.concatenate([ys, np.zeros((4000, 1))])  # long enough for the covariance to overflow
    np.testing.assert_array_equal(model.filter(longer).covs[:40], covs)


def test_a_refused_observation_does_not_change_the_tracker():
    model, ys = model_and_series(4, 2, 300, gaps=0.0)
    refusing, clean = model.tracker(), model.tracker()
    for t, y in enumerate(ys):
        for bad, message in [
            ([1.0], r"y: expected 2 numbers, got shape \(1,\)"),
            ([[1.0, 2.0]], r"y: expected 2 numbers, got shape \(1, 2\)"),
            (["a", "b"], "y: expected 2 numbers, got .*"),
            ([np.inf, 1.0], "y: expected finite numbers, or NaN where missing, got inf"),
            (np.array([np.nan, -np.inf]), "y: expected finite numbers, or NaN where missing, got -inf"),
        ]:
            with pytest.raises(InvalidInput, match=message):
                refusing.step(bad)
        np.testing.assert_array_equal(refusing.step(y).mean, clean.step(y).mean)
        assert refusing.rounds == clean.rounds == t + 1


def test_the_tracker_shares_no_arrays_with_the_caller():
    model, ys = model_and_series(4, 2, 200, gaps=0.0)
    tracker, other = model.tracker(), model.tracker()
    for y in ys:
        before, belief = y.copy(), tracker.step(y)
        np.testing.assert_array_equal(y, before)
        np.testing.assert_array_equal(belief.mean, other.step(list(y)).mean)
        assert tracker.belief is belief
        mean = belief.mean.copy()
        belief.mean[:] = 7.0  # does not change the tracker
        np.testing.assert_array_equal(other.belief.mean, mean)
        with pytest.raises(ValueError, match="read-only"):
            belief.cov[0, 0] = 7.0  # shared between rounds


def test_lists_none_read_only_and_strided_observations_are_accepted():
    model, ys = model_and_series(4, 2, 3, gaps=0.0)
    frozen = ys[0].copy()
    frozen.setflags(write=False)
    expected = model.tracker().step(ys[0]).mean
    for same in (ys[0].tolist(), frozen, np.repeat(ys[0], 2)[::2], ys[0].astype(">f8")):
        np.testing.assert_array_equal(model.tracker().step(same).mean, expected)
    np.testing.assert_array_equal(
        model.tracker().step([ys[0, 0], None]).mean, model.tracker().step([ys[0, 0], np.nan]).mean
    )
    assert repr(model.tracker()) == "<Tracker: 2 observed, 4 latent, 0 rounds>"
