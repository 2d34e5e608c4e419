"""All that is measured of one model on one record, before anything is said about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfseen.diagnostics.calibration import Calibration, calibrate
from halfseen.diagnostics.dimension import dimension_scores, nearest
from halfseen.diagnostics.explained import Explained, explain, seen_only
from halfseen.diagnostics.held_out import LEAST_REWARDS, hold_out
from halfseen.diagnostics.innovations import (
    BiasTest,
    SizeTest,
    Stretches,
    WhitenessTest,
    bias_test,
    innovations,
    lags_for,
    size_test,
    stretches,
    whiteness_test,
)
from halfseen.diagnostics.observability import shares_told
from halfseen.diagnostics.record import Record
from halfseen.diagnostics.sensors import Worth, worths
from halfseen.diagnostics.starvation import ArmKnowledge, arm_knowledge
from halfseen.kernels.random import Floats
from halfseen.models.linear_gaussian import LinearGaussianModel

LEAST_NUMBERS = 40  # seen entries, below which nothing is said about innovations
POLISH, BRIEF_POLISH = 30, 8  # iterations of EM before models of other dimensions are compared
FEW_GAPS, ROUNDS_WITH_GAPS = 0.01, 1200  # share of rounds with a missing entry; rounds that are compared by if more
EITHER_SIDE = 2  # dimensions that are compared in brief
NUMBERS_A_PARAMETER = 10  # of a fit, below which its degrees of freedom are not to be relied on


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, the record to examine it by, and what is known about how it is used."""

    model: LinearGaussianModel
    record: Record
    fitted: bool = False  # the model was found from these observations, not known beforehand
    plain: bool = False  # decisions are made on y itself, and the model is the one that was not taken
    alternatives: tuple[LinearGaussianModel, ...] = ()  # of other dimensions, for the same observations
    retired: frozenset[int] = frozenset()  # arms that will not be played again


@dataclass(frozen=True, eq=False)
class Examined:
    """The measurements; None where the record does not allow one."""

    subject: Subject
    spectral_radius: float
    shares_told: Floats  # (d − k,) of each hidden direction's variance, by history
    size: SizeTest | None
    bias: BiasTest | None
    whiteness: WhitenessTest | None
    stretches: Stretches | None
    scores: dict[int, float]  # AICc by dimension, that of the model among them
    explained: Explained | None
    calibration: Calibration | None
    arms: ArmKnowledge | None
    worths: tuple[Worth, ...] | None  # None: not asked for, or no rewards to judge by


def measure(subject: Subject, *, thoroughly: bool) -> Examined:
    """Everything. Not thoroughly, in a fraction of a second: no sensor's worth, and only the nearest dimensions."""
    model, record = subject.model, subject.record
    ys, k, d = record.observations, model.observed, model.latent
    seen = innovations(model, ys)
    numbers = int((~np.isnan(ys)).sum())
    white = seen.standardised[~np.isnan(ys)]
    enough = numbers >= LEAST_NUMBERS and bool(np.isfinite(white).all() and white.any())
    taken = 2 * k * d if subject.fitted else 0
    settled = enough and numbers >= NUMBERS_A_PARAMETER * taken
    paid = record.payments()
    explained = calibration = arms = worth = None
    if len(paid.rewards) >= LEAST_REWARDS and np.ptp(paid.rewards) > 0.0:
        explained = explain(record, seen.contexts, seen.predicted)
        used = seen_only(ys) if subject.plain else seen.contexts
        played = record.played()
        fit = explained.held["seen" if subject.plain else "filtered context"].fit
        if len(played.rewards) < len(paid.rewards):
            fit = hold_out(record, used, played).fit
        if len(played.rewards) >= LEAST_REWARDS:
            calibration = calibrate(used, played, fit)
            arms = arm_knowledge(used, played, fit, subject.retired)
        if thoroughly:
            held = explained.held["filtered context"]
            worth = tuple(worths(record, model, held, seen.contexts, explained.nothing))
    return Examined(
        subject=subject,
        spectral_radius=model.spectral_radius,
        shares_told=shares_told(model, seen.end_cov, record.rounds),
        size=size_test(seen.standardised) if enough else None,
        bias=bias_test(seen.standardised, seen.by_sensor) if enough else None,
        whiteness=whiteness_test(seen.standardised, lags_for(model), taken) if settled else None,
        stretches=stretches(seen.standardised) if enough else None,
        scores=_scores(subject, thoroughly),
        explained=explained,
        calibration=calibration,
        arms=arms,
        worths=worth,
    )


def _scores(subject: Subject, thoroughly: bool) -> dict[int, float]:
    """Where entries are missing an iteration costs fifty times as much: fewer of them then, or none."""
    model, others, ys = subject.model, list(subject.alternatives), subject.record.observations
    gaps = subject.fitted and np.isnan(ys).any(axis=1).mean() > FEW_GAPS
    if not others or (gaps and not thoroughly):
        return {}
    if gaps or not thoroughly:
        others = nearest(model, others, EITHER_SIDE)
    if gaps:
        ys = ys[-ROUNDS_WITH_GAPS:]
    iterations = (POLISH if thoroughly and not gaps else BRIEF_POLISH) if subject.fitted else 0
    return dimension_scores(model, others, np.ascontiguousarray(ys), iterations)
