"""The same model in this library and in statsmodels."""

from __future__ import annotations

import numpy as np
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

import halfseen as hs


def model_of(D, Q, A, R, m0, P0):
    return hs.LinearGaussianModel(
        transition=D, process_cov=Q, observation_cov=R, observation=A, initial_mean=m0, initial_cov=P0
    )


def statsmodels_of(D, Q, A, R, m0, P0, y):
    """Return the exact smoother of statsmodels, whose initial state is x_1 and not x_0."""
    k, d = A.shape
    peer = KalmanSmoother(k_endog=k, k_states=d, tolerance=0.0)
    peer.bind(y)
    peer["design"], peer["transition"], peer["obs_cov"], peer["state_cov"] = A, D, R, Q
    peer["selection"] = np.eye(d)
    peer.initialize_known(D @ m0, D @ P0 @ D.T + Q)
    return peer
