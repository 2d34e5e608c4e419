"""Full EM for D, Q and Σ of one series (Shumway & Stoffer 1982; docs/mathematics.md, "Full EM").

`fit` is the public function, with checks and notes; `em_iterates` is the bare loop for identification on the way.
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

FIXED, DIAGONAL, FULL = 0, 1, 2  # what becomes of Σ
FELL = 1e-8  # a fall of the log-likelihood per round beyond this is more than rounding
RELATIVE_FLOOR = 1e-9

Passed: TypeAlias = tuple[Stack, Vector, Index, Stack, Stack, int]  # what filter_series returns

NOISE_FLOOR = 1e-6  # Σ is kept above this share of each feature's variance
STABLE = 1.0 + 1e-6
PROCESS_FLOOR, SENSOR_FLOOR = 1e-9, 1e-5  # of `em_iterates`, relative to the variances of the features


@dataclass(frozen=True, eq=False)
class FitResult:
    """A fitted model. log_likelihoods: of the start, then after each iteration.

    converged: the last iteration gained less than the tolerance. notes: a sentence for each thing that is
    wrong with the fit or the data, none when all is well.
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
    """The model with `latent` dimensions that EM finds for ys (rounds, features), nan = not seen.

    ys may be a DataFrame of pandas or polars, whose columns are taken in order.

    latent="auto" fits models of several dimensions, from the number of features up, and returns the fit with the best
    AICc (docs/mathematics.md, "How many hidden coordinates"); it takes no `start`.

    observation_cov: "diagonal" or "full" to estimate Σ so, or a covariance to hold it at. start: where to
    begin, whose observation matrix is kept; left out, D = 0.9 × a random orthogonal matrix drawn from `seed`,
    Q = 0.2 v and Σ = 0.1 v with v the variance of each feature. Stops after max_iterations, or when an
    iteration gains less than `tolerance` of log-likelihood per round. progress(iteration, log_likelihood) is
    called after each iteration. The model returned is never less likely than the start. Only (D, Q) up to a
    change of the hidden coordinates is identified, so compare models by likelihood or prediction, not by D.
    """
    y = _series(ys)
    k, entries = y.shape[1], int(np.isfinite(y).sum())
    automatic = isinstance(latent, str) and latent == "auto"
    if not automatic and (isinstance(latent, bool) or not isinstance(latent, int | np.integer) or latent < k):
        raise invalid("latent", f"an integer of at least {k}, the number of features, or 'auto'", repr(latent))
    if automatic and start is not None:
        raise invalid("start", "nothing with latent='auto', which tries several dimensions", "a model")
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
    """The fit of one dimension."""
    n, k = y.shape
    scale, notes = _scales(y)
    entries, parameters = int(np.isfinite(y).sum()), free_parameters(latent, k)
    if entries < 2 * parameters:
        notes.append(f"{entries} numbers for a model of {parameters} parameters: too few to trust the fit.")
    if start is None:
        start = _first_guess(scale, latent, seed)
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
        start = replace(start, observation_cov=observation_cov)  # type: ignore[arg-type]  # as given to the model

    # Powers of two: exact to undo.
    units: Array = np.asarray(2.0 ** np.round(np.log2(_coordinate_scales(scale, latent))))
    scaled = _in_units(start.canonical().model.arrays(), units)
    q_floor = RELATIVE_FLOOR * np.maximum(np.diag(scaled.Q), RELATIVE_FLOOR)
    r_floor = NOISE_FLOOR * (scale / units[:k]) ** 2
    path = _em_path(scaled, y / units[:k], update_R=update_R, update_initial=True, q_floor=q_floor, r_floor=r_floor)
    jacobian = float(np.log(units[:k]) @ np.isfinite(y).sum(axis=0))
    trace: list[float] = []
    converged = False
    for step, (model, scaled_loglik, _) in enumerate(path):
        best, loglik = _in_units(model, 1.0 / units), scaled_loglik - jacobian
        trace.append(loglik)
        if step > 0 and progress is not None:
            progress(step, loglik)
        converged = step > 0 and loglik - trace[-2] < tolerance * n
        if converged or step == max_iterations:
            break
    fitted = _original(best, start)
    start_loglik = start.filter(y).log_likelihood
    if not trace[-1] >= start_loglik:
        fitted, trace, converged = start, [start_loglik], False
        notes.append("No iteration improved on the start, which is returned as it was.")
    notes += _faults(fitted, trace, update_R, q_floor * units**2, r_floor * units[:k] ** 2)
    return FitResult(fitted, np.array(trace), len(trace) - 1, converged, tuple(notes))


class FittedModel(NamedTuple):
    """A canonical model with its filter pass over the observations."""

    model: Parameters
    log_likelihood: float
    filtered: Passed


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
    """The start, then the model after each iteration of EM on y (n, k), whose features have variances `feature_var`.

    Ends after `iterations`, when an iteration gains less than `tolerance` of log-likelihood per round, or where the
    numbers break down, which may be before the first model.
    """
    variances = np.ones(y.shape[1]) if feature_var is None else feature_var
    q_floor = np.full(len(start.D), PROCESS_FLOOR * float(np.nanmean(variances)))
    r_floor = SENSOR_FLOOR * np.nan_to_num(variances)
    update_R = FIXED if fixed_noise else DIAGONAL
    path = _em_path(start, y, update_R=update_R, update_initial=update_initial, q_floor=q_floor, r_floor=r_floor)
    previous = -np.inf
    try:
        for step, (model, log_likelihood, filtered) in enumerate(path):
            if not (np.isfinite(log_likelihood) and np.isfinite(filtered[0]).all()):
                return
            yield FittedModel(model, log_likelihood, filtered)
            if step == iterations or log_likelihood - previous < tolerance * len(y):
                return
            previous = log_likelihood
    except np.linalg.LinAlgError:
        return


def _coordinate_scales(scale: Array, latent: int) -> Array:
    """The scale of each coordinate: that of its feature, or for hidden ones the geometric mean."""
    scales = np.full(latent, np.exp(np.log(scale).mean()))
    scales[: len(scale)] = scale
    return scales


def _in_units(model: Parameters, units: Array) -> Parameters:
    """The same canonical model for contexts divided by `units`."""
    squares, k = np.outer(units, units), len(model.R)
    D = model.D / units[:, None] * units
    return Parameters(D, model.Q / squares, model.R / squares[:k, :k], model.m0 / units, model.P0 / squares)


def _series(ys: ArrayLike) -> Array:
    y = real_numbers("ys", ys)
    if y.ndim != 2 or y.shape[1] == 0:
        raise invalid("ys", "(rounds, features)", f"shape {y.shape}")
    if y.shape[0] < 2:
        raise invalid("ys", "at least 2", f"{y.shape[0]} round(s)")
    bad = np.argwhere(np.isinf(y))
    if len(bad):
        raise invalid("ys", "finite numbers, or nan for not seen", f"{y[tuple(bad[0])]} at {bad[0].tolist()}")
    if np.isnan(y).all():
        raise invalid("ys", "at least some entries seen", "nothing but nan")
    largest = np.nanmax(np.abs(y))
    if largest > LIMIT or 0 < largest < 1 / LIMIT:
        raise invalid("ys", f"sizes between {1 / LIMIT:g} and {LIMIT:g}", f"numbers of size {largest:.3g}")
    return y


def _scales(y: Array) -> tuple[Array, list[str]]:
    """A standard deviation for each feature, and a note for each feature that has none.

    A constant feature is given its size as its scale (1 when it is 0), one never seen the scale 1.
    """
    scale = np.ones(y.shape[1])
    constant, unseen = [], []
    for i, column in enumerate(y.T):
        seen = column[~np.isnan(column)]
        if not len(seen):
            unseen.append(i)
        elif np.ptp(seen) <= 1e-12 * np.abs(seen).max():
            constant.append(i)
            scale[i] = np.abs(seen).max() or 1.0
        else:
            scale[i] = seen.std()
    notes = []
    if constant:
        notes.append(f"Constant feature(s) {_listed(constant)}: they carry no information on the dynamics.")
    if unseen:
        notes.append(f"Feature(s) {_listed(unseen)} never seen: their part of the model is a guess.")
    return scale, notes


def _listed(indices: list[int]) -> str:
    return ", ".join(map(str, indices))


def _first_guess(scale: Array, latent: int, seed: int) -> LinearGaussianModel:
    """The start of docs/mathematics.md, in units of each feature's own scale (hidden: the mean).

    So the fit of rescaled data is the rescaled fit. D must couple seen and hidden coordinates: a diagonal one
    would leave the hidden ones at 0 for ever.
    """
    orthogonal = orthogonal_matrices(stream_keys(seed), Purpose.INITIAL_MODEL, latent)[0]
    units = _coordinate_scales(scale, latent)
    return LinearGaussianModel(
        transition=0.9 * orthogonal * np.outer(units, 1.0 / units),
        process_cov=0.2 * units**2,
        observation_cov=0.1 * scale**2,
        initial_cov=units**2,
    )


def _original(parameters: Parameters, start: LinearGaussianModel) -> LinearGaussianModel:
    """The fitted canonical model in the coordinates of the start."""
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


def _faults(model: LinearGaussianModel, trace: list[float], update_R: int, q_floor: Array, r_floor: Array) -> list[str]:
    """What is wrong with a fit, a sentence each."""
    notes = []
    fitted = model.canonical().model
    if not np.isfinite(trace[-1]):
        notes.append("The log-likelihood is not finite: the model does not fit these numbers at all.")
    if model.spectral_radius > STABLE:
        notes.append(f"The fit is unstable: spectral radius {model.spectral_radius:.6f}, above 1.")
    if update_R != FIXED:
        low = [i for i, value in enumerate(np.diag(fitted.observation_cov)) if value <= 1.01 * r_floor[i]]
        if low:
            share = f"{NOISE_FLOOR:g} of the variance"
            notes.append(f"The observation noise of feature(s) {_listed(low)} fell to its floor, {share}.")
    if np.linalg.eigvalsh(fitted.process_cov / np.sqrt(np.outer(q_floor, q_floor)))[0] <= 1.01:
        notes.append("The process noise fell to its floor in some direction: try a smaller latent.")
    return notes


# ---------------------------------------------------------------------- iterations


def _better(
    model: Parameters,
    y: Matrix,
    passed: Passed,
    update_R: int,
    update_initial: bool,
    q_floor: Vector,
    r_floor: Vector,
) -> Parameters:
    """One iteration: smooth what the filter passed on, take moments, maximise."""
    D, Q, R, m0, P0 = model
    n = y.shape[0]
    x_filt, _, rows, P_filt, P_pred, frozen = passed
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


def _em_path(
    model: Parameters,
    y: Matrix,  # (n, k), NaN = not seen
    *,
    update_R: int,  # FIXED, DIAGONAL or FULL
    update_initial: bool,
    q_floor: Vector,  # (d,): Q − diag(q_floor) stays positive semi-definite
    r_floor: Vector,  # (k,): so does Σ − diag(r_floor), unless Σ is fixed
) -> Iterator[tuple[Parameters, float, Passed]]:
    """Models of rising log-likelihood, the given one (lifted to the floors) first; each with its filter pass.

    The floors hold from the start and are met by the exact maximiser under those constraints, so the
    log-likelihood does not fall. Should it do so all the same, beyond rounding, or stop being finite, the
    path ends before.
    """
    R = np.diag(np.diag(model.R)) if update_R == DIAGONAL else model.R
    R = R if update_R == FIXED else raise_to_floor(R, r_floor)
    model = model._replace(Q=raise_to_floor(model.Q, q_floor), R=R)
    ys = y[None]
    passed = filter_series(*model, ys)
    loglik = float(passed[1][0])
    yield model, loglik, passed
    while np.isfinite(loglik):
        model = _better(model, y, passed, update_R, update_initial, q_floor, r_floor)
        passed = filter_series(*model, ys)
        before, loglik = loglik, float(passed[1][0])
        if not loglik >= before - FELL * y.shape[0]:
            return
        yield model, loglik, passed


def em_windows(
    D: Stack,  # (B, d, d)
    Q: Stack,  # (B, d, d)
    R: Stack,  # Σ (B, k, k)
    m0: Matrix,  # (B, d)
    P0: Stack,  # (B, d, d)
    ys: Stack,  # (B, n, k), NaN = not seen
    *,
    iterations: int,
    tolerance: float = 0.0,
    update_R: int = DIAGONAL,
    update_initial: bool = True,
    q_floor: Matrix | None = None,  # (B, d); None: 1e-9 of the diagonal of Q
    r_floor: Matrix | None = None,  # (B, k); None: 1e-9 of the mean square of what was seen
) -> tuple[Stack, Stack, Stack, Matrix, Stack, Matrix, Matrix, Stack]:
    """Full EM on B windows, each under its own model, as in `_em_path`. Inputs are left alone; returns

    D, Q, R, m0, P0 as improved; the log-likelihoods (B, iterations+1) before each iteration and after the
    last, NaN once stopped; and the filtered mean (B, d) and covariance (B, d, d) at the end of each window
    under the final model. A window stops early when an iteration gains less log-likelihood than `tolerance`
    per round.
    """
    B, n = ys.shape[:2]
    d = D.shape[1]
    if q_floor is None:
        q_floor = RELATIVE_FLOOR * np.diagonal(Q, axis1=1, axis2=2)
    if r_floor is None:
        seen = np.maximum((~np.isnan(ys)).sum(axis=1), 1)
        r_floor = RELATIVE_FLOOR * np.nansum(ys**2, axis=1) / seen
    trace = np.full((B, iterations + 1), np.nan)
    new = Parameters(*(np.empty(a.shape) for a in (D, Q, R, m0, P0)))  # with a leading axis B
    x_end, P_end = np.empty((B, d)), np.empty((B, d, d))
    for b in range(B):
        given = Parameters(D[b], Q[b], R[b], m0[b], P0[b])
        floors = {"q_floor": q_floor[b], "r_floor": r_floor[b]}
        path = _em_path(given, ys[b], update_R=update_R, update_initial=update_initial, **floors)
        for step, (model, loglik, passed) in enumerate(path):
            for target, value in zip(new, model, strict=True):
                target[b] = value
            x_end[b], P_end[b] = passed[0][0, n], passed[3][passed[2][0, n]]
            trace[b, step] = loglik
            if step == iterations or (step > 0 and loglik - trace[b, step - 1] < tolerance * n):
                break
    return (*new, trace, x_end, P_end)
