"""EM for the linear-Gaussian model: microseconds per time step and iteration."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Contender, Job, peer
from benchmarks.kalman_series import dynamax_parameters
from benchmarks.settings import LATENT, OBSERVED, orbit
from halfseen.kernels.em import FIXED, em_windows

ITERATIONS, SLOW_ROUNDS = 10, 300


def job(length: int) -> Job:
    """The first and last rounds, in which nothing is steady yet, weigh less in a longer series."""
    model, ys = orbit(length)
    D, Q, R, m0, P0 = model.arrays()
    D = 0.9 * D  # something to improve
    first_mean, first_cov = D @ m0, D @ P0 @ D.T + Q
    missing: list[str] = []

    def ours(rounds=length, iterations=ITERATIONS):
        found = em_windows(
            D[None], Q[None], R[None], m0[None], P0[None], ys[None, :rounds],
            iterations=iterations, update_R=FIXED, update_initial=False,
        )  # fmt: skip
        return {rounds: found[5][0, 0]}

    def our_start():
        return ours(length, 1) | ours(SLOW_ROUNDS, 1)

    contenders = [Contender("halfseen", ours, length * ITERATIONS, "D and Q", our_start)]
    dynamax, label = peer("dynamax.linear_gaussian_ssm", "dynamax", missing)
    if dynamax is not None:
        import jax

        jax.config.update("jax_enable_x64", True)
        start = type(model)(transition=D, process_cov=Q, observation_cov=R)
        parameters = dynamax_parameters(dynamax, start, first_mean, first_cov)
        ssm = dynamax.LinearGaussianSSM(LATENT, OBSERVED, has_dynamics_bias=False, has_emissions_bias=False)
        _, properties = ssm.initialize()
        state = ssm.initialize_m_step_state(parameters, properties)

        @jax.jit
        def iterate(current, batch):
            statistics, log_likelihood = jax.vmap(lambda one: ssm.e_step(current, one))(batch)
            return ssm.m_step(current, properties, statistics, state)[0], log_likelihood

        def with_dynamax():
            current = parameters
            for _ in range(3):
                current, log_likelihood = iterate(current, ys[None])
            return jax.block_until_ready(log_likelihood)

        def dynamax_start():
            return {length: float(iterate(parameters, ys[None])[1][0])}

        contenders.append(Contender(label, with_dynamax, length * 3, "jitted; updates all parameters", dynamax_start))
    pykalman, label = peer("pykalman", "pykalman", missing)
    if pykalman is not None:

        def peer_model():
            return pykalman.KalmanFilter(
                D, model.observation, Q, R, initial_state_mean=first_mean, initial_state_covariance=first_cov,
                em_vars=["transition_matrices", "transition_covariance"],
            )  # fmt: skip

        contenders.append(
            Contender(
                label,
                lambda: peer_model().em(ys[:SLOW_ROUNDS], n_iter=1),
                SLOW_ROUNDS,
                "D and Q",
                lambda: {SLOW_ROUNDS: peer_model().loglikelihood(ys[:SLOW_ROUNDS])},
            )
        )

    def agree(one, other):
        """The same log-likelihood at the same starting point; the updates themselves are compared in the tests."""
        for rounds, log_likelihood in other.items():
            np.testing.assert_allclose(one[rounds], log_likelihood, rtol=1e-8)

    targets = (
        {c.name: (30.0 if c.name.startswith("dynamax") else 300.0) for c in contenders[1:]} if length > 1000 else {}
    )
    return Job(
        f"EM on {length:,} rounds, per step and iteration", "step × iteration", contenders, agree, missing, targets
    )
