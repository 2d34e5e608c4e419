"""The links of the reward families, from linear predictors to expected rewards and back."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from halfseen.components import Link
from halfseen.kernels.generalised_linear import MAX_EXPONENT
from halfseen.kernels.random import Floats


def _logit(rewards: Floats) -> Floats:
    return np.asarray(logit(np.clip(rewards, 0.0, 1.0)))  # −inf at 0, inf at 1


def _exp(predictors: Floats) -> Floats:
    return np.asarray(np.exp(np.clip(predictors, -MAX_EXPONENT, MAX_EXPONENT)))


def _log(rewards: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(rewards, 0.0)))


LINKS = {"gaussian": None, "binary": Link(expit, _logit), "count": Link(_exp, _log)}
