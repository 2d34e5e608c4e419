"""Monte Carlo of the whole pipeline on one core: rounds of `kf-ts` and `emkf-ts`, world included."""

from __future__ import annotations

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job
from benchmarks.settings import ARMS, LATENT
from halfseen.component import Streams
from halfseen.estimators.starting_model import starting_transition
from halfseen.randomness import Purpose, normal_series, stream_keys
from halfseen.worlds import named

SEEDS, ROUNDS, SLOW_ROUNDS, WINDOW = 64, 2000, 400, 200


def numpy_loop(learn_model: bool) -> np.ndarray:
    """One stream, one round at a time, as one writes it first: vectorised over arms, nothing else.

    It is handed the contexts, observations and noise; ours has to make them as well.
    """
    keys = stream_keys([0])
    episodes = named("orbit").begin([0])
    D, A = episodes.models[0].transition, np.eye(10, LATENT)
    Q, mu = episodes.models[0].process_cov, episodes.arm_params[0]
    D_hat, Q_hat = D, Q
    if learn_model:
        D_hat, Q_hat = starting_transition(Streams(keys, 10, ARMS), LATENT, "orthogonal")[0], np.eye(LATENT)
    rounds = episodes.advance(SLOW_ROUNDS)
    z = normal_series(keys, 1, SLOW_ROUNDS, Purpose.CHOICE, ARMS)[0]
    x, P = np.zeros(LATENT), np.eye(LATENT)
    inverse, f = np.tile(np.eye(LATENT), (ARMS, 1, 1)), np.zeros((ARMS, LATENT))
    arms, estimates = np.empty(SLOW_ROUNDS, dtype=np.int64), []
    for t in range(SLOW_ROUNDS):
        context, y = rounds.contexts[t, 0], rounds.observations[t, 0]
        x, P = D_hat @ x, D_hat @ P @ D_hat.T + Q_hat
        S = A @ P @ A.T
        S[np.diag_indices(10)] *= 1 + 1e-9
        gain = np.linalg.solve(S, A @ P).T
        x, P = x + gain @ (y - A @ x), P - gain @ A @ P
        image = inverse @ x
        arm = int(np.argmax((image * f).sum(axis=1) + np.sqrt(image @ x) * z[t]))
        reward = mu[arm] @ context + rounds.reward_noise[t, 0]
        inverse[arm] -= np.outer(image[arm], image[arm]) / (1.0 + x @ image[arm])
        f[arm] += reward * x
        arms[t] = arm
        if learn_model:
            estimates.append(x)
            if (t + 1) % WINDOW == 0:
                a, b = np.array(estimates[-WINDOW:-1]), np.array(estimates[-WINDOW + 1 :])
                X, Psi = a.T @ a, b.T @ a
                D_hat = np.linalg.solve(X + 1e-6 * np.trace(X) / LATENT * np.eye(LATENT), Psi.T).T
                residual = b - a @ D_hat.T
                Q_hat = residual.T @ residual / len(a) + 1e-9 * np.eye(LATENT)
    return arms


def job(agent: str) -> Job:
    def ours() -> np.ndarray:
        result = hs.run(agent, world="orbit", rounds=ROUNDS, seeds=SEEDS)
        return result.tracks["orbit", agent].arm[0]

    def agree(one: np.ndarray, other: np.ndarray) -> None:
        """The same decisions on the same draws, until rounding first tips one (never seen before round 150)."""
        np.testing.assert_array_equal(one[:150], other[:150])

    return Job(
        f"Monte Carlo of {agent}, one core",
        "round",
        [
            Contender("halfseen", ours, SEEDS * ROUNDS, f"{SEEDS} seeds"),
            Contender("NumPy loop", lambda: numpy_loop(agent == "emkf-ts"), SLOW_ROUNDS),
        ],
        agree,
        targets={"NumPy loop": 15.0} if agent == "kf-ts" else {},
    )
