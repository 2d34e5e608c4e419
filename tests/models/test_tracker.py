"""The online filter: the same beliefs as the filter of the whole series, at any pattern of gaps."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian
from reference.peers import model_of

from halfseen.errors import InvalidInput
from halfseen.models.linear_gaussian import LinearGaussianModel

BLAS = {"rtol": 1e-12, "atol": 1e-12}  # a product over many rows at once may round its last bit another way


def model_and_series(d, k, n, *, gaps, canonical=True, seed=5):
    missing = {"share": gaps} if gaps else None
    system, ys = gaussian.random_series(seed, d, k, n, gaps=missing, canonical=canonical)
    return model_of(*system), ys


def followed(model, ys):
    tracker = model.tracker()
    beliefs = [tracker.step(y) for y in ys]
    return np.array([belief.mean for belief in beliefs]), np.array([belief.cov for belief in beliefs])


@pytest.mark.parametrize("gaps", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(("d", "k"), [(20, 10), (5, 2), (3, 1), (4, 4)])
def test_the_beliefs_are_those_of_the_filter(d, k, gaps):
    model, ys = model_and_series(d, k, 300, gaps=gaps)
    filtered = model.filter(ys)
    means, covs = followed(model, ys)
    np.testing.assert_array_equal(covs, filtered.covs)
    np.testing.assert_allclose(means, filtered.means, **BLAS)


def test_until_the_gain_freezes_means_are_the_same_bit_for_bit():
    model, ys = model_and_series(6, 3, 200, gaps=0.4)
    means, covs = followed(model, ys)
    moving = np.concatenate([[True], (covs[1:] != covs[:-1]).any(axis=(1, 2))])
    assert moving.all()  # with so many gaps it never does
    np.testing.assert_array_equal(means, model.filter(ys).means)


def test_gaps_before_and_after_the_gain_has_frozen():
    model, ys = model_and_series(5, 2, 400, gaps=0.0)
    ys[2, 0] = ys[150] = ys[151, 1] = np.nan
    filtered = model.filter(ys)
    means, covs = followed(model, ys)
    assert (covs[140] == covs[149]).all()  # frozen,
    assert (covs[150] != covs[149]).any()  # thawed
    assert (covs[399] == covs[149]).all()  # and frozen again, at the same covariance
    np.testing.assert_array_equal(covs, filtered.covs)
    np.testing.assert_allclose(means, filtered.means, **BLAS)


def test_a_general_observation_matrix():
    model, ys = model_and_series(5, 2, 200, gaps=0.1, canonical=False)
    filtered = model.filter(ys)
    means, covs = followed(model, ys)
    np.testing.assert_allclose(covs, filtered.covs, **BLAS)
    np.testing.assert_allclose(means, filtered.means, **BLAS)
    np.testing.assert_allclose(model.tracker().belief.mean, model.initial_mean, **BLAS)
    np.testing.assert_allclose(model.tracker().belief.cov, model.initial_cov, **BLAS)


def test_a_model_that_never_settles_is_followed_exactly():
    model = LinearGaussianModel(transition=np.diag([0.9, 1.1]), process_cov=0.1, observation_cov=[0.2])
    ys = np.random.default_rng(0).standard_normal((40, 1))
    ys[5] = np.nan
    means, covs = followed(model, ys)
    np.testing.assert_array_equal(covs, model.filter(ys).covs)
    np.testing.assert_array_equal(means, model.filter(ys).means)
    longer = np.concatenate([ys, np.zeros((4000, 1))])  # far enough for the covariance to overflow
    np.testing.assert_array_equal(model.filter(longer).covs[:40], covs)


def test_a_refused_observation_leaves_the_tracker_as_it_was():
    model, ys = model_and_series(4, 2, 300, gaps=0.0)
    spoilt, clean = model.tracker(), model.tracker()
    for t, y in enumerate(ys):
        for bad, message in [
            ([1.0], r"y: expected 2 numbers, got shape \(1,\)"),
            ([[1.0, 2.0]], r"y: expected 2 numbers, got shape \(1, 2\)"),
            (["a", "b"], "y: expected 2 numbers, got .*"),
            ([np.inf, 1.0], "y: expected finite numbers, or nan for not seen, got inf"),
            (np.array([np.nan, -np.inf]), "y: expected finite numbers, or nan for not seen, got -inf"),
        ]:
            with pytest.raises(InvalidInput, match=message):
                spoilt.step(bad)
        np.testing.assert_array_equal(spoilt.step(y).mean, clean.step(y).mean)
        assert spoilt.rounds == clean.rounds == t + 1


def test_what_it_is_handed_and_what_it_hands_out_stay_apart():
    model, ys = model_and_series(4, 2, 200, gaps=0.0)
    ours, theirs = model.tracker(), model.tracker()
    for y in ys:
        before, belief = y.copy(), ours.step(y)
        np.testing.assert_array_equal(y, before)
        np.testing.assert_array_equal(belief.mean, theirs.step(list(y)).mean)
        assert ours.belief is belief
        kept = belief.mean.copy()
        belief.mean[:] = 7.0  # a reader's own business
        np.testing.assert_array_equal(theirs.belief.mean, kept)
        with pytest.raises(ValueError, match="read-only"):
            belief.cov[0, 0] = 7.0  # shared between rounds


def test_lists_none_read_only_and_strided_observations_are_welcome():
    model, ys = model_and_series(4, 2, 3, gaps=0.0)
    frozen = ys[0].copy()
    frozen.setflags(write=False)
    wanted = model.tracker().step(ys[0]).mean
    for same in (ys[0].tolist(), frozen, np.repeat(ys[0], 2)[::2], ys[0].astype(">f8")):
        np.testing.assert_array_equal(model.tracker().step(same).mean, wanted)
    np.testing.assert_array_equal(
        model.tracker().step([ys[0, 0], None]).mean, model.tracker().step([ys[0, 0], np.nan]).mean
    )
    assert repr(model.tracker()) == "<Tracker: 2 observed, 4 latent, 0 rounds>"
