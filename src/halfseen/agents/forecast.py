"""Forecasts of contexts and arm values for the next rounds of one agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.agents.policy import Policy
from halfseen.components import Estimator, Learner, Link
from halfseen.diagnostics.context_units import ContextUnits, context_units
from halfseen.errors import InvalidInput
from halfseen.kernels.choice import NORMAL, win_probabilities
from halfseen.kernels.random import Floats, Purpose, normals
from halfseen.reports.files import save_figure
from halfseen.reports.frames import data_frame
from halfseen.validation import at_least, probability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_HORIZON = 1_000
# For a context with mean x̄ and covariance LLᵀ, the probability that an arm is the best is averaged over this many
# pairs of contexts x̄ ± Lz with z ~ N(0, I).
_PAIRS = 64
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)


@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """A forecast of the contexts and arm values of the next rounds, made by `Agent.forecast`.

    Index j − 1 of every array holds the forecast for j rounds ahead.

    Attributes
    ----------
    arms : tuple of int or str
        The arms, including retired arms.
    context_means : ndarray, shape (h, p)
        The expected context, in the coordinates of `Decision.context`.
    context_covs : ndarray, shape (h, p, p)
        The covariance of the context.
    expected : ndarray, shape (h, K)
        The expected reward of every arm.
    std : ndarray, shape (h, K)
        The standard deviation of the expected reward, due to the uncertainty of the context and of the arm parameters.
        It does not include the noise of a single reward.
    best_arm_probability : ndarray, shape (h, K)
        The probability that the arm has the highest expected reward of all active arms.
    context_names : tuple of str
        The coordinates of the context that `context_in_units` returns: the observed features, such as "feature 0", and
        the hidden ones, such as "hidden 1".

    Examples
    --------
    >>> import halfseen as hs
    >>> agent = hs.make("adaptive", observed=2, arms=["low", "high"], seed=1)
    >>> agent.forecast(12)
    <Forecast: 12 rounds ahead, 2 arms>
    """

    arms: tuple[Arm, ...]
    context_means: Floats
    context_covs: Floats
    expected: Floats
    std: Floats
    best_arm_probability: Floats
    _predicted: tuple[Floats, Floats]  # means and standard deviations (h, K) on the scale of `Learner.score`
    _link: Link | None
    _units: ContextUnits

    @property
    def context_names(self) -> tuple[str, ...]:
        """The names of the coordinates that `context_in_units` returns."""
        return self._units.names

    def context_named(self, features: Sequence[str]) -> list[str]:
        """Return `context_names` with its first names replaced by `features`, the names of the observed features."""
        return [*features, *self.context_names[len(features) :]]

    @property
    def horizon(self) -> int:
        """The number of rounds ahead."""
        return len(self.expected)

    def interval(self, confidence: float = 0.9) -> tuple[Floats, Floats]:
        """Return the bounds between which the expected reward of each arm lies with a given probability.

        Parameters
        ----------
        confidence : float, default 0.9
            The probability, between 0 and 1.

        Returns
        -------
        tuple of two ndarrays, shape (h, K)
            The lower and the upper bounds.
        """
        z = NormalDist().inv_cdf(0.5 + 0.5 * probability("confidence", confidence))
        means, stds = self._predicted
        lower, upper = means - z * stds, means + z * stds
        return (lower, upper) if self._link is None else (self._link.mean(lower), self._link.mean(upper))

    def context_interval(self, confidence: float = 0.9) -> tuple[Floats, Floats]:
        """Return the bounds between which each entry of the context lies with a given probability.

        Parameters
        ----------
        confidence : float, default 0.9
            The probability, between 0 and 1.

        Returns
        -------
        tuple of two ndarrays, shape (h, p)
            The lower and the upper bounds.
        """
        z = NormalDist().inv_cdf(0.5 + 0.5 * probability("confidence", confidence))
        stds = np.sqrt(np.maximum(np.diagonal(self.context_covs, axis1=1, axis2=2), 0.0))
        return self.context_means - z * stds, self.context_means + z * stds

    def context_in_units(self, confidence: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Return the context in the units of the observations. Hidden coordinates have no unit.

        Parameters
        ----------
        confidence : float, default 0.9
            The probability of the intervals, between 0 and 1.

        Returns
        -------
        tuple of three ndarrays, shape (h, m)
            The means, the lower and the upper bounds, with one column per name in `context_names`.

        Examples
        --------
        >>> import halfseen as hs
        >>> model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=[[1.0]], observation_cov=[0.5])
        >>> ahead = hs.make("kf-ts", observed=1, arms=2, model=model, seed=1).forecast(3)
        >>> ahead.context_names, ahead.context_in_units()[1].shape
        (('feature 0',), (3, 1))
        """
        z = NormalDist().inv_cdf(0.5 + 0.5 * probability("confidence", confidence))
        means, stds = self._units.standard(self.context_means, self.context_covs)
        means, half = self._units.centre + self._units.scale * means, z * self._units.scale * stds
        return means, means - half, means + half

    def to_frame(self, library: str | None = None) -> Any:
        """Return the forecast as a DataFrame with one row per round ahead and arm.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of these libraries that is installed.

        Returns
        -------
        DataFrame
            With the columns "rounds_ahead", "arm", "expected", "std", "lower" and "upper" (of the 90 % interval) and
            "best_arm_probability".
        """
        lower, upper = self.interval()
        columns = {
            "rounds_ahead": np.repeat(np.arange(1, self.horizon + 1), len(self.arms)),
            "arm": list(self.arms) * self.horizon,
        }
        numbers = {"expected": self.expected, "std": self.std, "lower": lower, "upper": upper}
        numbers["best_arm_probability"] = self.best_arm_probability
        return data_frame(columns | {name: array.ravel() for name, array in numbers.items()}, library)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot contexts and expected rewards with 90 % intervals, and the probability that each arm is the best.

        The context of `adaptive` is shown as a deviation from the mean of the observations, in standard deviations.

        Parameters
        ----------
        path : str or Path, optional
            File to which the figure is saved, as PNG or SVG.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        figure = self.figure()
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def figure(self, features: Sequence[str] = (), *, narrow: bool = False) -> Figure:
        """Return the figure of `plot` with names of the features. If `narrow`, its panels are stacked."""
        from halfseen.reports.figures import forecast_figure

        lower, upper = self.interval()
        arms = [str(arm) if isinstance(arm, str) else f"arm {arm}" for arm in self.arms]
        means, stds = self._units.standard(self.context_means, self.context_covs)
        half = NormalDist().inv_cdf(0.95) * stds
        return forecast_figure(
            (self.context_named(features), means, means - half, means + half),
            (arms, self.expected, lower, upper),
            self.best_arm_probability,
            narrow=narrow,
        )

    def __repr__(self) -> str:
        return f"<Forecast: {self.horizon} rounds ahead, {len(self.arms)} arms>"


def forecast(policy: Policy, name: str, arms: Sequence[Arm], horizon: int) -> Forecast:
    """Return the forecast of the only stream of a policy. Nothing is changed."""
    horizon = at_least("horizon", horizon, 1, MAX_HORIZON)
    estimator = policy.estimator
    if type(estimator).forecast is Estimator.forecast:
        raise InvalidInput(f"'{name}' has no linear-Gaussian model of the context, so it cannot forecast.")
    overflow = InvalidInput(f"'{name}' cannot forecast {horizon} rounds: its model is unstable, and numbers overflow.")
    with np.errstate(over="ignore", invalid="ignore"):
        means, covs = estimator.forecast(0, horizon)
        if not (np.isfinite(means).all() and np.isfinite(covs).all()):
            raise overflow
        roots = _roots(covs)
        predicted, variances = _values(policy.learner, means, roots)
    stds = np.sqrt(np.maximum(variances, 0.0))
    if not (np.isfinite(predicted).all() and np.isfinite(stds).all()):
        raise overflow
    link = policy.learner.link
    expected, std = (predicted, stds) if link is None else _on_reward_scale(link, predicted, stds)
    best = _best_arm_probabilities(policy, means, roots)
    units = context_units(estimator, 0, policy.streams.observed)
    return Forecast(tuple(arms), means, covs, expected, std, best, (predicted, stds), link, units)


def _roots(covs: Floats) -> Floats:
    """Return roots L (h, p, r) with LLᵀ = P for the covariances P (h, p, p)."""
    values, vectors = np.linalg.eigh(covs)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    used = np.abs(roots).max(axis=(0, 1), initial=0.0) > 0.0
    return np.ascontiguousarray(roots[:, :, used])


def _predict(learner: Learner, features: Floats) -> tuple[Floats, Floats]:
    """Return predictions and variances (..., K) for features (..., p) of the only stream."""
    flat = np.ascontiguousarray(features.reshape(-1, features.shape[-1]))
    means, variances = learner.predict(np.zeros(len(flat), dtype=np.int64), flat)
    shape = (*features.shape[:-1], learner.arms)
    return means.reshape(shape), variances.reshape(shape)


def _values(learner: Learner, means: Floats, roots: Floats) -> tuple[Floats, Floats]:
    """Return means and variances (h, K) of the values of all arms, for contexts with mean x̄ (h, p) and covariance LLᵀ.

    A prediction is linear in the context, and its variance is quadratic. So both follow exactly from the values at x̄
    and at x̄ ± l_i, where l_i are the columns of L.
    """
    centre, variance = _predict(learner, means)
    columns = roots.swapaxes(1, 2)
    above, above_variance = _predict(learner, means[:, None] + columns)
    below, below_variance = _predict(learner, means[:, None] - columns)
    of_context = (0.25 * (above - below) ** 2).sum(axis=1)
    of_arms = variance + 0.5 * (above_variance + below_variance - 2.0 * variance[:, None]).sum(axis=1)
    return centre, of_context + of_arms


def _on_reward_scale(link: Link, means: Floats, stds: Floats) -> tuple[Floats, Floats]:
    """Return the means and standard deviations (h, K) of `link.mean`(η) for normal η with these `means` and `stds`."""
    values = link.mean(means[..., None] + stds[..., None] * _NODES)
    weights = _WEIGHTS / _WEIGHTS.sum()
    expected = values @ weights
    return expected, np.sqrt(np.maximum(((values - expected[..., None]) ** 2) @ weights, 0.0))


def _best_arm_probabilities(policy: Policy, means: Floats, roots: Floats) -> Floats:
    """Return the probability (h, K) that each active arm is the best.

    Given the context, the arms are independent and the probability is exact. This probability is averaged over random
    contexts, which are computed from the same standard normal draws for every round ahead.
    """
    keys = np.repeat(policy.streams.keys, _PAIRS, axis=0)
    draws = normals(keys, np.arange(1, _PAIRS + 1), Purpose.FORECAST, max(roots.shape[2], 1))[:, : roots.shape[2]]
    draws = np.concatenate([draws, -draws])
    available = np.repeat(policy.active, len(draws), axis=0)
    result = np.empty((len(means), policy.learner.arms))
    for ahead, (mean, root) in enumerate(zip(means, roots, strict=True)):
        predicted, variances = _predict(policy.learner, mean + draws @ root.T)
        probabilities = np.empty_like(predicted)
        win_probabilities(predicted, variances, np.ones_like(predicted), NORMAL, available, probabilities)
        result[ahead] = probabilities.mean(axis=0)
    return result
