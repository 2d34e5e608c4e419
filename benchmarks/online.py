"""One online round of `kf-ts` through the public API, beside a single Kalman step done otherwise."""

from __future__ import annotations

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job, peer
from benchmarks.kalman_series import numpy_filter
from benchmarks.settings import ARMS, LATENT, OBSERVED, orbit

ROUNDS, STEPS = 2000, 300


def job() -> Job:
    model, ys = orbit(ROUNDS + STEPS)
    missing: list[str] = []
    agent = hs.make("kf-ts", observed=OBSERVED, arms=ARMS, model=model)

    def ours():
        for y in ys[ROUNDS:]:
            agent.learn(agent.decide(y).id, 1.0)

    def our_mean():
        for y in ys[:-1]:
            agent.learn(agent.decide(y).id, 0.0)
        return agent.decide(ys[-1]).context

    D, Q, R, A = model.transition, model.process_cov, model.observation_cov, model.observation
    start = numpy_filter(model, ys[:ROUNDS])[0][-1], model.filter(ys[:ROUNDS]).covs[-1]

    def numpy_steps():
        x, P = start
        for y in ys[ROUNDS:]:
            x, P = D @ x, D @ P @ D.T + Q
            gain = np.linalg.solve(A @ P @ A.T + R, A @ P).T
            x, P = x + gain @ (y - A @ x), P - gain @ A @ P
        return x

    contenders = [
        Contender(
            "halfseen, decide + learn", ours, STEPS, "filter, 15 arms scored, choice, posterior update", our_mean
        ),
        Contender("NumPy, Kalman step only", numpy_steps, STEPS),
    ]
    filterpy, label = peer("filterpy.kalman", "filterpy", missing)
    if filterpy is not None:
        other = filterpy.KalmanFilter(dim_x=LATENT, dim_z=OBSERVED)
        other.F, other.Q, other.R, other.H = np.array(D), np.array(Q), np.array(R), np.array(A)

        def with_filterpy():
            other.x, other.P = start[0][:, None].copy(), np.array(start[1])
            for y in ys[ROUNDS:]:
                other.predict()
                other.update(y)
            return other.x[:, 0]

        contenders.append(Contender(f"{label}, Kalman step only", with_filterpy, STEPS))

    return Job(
        "Online round of kf-ts",
        "round",
        contenders,
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
        missing,
        {"NumPy, Kalman step only": 1.0},
    )
