"""Maximum-likelihood fit of a linear-Gaussian model to one series of observations.

`fit` is the public function. It checks its input, maximises with EM and then with L-BFGS, and reports problems. The
mathematics is in docs/mathematics.md, "Maximum likelihood".
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from halfseen.errors import HalfseenWarning, invalid
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.random import Purpose, orthogonal_matrices, stream_keys
from halfseen.models.identification.em import DIAGONAL, FIXED, FULL, RELATIVE_FLOOR, em_sequence
from halfseen.models.identification.lbfgs import Freedom, lbfgs_round
from halfseen.models.identification.order import aicc, candidate_dimensions, free_parameters, search_dimension
from halfseen.models.identification.subspace import subspace_start
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.models.results import Array
from halfseen.validation import LIMIT, at_least, real_numbers

MAX_ITERATIONS = 2000  # the default limit of the number of iterations
EM_ITERATIONS = 30  # iterations of EM before the first round of L-BFGS
ROUND_ITERATIONS = 100  # the Hessian that scales L-BFGS is computed again after this many iterations
RECENT_ITERATIONS = 50  # the gain in this many last iterations predicts whether a start may still overtake another
ROUND_SHARE = 0.1  # a round of L-BFGS ends when it gains less than this share of the tolerance in ten iterations
NOISE_FLOOR = 1e-6  # the least value of Σ_ii, as a share of the variance of feature i
MAX_STABLE_RADIUS = 1.0 + 1e-6


@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of `fit`.

    Attributes
    ----------
    model : LinearGaussianModel
        The fitted model.
    log_likelihoods : ndarray, shape (iterations + 1,)
        The log-likelihood of the start, and the log-likelihood after each iteration. They never decrease.
    iterations : int
        The number of iterations.
    converged : bool
        Whether the last round of iterations increased the log-likelihood by less than the tolerance.
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
    max_iterations: int | None = None,
    tolerance: float = 1e-5,
    progress: Callable[[int, float], None] | None = None,
) -> FitResult:
    """Fit a linear-Gaussian model to a series of observations by maximum likelihood.

    Parameters
    ----------
    ys : array_like, shape (rounds, features)
        The observations. The columns of a pandas or polars DataFrame are taken in order. NaN, None and
        masked entries are missing.
    latent : int or "auto"
        The dimension d of the context, at least the number of features. "auto" fits models of increasing dimension and
        returns the one with the best AICc.
    observation_cov : "diagonal", "full" or array_like, optional
        How to estimate Σ, or a covariance at which Σ is held fixed. A full Σ is fitted after a diagonal Σ, and the
        likelihood with the full Σ is never lower.
    start : LinearGaussianModel, optional
        The model to start from. The fitted model has the same observation matrix. A start is not allowed with
        latent="auto". By default, the fit begins from up to three starts and continues the most likely one. In the
        first start, D is 0.9 times a random orthogonal matrix, Q = 0.2 v and Σ = 0.1 v, where v is the variance of each
        feature. The second start is a slow and noisy model with Q = 0.02 v and Σ = 0.7 v. The third is the result of
        subspace identification.
    seed : int, optional
        The seed of the random orthogonal matrix.
    max_iterations : int, optional
        The largest number of iterations. For a full Σ, this limit holds for each of the two fits. By default it is
        2000, and the result has a note if the fit has not converged by then.
    tolerance : float, optional
        Stop when a round of up to 100 iterations increases the log-likelihood by less than this number per observation.
    progress : callable, optional
        Called as progress(iteration, log_likelihood) after each iteration. With several starts, the first calls come
        when the start that is continued has been selected.

    Returns
    -------
    FitResult
        The model, the log-likelihoods of the iterations, whether they converged, and notes about problems. The model is
        never less likely than the start.

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
    The first iterations, up to 30, are EM [1]_. Then rounds of L-BFGS [2]_ on D, factors of Q, Σ and P_0, and m_0
    alternate with single iterations of EM. Each evaluation takes one pass of the filter and one backward pass for the
    gradient. By Fisher's identity [3]_ the gradient of the log-likelihood l equals the gradient of the expected
    log-likelihood of EM at the current parameters,

        ∂l/∂D = Q⁻¹(S10 − D S00),  ∂l/∂Q = ½ Q⁻¹(S11 − D S10ᵀ − S10 Dᵀ + D S00 Dᵀ − nQ) Q⁻¹

    with the smoothed moments S11 = Σ_{t=1..n} E[x_t x_tᵀ], S00 = Σ_{t=0..n−1} E[x_t x_tᵀ] and S10 = Σ_{t=1..n} E[x_t
    x_{t−1}ᵀ], and similarly for Σ, m_0 and P_0. The gradient is computed in a form without Q⁻¹ and Σ⁻¹ [4]_, because Q
    and Σ are often almost singular at the maximum. The lower bound of Q is 1e-9 times the diagonal of the start's Q,
    and the lower bound of Σ is 1e-6 times the variances of the features. P_0 has no lower bound: given D, Q and Σ, the
    likelihood is highest at P_0 = 0 and the best m_0, so P_0 becomes small.

    The likelihood may have several maxima. The observations determine D and Q only up to a change of the hidden
    coordinates. Compare models by likelihood or prediction, not by D.

    AICc = log-likelihood − pN/(N − p − 1), where p = 2kd + k(k + 1)/2 is the number of free parameters and N the number
    of observed entries.

    References
    ----------
    .. [1] Shumway and Stoffer, "An approach to time series smoothing and forecasting using the EM algorithm",
       Journal of Time Series Analysis 3, 1982.
    .. [2] Byrd, Lu, Nocedal and Zhu, "A Limited Memory Algorithm for Bound Constrained Optimization", SIAM Journal on
       Scientific Computing 16, 1995.
    .. [3] Louis, "Finding the Observed Information Matrix when Using the EM Algorithm", Journal of the Royal
       Statistical Society B 44, 1982.
    .. [4] Koopman and Shephard, "Exact Score for Time Series Models in State Space Form", Biometrika 79, 1992.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen as hs
    >>> rng, x, ys = np.random.default_rng(1), np.zeros(2), []
    >>> for _ in range(300):
    ...     x = np.array([[0.9, 0.3], [-0.3, 0.9]]) @ x + 0.3 * rng.normal(size=2)
    ...     ys.append(x[:1] + 0.5 * rng.normal(size=1))
    >>> result = hs.fit(ys, latent=2)
    >>> result.model.latent, result.model.observed
    (2, 1)
    >>> result.converged
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
    seed = at_least("seed", seed, 0)
    if max_iterations is not None:
        max_iterations = at_least("max_iterations", max_iterations, 1)
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
    max_iterations: int | None,
    tolerance: float,
    progress: Callable[[int, float], None] | None,
) -> FitResult:
    k, limit = y.shape[1], MAX_ITERATIONS if max_iterations is None else max_iterations
    scale, notes = _scales(y)
    entries, parameters = int(np.isfinite(y).sum()), free_parameters(latent, k)
    if entries < 2 * parameters:
        notes.append(f"The model has {parameters} parameters, and {entries} observed numbers are too few to fit them.")
    if start is None:
        starts = _default_starts(y, scale, latent, seed)
        start = starts[0]
    elif not isinstance(start, LinearGaussianModel):
        raise invalid("start", "a LinearGaussianModel", type(start).__name__)
    elif (start.latent, start.observed) != (latent, k):
        raise invalid("start", f"a model with latent={latent}, observed={k}", f"{start!r}")
    else:
        starts = [start]
    if isinstance(observation_cov, str):
        if observation_cov not in ("diagonal", "full"):
            raise invalid("observation_cov", "'diagonal', 'full' or a covariance", repr(observation_cov))
        update_R = DIAGONAL if observation_cov == "diagonal" else FULL
    else:
        update_R = FIXED
        starts = [replace(one, observation_cov=observation_cov) for one in starts]  # type: ignore[arg-type]
        start = starts[0]

    # Powers of two, because scaling by them is exact.
    units: Array = np.asarray(2.0 ** np.round(np.log2(_coordinate_scales(scale, latent))))
    scaled = [_in_units(one.canonical().model.arrays(), units) for one in starts]
    q_floor = RELATIVE_FLOOR * np.maximum(np.diag(scaled[0].Q), RELATIVE_FLOOR)
    r_floor = NOISE_FLOOR * (scale / units[:k]) ** 2
    jacobian = float(np.log(units[:k]) @ np.isfinite(y).sum(axis=0))

    def report(iteration: int, log_likelihood: float) -> None:
        if progress is not None:
            progress(iteration, log_likelihood - jacobian)

    scaled_y = np.ascontiguousarray(y / units[:k])
    ascent = _maximise(scaled, scaled_y, Freedom(update_R, True, q_floor, r_floor), limit, tolerance, report)
    fitted = _in_original_coordinates(_in_units(ascent.model, 1.0 / units), start)
    trace, converged = [value - jacobian for value in ascent.trace], ascent.converged
    start_loglik = start.filter(y).log_likelihood
    if not trace[-1] >= start_loglik:
        fitted, trace, converged = start, [start_loglik], False
        notes.append("No iteration improved the start, which is returned unchanged.")
    elif max_iterations is None and not converged:
        notes.append(f"The fit has not converged after {len(trace) - 1} iterations.")
    notes += _problems(fitted, trace, update_R, r_floor * units[:k] ** 2)
    return FitResult(fitted, np.array(trace), len(trace) - 1, converged, tuple(notes))


Report = Callable[[int, float], None]  # called with the number of an iteration and its log-likelihood


def _silent(iteration: int, log_likelihood: float) -> None:
    pass


def _maximise(
    starts: list[Parameters], y: Array, freedom: Freedom, limit: int, tolerance: float, report: Report
) -> _Ascent:
    """Return the finished ascent from the best of the starts.

    The fit of a full Σ starts from the maximum with a diagonal Σ, so that the result is never less likely than this
    maximum. A start whose own Σ is not diagonal competes with the start from this maximum.
    """
    if freedom.update_noise != FULL:
        return _best([_Ascent(start, y, freedom, tolerance) for start in starts], limit, report)
    correlated = [start for start in starts if np.count_nonzero(start.R - np.diag(np.diag(start.R)))]
    diagonal = _maximise(
        starts, y, freedom._replace(update_noise=DIAGONAL), limit, tolerance, _silent if correlated else report
    )
    ascents = [_Ascent(diagonal.model, y, freedom, tolerance, diagonal.trace)]
    ascents += [_Ascent(start, y, freedom, tolerance) for start in correlated]
    return _best(ascents, diagonal.iterations + limit, report)


def _best(ascents: list[_Ascent], limit: int, report: Report) -> _Ascent:
    """Run the ascents in turn until one of them leads, continue it to its end and return it.

    The promise of an ascent is its log-likelihood plus its gain in the last RECENT_ITERATIONS iterations, or only its
    log-likelihood if it has ended. An ascent leads if its log-likelihood is at least the promise of every other ascent.
    Only the leading ascent is reported. Its earlier iterations are reported when it takes the lead.
    """
    if len(ascents) > 1:
        for ascent in ascents:
            ascent.run(min(ascent.iterations + EM_ITERATIONS + ROUND_ITERATIONS, limit))
        while True:
            leader, *others = sorted(ascents, key=lambda ascent: ascent.promise(limit), reverse=True)
            if leader.trace[-1] >= others[0].promise(limit) or not np.isfinite(leader.trace[-1]):
                break
            leader.run(min(leader.iterations + ROUND_ITERATIONS, limit))
        for iteration, log_likelihood in enumerate(leader.trace[1:], start=1):
            report(iteration, log_likelihood)
    else:
        leader = ascents[0]
    leader.run(limit, report)
    return leader


class _Ascent:
    """A sequence of models of increasing log-likelihood, by EM and then by rounds of L-BFGS.

    Up to EM_ITERATIONS iterations of EM come before the first round of L-BFGS, and a single one before every later
    round. If a round of L-BFGS finds no better model, up to EM_ITERATIONS iterations of EM come before the next one.
    """

    def __init__(
        self, start: Parameters, y: Array, freedom: Freedom, tolerance: float, trace: list[float] | None = None
    ) -> None:
        self.model, self.converged = start, False
        self.trace = [] if trace is None else list(trace)  # the log-likelihoods of the start and after each iteration
        self._y, self._freedom, self._tolerance = y, freedom, tolerance
        self._em_iterations = EM_ITERATIONS  # iterations of EM before the next round of L-BFGS

    @property
    def iterations(self) -> int:
        return max(len(self.trace) - 1, 0)

    def promise(self, limit: int) -> float:
        """Return the promise of this ascent (see `_best`), which is −inf if its log-likelihood is not finite."""
        if not np.isfinite(self.trace[-1]):
            return -np.inf
        if self.converged or self.iterations >= limit:
            return self.trace[-1]
        return 2.0 * self.trace[-1] - self.trace[-min(len(self.trace), RECENT_ITERATIONS + 1)]

    def run(self, limit: int, report: Report = _silent) -> None:
        """Continue until a round gains less than the tolerance, or until there are `limit` iterations."""
        while not self.converged and self.iterations < limit:
            begun = self.iterations
            self._run_em(limit, report)
            if not np.isfinite(self.trace[-1]) or self.iterations >= limit:
                return
            after_em, was_stuck = self.iterations, self._em_iterations == EM_ITERATIONS
            self._run_lbfgs(limit, report)
            stuck = self.iterations == after_em
            self._em_iterations = EM_ITERATIONS if stuck else 1
            gained_little = self.trace[-1] - self.trace[begun] <= self._tolerance * len(self._y)
            self.converged = gained_little and (was_stuck or not stuck) and self.iterations < limit

    def _run_em(self, limit: int, report: Report) -> None:
        update_noise, update_initial, q_floor, r_floor = self._freedom
        sequence = em_sequence(
            self.model,
            self._y,
            update_R=update_noise,
            update_initial=update_initial,
            q_floor=q_floor,
            r_floor=r_floor,
        )
        for step, (model, log_likelihood, _) in enumerate(sequence):
            if step == 0 and self.trace:
                continue
            gain = log_likelihood - self.trace[-1] if self.trace else np.inf
            if gain < 0.0:
                return
            self.model = model
            self.trace.append(log_likelihood)
            if step > 0:
                report(self.iterations, log_likelihood)
            if step >= self._em_iterations or self.iterations >= limit or gain <= self._tolerance * len(self._y):
                return

    def _run_lbfgs(self, limit: int, report: Report) -> None:
        def on_iterate(log_likelihood: float) -> None:
            self.trace.append(max(log_likelihood, self.trace[-1]))  # rounding errors may make it lower than that of EM
            report(self.iterations, self.trace[-1])

        with contextlib.suppress(np.linalg.LinAlgError):
            self.model = lbfgs_round(
                self.model,
                self._y,
                self._freedom,
                iterations=min(ROUND_ITERATIONS, limit - self.iterations),
                tolerance=ROUND_SHARE * self._tolerance,
                on_iterate=on_iterate,
            )


def _coordinate_scales(scale: Array, latent: int) -> Array:
    """Return the scale of each coordinate. For a hidden one, it is the geometric mean of the scales of the features."""
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


def _default_starts(y: Array, scale: Array, latent: int, seed: int) -> list[LinearGaussianModel]:
    """Return the default starts: a random model, a slow and noisy model, and the result of subspace identification.

    The starts are proportional to the scales of the features, so rescaling the data only rescales the fit. D is not
    diagonal, because EM leaves hidden coordinates at 0 when D does not couple them with observed ones.
    """
    units = _coordinate_scales(scale, latent)
    identity, k = np.eye(latent), len(scale)
    orthogonal = orthogonal_matrices(stream_keys(seed), Purpose.INITIAL_MODEL, latent)[0]

    def start(D: Array, process_var: float, noise_var: float) -> Parameters:
        return Parameters(D, process_var * identity, noise_var * np.eye(k), np.zeros(latent), identity)

    starts = [start(0.9 * orthogonal, 0.2, 0.1), start(0.95 * identity + 0.05 * orthogonal, 0.02, 0.7)]
    regression = subspace_start(y / scale, latent)
    if regression is not None:
        starts.append(regression)
    models = []
    for one in starts:
        D, Q, R, m0, P0 = _in_units(one, 1.0 / units)
        models.append(
            LinearGaussianModel(transition=D, process_cov=Q, observation_cov=R, initial_mean=m0, initial_cov=P0)
        )
    return models


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


def _problems(model: LinearGaussianModel, trace: list[float], update_R: int, r_floor: Array) -> list[str]:
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
    return notes
