"""Tails and quantiles of the usual laws; NaN without a degree of freedom.

What `scipy.stats` has of them, from `scipy.special`: to import the former takes longer than all else a decision needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special


def normal_below(x: ArrayLike) -> Any:
    return special.ndtr(x)


def normal_quantile(share: ArrayLike) -> Any:
    return special.ndtri(share)


def student_above(x: ArrayLike, freedom: ArrayLike) -> Any:
    return special.stdtr(freedom, -np.asarray(x))


def student_quantile(share: ArrayLike, freedom: ArrayLike) -> Any:
    return special.stdtrit(freedom, share)


def chi2_below(x: ArrayLike, freedom: ArrayLike) -> Any:
    return special.chdtr(_some(freedom), x)


def chi2_above(x: ArrayLike, freedom: ArrayLike) -> Any:
    return special.chdtrc(_some(freedom), x)


def chi2_quantile(share: ArrayLike, freedom: ArrayLike) -> Any:
    return 2.0 * special.gammaincinv(_some(freedom) / 2.0, share)


def _some(freedom: ArrayLike) -> Any:
    return np.where(np.asarray(freedom) > 0, freedom, np.nan)
