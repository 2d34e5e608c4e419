"""The form in which a context is shown to people: the observed features first, in their own units."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.components import Estimator
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.estimators.kalman import Kalman
from halfseen.kernels.random import Floats


class ContextUnits(NamedTuple):
    """The coordinates of a context that are shown, and their units.

    For features c, the coordinates are z = `basis` · c + `shift` in the units of the model. In the units of the
    observations they are `centre` + `scale` · z.
    """

    names: tuple[str, ...]  # of the m coordinates that are shown
    basis: Floats  # (m, p)
    shift: Floats  # (m,)
    centre: Floats  # (m,) 0 for hidden coordinates, which have no unit
    scale: Floats  # (m,) 1 for hidden coordinates

    def standard(self, means: Floats, covs: Floats) -> tuple[Floats, Floats]:
        """Return the means and standard deviations (h, m) of the coordinates in the units of the model.

        `means` (h, p) and `covs` (h, p, p) are the means and covariances of the features.
        """
        variances = np.einsum("mp,hpq,mq->hm", self.basis, covs, self.basis)
        return means @ self.basis.T + self.shift, np.sqrt(np.maximum(variances, 0.0))


def context_units(estimator: Estimator, row: int, observed: int) -> ContextUnits:
    """Return the coordinates and units for stream `row`, which observes `observed` features."""
    if isinstance(estimator, Adaptive):  # feature 0 is an intercept; features beyond the model's dimension are unused
        d = int(estimator.latent_dims[row])
        centre, scale = np.zeros(d), np.ones(d)
        centre[:observed], scale[:observed] = estimator.centre[row], estimator.scale[row]
        basis = np.eye(d, estimator.dimension, k=1)
        return ContextUnits(_names(d, observed), basis, -estimator.shift[row, :d], centre, scale)
    p = estimator.dimension
    basis = estimator.to_canonical(row) if isinstance(estimator, Kalman) else np.eye(p)
    return ContextUnits(_names(p, observed), basis, np.zeros(p), np.zeros(p), np.ones(p))


def _names(latent: int, observed: int) -> tuple[str, ...]:
    return (*(f"feature {i}" for i in range(observed)), *(f"hidden {i + 1}" for i in range(latent - observed)))
