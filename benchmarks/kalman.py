"""The Kalman filter: one online step, and a whole series with its log-likelihood.

An online step takes `filter_flops(d, k)`, because the gain has converged; other libraries still compute the gain and
the covariance. A step of a series takes another k² + 2k flops for eᵀS⁻¹e with a known triangular root of S⁻¹. The few
rounds before the gain has converged are counted like all other rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import Contender, Job
from benchmarks.problem import (
    LATENT,
    OBSERVED,
    dynamax_parameters,
    filter_flops,
    first_belief,
    orbit,
    triangle,
)

BEFORE, STEPS = 2000, 300


def step_job(quick: bool = False) -> Job:
    model, ys = orbit(BEFORE + STEPS)
    past, now = ys[:BEFORE], list(ys[BEFORE:])
    D, Q, R, A = (np.array(x) for x in (model.transition, model.process_cov, model.observation_cov, model.observation))
    filtered = model.filter(past)
    start = filtered.means[-1].copy(), filtered.covs[-1].copy()

    def numpy_steps() -> np.ndarray:
        x, P = start
        for y in now:
            x, P = D @ x, D @ P @ D.T + Q
            gain = np.linalg.solve(A @ P @ A.T + R, A @ P).T
            x, P = x + gain @ (y - A @ x), P - gain @ A @ P
        return x

    def filterpy(module: Any, label: str) -> Contender:
        other = module.KalmanFilter(dim_x=LATENT, dim_z=OBSERVED)
        other.F, other.Q, other.R, other.H = D, Q, R, A

        def steps() -> np.ndarray:
            other.x, other.P = start[0][:, None].copy(), start[1].copy()
            for y in now:
                other.predict()
                other.update(y)
            return other.x[:, 0]

        return Contender(label, steps, STEPS, at_least=10.0)

    def pykalman(module: Any, label: str) -> Contender:
        other = module.KalmanFilter(D, A, Q, R)

        def steps() -> np.ndarray:
            x, P = start
            for y in now:
                x, P = other.filter_update(x, P, y)
            return np.asarray(x)

        return Contender(label, steps, STEPS)

    def simdkalman(module: Any, label: str) -> Contender:
        other = module.KalmanFilter(state_transition=D, process_noise=Q, observation_model=A, observation_noise=R)
        columns = [y[None, :, None] for y in now]

        def steps() -> np.ndarray:
            x, P = start[0][None, :, None], start[1][None]
            for y in columns:
                x, P = other.update(*other.predict_next(x, P), y)[:2]
            return x[0, :, 0]

        return Contender(label, steps, STEPS, "designed for many series at once")

    def dynamax(module: Any, label: str) -> Contender:
        import jax

        jax.config.update("jax_enable_x64", True)

        @jax.jit
        def step(x: Any, P: Any, y: Any) -> Any:
            belief = module.lgssm_filter(dynamax_parameters(module, model, D @ x, D @ P @ D.T + Q), y[None])
            return belief.filtered_means[0], belief.filtered_covariances[0]

        def steps() -> np.ndarray:
            x, P = start
            for y in now:
                x, P = step(x, P, y)
            return np.asarray(x)

        return Contender(label, steps, STEPS, "jitted filter of a series of one step")

    job = Job(
        "Kalman step online",
        "step",
        filter_flops(LATENT, OBSERVED),
        [_ours(model, past, now), Contender("NumPy", numpy_steps, STEPS)],
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
    )
    job.enter("filterpy", "filterpy.kalman", filterpy)
    job.enter("pykalman", "pykalman", pykalman)
    job.enter("simdkalman", "simdkalman", simdkalman)
    job.enter("dynamax", "dynamax.linear_gaussian_ssm", dynamax)
    job.absent.append("statsmodels: cannot filter step by step; `extend` filters a new series")
    return job


def _ours(model: Any, past: np.ndarray, now: list[np.ndarray]) -> Contender:
    def fresh() -> Any:
        tracker = model.tracker()
        for y in past:
            tracker.step(y)
        return tracker

    running = fresh()

    def steps() -> None:
        for y in now:
            running.step(y)

    def last_mean() -> np.ndarray:
        tracker = fresh()
        return [tracker.step(y) for y in now][-1].mean

    return Contender("halfseen", steps, STEPS, "`model.tracker().step(y)`", last_mean)


ROUNDS, SLOW_ROUNDS = 5000, 500


def numpy_filter(model, ys):
    """Run the textbook Kalman filter."""
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


def series_flops(d: int, k: int) -> int:
    """Return the flops of the filter, of w = We with a triangular root W of S⁻¹, and of wᵀw."""
    return filter_flops(d, k) + 2 * triangle(k) - k + 2 * k


def series_job(quick: bool = False) -> Job:
    model, ys = orbit(ROUNDS)
    short, (first_mean, first_cov) = ys[:SLOW_ROUNDS], first_belief(model)

    def ours():
        result = model.filter(ys)
        return result.means, result.log_likelihood

    def statsmodels(module: Any, label: str) -> Contender:
        other = module.KalmanFilter(k_endog=OBSERVED, k_states=LATENT)
        other.bind(ys)
        other["design"], other["obs_cov"] = model.observation, model.observation_cov
        other["transition"], other["selection"] = model.transition, np.eye(LATENT)
        other["state_cov"] = model.process_cov
        other.initialize_known(first_mean, first_cov)

        def run():
            result = other.filter()
            return result.filtered_state.T, result.llf

        return Contender(label, run, ROUNDS, "default filter", at_least=20.0)

    def dynamax(module: Any, label: str) -> Contender:
        import jax

        jax.config.update("jax_enable_x64", True)
        parameters = dynamax_parameters(module, model, first_mean, first_cov)
        compiled = jax.jit(module.lgssm_filter)

        def run():
            result = compiled(parameters, ys)
            return np.asarray(result.filtered_means), float(result.marginal_loglik)

        return Contender(label, run, ROUNDS, "jitted")

    def pykalman(module: Any, label: str) -> Contender:
        other = module.KalmanFilter(
            model.transition, model.observation, model.process_cov, model.observation_cov,
            initial_state_mean=first_mean, initial_state_covariance=first_cov,
        )  # fmt: skip
        return Contender(label, lambda: (other.filter(short)[0], None), SLOW_ROUNDS, "no log-likelihood")

    def filterpy(module: Any, label: str) -> Contender:
        other = module.KalmanFilter(dim_x=LATENT, dim_z=OBSERVED)
        other.F, other.Q = np.array(model.transition), np.array(model.process_cov)
        other.R, other.H = np.array(model.observation_cov), np.array(model.observation)

        def run():
            other.x, other.P = np.array(model.initial_mean)[:, None], np.array(model.initial_cov)
            return other.batch_filter(short[:, :, None])[0][:, :, 0], None

        return Contender(label, run, SLOW_ROUNDS, "no log-likelihood")

    def simdkalman(module: Any, label: str) -> Contender:
        other = module.KalmanFilter(
            state_transition=np.array(model.transition), process_noise=np.array(model.process_cov),
            observation_model=np.array(model.observation), observation_noise=np.array(model.observation_cov),
        )  # fmt: skip

        def run():
            result = other.compute(
                short[None], 0, initial_value=first_mean, initial_covariance=first_cov, filtered=True, smoothed=False,
                log_likelihood=True, observations=False,
            )  # fmt: skip
            constant = 0.5 * short.size * np.log(2 * np.pi)  # simdkalman leaves this constant out
            return result.filtered.states.mean[0], result.log_likelihood[0] - constant

        return Contender(label, run, SLOW_ROUNDS, "one series; designed for many at once")

    def agree(one, other):
        """Compare the means and, if the library computes it, the log-likelihood."""
        n = len(other[0])
        np.testing.assert_allclose(one[0][:n], other[0], atol=1e-6)
        if other[1] is not None:
            expected = one[1] if n == ROUNDS else model.filter(ys[:n]).log_likelihood
            np.testing.assert_allclose(expected, other[1], rtol=1e-8)

    job = Job(
        f"Kalman filter of a series of {ROUNDS:,}",
        "step",
        series_flops(LATENT, OBSERVED),
        [
            Contender("halfseen", ours, ROUNDS, "`model.filter(ys)`"),
            Contender("NumPy loop", lambda: numpy_filter(model, short), SLOW_ROUNDS),
        ],
        agree,
    )
    job.enter("statsmodels", "statsmodels.tsa.statespace.kalman_filter", statsmodels)
    job.enter("dynamax", "dynamax.linear_gaussian_ssm", dynamax)
    job.enter("pykalman", "pykalman", pykalman)
    job.enter("filterpy", "filterpy.kalman", filterpy)
    job.enter("simdkalman", "simdkalman", simdkalman)
    return job
