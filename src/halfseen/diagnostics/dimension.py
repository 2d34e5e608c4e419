"""The dimension of the model against others, each at its best on the same observations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfseen.kernels.em import DIAGONAL, em_path
from halfseen.kernels.random import Floats
from halfseen.models.identification.order import aicc
from halfseen.models.linear_gaussian import LinearGaussianModel

TOLERANCE = 1e-4  # gain in log-likelihood a round below which a model is not improved further


def best_log_likelihood(model: LinearGaussianModel, ys: Floats, iterations: int) -> float:
    """After at most so many iterations of EM: models found at other times are to be compared fairly."""
    d = model.latent
    found = -np.inf
    spread = np.nanvar(ys, axis=0)
    floors = {"q_floor": np.full(d, 1e-9 * float(np.nanmean(spread))), "r_floor": 1e-5 * np.nan_to_num(spread)}
    start = model.canonical().model.arrays()
    try:
        path = em_path(start, ys, update_R=DIAGONAL, update_initial=True, **floors)
        for step, (_, loglik, _) in enumerate(path):
            if not np.isfinite(loglik):
                break
            gained, found = loglik - found, max(found, loglik)
            if step == iterations or gained < TOLERANCE * len(ys):
                break
    except np.linalg.LinAlgError:
        pass
    return found


def dimension_scores(
    model: LinearGaussianModel, others: Sequence[LinearGaussianModel], ys: Floats, iterations: int
) -> dict[int, float]:
    """AICc by dimension, in order: that of the model, and of every other dimension the best at hand.

    With 0 iterations models are scored as they are.
    """
    numbers = int((~np.isnan(ys)).sum())
    scores: dict[int, float] = {}
    for one in (model, *(other for other in others if other.latent != model.latent)):
        loglik = best_log_likelihood(one, ys, iterations) if iterations else float(one.filter(ys).log_likelihood)
        score = aicc(loglik, one.latent, one.observed, numbers)
        if np.isfinite(score):
            scores[one.latent] = max(score, scores.get(one.latent, -np.inf))
    return dict(sorted(scores.items())) if model.latent in scores else {}


def nearest(
    model: LinearGaussianModel, others: Sequence[LinearGaussianModel], either_side: int
) -> list[LinearGaussianModel]:
    """Those of the next dimensions below and above."""
    below = sorted({other.latent for other in others if other.latent < model.latent})[-either_side:]
    above = sorted({other.latent for other in others if other.latent > model.latent})[:either_side]
    return [other for other in others if other.latent in {*below, *above}]
