"""One Kalman step online: an observation in, the belief about the context out.

Flops of a step: the gain has settled, so `steady_filter_step(d, k)`; peers go on computing theirs, and the covariance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.dynamax_peer import parameters_at
from benchmarks.flops import steady_filter_step
from benchmarks.harness import Contender, Job
from benchmarks.peers import Entrants
from benchmarks.settings import LATENT, OBSERVED, orbit

BEFORE, STEPS = 2000, 300


def job(quick: bool = False) -> Job:
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

    entrants = Entrants(_ours(model, past, now), Contender("NumPy", numpy_steps, STEPS))

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

        return Contender(label, steps, STEPS, "made for many series at once")

    def dynamax(module: Any, label: str) -> Contender:
        import jax

        jax.config.update("jax_enable_x64", True)

        @jax.jit
        def step(x: Any, P: Any, y: Any) -> Any:
            belief = module.lgssm_filter(parameters_at(module, model, D @ x, D @ P @ D.T + Q), y[None])
            return belief.filtered_means[0], belief.filtered_covariances[0]

        def steps() -> np.ndarray:
            x, P = start
            for y in now:
                x, P = step(x, P, y)
            return np.asarray(x)

        return Contender(label, steps, STEPS, "jitted, its filter on a series of one")

    entrants.enter("filterpy", "filterpy.kalman", filterpy)
    entrants.enter("pykalman", "pykalman", pykalman)
    entrants.enter("simdkalman", "simdkalman", simdkalman)
    entrants.enter("dynamax", "dynamax.linear_gaussian_ssm", dynamax)
    entrants.cannot("statsmodels", "has no filter that steps; `extend` filters a new series")
    return Job(
        "Kalman step online",
        "step",
        steady_filter_step(LATENT, OBSERVED),
        entrants.contenders,
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
        entrants.absent,
    )


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
