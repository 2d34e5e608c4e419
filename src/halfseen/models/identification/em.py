"""Expectation–maximisation (EM) for D, Q and Σ from one series of observations.

`fit` is the public function. It checks its input and reports problems. `em_iterates` and `em_windows` are the
iterations without checks, for agents that identify their model while they run. The mathematics is in
docs/mathematics.md, "Full EM".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from halfseen.errors import HalfseenWarning, invalid
from halfseen.kernels.arrays import Index, Matrix, Parameters, Stack, Vector
from halfseen.kernels.em import maximise, noise_moment, state_moments
from halfseen.kernels.filter import filter_series
from halfseen.kernels.linalg import raise_to_floor
from halfseen.kernels.random import Purpose, orthogonal_matrices, stream_keys
from halfseen.kernels.smoother import smooth_series
from halfseen.models.identification.order import aicc, candidate_dimensions, free_parameters, search_dimension
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.models.results import Array
from halfseen.validation import LIMIT, at_least, real_numbers

FIXED, DIAGONAL, FULL = 0, 1, 2  # how Σ is estimated: not at all, as a diagonal matrix, or as a full matrix
ROUNDING_DROP = 1e-8  # a decrease of the log-likelihood per round by less than this is rounding error
RELATIVE_FLOOR = 1e-9

FilterPass: TypeAlias = tuple[Stack, Vector, Index, Stack, Stack, int]  # the return value of filter_series

NOISE_FLOOR = 1e-6  # the least value of Σ_ii, as a share of the variance of feature i
MAX_STABLE_RADIUS = 1.0 + 1e-6
# The least values of Q and Σ in `em_iterates`, as shares of the variances of the features.
PROCESS_FLOOR, SENSOR_FLOOR = 1e-9, 1e-5


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of `fit`.

    Attributes
    ----------
    model : LinearGaussianModel
        The fitted model.
    log_likelihoods : ndarray, shape (iterations + 1,)
        The log-likelihood of the start, and the one after each iteration.
    iterations : int
        The number of iterations.
    converged : bool
        Whether the last iteration increased the log-likelihood by less than the tolerance.
    notes : tuple of str
        One sentence for every problem of the fit or the data, such as an unstable model or a constant feature.
    """

    model: LinearGaussianModel
    log_likelihoods: Array
    iterations: int
    converged: bool
    notes: tuple[str, ...]


def fit(
    ys: ArrayLike,
    *,
    latent: int | str,
    observation_cov: str | ArrayLike = "diagonal",
    start: LinearGaussianModel | None = None,
    seed: int = 0,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
    progress: Callable[[int, float], None] | None = None,
) -> FitResult:
    """Fit a linear-Gaussian model to a series of observations with expectation–maximisation.

    Parameters
    ----------
    ys : array_like, shape (rounds, features)
        The observations. The columns of a pandas or polars DataFrame are taken in order. NaN, None and
        masked entries are missing.
    latent : int or "auto"
        The dimension d of the context, at least the number of features. "auto" fits models of increasing dimension and
        returns the one with the best AICc.
    observation_cov : "diagonal", "full" or array_like, optional
        How to estimate Σ, or a covariance at which Σ is held fixed.
    start : LinearGaussianModel, optional
        The model to start from. The fitted model has the same observation matrix. A start is not allowed with
        latent="auto". By default, D is 0.9 times a random orthogonal matrix, Q = 0.2 v and Σ = 0.1 v, where v is the
        variance of each feature.
    seed : int, optional
        The seed of the random orthogonal matrix.
    max_iterations : int, optional
        The largest number of iterations.
    tolerance : float, optional
        Stop when an iteration increases the log-likelihood by less than this number per round.
    progress : callable, optional
        Called as progress(iteration, log_likelihood) after each iteration.

    Returns
    -------
    FitResult
        The model, which is never less likely than the start, the log-likelihoods of the iterations and notes about
        problems.

    Raises
    ------
    InvalidInput
        If an argument has the wrong shape, type or value.

    Warns
    -----
    HalfseenWarning
        Once for each note of the result.

    Notes
    -----
    The E-step computes with the smoother

        S11 = Σ_{t=1..n} E[x_t x_tᵀ],  S00 = Σ_{t=0..n−1} E[x_t x_tᵀ],  S10 = Σ_{t=1..n} E[x_t x_{t−1}ᵀ].

    The M-step [1]_ is

        D = S10 S00⁻¹,  Q = (S11 − D S10ᵀ − S10 Dᵀ + D S00 Dᵀ)/n,  Σ = (1/n) Σ_t E[(y_t − A x_t)(y_t − A x_t)ᵀ]

    and m_0, P_0 are the smoothed mean and covariance of x_0. The observations determine D and Q only up to a change of
    the hidden coordinates. Compare models by likelihood or prediction, not by D.

    AICc = log-likelihood − pN/(N − p − 1), where p = 2kd + k(k + 1)/2 is the number of free parameters and N the number
    of observed entries.

    References
    ----------
    .. [1] Shumway and Stoffer, "An approach to time series smoothing and forecasting using the EM algorithm",
       Journal of Time Series Analysis 3, 1982.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen as hs
    >>> rng, x, ys = np.random.default_rng(1), np.zeros(2), []
    >>> for _ in range(300):
    ...     x = np.array([[0.9, 0.3], [-0.3, 0.9]]) @ x + 0.3 * rng.normal(size=2)
    ...     ys.append(x[:1] + 0.1 * rng.normal(size=1))
    >>> result = hs.fit(ys, latent=2, max_iterations=50)
    >>> result.model.latent, result.model.observed
    (2, 1)
    >>> bool(result.log_likelihoods[-1] > result.log_likelihoods[0])
    True
    >>> result.notes
    ()
    """
    y = _series(ys)
    k, entries = y.shape[1], int(np.isfinite(y).sum())
    automatic = isinstance(latent, str) and latent == "auto"
    if not automatic and (isinstance(latent, bool) or not isinstance(latent, int | np.integer) or latent < k):
        raise invalid("latent", f"'auto' or an integer of at least {k}, the number of features", repr(latent))
    if automatic and start is not None:
        raise invalid("start", "None with latent='auto', which fits several dimensions", "a model")
    max_iterations, seed = at_least("max_iterations", max_iterations, 1), at_least("seed", seed, 0)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0.0:
        raise invalid("tolerance", "a number of at least 0", tolerance)

    def fit_dimension(d: int) -> FitResult:
        return _fit(y, d, observation_cov, start, seed, max_iterations, tolerance, progress)

    def score(result: FitResult, d: int) -> float:
        return aicc(float(result.log_likelihoods[-1]), d, k, entries)

    if automatic:
        result = search_dimension(candidate_dimensions(k), fit_dimension, score) or fit_dimension(k)
    else:
        result = fit_dimension(int(latent))
    for note in result.notes:
        warnings.warn(note, HalfseenWarning, stacklevel=2)
    return result


def _fit(
    y: Array,
    latent: int,
    observation_cov: str | ArrayLike,
    start: LinearGaussianModel | None,
    seed: int,
    max_iterations: int,
    tolerance: float,
    progress: Callable[[int, float], None] | None,
) -> FitResult:
    n, k = y.shape
    scale, notes = _scales(y)
    entries, parameters = int(np.isfinite(y).sum()), free_parameters(latent, k)
    if entries < 2 * parameters:
        notes.append(f"The model has {parameters} parameters, and {entries} observed numbers are too few to fit them.")
    if start is None:
        start = _default_start(scale, latent, seed)
    elif not isinstance(start, LinearGaussianModel):
        raise invalid("start", "a LinearGaussianModel", type(start).__name__)
    elif (start.latent, start.observed) != (latent, k):
        raise invalid("start", f"a model with latent={latent}, observed={k}", f"{start!r}")
    if isinstance(observation_cov, str):
        if observation_cov not in ("diagonal", "full"):
            raise invalid("observation_cov", "'diagonal', 'full' or a covariance", repr(observation_cov))
        update_R = DIAGONAL if observation_cov == "diagonal" else FULL
    else:
        update_R = FIXED
        start = replace(start, observation_cov=observation_cov)  # type: ignore[arg-type]

    # Powers of two, because scaling by them is exact.
    units: Array = np.asarray(2.0 ** np.round(np.log2(_coordinate_scales(scale, latent))))
    scaled = _in_units(start.canonical().model.arrays(), units)
    q_floor = RELATIVE_FLOOR * np.maximum(np.diag(scaled.Q), RELATIVE_FLOOR)
    r_floor = NOISE_FLOOR * (scale / units[:k]) ** 2
    sequence = _em_sequence(
        scaled, y / units[:k], update_R=update_R, update_initial=True, q_floor=q_floor, r_floor=r_floor
    )
    jacobian = float(np.log(units[:k]) @ np.isfinite(y).sum(axis=0))
    trace: list[float] = []
    converged = False
    for step, (model, scaled_loglik, _) in enumerate(sequence):
        best, loglik = _in_units(model, 1.0 / units), scaled_loglik - jacobian
        trace.append(loglik)
        if step > 0 and progress is not None:
            progress(step, loglik)
        converged = step > 0 and loglik - trace[-2] < tolerance * n
        if converged or step == max_iterations:
            break
    fitted = _in_original_coordinates(best, start)
    start_loglik = start.filter(y).log_likelihood
    if not trace[-1] >= start_loglik:
        fitted, trace, converged = start, [start_loglik], False
        notes.append("No iteration improved the start, which is returned unchanged.")
    notes += _problems(fitted, trace, update_R, q_floor * units**2, r_floor * units[:k] ** 2)
    return FitResult(fitted, np.array(trace), len(trace) - 1, converged, tuple(notes))


class FittedModel(NamedTuple):
    """A canonical model, its log-likelihood and the result of filtering the observations with it."""

    model: Parameters
    log_likelihood: float
    filtered: FilterPass


def em_iterates(
    start: Parameters,
    y: Array,
    *,
    iterations: int,
    tolerance: float,
    feature_var: Array | None = None,
    fixed_noise: bool = False,
    update_initial: bool = True,
) -> Iterator[FittedModel]:
    """Yield the start and then the model after each iteration of EM on y (n, k), NaN where missing.

    `feature_var` (k,) are the variances of the features, 1 by default. The iterations end after `iterations`, when one
    increases the log-likelihood by less than `tolerance` per round, or when a number is not finite, which may happen
    before the first model.
    """
    variances = np.ones(y.shape[1]) if feature_var is None else feature_var
    q_floor = np.full(len(start.D), PROCESS_FLOOR * float(np.nanmean(variances)))
    r_floor = SENSOR_FLOOR * np.nan_to_num(variances)
    update_R = FIXED if fixed_noise else DIAGONAL
    sequence = _em_sequence(
        start, y, update_R=update_R, update_initial=update_initial, q_floor=q_floor, r_floor=r_floor
    )
    previous = -np.inf
    try:
        for step, (model, log_likelihood, filtered) in enumerate(sequence):
            if not (np.isfinite(log_likelihood) and np.isfinite(filtered[0]).all()):
                return
            yield FittedModel(model, log_likelihood, filtered)
            if step == iterations or log_likelihood - previous < tolerance * len(y):
                return
            previous = log_likelihood
    except np.linalg.LinAlgError:
        return


def _coordinate_scales(scale: Array, latent: int) -> Array:
    """Return the scale of each coordinate. Hidden coordinates have the geometric mean of the scales of the features."""
    scales = np.full(latent, np.exp(np.log(scale).mean()))
    scales[: len(scale)] = scale
    return scales


def _in_units(model: Parameters, units: Array) -> Parameters:
    """Return the same canonical model for contexts divided by `units`."""
    squares, k = np.outer(units, units), len(model.R)
    D = model.D / units[:, None] * units
    return Parameters(D, model.Q / squares, model.R / squares[:k, :k], model.m0 / units, model.P0 / squares)


def _series(ys: ArrayLike) -> Array:
    y = real_numbers("ys", ys)
    if y.ndim != 2 or y.shape[1] == 0:
        raise invalid("ys", "shape (rounds, features)", f"shape {y.shape}")
    if y.shape[0] < 2:
        raise invalid("ys", "at least 2 rounds", y.shape[0])
    bad = np.argwhere(np.isinf(y))
    if len(bad):
        raise invalid("ys", "finite numbers, or NaN where missing", f"{y[tuple(bad[0])]} at {bad[0].tolist()}")
    if np.isnan(y).all():
        raise invalid("ys", "at least one observed entry", "only NaN")
    largest = np.nanmax(np.abs(y))
    if largest > LIMIT or 0 < largest < 1 / LIMIT:
        expected = f"a largest absolute value between {1 / LIMIT:g} and {LIMIT:g}"
        raise invalid("ys", expected, f"{largest:.3g}")
    return y


def _scales(y: Array) -> tuple[Array, list[str]]:
    """Return the standard deviation of each feature as its scale, and notes about constant or unobserved features.

    The scale of a constant feature is its absolute value, or 1 if that is 0. The scale of a feature that is never
    observed is 1.
    """
    scale = np.ones(y.shape[1])
    constant, unobserved = [], []
    for i, column in enumerate(y.T):
        values = column[~np.isnan(column)]
        if not len(values):
            unobserved.append(i)
        elif np.ptp(values) <= 1e-12 * np.abs(values).max():
            constant.append(i)
            scale[i] = np.abs(values).max() or 1.0
        else:
            scale[i] = values.std()
    notes = []
    if constant:
        notes.append(f"Constant feature(s) {_listed(constant)}: the data say nothing about their dynamics.")
    if unobserved:
        notes.append(f"Feature(s) {_listed(unobserved)} never observed: their part of the model is a guess.")
    return scale, notes


def _listed(indices: list[int]) -> str:
    return ", ".join(map(str, indices))


def _default_start(scale: Array, latent: int, seed: int) -> LinearGaussianModel:
    """Return the default start.

    It is proportional to the scales of the features, so that the fit of rescaled data is the rescaled fit. D is not
    diagonal, because EM leaves hidden coordinates at 0 when D does not couple them with observed ones.
    """
    orthogonal = orthogonal_matrices(stream_keys(seed), Purpose.INITIAL_MODEL, latent)[0]
    units = _coordinate_scales(scale, latent)
    return LinearGaussianModel(
        transition=0.9 * orthogonal * np.outer(units, 1.0 / units),
        process_cov=0.2 * units**2,
        observation_cov=0.1 * scale**2,
        initial_cov=units**2,
    )


def _in_original_coordinates(parameters: Parameters, start: LinearGaussianModel) -> LinearGaussianModel:
    """Return the fitted canonical model in the coordinates of the start."""
    form = start.canonical()
    back = form.to_original
    return LinearGaussianModel(
        transition=back @ parameters.D @ form.to_canonical,
        process_cov=back @ parameters.Q @ back.T,
        observation_cov=parameters.R,
        observation=start.observation,
        initial_mean=back @ parameters.m0,
        initial_cov=back @ parameters.P0 @ back.T,
    )


def _problems(
    model: LinearGaussianModel, trace: list[float], update_R: int, q_floor: Array, r_floor: Array
) -> list[str]:
    """Return one sentence for every problem of a fit."""
    notes = []
    fitted = model.canonical().model
    if not np.isfinite(trace[-1]):
        notes.append("The log-likelihood is not finite: the model does not fit the data.")
    if model.spectral_radius > MAX_STABLE_RADIUS:
        notes.append(f"The fit is unstable: spectral radius {model.spectral_radius:.6f}, above 1.")
    if update_R != FIXED:
        at_floor = [i for i, value in enumerate(np.diag(fitted.observation_cov)) if value <= 1.01 * r_floor[i]]
        if at_floor:
            share = f"{NOISE_FLOOR:g} of the variance"
            notes.append(f"The observation noise of feature(s) {_listed(at_floor)} is at its minimum, {share}.")
    if np.linalg.eigvalsh(fitted.process_cov / np.sqrt(np.outer(q_floor, q_floor)))[0] <= 1.01:
        notes.append("The process noise is at its minimum in some direction: try a smaller `latent`.")
    return notes


def _em_iteration(
    model: Parameters,
    y: Matrix,
    filtered: FilterPass,
    update_R: int,
    update_initial: bool,
    q_floor: Vector,
    r_floor: Vector,
) -> Parameters:
    """Return the model after one iteration: smooth, compute the moments and maximise."""
    D, Q, R, m0, P0 = model
    n = y.shape[0]
    x_filt, _, rows, P_filt, P_pred, frozen = filtered
    x, smooth_rows, P_smooth, lag = smooth_series(D, Q, x_filt, rows, P_filt, P_pred, frozen)
    S11, S00, S10 = state_moments(x[0], smooth_rows[0], P_smooth, lag)
    D, Q = maximise(S11, S00, S10, n)
    Q = raise_to_floor(Q, q_floor)
    if update_R != FIXED:
        R = noise_moment(y, R, x[0], smooth_rows[0], P_smooth) / n
        R = 0.5 * (R + R.T) if update_R == FULL else np.diag(np.diag(R))
        R = raise_to_floor(R, r_floor)
    if update_initial:
        m0, P0 = x[0, 0].copy(), P_smooth[smooth_rows[0, 0]].copy()
    return Parameters(D, Q, R, m0, P0)


def _em_sequence(
    model: Parameters,
    y: Matrix,  # (n, k), NaN where missing
    *,
    update_R: int,  # FIXED, DIAGONAL or FULL
    update_initial: bool,
    q_floor: Vector,  # (d,), Q − diag(q_floor) stays positive semi-definite
    r_floor: Vector,  # (k,), Σ − diag(r_floor) stays positive semi-definite unless Σ is fixed
) -> Iterator[tuple[Parameters, float, FilterPass]]:
    """Yield models of increasing log-likelihood, with their log-likelihoods and filter passes.

    The first one is `model` with Q and Σ raised to the floors. Each M-step is the exact maximiser above the floors, so
    the log-likelihood does not decrease. If it decreases by more than rounding error, or is not finite, the sequence
    ends before that model.
    """
    R = np.diag(np.diag(model.R)) if update_R == DIAGONAL else model.R
    R = R if update_R == FIXED else raise_to_floor(R, r_floor)
    model = model._replace(Q=raise_to_floor(model.Q, q_floor), R=R)
    ys = y[None]
    filtered = filter_series(*model, ys)
    loglik = float(filtered[1][0])
    yield model, loglik, filtered
    while np.isfinite(loglik):
        model = _em_iteration(model, y, filtered, update_R, update_initial, q_floor, r_floor)
        filtered = filter_series(*model, ys)
        before, loglik = loglik, float(filtered[1][0])
        if not loglik >= before - ROUNDING_DROP * y.shape[0]:
            return
        yield model, loglik, filtered


def em_windows(
    D: Stack,  # (B, d, d)
    Q: Stack,  # (B, d, d)
    R: Stack,  # Σ (B, k, k)
    m0: Matrix,  # (B, d)
    P0: Stack,  # (B, d, d)
    ys: Stack,  # (B, n, k), NaN where missing
    *,
    iterations: int,
    tolerance: float = 0.0,
    update_R: int = DIAGONAL,
    update_initial: bool = True,
    q_floor: Matrix | None = None,  # (B, d), by default 1e-9 of the diagonal of Q
    r_floor: Matrix | None = None,  # (B, k), by default 1e-9 of the mean square of each feature
) -> tuple[Stack, Stack, Stack, Matrix, Stack, Matrix, Matrix, Stack]:
    """Run EM on B windows, each with its own model, without changing the inputs.

    A window stops early when an iteration increases its log-likelihood by less than `tolerance` per round. Returns the
    new D, Q, R, m0 and P0, the log-likelihoods (B, iterations + 1) of the start and after each iteration, with NaN
    after the window has stopped, and the filtered mean (B, d) and covariance (B, d, d) at the end of each window under
    the final model.
    """
    B, n = ys.shape[:2]
    d = D.shape[1]
    if q_floor is None:
        q_floor = RELATIVE_FLOOR * np.diagonal(Q, axis1=1, axis2=2)
    if r_floor is None:
        counts = np.maximum((~np.isnan(ys)).sum(axis=1), 1)
        r_floor = RELATIVE_FLOOR * np.nansum(ys**2, axis=1) / counts
    trace = np.full((B, iterations + 1), np.nan)
    new = Parameters(*(np.empty(a.shape) for a in (D, Q, R, m0, P0)))  # with a leading axis B
    x_end, P_end = np.empty((B, d)), np.empty((B, d, d))
    for b in range(B):
        given = Parameters(D[b], Q[b], R[b], m0[b], P0[b])
        floors = {"q_floor": q_floor[b], "r_floor": r_floor[b]}
        sequence = _em_sequence(given, ys[b], update_R=update_R, update_initial=update_initial, **floors)
        for step, (model, loglik, filtered) in enumerate(sequence):
            for target, value in zip(new, model, strict=True):
                target[b] = value
            x_end[b], P_end[b] = filtered[0][0, n], filtered[3][filtered[2][0, n]]
            trace[b, step] = loglik
            if step == iterations or (step > 0 and loglik - trace[b, step - 1] < tolerance * n):
                break
    return (*new, trace, x_end, P_end)
