"""Distribution functions and quantiles, with the same results as in `scipy.stats`.

Importing `scipy.stats` would take longer than importing everything else that a decision needs. If the degrees of
freedom are not positive, the results are NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special


def normal_cdf(x: ArrayLike) -> Any:
    return special.ndtr(x)


def normal_quantile(probability: ArrayLike) -> Any:
    return special.ndtri(probability)


def student_sf(x: ArrayLike, dof: ArrayLike) -> Any:
    return special.stdtr(dof, -np.asarray(x))


def student_quantile(probability: ArrayLike, dof: ArrayLike) -> Any:
    return special.stdtrit(dof, probability)


def chi2_cdf(x: ArrayLike, dof: ArrayLike) -> Any:
    return special.chdtr(_positive(dof), x)


def chi2_sf(x: ArrayLike, dof: ArrayLike) -> Any:
    return special.chdtrc(_positive(dof), x)


def chi2_quantile(probability: ArrayLike, dof: ArrayLike) -> Any:
    return 2.0 * special.gammaincinv(_positive(dof) / 2.0, probability)


def noncentral_f_cdf(x: ArrayLike, dof: ArrayLike, other_dof: ArrayLike, noncentrality: ArrayLike) -> Any:
    return special.ncfdtr(dof, other_dof, noncentrality, x)


def _positive(dof: ArrayLike) -> Any:
    return np.where(np.asarray(dof) > 0, dof, np.nan)
