"""EM for the linear-Gaussian model: microseconds per time step and iteration.

Flops are counted per step and iteration, with covariances that have converged. They include the flops of the filter
with its likelihood, of the smoother x + J(x' − x⁻), and of the sums of x'x'ᵀ (one triangle) and x'xᵀ. Here x' is the
smoothed mean of the next step, and x⁻ = Dx comes from the filter. The sum of xxᵀ needs no flops of its own, because it
differs from the sum of x'x'ᵀ only in its first and last terms. The M-step, and the first rounds before the covariances
have converged, are not counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import kalman
from benchmarks.harness import Contender, Job
from benchmarks.problem import (
    LATENT,
    OBSERVED,
    dynamax_parameters,
    first_belief,
    orbit,
    product_flops,
    triangle,
)
from halfseen.models.identification.em import FIXED, em_windows

ITERATIONS, DYNAMAX_ITERATIONS, SLOW_ROUNDS = 10, 3, 300


def numpy_em(D, Q, R, m0, P0, ys):
    """Run one textbook iteration: filter, RTS smoother, moments. Return new D and Q, and the initial log-likelihood."""
    A, n, d = np.eye(len(R), len(D)), len(ys), len(D)
    x, P = np.empty((n + 1, d)), np.empty((n + 1, d, d))
    x_pred, P_pred = np.empty((n, d)), np.empty((n, d, d))
    x[0], P[0], log_likelihood = m0, P0, 0.0
    for t, y in enumerate(ys):
        x_pred[t], P_pred[t] = D @ x[t], D @ P[t] @ D.T + Q
        S, e = A @ P_pred[t] @ A.T + R, y - A @ x_pred[t]
        gain = np.linalg.solve(S, A @ P_pred[t]).T
        x[t + 1], P[t + 1] = x_pred[t] + gain @ e, P_pred[t] - gain @ A @ P_pred[t]
        log_likelihood -= 0.5 * (np.linalg.slogdet(S)[1] + e @ np.linalg.solve(S, e) + len(y) * np.log(2 * np.pi))
    S10, S00 = np.zeros((d, d)), np.zeros((d, d))
    S11 = np.zeros((d, d))
    for t in range(n - 1, -1, -1):
        J = np.linalg.solve(P_pred[t], D @ P[t]).T
        S11 += np.outer(x[t + 1], x[t + 1]) + P[t + 1]
        lag = P[t + 1] @ J.T
        x[t] = x[t] + J @ (x[t + 1] - x_pred[t])
        P[t] = P[t] + J @ (P[t + 1] - P_pred[t]) @ J.T
        S10 += np.outer(x[t + 1], x[t]) + lag
        S00 += np.outer(x[t], x[t]) + P[t]
    new = np.linalg.solve(S00, S10.T).T
    return new, (S11 - new @ S10.T - S10 @ new.T + new @ S00 @ new.T) / n, log_likelihood


def flops(d: int, k: int) -> int:
    smoother = d + product_flops(d, d) + d
    return kalman.series_flops(d, k) + smoother + 2 * triangle(d) + product_flops(d, d)


def job(length: int, quick: bool = False) -> Job:
    """Return the job for a series. In a longer series, the rounds before the covariances have converged matter less."""
    model, ys = orbit(length)
    D, Q, R, m0, P0 = model.arrays()
    D = 0.9 * D  # so that EM has something to improve
    start = type(model)(transition=D, process_cov=Q, observation_cov=R)
    first_mean, first_cov = first_belief(start)
    short = ys[:SLOW_ROUNDS]

    def ours(rounds=length, iterations=ITERATIONS):
        found = em_windows(
            D[None], Q[None], R[None], m0[None], P0[None], ys[None, :rounds],
            iterations=iterations, update_R=FIXED, update_initial=False,
        )  # fmt: skip
        return {rounds: found[5][0, 0], f"D after {rounds}": found[0][0]}

    def numpy_loop():
        found = numpy_em(D, Q, R, m0, P0, short)
        return {SLOW_ROUNDS: found[2], f"D after {SLOW_ROUNDS}": found[0]}

    def dynamax(module: Any, label: str) -> Contender:
        import jax

        jax.config.update("jax_enable_x64", True)
        parameters = dynamax_parameters(module, start, first_mean, first_cov)
        ssm = module.LinearGaussianSSM(LATENT, OBSERVED, has_dynamics_bias=False, has_emissions_bias=False)
        _, properties = ssm.initialize()
        state = ssm.initialize_m_step_state(parameters, properties)

        @jax.jit
        def iterate(current, batch):
            statistics, log_likelihood = jax.vmap(lambda one: ssm.e_step(current, one))(batch)
            return ssm.m_step(current, properties, statistics, state)[0], log_likelihood

        def run():
            current = parameters
            for _ in range(DYNAMAX_ITERATIONS):
                current, log_likelihood = iterate(current, ys[None])
            return jax.block_until_ready(log_likelihood)

        return Contender(
            label,
            run,
            length * DYNAMAX_ITERATIONS,
            "jitted",
            lambda: {length: float(iterate(parameters, ys[None])[1][0])},
            differs="updates all parameters; same initial log-likelihood",
            at_least=30.0,
        )

    def pykalman(module: Any, label: str) -> Contender:
        def peer_model():
            return module.KalmanFilter(
                D, model.observation, Q, R, initial_state_mean=first_mean, initial_state_covariance=first_cov,
                em_vars=["transition_matrices", "transition_covariance"],
            )  # fmt: skip

        return Contender(
            label,
            lambda: peer_model().em(short, n_iter=1),
            SLOW_ROUNDS,
            "D and Q, starting from x_1; same initial log-likelihood",
            lambda: {SLOW_ROUNDS: peer_model().loglikelihood(short)},
            at_least=300.0,
        )

    def agree(one, other):
        """Compare the initial log-likelihoods, and the new D of libraries that update the same parameters."""
        for name, value in other.items():
            np.testing.assert_allclose(one[name], value, rtol=1e-8, atol=1e-6)

    job = Job(
        f"EM on {length:,} rounds",
        "step × iteration",
        flops(LATENT, OBSERVED),
        [
            Contender("halfseen", ours, length * ITERATIONS, "D and Q", lambda: ours(length, 1) | ours(SLOW_ROUNDS, 1)),
            Contender("NumPy loop", numpy_loop, SLOW_ROUNDS, "D and Q"),
        ],
        agree,
    )
    job.enter("dynamax", "dynamax.linear_gaussian_ssm", dynamax)
    job.enter("pykalman", "pykalman", pykalman)
    return job
