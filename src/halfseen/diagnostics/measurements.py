"""Computes all numbers of an examination, from which the findings are derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halfseen.diagnostics.calibration import ArmUncertainty, Calibration, arm_uncertainty, measure_calibration
from halfseen.diagnostics.data_quality import (
    RewardKind,
    TailTest,
    TrendTest,
    UnchangingRun,
    changing_entries,
    reward_kind,
    sensor_tail_test,
    tail_test,
    trend_test,
    unchanging_runs,
    varying_arms,
)
from halfseen.diagnostics.examination_data import ExaminationSubject
from halfseen.diagnostics.explained_rewards import (
    LEAST_REWARDS,
    ExplainedRewards,
    SensorValue,
    cross_validate,
    explain_rewards,
    fill_with_means,
    sensor_values,
)
from halfseen.diagnostics.innovations import (
    BiasTest,
    NisByBlock,
    NisTest,
    WhitenessTest,
    bias_test,
    innovations,
    nis_by_block,
    nis_test,
    whiteness_lags,
    whiteness_test,
)
from halfseen.diagnostics.observability import hidden_variance_explained
from halfseen.kernels.random import Floats
from halfseen.models.identification.em import em_iterates
from halfseen.models.identification.order import aicc
from halfseen.models.linear_gaussian import LinearGaussianModel

LEAST_ENTRIES = 40  # innovations are tested if there are at least this many observed entries
ENTRIES_PER_PARAMETER = 10  # with fewer entries per fitted parameter, innovations are not tested for autocorrelation
ITERATIONS, BRIEF_ITERATIONS = 30, 8  # EM iterations before models of different dimensions are compared
TOLERANCE = 1e-4  # EM stops when an iteration gains less log-likelihood per round than this
FEW_GAPS = 0.01  # models are compared on all rounds if at most this share of them has a missing entry
COMPARED_ROUNDS_WITH_GAPS = 1200  # otherwise, models are compared on this many of the last rounds
NEIGHBOURS = 2  # dimensions compared on either side of the model's, if the examination is brief or entries are missing


@dataclass(frozen=True, eq=False)
class Measurements:
    """The numbers of an examination. A field is None if the data are not sufficient for it."""

    subject: ExaminationSubject
    unchanging: tuple[UnchangingRun, ...]  # their entries are left out of all tests of the innovations
    trends: tuple[TrendTest, ...]  # one per sensor that can be tested
    sensor_tails: dict[int, TailTest]  # by sensor
    spectral_radius: float
    hidden_variance_explained: Floats  # (d − k,) share of each hidden direction's variance that the history explains
    nis: NisTest | None
    bias: BiasTest | None
    whiteness: WhitenessTest | None
    nis_by_block: NisByBlock | None
    scores: dict[int, float]  # AICc by dimension, including the dimension of the model
    reward_count: int
    reward_kind: RewardKind | None  # None without rewards, or if every arm always has the same reward
    reward_tails: TailTest | None  # of the prediction errors of rewards, None if the rewards are not continuous
    explained: ExplainedRewards | None
    calibration: Calibration | None
    arms: ArmUncertainty | None
    sensor_values: tuple[SensorValue, ...] | None  # None in a brief examination, or without rewards


def measure(subject: ExaminationSubject, *, brief: bool = False) -> Measurements:
    """Compute all measurements. A `brief` examination is fast: it omits `sensor_values` and most alternative models."""
    model, data = subject.model, subject.data
    ys = data.observations
    unchanging = unchanging_runs(ys)
    changing = changing_entries(ys, unchanging)
    errors = innovations(model, data.series, changing)
    white = errors.standardised[~np.isnan(changing)]
    entries = len(white)
    enough = entries >= LEAST_ENTRIES and bool(np.isfinite(white).all() and white.any())
    fitted_parameters = 2 * model.observed * model.latent if subject.fitted else 0
    reliable = enough and entries >= ENTRIES_PER_PARAMETER * fitted_parameters
    observed = data.observed_rewards()
    explained = calibration = arms = sensors = reward_tails = None
    varying = observed.rewards[varying_arms(observed)]
    kind = reward_kind(varying) if len(varying) else None
    if len(observed.rewards) >= LEAST_REWARDS and np.ptp(observed.rewards) > 0.0:
        explained = explain_rewards(data, errors.contexts, errors.predicted)
        used = fill_with_means(ys) if subject.plain else errors.contexts
        fit = explained.predictions["seen" if subject.plain else "filtered context"].fit
        played = data.rewards_of_played()
        if len(played.rewards) < len(observed.rewards):
            fit = cross_validate(data, used, played).fit
        if len(played.rewards) >= LEAST_REWARDS:
            calibration = measure_calibration(used, played, fit)
            arms = arm_uncertainty(used, played, fit, subject.retired)
            if kind is not None and kind.name == "continuous":
                reward_tails = tail_test(calibration.standardised[varying_arms(played)])
        if not brief:
            sensors = sensor_values(data, model, errors.contexts, explained)
    return Measurements(
        subject=subject,
        unchanging=unchanging,
        trends=tuple(trend for i in range(model.observed) if (trend := trend_test(changing, i)) is not None),
        sensor_tails={
            i: tails
            for i in range(model.observed)
            if (tails := sensor_tail_test(errors.by_sensor[:, i], changing[:, i])) is not None
        },
        spectral_radius=model.spectral_radius,
        hidden_variance_explained=hidden_variance_explained(model, errors.end_cov, data.rounds),
        nis=nis_test(errors.standardised) if enough else None,
        bias=bias_test(errors.standardised, errors.by_sensor) if enough else None,
        whiteness=whiteness_test(errors.standardised, whiteness_lags(model), fitted_parameters) if reliable else None,
        nis_by_block=nis_by_block(errors.standardised) if enough else None,
        scores=_scores(subject, brief),
        reward_count=len(observed.rewards),
        reward_kind=kind,
        reward_tails=reward_tails,
        explained=explained,
        calibration=calibration,
        arms=arms,
        sensor_values=sensors,
    )


def _scores(subject: ExaminationSubject, brief: bool) -> dict[int, float]:
    """Return AICc by dimension, in ascending order, for the model and the best alternative of every other dimension.

    Fitted models were fitted at different times, so each is first improved by EM. With missing entries an iteration
    takes fifty times as long. Then there are fewer iterations, alternatives and rounds, and a brief examination
    compares no models at all.
    """
    model, others, ys = subject.model, subject.alternatives, subject.data.observations
    gaps = subject.fitted and np.isnan(ys).any(axis=1).mean() > FEW_GAPS
    if not others or (gaps and brief):
        return {}
    if gaps or brief:
        others = _nearest(model, others)
    if gaps:
        ys = ys[-COMPARED_ROUNDS_WITH_GAPS:]
    iterations = (BRIEF_ITERATIONS if gaps or brief else ITERATIONS) if subject.fitted else 0
    entries, variances = int((~np.isnan(ys)).sum()), np.nanvar(ys, axis=0)
    ys = np.ascontiguousarray(subject.data.series[-len(ys) :])
    scores: dict[int, float] = {}
    for one in (model, *(other for other in others if other.latent != model.latent)):
        score = aicc(_log_likelihood(one, ys, variances, iterations), one.latent, one.observed, entries)
        if np.isfinite(score):
            scores[one.latent] = max(score, scores.get(one.latent, -np.inf))
    return dict(sorted(scores.items())) if model.latent in scores else {}


def _nearest(model: LinearGaussianModel, others: Sequence[LinearGaussianModel]) -> tuple[LinearGaussianModel, ...]:
    """Return the alternatives of the dimensions closest to the model's dimension, below and above."""
    below = sorted({other.latent for other in others if other.latent < model.latent})[-NEIGHBOURS:]
    above = sorted({other.latent for other in others if other.latent > model.latent})[:NEIGHBOURS]
    return tuple(other for other in others if other.latent in {*below, *above})


def _log_likelihood(model: LinearGaussianModel, ys: Floats, variances: Floats, iterations: int) -> float:
    """Return the highest log-likelihood of the EM iterates or, without iterations, of the given model."""
    if iterations == 0:
        return float(model.filter(ys).log_likelihood)
    start = model.canonical().model.arrays()
    path = em_iterates(start, ys, iterations=iterations, tolerance=TOLERANCE, feature_var=variances)
    return max((fitted.log_likelihood for fitted in path), default=-np.inf)
