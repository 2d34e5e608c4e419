"""EM for the linear-Gaussian model: microseconds per time step and iteration."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Contender, Job, peer
from benchmarks.kalman_series import dynamax_parameters
from benchmarks.settings import LATENT, OBSERVED, orbit
from halfseen.kernels.em import FIXED, em_windows

ITERATIONS, SLOW_ROUNDS = 10, 300


def numpy_em(D, Q, R, m0, P0, ys):
    """One textbook iteration for D and Q: filter, RTS smoother, moments. The new D and the log-likelihood before."""
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
        return {rounds: found[5][0, 0], f"D after {rounds}": found[0][0]}

    def our_start():
        return ours(length, 1) | ours(SLOW_ROUNDS, 1)

    def numpy_start(found):
        return {SLOW_ROUNDS: found[2], f"D after {SLOW_ROUNDS}": found[0]}

    contenders = [Contender("halfseen", ours, length * ITERATIONS, "D and Q", our_start)]
    contenders.append(
        Contender(
            "NumPy loop",
            lambda: numpy_em(D, Q, R, m0, P0, ys[:SLOW_ROUNDS]),
            SLOW_ROUNDS,
            "D and Q",
            lambda: numpy_start(numpy_em(D, Q, R, m0, P0, ys[:SLOW_ROUNDS])),
        )
    )
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
        """The same log-likelihood at the same start, and the same new D where the same parameters are updated."""
        for what, value in other.items():
            np.testing.assert_allclose(one[what], value, rtol=1e-8, atol=1e-6)

    wanted = {"dynamax": 30.0, "pykalman": 300.0} if length > 1000 else {}
    targets = {c.name: wanted[c.name.split()[0]] for c in contenders if c.name.split()[0] in wanted}
    return Job(
        f"EM on {length:,} rounds, per step and iteration", "step × iteration", contenders, agree, missing, targets
    )
