"""Algorithm 1 of the paper for one stream, line by line and without code of the package."""

from __future__ import annotations

import numpy as np


class KalmanFilter:
    """Equations 4 and 5 of the paper, with an explicit A."""

    def __init__(self, D, Q, Sigma, mean, cov):
        self.D, self.Q, self.Sigma, self.x, self.P = D, Q, Sigma, mean, cov
        self.A = np.eye(len(Sigma), len(D))

    def step(self, y):
        x, P = self.D @ self.x, self.D @ self.P @ self.D.T + self.Q
        S = self.A @ P @ self.A.T + self.Sigma
        gain = P @ self.A.T @ np.linalg.inv(S)
        keep = np.eye(len(x)) - gain @ self.A
        self.x = x + gain @ (y - self.A @ x)
        self.P = keep @ P @ keep.T + gain @ self.Sigma @ gain.T
        return self.x


class EmkfThompson:
    """EMKF-Bandit with Thompson sampling. `z` are the standard normals of the sampled scores."""

    def __init__(self, D0, Q0, Sigma, arms, window, width, regularisation):
        d = len(D0)
        self.filter = KalmanFilter(D0, Q0, Sigma, np.zeros(d), np.eye(d))
        self.B = [regularisation * np.eye(d) for _ in range(arms)]
        self.f = [np.zeros(d) for _ in range(arms)]
        self.window, self.width, self.estimates = window, width, []

    def decide(self, y, z):
        c = self.filter.step(y)
        self.estimates.append(c)
        if len(self.estimates) % self.window == 0:
            self.refit(np.array(self.estimates[-self.window :]))
        scores = []
        for B, f, draw in zip(self.B, self.f, z, strict=True):
            inverse = np.linalg.inv(B)
            scores.append(c @ inverse @ f + self.width * np.sqrt(c @ inverse @ c) * draw)
        return int(np.argmax(scores)), c

    def refit(self, estimates):
        before, after = estimates[:-1], estimates[1:]
        X, Psi, Y = before.T @ before, after.T @ before, after.T @ after
        d = X.shape[0]
        D = Psi @ np.linalg.inv(X + 1e-6 * np.trace(X) / d * np.eye(d))
        Q = (Y - D @ Psi.T - Psi @ D.T + D @ X @ D.T) / len(before)
        self.filter.D, self.filter.Q = D, (Q + Q.T) / 2 + 1e-9 * np.eye(d)

    def learn(self, arm, c, reward):
        self.B[arm] = self.B[arm] + np.outer(c, c)
        self.f[arm] = self.f[arm] + reward * c
