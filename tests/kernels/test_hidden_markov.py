"""Filter and online EM of a hidden Markov chain against an enumeration of all paths."""

import numpy as np
import pytest
from reference.hidden_markov import expected_statistics

from halfseen.estimators.hmm import initial_chains
from halfseen.kernels.hidden_markov import MIN_TRANSITION, filter_and_learn, fit_start, log_likelihood

M, K = 3, 2


def setting(rounds=7, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    F = rng.uniform(0.1, 1.0, size=(M, M))
    ys = rng.normal(scale=1.5, size=(rounds, K))
    ys[rng.uniform(size=ys.shape) < missing] = np.nan
    chain = initial_chains(1, M, K)
    chain.transition[0] = F / F.sum(axis=1, keepdims=True)
    chain.mean[0] = rng.normal(scale=1.5, size=(M, K))
    chain.var[0] = rng.uniform(0.4, 2.0, size=(M, K))
    return chain, ys


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_statistics_of_one_pass_equal_those_of_all_paths(missing):
    chain, ys = setting(missing=missing)
    expected = expected_statistics(ys, chain.transition[0], chain.mean[0], chain.var[0])
    assert log_likelihood(ys, chain.transition[0], chain.mean[0], chain.var[0]) == pytest.approx(
        expected["log_likelihood"]
    )
    # No iteration of EM, then one pass. With exponent 1 all rounds have the same weight.
    fit_start(ys, 0, 1.0, 0.01, *(array[0] for array in chain))
    belief = chain.belief[0]
    np.testing.assert_allclose(belief, expected["belief"], atol=1e-12)
    np.testing.assert_allclose(chain.rho_transition[0] @ belief, expected["F"], atol=1e-12)
    np.testing.assert_allclose(chain.rho_state[0] @ belief, expected["1"], atol=1e-12)
    np.testing.assert_allclose(chain.rho_y[0] @ belief, expected["y"], atol=1e-12)
    np.testing.assert_allclose(chain.rho_yy[0] @ belief, expected["yy"], atol=1e-12)


def test_the_parameters_maximise_the_statistics():
    chain, ys = setting()
    expected = expected_statistics(ys, chain.transition[0], chain.mean[0], chain.var[0])
    fit_start(ys, 1, 0.6, 0.03, *(array[0] for array in chain))
    np.testing.assert_allclose(chain.transition[0], expected["F"] / expected["F"].sum(axis=1, keepdims=True), atol=1e-7)
    mean = expected["y"] / expected["1"][:, None]
    np.testing.assert_allclose(chain.mean[0], mean, atol=1e-12)
    np.testing.assert_allclose(chain.var[0], expected["yy"] / expected["1"][:, None] - mean**2 + 0.03, atol=1e-12)


def test_the_likelihood_of_em_never_decreases():
    rng, (chain, _) = np.random.default_rng(5), setting(seed=2)
    states = np.cumsum(rng.uniform(size=300) < 0.1) % 3
    ys = np.array([[2.0, 0.0], [-1.0, 1.5], [0.0, -2.0]])[states] + rng.normal(size=(300, 2))
    ys[rng.uniform(size=ys.shape) < 0.1] = np.nan
    log_likelihoods = []
    for _ in range(12):
        log_likelihoods.append(log_likelihood(ys, chain.transition[0], chain.mean[0], chain.var[0]))
        fit_start(ys, 1, 0.6, 1e-12, *(array[0] for array in chain))
    assert (np.diff(log_likelihoods) > -1e-6).all()
    assert log_likelihoods[-1] > log_likelihoods[0] + 50


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_round_equals_the_recursion(missing):
    """The recursion of docs/mathematics.md in NumPy."""
    chain, ys = setting(rounds=40, missing=missing, seed=3)
    copy = [array[0].copy() for array in chain]
    belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy = copy
    for t, y in enumerate(ys, start=1):
        filter_and_learn(np.array([0]), y[None], np.array([t]), 0.7, 0.02, *chain)
        pred = belief @ F
        ret = belief[:, None] * F / pred
        logs = np.log(pred)
        for i in np.flatnonzero(~np.isnan(y)):
            logs = logs - 0.5 * np.log(2 * np.pi * var[:, i]) - 0.5 * (y[i] - mean[:, i]) ** 2 / var[:, i]
        belief = np.exp(logs - logs.max())
        belief /= belief.sum()
        g, identity = t**-0.7, np.eye(M)
        first = np.where(np.isnan(y), mean, y)
        second = np.where(np.isnan(y), mean**2 + var, y**2)
        rho_F = g * np.einsum("jq,iq->ijq", identity, ret) + (1 - g) * rho_F @ ret
        rho_1 = g * identity + (1 - g) * rho_1 @ ret
        rho_y = g * np.einsum("jq,ji->jiq", identity, first) + (1 - g) * rho_y @ ret
        rho_yy = g * np.einsum("jq,ji->jiq", identity, second) + (1 - g) * rho_yy @ ret
        F = rho_F @ belief
        F = F / F.sum(axis=1, keepdims=True) * (1 - M * MIN_TRANSITION) + MIN_TRANSITION
        visits = (rho_1 @ belief)[:, None]
        mean = rho_y @ belief / visits
        var = rho_yy @ belief / visits - mean**2 + 0.02
        np.testing.assert_allclose(chain.belief[0], belief, rtol=1e-8, atol=1e-12, err_msg=str(t))
    np.testing.assert_allclose(chain.transition[0], F, atol=1e-10)
    np.testing.assert_allclose(chain.mean[0], mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(chain.var[0], var, rtol=1e-8, atol=1e-10)


def test_extreme_observations_give_finite_numbers():
    chain, _ = setting()
    for t, y in enumerate([1e100, -1e100, 0.0, 1e-100, 1e50], start=1):
        filter_and_learn(np.array([0]), np.full((1, K), y), np.array([t]), 0.6, 1e-3, *chain)
    for array in chain:
        assert np.isfinite(array).all()
    assert chain.belief.sum() == pytest.approx(1)
