"""How the coordinates of a context are shown to people: the observed features first, in their own units."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.components import Estimator
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.estimators.kalman import Kalman
from halfseen.kernels.random import Floats, Ints


class ContextUnits(NamedTuple):
    """The coordinates of a context that are shown, and their units.

    `standard` of a feature c at one of the `positions` is c + `shift`. In the units of the observations it is
    `centre` + `scale` · standard.
    """

    names: tuple[str, ...]  # of the m coordinates that are shown
    positions: Ints  # (m,) of the coordinates in the features of the estimator
    shift: Floats  # (m,)
    centre: Floats  # (m,) 0 for hidden coordinates, which have no unit
    scale: Floats  # (m,) 1 for hidden coordinates

    def standard(self, means: Floats, covs: Floats) -> tuple[Floats, Floats]:
        """Return means and standard deviations (h, m) of contexts with means (h, p) and covariances (h, p, p)."""
        variances = np.diagonal(covs, axis1=1, axis2=2)[:, self.positions]
        return means[:, self.positions] + self.shift, np.sqrt(np.maximum(variances, 0.0))


def context_units(estimator: Estimator, row: int, observed: int) -> ContextUnits:
    """Return the units of the contexts of stream `row`, which observes `observed` features."""
    if isinstance(estimator, Adaptive):  # feature 0 is an intercept, and unused features follow those of the model
        d = int(estimator.latent_dims[row])
        centre, scale = np.zeros(d), np.ones(d)
        centre[:observed], scale[:observed] = estimator.centre[row], estimator.scale[row]
        return ContextUnits(_names(d, observed), np.arange(1, d + 1), -estimator.shift[row, :d], centre, scale)
    p = estimator.dimension
    is_canonical = estimator.coordinates == "canonical" or (isinstance(estimator, Kalman) and estimator.is_canonical)
    names = _names(p, observed) if is_canonical else tuple(f"context {i}" for i in range(p))
    return ContextUnits(names, np.arange(p), np.zeros(p), np.zeros(p), np.ones(p))


def _names(latent: int, observed: int) -> tuple[str, ...]:
    return (*(f"feature {i}" for i in range(observed)), *(f"hidden {i + 1}" for i in range(latent - observed)))
