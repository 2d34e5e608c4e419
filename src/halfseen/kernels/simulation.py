"""Simulation of contexts that move linearly."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Matrix, Stack
from halfseen.kernels.compiling import kernel


@kernel()
def move_contexts(D: Stack, noise: Stack, x: Matrix) -> Stack:
    """Return contexts (B, n, d) that start from x (B, d), with x_{t+1} = D x_t + ε_t, D (B, d, d) and ε (B, n, d)."""
    streams, n, d = noise.shape
    contexts = np.empty((streams, n, d))
    for b in range(streams):
        for t in range(n):
            for i in range(d):
                total = noise[b, t, i]
                for j in range(d):
                    before = x[b, j] if t == 0 else contexts[b, t - 1, j]
                    total += D[b, i, j] * before
                contexts[b, t, i] = total
    return contexts
