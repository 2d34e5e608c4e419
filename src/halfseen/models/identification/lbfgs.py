"""L-BFGS for the log-likelihood of one series (docs/mathematics.md, "Maximum likelihood").

`lbfgs_round` optimises coordinates z of the models near a given model. Covariances stay above their floors for every z.
The coordinates are scaled by the Hessian at the given model, because the log-likelihood is many orders of magnitude
flatter in some directions than in others, and exactly flat along changes of the basis of the hidden coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from halfseen.kernels.arrays import Matrix, Parameters, Vector
from halfseen.kernels.filter import filter_series
from halfseen.kernels.score import score_series
from halfseen.models.identification.em import DIAGONAL, FIXED

MEMORY = 30  # pairs of steps and gradients from which L-BFGS estimates the curvature
DIFFERENCE = 1e-5  # change of z between the two gradients whose difference gives a row of the Hessian
LEAST_CURVATURE = 1e-6  # nats per round. Flatter directions are scaled as if they had this curvature.
# If a variance is at its lower bound, L-BFGS starts from a value above the bound by this share of the bound, because at
# the bound itself the gradient with respect to z is 0.
ABOVE_FLOOR = 1e-6
PATIENCE = 10  # a round of L-BFGS ends after this many iterations that together gain less than the tolerance
IMPOSSIBLE = 1e10  # the value of the objective where the log-likelihood is not finite


class Freedom(NamedTuple):
    """Which parameters are estimated, and their bounds."""

    update_noise: int  # FIXED, DIAGONAL or FULL
    update_initial: bool  # whether m_0 and P_0 are estimated
    q_floor: Vector  # (d,), Q − diag(q_floor) stays positive semi-definite
    r_floor: Vector  # (k,), Σ − diag(r_floor) stays positive semi-definite unless Σ is fixed


def score(model: Parameters, y: Matrix) -> tuple[float, Parameters]:
    """Return the log-likelihood of y (n, k), and its derivatives with respect to all parameters (see `score_series`).

    If a number is not finite, the log-likelihood is −inf and the derivatives have no meaning.
    """
    x_filt, log_likelihood, rows, P_filt, P_pred, frozen = filter_series(*model, y[None])
    value = float(log_likelihood[0])
    if not (np.isfinite(value) and np.isfinite(x_filt).all()):
        return -np.inf, model
    gradient = Parameters(*score_series(model.D, model.R, y, x_filt[0], rows[0], P_filt, P_pred, frozen))
    return (value if all(np.isfinite(part).all() for part in gradient) else -np.inf), gradient


class Coordinates:
    """Coordinates z (p,) of the models near a centre, which is at z = 0.

    z contains the entries of a square matrix Z_D, of a vector Z_m, and of lower triangular matrices Z_Q, Z_Σ and Z_P
    (Z_Σ is diagonal if Σ is). The model at z is

        D = D_c + E Z_D E⁻¹,  m_0 = m_c + √n E Z_m,  Q = floor + F(I + Z_Q)(I + Z_Q)ᵀFᵀ,
        Σ = floor + F(I + Z_Σ)(I + Z_Σ)ᵀFᵀ,          P_0 = F(I + √n Z_P)(I + √n Z_P)ᵀFᵀ

    where EEᵀ is the mean of x xᵀ under the filter, and F in each formula is the factor for which z = 0 is the centre.
    The factors √n are there because the information about x_0 does not grow with n.
    """

    def __init__(self, centre: Parameters, y: Matrix, freedom: Freedom) -> None:
        self.centre, self.freedom = centre, freedom
        d, (n, k) = len(centre.D), y.shape
        x_filt, _, rows, P_filt, _, _ = filter_series(*centre, y[None])
        self._E = np.linalg.cholesky(x_filt[0].T @ x_filt[0] / n + P_filt[rows[0, n]] + np.diag(freedom.q_floor))
        self._E_inverse = np.linalg.inv(self._E)
        self._root_n = np.sqrt(n)
        lower = np.tril_indices(d)
        self._Q = _CovarianceCoordinates(centre.Q, freedom.q_floor, lower)
        blocks = [d * d, self._Q.size, 0, 0, 0]
        if freedom.update_noise != FIXED:
            entries = np.diag_indices(k) if freedom.update_noise == DIAGONAL else np.tril_indices(k)
            self._R = _CovarianceCoordinates(centre.R, freedom.r_floor, entries)
            blocks[2] = self._R.size
        if freedom.update_initial:
            self._P0 = _CovarianceCoordinates(centre.P0, np.zeros(d), lower)
            blocks[3:] = [d, self._P0.size]
        self.size = sum(blocks)
        self._ends = np.cumsum(blocks)[:-1]

    def model(self, z: Vector) -> Parameters:
        """Return the model at z."""
        D, Q, R, m0, P0 = self.centre
        z_D, z_Q, z_R, z_m, z_P = np.split(z, self._ends)
        D = D + self._E @ z_D.reshape(D.shape) @ self._E_inverse
        Q = self._Q.covariance(z_Q)
        if self.freedom.update_noise != FIXED:
            R = self._R.covariance(z_R)
        if self.freedom.update_initial:
            m0 = m0 + self._root_n * (self._E @ z_m)
            P0 = self._P0.covariance(self._root_n * z_P)
        return Parameters(D, Q, R, m0, P0)

    def gradient(self, z: Vector, derivatives: Parameters) -> Vector:
        """Return the gradient (p,) with respect to z, given the derivatives with respect to the parameters at z."""
        _, z_Q, z_R, _, z_P = np.split(z, self._ends)
        parts = [
            (self._E.T @ derivatives.D @ self._E_inverse.T).ravel(),
            self._Q.gradient(z_Q, derivatives.Q),
        ]
        if self.freedom.update_noise != FIXED:
            parts.append(self._R.gradient(z_R, derivatives.R))
        if self.freedom.update_initial:
            parts.append(self._root_n * (self._E.T @ derivatives.m0))
            parts.append(self._root_n * self._P0.gradient(self._root_n * z_P, derivatives.P0))
        return np.concatenate(parts)


class _CovarianceCoordinates:
    """The covariances diag(floor) + F(I + Z)(I + Z)ᵀFᵀ, where Z is 0 except for the given entries."""

    def __init__(self, centre: Matrix, floor: Vector, entries: tuple[NDArray[np.signedinteger], ...]) -> None:
        self._floor, self._entries, self.size = np.diag(floor), entries, len(entries[0])
        rest = centre - self._floor
        if len(entries[0]) == len(centre):  # diagonal
            self._F: Matrix = np.diag(np.sqrt(np.maximum(np.diag(rest), ABOVE_FLOOR * floor)))
        else:
            values, vectors = np.linalg.eigh(rest)
            self._F = vectors * np.sqrt(np.maximum(values, ABOVE_FLOOR * floor.min()))

    def _factor(self, z: Vector) -> Matrix:
        Z = np.eye(len(self._F))
        Z[self._entries] += z
        return Z

    def covariance(self, z: Vector) -> Matrix:
        L = self._F @ self._factor(z)
        product = L @ L.T
        return np.asarray(0.5 * (product + product.T) + self._floor)

    def gradient(self, z: Vector, derivative: Matrix) -> Vector:
        product = 2.0 * self._F.T @ derivative @ self._F @ self._factor(z)
        return np.asarray(product[self._entries])


def lbfgs_round(
    centre: Parameters,
    y: Matrix,  # (n, k), NaN where missing
    freedom: Freedom,
    *,
    iterations: int,
    tolerance: float,
    on_iterate: Callable[[float], None],
) -> Parameters:
    """Increase the log-likelihood with L-BFGS in coordinates around `centre`, and return the most likely model.

    The Hessian takes as many evaluations of the gradient as there are coordinates. A round ends after `iterations`
    iterations, after PATIENCE iterations that together gain less than `tolerance` nats per round of y, or when no step
    along the search direction increases the log-likelihood. `on_iterate` is called with the log-likelihood of each
    iterate that is more likely than all before.
    """
    n = len(y)
    coordinates = Coordinates(centre, y, freedom)

    def objective(z: Vector) -> tuple[float, Vector]:
        model = coordinates.model(z)
        value, derivatives = score(model, y) if all(np.isfinite(part).all() for part in model) else (-np.inf, model)
        if not np.isfinite(value):
            return IMPOSSIBLE, np.zeros_like(z)
        return -value / n, -coordinates.gradient(z, derivatives) / n

    origin = np.zeros(coordinates.size)
    value, gradient = objective(origin)
    if value == IMPOSSIBLE:
        return centre
    differences = [(objective(DIFFERENCE * axis)[1] - gradient) / DIFFERENCE for axis in np.eye(coordinates.size)]
    hessian = 0.5 * (np.array(differences) + np.array(differences).T)
    curvatures, axes = np.linalg.eigh(hessian)
    scaled_axes = axes / np.sqrt(np.maximum(np.abs(curvatures), LEAST_CURVATURE))

    def scaled_objective(w: Vector) -> tuple[float, Vector]:
        value, gradient = objective(scaled_axes @ w)
        return value, scaled_axes.T @ gradient

    values = [-score(centre, y)[0] / n]  # the model at z = 0 may be a little less likely than the centre (ABOVE_FLOOR)
    last: Vector | None = None

    def callback(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        nonlocal last
        if not intermediate_result.fun < values[-1]:
            return
        values.append(intermediate_result.fun)
        last = intermediate_result.x.copy()
        on_iterate(-n * intermediate_result.fun)
        if len(values) > PATIENCE and values[-1 - PATIENCE] - values[-1] < tolerance:
            raise StopIteration

    scipy.optimize.minimize(
        scaled_objective,
        origin,
        jac=True,
        method="L-BFGS-B",
        callback=callback,
        options={"maxcor": MEMORY, "maxiter": iterations, "maxfun": 20 * iterations, "ftol": 0.0, "gtol": 0.0},
    )
    return centre if last is None else coordinates.model(scaled_axes @ last)
