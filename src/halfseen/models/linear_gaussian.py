"""The linear-Gaussian model: x_{t+1} = D x_t + ε_t and y_t = A x_t + n_t (the paper, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from halfseen.errors import invalid
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.filter import filter_series
from halfseen.kernels.smoother import smooth_series
from halfseen.models.results import Array, FilterResult, SmootherResult
from halfseen.models.tracker import Tracker
from halfseen.validation import real_numbers

RELATIVE_TOLERANCE = 1e-8  # asymmetry or negative eigenvalue, relative to the largest, that passes as rounding


def _finite(argument: str, value: ArrayLike) -> Array:
    array = real_numbers(argument, value)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        raise invalid(argument, "finite numbers", f"{array[tuple(bad[0])]} at {bad[0].tolist()}")
    return array


def _covariance(argument: str, value: ArrayLike, size: int) -> Array:
    """A covariance given as a matrix, as a vector (its diagonal) or as a number (times the identity)."""
    array = _finite(argument, value)
    if array.ndim == 0:
        array = array * np.eye(size)
    elif array.ndim == 1 and array.shape == (size,):
        array = np.diag(array)
    if array.shape != (size, size):
        raise invalid(argument, f"({size}, {size}), its diagonal ({size},) or a number", f"shape {array.shape}")
    largest = np.abs(array).max()
    if np.abs(array - array.T).max() > RELATIVE_TOLERANCE * largest:
        raise invalid(argument, "a covariance", "a matrix that is not symmetric")
    array = 0.5 * (array + array.T)
    lowest = np.linalg.eigvalsh(array)[0]
    if lowest < -RELATIVE_TOLERANCE * largest:
        raise invalid(argument, "a covariance: no eigenvalue below 0", f"an eigenvalue of {lowest:.3g}")
    return array


def _observations(ys: ArrayLike, features: int) -> tuple[Array, bool]:
    """(B, n, k) ready for the kernels, and whether ys was one series (n, k)."""
    array = real_numbers("ys", ys)
    if array.ndim not in (2, 3) or array.shape[-1] != features or 0 in array.shape:
        wanted = f"(rounds, {features}) or (series, rounds, {features}), at least one of each"
        raise invalid("ys", wanted, f"shape {array.shape}")
    bad = np.argwhere(np.isinf(array))
    if len(bad):
        raise invalid("ys", "finite numbers, or nan for not seen", f"{array[tuple(bad[0])]} at {bad[0].tolist()}")
    single = array.ndim == 2
    return (array[None] if single else array), single


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LinearGaussianModel:
    """x_{t+1} = D x_t + ε_t, ε ~ N(0, Q); y_t = A x_t + n_t, n ~ N(0, Σ); x_0 ~ N(m_0, P_0); y_1 comes first.

    transition D (d, d); process_cov Q (d, d), its diagonal or a number; observation_cov Σ (k, k), its
    diagonal, or a number when `observation` is given; observation A (k, d) of full rank, left out [I_k 0]:
    the first k coordinates are seen. initial_mean and initial_cov describe x_0, one transition before the
    first observation, and are 0 and I when left out. Checked once, here; the arrays cannot be changed
    afterwards.
    """

    transition: Array
    process_cov: Array
    observation_cov: Array
    observation: Array
    initial_mean: Array
    initial_cov: Array

    def __init__(
        self,
        *,
        transition: ArrayLike,
        process_cov: ArrayLike,
        observation_cov: ArrayLike,
        observation: ArrayLike | None = None,
        initial_mean: ArrayLike | None = None,
        initial_cov: ArrayLike | None = None,
    ) -> None:
        D = _finite("transition", transition)
        if D.ndim != 2 or D.shape[0] != D.shape[1] or D.size == 0:
            raise invalid("transition", "a square matrix (d, d)", f"shape {D.shape}")
        d = D.shape[0]
        if observation is None:
            noise = _finite("observation_cov", observation_cov)
            if noise.ndim == 0:
                wanted = "(k, k) or (k,), or observation= beside a number: k is not known otherwise"
                raise invalid("observation_cov", wanted, "a number")
            k = noise.shape[0]
            if not 1 <= k <= d:
                raise invalid(
                    "observation_cov", f"at most {d} features, the size of transition", f"shape {noise.shape}"
                )
            A = np.eye(k, d)
        else:
            A = _finite("observation", observation)
            if A.ndim != 2 or A.shape[1] != d or not 1 <= A.shape[0] <= d:
                raise invalid("observation", f"(k, {d}) with 1 <= k <= {d}", f"shape {A.shape}")
            k = A.shape[0]
            lengths = np.linalg.norm(A, axis=1, keepdims=True)  # the units of the features do not matter
            singular = np.linalg.svd(A / np.where(lengths > 0, lengths, 1.0), compute_uv=False)
            if singular[-1] <= 1e-6 * singular[0]:
                raise invalid("observation", f"full rank {k}", f"rank {int((singular > 1e-6 * singular[0]).sum())}")
        mean = np.zeros(d) if initial_mean is None else _finite("initial_mean", initial_mean)
        if mean.shape != (d,):
            raise invalid("initial_mean", f"({d},)", f"shape {mean.shape}")
        fields = {
            "transition": D,
            "process_cov": _covariance("process_cov", process_cov, d),
            "observation_cov": _covariance("observation_cov", observation_cov, k),
            "observation": A,
            "initial_mean": mean,
            "initial_cov": np.eye(d) if initial_cov is None else _covariance("initial_cov", initial_cov, d),
        }
        for name, array in fields.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return (
            f"LinearGaussianModel(latent={self.latent}, observed={self.observed}, "
            f"spectral_radius={self.spectral_radius:.4g})"
        )

    @property
    def latent(self) -> int:
        """d, the size of the context."""
        return len(self.transition)

    @property
    def observed(self) -> int:
        """k, the number of features seen."""
        return len(self.observation)

    @cached_property
    def spectral_radius(self) -> float:
        """The largest modulus of an eigenvalue of the transition; below 1 the context is stable."""
        return float(np.abs(np.linalg.eigvals(self.transition)).max())

    def arrays(self) -> Parameters:
        """D, Q, Σ, m_0, P_0 as the kernels expect them: fresh, writable, contiguous."""
        return Parameters(
            self.transition.copy(), self.process_cov.copy(), self.observation_cov.copy(),
            self.initial_mean.copy(), self.initial_cov.copy(),
        )  # fmt: skip

    def canonical(self) -> CanonicalForm:
        """The same model in coordinates x̃ = Ãx in which A = [I 0] (docs/mathematics.md, "Canonical form")."""
        return self._canonical

    @cached_property
    def _canonical(self) -> CanonicalForm:
        d, k = self.latent, self.observed
        if np.array_equal(self.observation, np.eye(k, d)):
            return CanonicalForm(self, np.eye(d), np.eye(d), trivial=True)
        forward = np.vstack([self.observation, scipy.linalg.null_space(self.observation).T])
        D, Q, R, m0, P0 = change_basis(self.arrays(), forward)
        model = LinearGaussianModel(transition=D, process_cov=Q, observation_cov=R, initial_mean=m0, initial_cov=P0)
        return CanonicalForm(model, forward, np.linalg.inv(forward))

    def filter(self, ys: ArrayLike) -> FilterResult:
        """E[x_t | y_1..y_t] and its covariance for t = 1..n, and the log-likelihood of what was seen.

        ys (n, k), or a batch of series (B, n, k); nan = not seen. Results carry the same leading axes. A series may be
        a DataFrame of pandas or polars, whose columns are taken in order.
        """
        array, single = _observations(ys, self.observed)
        form = self.canonical()
        x, loglik, rows, P_filt, P_pred, _ = filter_series(*form.model.arrays(), array)
        return FilterResult(x, rows, P_filt, loglik, single, form.to_original_or_none, P_pred, self.transition)

    def tracker(self) -> Tracker:
        """The same filter online: `step(y)` returns the belief after y. It starts at x_0."""
        form = self.canonical()
        return Tracker(form.model.arrays(), form.to_original_or_none)

    def smooth(self, ys: ArrayLike) -> SmootherResult:
        """E[x_t | y_1..y_n] and covariances, also of neighbours in time, for t = 0..n (x_0 is `.initial`)."""
        array, single = _observations(ys, self.observed)
        form = self.canonical()
        p = form.model.arrays()
        x, loglik, rows, P_filt, P_pred, frozen = filter_series(*p, array)
        x, rows, P_smooth, lag_one = smooth_series(p.D, p.Q, x, rows, P_filt, P_pred, frozen)
        return SmootherResult(x, rows, P_smooth, loglik, single, form.to_original_or_none, lag_one)


def change_basis(model: Parameters, T: Array) -> Parameters:
    """The same model for contexts Tx, with covariances symmetric to the last bit."""

    def moved(cov: Array) -> Array:
        product = T @ cov @ T.T
        return np.asarray(0.5 * (product + product.T))

    D = np.ascontiguousarray(T @ model.D @ np.linalg.inv(T))
    return Parameters(D, moved(model.Q), model.R, T @ model.m0, moved(model.P0))


@dataclass(frozen=True, eq=False)
class CanonicalForm:
    """A model whose first k coordinates are the observed ones, and the maps from and to the original coordinates.

    to_canonical is Ã: A completed with an orthonormal basis of its null space; to_original is its inverse.
    Contexts map as x̃ = Ãx and arm parameters as μ̃ = Ã⁻ᵀμ, so that rewards ⟨x, μ⟩ are the same. Rows are
    contexts or arms.
    """

    model: LinearGaussianModel
    to_canonical: Array
    to_original: Array
    trivial: bool = False  # the model was canonical already: both maps are the identity

    @property
    def to_original_or_none(self) -> Array | None:
        """to_original, or None where it is the identity."""
        return None if self.trivial else self.to_original

    def contexts_to_canonical(self, x: ArrayLike) -> Array:
        return self._mapped("x", x, self.to_canonical.T)

    def contexts_to_original(self, x: ArrayLike) -> Array:
        return self._mapped("x", x, self.to_original.T)

    def arms_to_canonical(self, mu: ArrayLike) -> Array:
        return self._mapped("mu", mu, self.to_original)

    def arms_to_original(self, mu: ArrayLike) -> Array:
        return self._mapped("mu", mu, self.to_canonical)

    def _mapped(self, argument: str, value: ArrayLike, matrix: Array) -> Array:
        array = real_numbers(argument, value)
        if array.ndim == 0 or array.shape[-1] != len(matrix):
            raise invalid(argument, f"(.., {len(matrix)})", f"shape {array.shape}")
        return array if self.trivial else array @ matrix
