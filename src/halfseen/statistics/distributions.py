"""Distribution functions and quantiles; NaN without a degree of freedom.

They equal those of `scipy.stats`, whose import takes longer than everything else that a decision needs together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special


def normal_cdf(x: ArrayLike) -> Any:
    return special.ndtr(x)


def normal_quantile(share: ArrayLike) -> Any:
    return special.ndtri(share)


def student_sf(x: ArrayLike, freedom: ArrayLike) -> Any:
    return special.stdtr(freedom, -np.asarray(x))


def student_quantile(share: ArrayLike, freedom: ArrayLike) -> Any:
    return special.stdtrit(freedom, share)


def chi2_cdf(x: ArrayLike, freedom: ArrayLike) -> Any:
    return special.chdtr(_positive(freedom), x)


def chi2_sf(x: ArrayLike, freedom: ArrayLike) -> Any:
    return special.chdtrc(_positive(freedom), x)


def chi2_quantile(share: ArrayLike, freedom: ArrayLike) -> Any:
    return 2.0 * special.gammaincinv(_positive(freedom) / 2.0, share)


def _positive(freedom: ArrayLike) -> Any:
    return np.where(np.asarray(freedom) > 0, freedom, np.nan)
