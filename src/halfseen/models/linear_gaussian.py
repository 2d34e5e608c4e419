"""The linear-Gaussian state space model of the context, x_{t+1} = D x_t + ε_t and y_t = A x_t + n_t."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from halfseen.errors import invalid
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.filter import filter_series
from halfseen.kernels.kalman import MAX_VARIANCE
from halfseen.kernels.smoother import smooth_series
from halfseen.kernels.uneven import filter_uneven, smooth_uneven
from halfseen.models.results import Array, FilterResult, SmootherResult
from halfseen.models.tracker import Tracker
from halfseen.validation import elapsed_series, real_numbers

# An asymmetry or a negative eigenvalue of a covariance counts as rounding error if its absolute value is below this
# share of the largest entry.
RELATIVE_TOLERANCE = 1e-8


def _finite(argument: str, value: ArrayLike) -> Array:
    array = real_numbers(argument, value)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        raise invalid(argument, "finite numbers", f"{array[tuple(bad[0])]} at {bad[0].tolist()}")
    if (np.abs(array) > MAX_VARIANCE).any():
        bad = np.argwhere(np.abs(array) > MAX_VARIANCE)
        got = f"{array[tuple(bad[0])]:g} at {bad[0].tolist()}"
        raise invalid(argument, f"numbers within ±{MAX_VARIANCE:g}", got)
    return array


def _covariance(argument: str, value: ArrayLike, size: int) -> Array:
    """Return a covariance that is given as a matrix, as its diagonal or as a multiple of the identity."""
    array = _finite(argument, value)
    if array.ndim == 0:
        array = array * np.eye(size)
    elif array.ndim == 1 and array.shape == (size,):
        array = np.diag(array)
    if array.shape != (size, size):
        raise invalid(argument, f"shape ({size}, {size}), its diagonal ({size},) or a number", f"shape {array.shape}")
    largest = np.abs(array).max()
    if np.abs(array - array.T).max() > RELATIVE_TOLERANCE * largest:
        raise invalid(argument, "a symmetric matrix", "a matrix that is not symmetric")
    array = 0.5 * array + 0.5 * array.T
    try:
        lowest = np.linalg.eigvalsh(array)[0]
    except np.linalg.LinAlgError:
        raise invalid(argument, "smaller numbers", f"{largest:.3g}") from None
    if lowest < -RELATIVE_TOLERANCE * largest:
        raise invalid(argument, "a positive semi-definite matrix", f"an eigenvalue of {lowest:.3g}")
    return array


def _observations(ys: ArrayLike, features: int) -> tuple[Array, bool]:
    """Return ys as a batch (B, n, k), and whether ys was a single series (n, k)."""
    array = real_numbers("ys", ys)
    if array.ndim not in (2, 3) or array.shape[-1] != features or 0 in array.shape:
        expected = f"shape (rounds, {features}) or (series, rounds, {features}) without a 0"
        raise invalid("ys", expected, f"shape {array.shape}")
    bad = np.argwhere(np.isinf(array))
    if len(bad):
        raise invalid("ys", "finite numbers, or NaN where missing", f"{array[tuple(bad[0])]} at {bad[0].tolist()}")
    single = array.ndim == 2
    return (array[None] if single else array), single


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LinearGaussianModel:
    """A linear-Gaussian state space model of a context of which only a part is observed.

    The parameters are checked when the model is created. Their arrays are read-only.

    Parameters
    ----------
    transition : array_like, shape (d, d)
        D, the matrix that moves the context from one round to the next.
    process_cov : array_like, shape (d, d) or (d,), or float
        Q, the covariance of the process noise. A vector stands for a diagonal matrix, and a number for a multiple of
        the identity.
    observation_cov : array_like, shape (k, k) or (k,), or float
        Σ, the covariance of the observation noise, in the same forms. A number requires `observation`.
    observation : array_like, shape (k, d), optional
        A, the observation matrix, of full rank k. By default A = [I_k 0], which means that the first k coordinates are
        observed.
    initial_mean : array_like, shape (d,), optional
        m_0, the mean of x_0. 0 by default.
    initial_cov : array_like, shape (d, d) or (d,), or float, optional
        P_0, the covariance of x_0. The identity by default.

    Raises
    ------
    InvalidInput
        If an array has the wrong shape or an entry that is not finite, if a covariance is not symmetric and positive
        semi-definite, or if A does not have full rank.

    Notes
    -----
    The context x_t has d coordinates and the observation y_t has k:

        x_{t+1} = D x_t + ε_t,  ε_t ~ N(0, Q)
        y_t = A x_t + n_t,      n_t ~ N(0, Σ)
        x_0 ~ N(m_0, P_0)

    x_0 is one transition before the first observation y_1. This is the model of section 2 of [1]_.

    References
    ----------
    .. [1] Zeng, Bhatt, Koppel and Ganesh, "Partially Observable Contextual Bandits with Linear Payoffs",
       arXiv:2409.11521.

    Examples
    --------
    A rotating context of which the first coordinate is observed:

    >>> import halfseen as hs
    >>> model = hs.LinearGaussianModel(
    ...     transition=[[0.8, 0.5], [-0.5, 0.8]], process_cov=0.1, observation_cov=[0.2]
    ... )
    >>> model
    LinearGaussianModel(latent=2, observed=1, spectral_radius=0.9434)
    >>> model.filter([[1.0], [0.4], [-0.7]]).means.round(3).tolist()
    [[0.832, 0.0], [0.481, -0.55], [-0.439, -0.977]]
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
                expected = "shape (k, k) or (k,), because `observation` is not given"
                raise invalid("observation_cov", expected, "a number")
            k = noise.shape[0]
            if not 1 <= k <= d:
                expected = f"between 1 and {d} features, the size of transition"
                raise invalid("observation_cov", expected, f"shape {noise.shape}")
            A = np.eye(k, d)
        else:
            A = _finite("observation", observation)
            if A.ndim != 2 or A.shape[1] != d or not 1 <= A.shape[0] <= d:
                raise invalid("observation", f"shape (k, {d}) with 1 <= k <= {d}", f"shape {A.shape}")
            k = A.shape[0]
            lengths = np.linalg.norm(A, axis=1, keepdims=True)  # so that the rank does not depend on the units
            singular = np.linalg.svd(A / np.where(lengths > 0, lengths, 1.0), compute_uv=False)
            if singular[-1] <= 1e-6 * singular[0]:
                raise invalid("observation", f"full rank {k}", f"rank {int((singular > 1e-6 * singular[0]).sum())}")
        mean = np.zeros(d) if initial_mean is None else _finite("initial_mean", initial_mean)
        if mean.shape != (d,):
            raise invalid("initial_mean", f"shape ({d},)", f"shape {mean.shape}")
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
        """d, the dimension of the context."""
        return len(self.transition)

    @property
    def observed(self) -> int:
        """k, the number of observed features."""
        return len(self.observation)

    @cached_property
    def spectral_radius(self) -> float:
        """The largest modulus of an eigenvalue of the transition. The context is stable if this modulus is below 1."""
        return float(np.abs(np.linalg.eigvals(self.transition)).max())

    def arrays(self) -> Parameters:
        """Return copies of D, Q, Σ, m_0 and P_0 for the kernels, writable and contiguous."""
        return Parameters(
            self.transition.copy(), self.process_cov.copy(), self.observation_cov.copy(),
            self.initial_mean.copy(), self.initial_cov.copy(),
        )  # fmt: skip

    def canonical(self) -> CanonicalForm:
        """Return the same model in coordinates in which A = [I 0].

        Returns
        -------
        CanonicalForm
            The model for the coordinates x̃ = Ãx, and the maps between the old and the new coordinates.

        Notes
        -----
        Ã is A completed with an orthonormal basis of its null space. D̃ = ÃDÃ⁻¹ and Q̃ = ÃQÃᵀ give the same
        observations. Arm parameters μ̃ = Ã⁻ᵀμ give the same rewards.

        Examples
        --------
        >>> import halfseen as hs
        >>> model = hs.LinearGaussianModel(
        ...     transition=[[0.9, 0.0], [0.2, 0.7]], process_cov=0.1, observation_cov=0.2, observation=[[1.0, 1.0]]
        ... )
        >>> form = model.canonical()
        >>> form.model.observation.tolist()
        [[1.0, 0.0]]
        >>> x = [0.3, 0.5]
        >>> round(float(form.contexts_to_canonical(x)[0]), 12)
        0.8
        """
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

    def filter(self, ys: ArrayLike, *, elapsed: ArrayLike = 1) -> FilterResult:
        """Estimate every context from the observations up to its round, with the Kalman filter.

        Parameters
        ----------
        ys : array_like, shape (n, k) or (B, n, k)
            Observations of n rounds, or of a batch of B series. NaN, None and masked entries are missing. One series
            may be a DataFrame of pandas or polars, whose columns are taken in order.
        elapsed : int or array_like, shape (n,), default 1
            The number of steps from the previous round to each round. The first number counts from x_0. A number m
            means that nothing was observed in the m − 1 steps in between, and 0 stands for another observation of the
            same moment. The series of a batch have the same steps.

        Returns
        -------
        FilterResult
            Means and covariances of x_t given y_1, ..., y_t and of x_t given y_1, ..., y_{t−1} for t = 1, ..., n, and
            the log-likelihood of the observations. For a batch the arrays have a leading axis B.

        Raises
        ------
        InvalidInput
            If ys has the wrong shape or an infinite entry, or if a number of steps is negative or not whole.

        Notes
        -----
        Predict x⁻ = D x and P⁻ = D P Dᵀ + Q. Then, with S = A P⁻ Aᵀ + Σ and the gain G = P⁻ Aᵀ S⁻¹, update
        x = x⁻ + G (y − A x⁻) and P = (I − G A) P⁻ (I − G A)ᵀ + G Σ Gᵀ. Missing entries are left out of y, A and Σ.
        A noise variance of 0 is replaced by 1e-9 times the corresponding entry of S. The covariances converge while all
        entries are observed, and are not computed again after their relative change has fallen below 1e-12.

        References
        ----------
        .. [1] Kalman, "A New Approach to Linear Filtering and Prediction Problems", Journal of Basic Engineering 82,
           1960.

        Examples
        --------
        >>> import halfseen as hs
        >>> model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=1.0, observation_cov=[0.5])
        >>> result = model.filter([[1.0], [None], [2.0]])
        >>> result.means.round(3).tolist()
        [[0.784], [0.705], [1.734]]
        >>> round(result.log_likelihood, 3)
        -3.307
        """
        array, single = _observations(ys, self.observed)
        form = self.canonical()
        if (steps := _steps(elapsed, array.shape[1])) is not None:
            uneven = [filter_uneven(*form.model.arrays(), y, steps) for y in array]
            x, loglik, P_filt, P_pred, powers = (np.stack([one[i] for one in uneven]) for i in range(5))
            rows = _own_rows(x)
            P_filt, P_pred = (covs.reshape(-1, *covs.shape[2:]) for covs in (P_filt, P_pred))
            transition = powers[0] if form.trivial else form.to_original @ powers[0] @ form.to_canonical
            return FilterResult(x, rows, P_filt, loglik, single, form.to_original_or_none, P_pred, transition[1:])
        x, loglik, rows, P_filt, P_pred, _ = filter_series(*form.model.arrays(), array)
        return FilterResult(x, rows, P_filt, loglik, single, form.to_original_or_none, P_pred, self.transition)

    def tracker(self) -> Tracker:
        """Return an online Kalman filter that takes one observation at a time.

        Returns
        -------
        Tracker
            A tracker whose belief is the distribution of x_0.

        Examples
        --------
        >>> import halfseen as hs
        >>> model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=1.0, observation_cov=[0.5])
        >>> tracker = model.tracker()
        >>> tracker.step([1.0]).mean.round(3).tolist()
        [0.784]
        """
        form = self.canonical()
        return Tracker(form.model.arrays(), form.to_original_or_none)

    def smooth(self, ys: ArrayLike, *, elapsed: ArrayLike = 1) -> SmootherResult:
        """Estimate every context from all observations, with the Rauch–Tung–Striebel smoother.

        Parameters
        ----------
        ys : array_like, shape (n, k) or (B, n, k)
            Observations of n rounds, or of a batch of B series. NaN, None and masked entries are missing.
        elapsed : int or array_like, shape (n,), default 1
            The number of steps between each round and the one before it, as for `filter`.

        Returns
        -------
        SmootherResult
            Means and covariances of x_t given y_1, ..., y_n for t = 0, ..., n, the covariances of x_{t+1} and x_t, and
            the log-likelihood of the observations. For a batch the arrays have a leading axis B.

        Raises
        ------
        InvalidInput
            If ys has the wrong shape or an infinite entry, or if a number of steps is negative or not whole.

        Notes
        -----
        After the filter, for t = n − 1, ..., 0, with J_t = P_t Dᵀ (P⁻_{t+1})⁻¹:

            xˢ_t = x_t + J_t (xˢ_{t+1} − x⁻_{t+1})
            Pˢ_t = P_t + J_t (Pˢ_{t+1} − P⁻_{t+1}) J_tᵀ
            Cov(x_{t+1}, x_t | y_1, ..., y_n) = Pˢ_{t+1} J_tᵀ

        References
        ----------
        .. [1] Rauch, Tung and Striebel, "Maximum Likelihood Estimates of Linear Dynamic Systems", AIAA Journal 3, 1965.

        Examples
        --------
        >>> import halfseen as hs
        >>> model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=1.0, observation_cov=[0.5])
        >>> result = model.smooth([[1.0], [None], [2.0]])
        >>> result.means.round(3).tolist()
        [[0.952], [1.336], [1.734]]
        >>> result.initial.mean.round(3).tolist()
        [0.474]
        """
        array, single = _observations(ys, self.observed)
        form = self.canonical()
        p = form.model.arrays()
        if (steps := _steps(elapsed, array.shape[1])) is not None:
            filtered = [filter_uneven(*p, y, steps) for y in array]
            smoothed = [smooth_uneven(x, P, P_pred, D_n) for x, _, P, P_pred, D_n, _ in filtered]
            x, P_smooth, lag_one = (np.stack(parts) for parts in zip(*smoothed, strict=True))
            P_smooth, lag_one = (covs.reshape(-1, *covs.shape[2:]) for covs in (P_smooth, lag_one))
            loglik = np.array([one[1] for one in filtered])
            return SmootherResult(x, _own_rows(x), P_smooth, loglik, single, form.to_original_or_none, lag_one)
        x, loglik, rows, P_filt, P_pred, frozen = filter_series(*p, array)
        x, rows, P_smooth, lag_one = smooth_series(p.D, p.Q, x, rows, P_filt, P_pred, frozen)
        return SmootherResult(x, rows, P_smooth, loglik, single, form.to_original_or_none, lag_one)


def _steps(elapsed: ArrayLike, rounds: int) -> NDArray[np.int64] | None:
    """Return the number of steps before each round (n,), or None if all of these numbers are 1."""
    if isinstance(elapsed, int) and elapsed == 1:
        return None
    steps = elapsed_series("elapsed", elapsed, rounds, "round")
    return None if (steps == 1).all() else steps


def _own_rows(x: Array) -> NDArray[np.int64]:
    """Return row numbers (B, n+1) for tables that contain a separate covariance for every time of every series."""
    return np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2])


def change_basis(model: Parameters, T: Array) -> Parameters:
    """Return the same model for contexts Tx. The covariances are exactly symmetric."""

    def transformed(cov: Array) -> Array:
        product = T @ cov @ T.T
        return np.asarray(0.5 * (product + product.T))

    D = np.ascontiguousarray(T @ model.D @ np.linalg.inv(T))
    return Parameters(D, transformed(model.Q), model.R, T @ model.m0, transformed(model.P0))


@dataclass(frozen=True, eq=False)
class CanonicalForm:
    """A model whose observed coordinates are the first k, with the maps to and from the original coordinates.

    Attributes
    ----------
    model : LinearGaussianModel
        The model in canonical coordinates, with A = [I 0].
    to_canonical : ndarray, shape (d, d)
        Ã, which is A completed with an orthonormal basis of its null space.
    to_original : ndarray, shape (d, d)
        Ã⁻¹.
    trivial : bool
        Whether the original model was canonical. Both maps are then the identity.
    """

    model: LinearGaussianModel
    to_canonical: Array
    to_original: Array
    trivial: bool = False

    @property
    def to_original_or_none(self) -> Array | None:
        """`to_original`, or None if it is the identity."""
        return None if self.trivial else self.to_original

    def contexts_to_canonical(self, x: ArrayLike) -> Array:
        """Return Ãx for contexts x (..., d)."""
        return self._transform("x", x, self.to_canonical.T)

    def contexts_to_original(self, x: ArrayLike) -> Array:
        """Return Ã⁻¹x for canonical contexts x (..., d)."""
        return self._transform("x", x, self.to_original.T)

    def arms_to_canonical(self, mu: ArrayLike) -> Array:
        """Return Ã⁻ᵀμ for arm parameters μ (..., d). Rewards stay the same, ⟨Ãx, Ã⁻ᵀμ⟩ = ⟨x, μ⟩."""
        return self._transform("mu", mu, self.to_original)

    def arms_to_original(self, mu: ArrayLike) -> Array:
        """Return Ãᵀμ for canonical arm parameters μ (..., d). Rewards stay the same, ⟨Ã⁻¹x, Ãᵀμ⟩ = ⟨x, μ⟩."""
        return self._transform("mu", mu, self.to_canonical)

    def _transform(self, argument: str, value: ArrayLike, matrix: Array) -> Array:
        array = real_numbers(argument, value)
        if array.ndim == 0 or array.shape[-1] != len(matrix):
            raise invalid(argument, f"shape (..., {len(matrix)})", f"shape {array.shape}")
        return array if self.trivial else array @ matrix
