"""`kf-ts` and `emkf-ts` in NumPy: a stream at a time, as one writes it first, and batched over streams."""

from __future__ import annotations

import numpy as np

from benchmarks.monte_carlo_draws import WINDOW, Draws, LearntStart
from benchmarks.settings import OBSERVED

HOLD_AFTER = 200  # rounds; in `orbit` the gain has settled by then


def one_stream(draws: Draws, start: LearntStart | None) -> np.ndarray:
    """Arms (1, T) of the first stream: vectorised over arms, nothing else. With a `start` it learns the model."""
    D, mu, context = draws.transition[0], draws.arm_params[0], draws.context[0]
    rounds, (arms, d) = draws.process.shape[1], mu.shape
    A, z = np.eye(OBSERVED, d), draws.choice[0]
    D_hat, Q_hat = (D, draws.process_std**2 * np.eye(d)) if start is None else (start.transition[0], np.eye(d))
    x, P = np.zeros(d), np.eye(d)
    inverse, f = np.tile(np.eye(d), (arms, 1, 1)), np.zeros((arms, d))
    played, estimates = np.empty((1, rounds), dtype=np.int64), []
    for t in range(rounds):
        context = D @ context + draws.process_std * draws.process[0, t]
        x, P = D_hat @ x, D_hat @ P @ D_hat.T + Q_hat
        S = A @ P @ A.T
        S[np.diag_indices(OBSERVED)] *= 1 + 1e-9
        gain = np.linalg.solve(S, A @ P).T
        x, P = x + gain @ (A @ context - A @ x), P - gain @ A @ P
        image = inverse @ x
        arm = int(np.argmax((image * f).sum(axis=1) + np.sqrt(image @ x) * z[t]))
        reward = mu[arm] @ context + draws.reward_std * draws.reward[0, t]
        inverse[arm] -= np.outer(image[arm], image[arm]) / (1.0 + x @ image[arm])
        f[arm] += reward * x
        played[0, t] = arm
        if start is not None:
            estimates.append(x)
            if (t + 1) % WINDOW == 0:
                D_hat, Q_hat = (one[0] for one in refitted(np.array(estimates[-WINDOW:])[None]))
    return played


def batched(draws: Draws, start: LearntStart | None) -> np.ndarray:
    """Arms (B, T) of all streams, a round at a time; a gain that has settled is computed no more."""
    D, mu, context = draws.transition, draws.arm_params, draws.context
    (streams, rounds, d), k, arms = draws.process.shape, OBSERVED, mu.shape[1]
    everyone, diagonal = np.arange(streams), np.arange(k)
    D_hat, Q_hat = (D, draws.process_std**2 * np.eye(d)) if start is None else (start.transition, np.eye(d))
    x, P = np.zeros((streams, d)), np.tile(np.eye(d), (streams, 1, 1))
    inverse, f = np.tile(np.eye(d), (streams, arms, 1, 1)), np.zeros((streams, arms, d))
    played, estimates = np.empty((streams, rounds), dtype=np.int64), np.empty((streams, WINDOW, d))
    gain = np.empty((streams, d, k))
    for t in range(rounds):
        context = (D @ context[:, :, None])[:, :, 0] + draws.process_std * draws.process[:, t]
        if start is not None or t < HOLD_AFTER:
            P = D_hat @ P @ D_hat.swapaxes(1, 2) + Q_hat
            S = P[:, :k, :k].copy()
            S[:, diagonal, diagonal] *= 1 + 1e-9
            gain = np.linalg.solve(S, P[:, :k]).swapaxes(1, 2)
            M = P - gain @ P[:, :k]
            if start is not None:  # Joseph's form: a model learnt on the way may be unstable, and P must not suffer
                noise = 1e-9 / (1 + 1e-9) * S[:, diagonal, diagonal]
                M = M - (M[:, :, :k] - gain * noise[:, None, :]) @ gain.swapaxes(1, 2)
            P = 0.5 * (M + M.swapaxes(1, 2))
        x = (D_hat @ x[:, :, None])[:, :, 0]
        x = x + (gain @ (context[:, :k] - x[:, :k])[:, :, None])[:, :, 0]
        image = (inverse.reshape(streams, arms * d, d) @ x[:, :, None]).reshape(streams, arms, d)
        spread = np.sqrt((image @ x[:, :, None])[:, :, 0])
        arm = np.argmax((image * f).sum(axis=2) + spread * draws.choice[:, t], axis=1)
        reward = (mu[everyone, arm] * context).sum(axis=1) + draws.reward_std * draws.reward[:, t]
        image = image[everyone, arm]
        scale = 1.0 / (1.0 + (x * image).sum(axis=1))
        inverse[everyone, arm] -= (scale[:, None] * image)[:, :, None] * image[:, None, :]
        f[everyone, arm] += reward[:, None] * x
        played[:, t] = arm
        if start is not None:
            estimates[:, t % WINDOW] = x
            if (t + 1) % WINDOW == 0:
                D_hat, Q_hat = refitted(estimates)
    return played


def refitted(estimates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """D̂ and Q̂ of the paper's Algorithm 1 from filtered means (B, n, d)."""
    a, b = estimates[:, :-1], estimates[:, 1:]
    d = a.shape[2]
    X, Psi = a.swapaxes(1, 2) @ a, b.swapaxes(1, 2) @ a
    ridge = 1e-6 * np.trace(X, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
    D = np.linalg.solve(X + ridge, Psi.swapaxes(1, 2)).swapaxes(1, 2)
    residual = b - a @ D.swapaxes(1, 2)
    return D, residual.swapaxes(1, 2) @ residual / a.shape[1] + 1e-9 * np.eye(d)
