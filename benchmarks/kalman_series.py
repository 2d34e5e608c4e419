"""Filtering a whole series, with its log-likelihood."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Contender, Job, peer
from benchmarks.settings import LATENT, OBSERVED, orbit

ROUNDS = 5000


def numpy_filter(model, ys):
    """The textbook loop."""
    D, Q, R = model.transition, model.process_cov, model.observation_cov
    A, x, P = model.observation, model.initial_mean, model.initial_cov
    means, log_likelihood = np.empty((len(ys), len(x))), 0.0
    for t, y in enumerate(ys):
        x, P = D @ x, D @ P @ D.T + Q
        S, e = A @ P @ A.T + R, y - A @ x
        gain = np.linalg.solve(S, A @ P).T
        x, P = x + gain @ e, P - gain @ A @ P
        means[t] = x
        log_likelihood -= 0.5 * (np.linalg.slogdet(S)[1] + e @ np.linalg.solve(S, e) + len(y) * np.log(2 * np.pi))
    return means, log_likelihood


def job() -> Job:
    model, ys = orbit(ROUNDS)
    # Peers start from x_1, one transition later than our x_0.
    first_mean = model.transition @ model.initial_mean
    first_cov = model.transition @ model.initial_cov @ model.transition.T + model.process_cov
    missing: list[str] = []

    def ours():
        result = model.filter(ys)
        return result.means, result.log_likelihood

    contenders = [
        Contender("halfseen", ours, ROUNDS),
        Contender("NumPy loop", lambda: numpy_filter(model, ys[:500]), 500),
    ]
    statsmodels, label = peer("statsmodels.tsa.statespace.kalman_filter", "statsmodels", missing)
    if statsmodels is not None:
        peer_filter = statsmodels.KalmanFilter(k_endog=OBSERVED, k_states=LATENT)
        peer_filter.bind(ys)
        peer_filter["design"], peer_filter["obs_cov"] = model.observation, model.observation_cov
        peer_filter["transition"], peer_filter["selection"] = model.transition, np.eye(LATENT)
        peer_filter["state_cov"] = model.process_cov
        peer_filter.initialize_known(first_mean, first_cov)

        def with_statsmodels():
            result = peer_filter.filter()
            return result.filtered_state.T, result.llf

        contenders.append(Contender(label, with_statsmodels, ROUNDS, "its default filter"))
    dynamax, label = peer("dynamax.linear_gaussian_ssm", "dynamax", missing)
    if dynamax is not None:
        import jax

        jax.config.update("jax_enable_x64", True)
        parameters = dynamax_parameters(dynamax, model, first_mean, first_cov)
        compiled = jax.jit(dynamax.lgssm_filter)

        def with_dynamax():
            result = compiled(parameters, ys)
            return np.asarray(result.filtered_means), float(result.marginal_loglik)

        contenders.append(Contender(label, with_dynamax, ROUNDS, "jitted"))
    pykalman, label = peer("pykalman", "pykalman", missing)
    if pykalman is not None:
        other = pykalman.KalmanFilter(
            model.transition, model.observation, model.process_cov, model.observation_cov,
            initial_state_mean=first_mean, initial_state_covariance=first_cov,
        )  # fmt: skip

        def with_pykalman():
            return other.filter(ys[:500])[0], None

        contenders.append(Contender(label, with_pykalman, 500, "means only"))

    def agree(one, other):
        n = len(other[0])
        np.testing.assert_allclose(one[0][:n], other[0], atol=1e-6)
        if other[1] is not None:
            want = one[1] if n == ROUNDS else model.filter(ys[:n]).log_likelihood
            np.testing.assert_allclose(want, other[1], rtol=1e-8)

    return Job(
        "Kalman filter of a series",
        "step",
        contenders,
        agree,
        missing,
        {c.name: 20 for c in contenders if c.name.startswith("statsmodels")},
    )


def dynamax_parameters(dynamax, model, first_mean, first_cov):
    ssm = dynamax.LinearGaussianSSM(LATENT, OBSERVED, has_dynamics_bias=False, has_emissions_bias=False)
    parameters, _ = ssm.initialize(
        initial_mean=first_mean,
        initial_covariance=first_cov,
        dynamics_weights=np.asarray(model.transition),
        dynamics_covariance=np.asarray(model.process_cov),
        emission_weights=np.asarray(model.observation),
        emission_covariance=np.asarray(model.observation_cov),
    )
    return parameters
