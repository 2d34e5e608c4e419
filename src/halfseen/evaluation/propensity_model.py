"""Propensities estimated from a log that has none (docs/mathematics.md, "Off-policy evaluation")."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import optimize, special

from halfseen.components import Mask
from halfseen.evaluation.log import Log
from halfseen.evaluation.reward_model import standardised, time_blocks
from halfseen.kernels.random import Floats, Ints

PROPENSITY_FLOOR = 0.01  # smaller estimates of the propensity of an arm that was played count as this
_PENALTY = 1.0  # of the squared coefficients


def with_estimated_propensities(log: Log) -> tuple[Log, str]:
    """Return the log with estimated propensities where none were logged, and one sentence about them.

    Arms with an estimate below the floor count as not covered: their propensity is 0 unless they were played.
    """
    unknown = np.isnan(log.propensity)
    number, played = int(unknown.sum()), log.played[unknown]
    everywhere = np.arange(number)
    estimated = estimated_propensities(log.observations[unknown], played, log.possible[unknown])
    of_played = estimated[everywhere, played]
    covered = np.where(estimated >= PROPENSITY_FLOOR, estimated, 0.0)
    covered[everywhere, played] = np.maximum(of_played, PROPENSITY_FLOOR)
    propensity = log.propensity.copy()
    propensity[unknown] = covered[everywhere, played]
    propensities = np.zeros((log.rounds, len(log.arms))) if number == log.rounds else log.propensities
    if propensities is not None:
        propensities = propensities.copy()
        propensities[unknown] = covered / covered.sum(axis=1, keepdims=True)
    whose = "" if number == log.rounds else f" of {number:,} of {log.rounds:,} decisions"
    note = (
        f"propensities{whose} were estimated by a logistic regression on the observed columns, so estimates hold only "
        "if nothing else influenced the choice of arms, and intervals do not include the error of the regression"
    )
    if (raised := float((of_played < PROPENSITY_FLOOR).mean())) > 0.0:
        note += f"; {100 * raised:.2g} % of the arms played had an estimate below {PROPENSITY_FLOOR:g}, which was used"
    return replace(log, propensity=propensity, propensities=propensities, estimated=True), note


def estimated_propensities(observations: Floats, played: Ints, possible: Mask) -> Floats:
    """Estimate the probability (n, K) of every arm that was possible, by cross-fitting.

    Rounds are divided into the blocks of time of the reward model. Each block is predicted by a multinomial logistic
    regression on (1, standardised y) in the other blocks, with a penalty on the squared coefficients.
    """
    features = standardised(observations)
    n, arms = possible.shape
    everywhere = np.arange(n)
    start = _fit(features, played, possible, everywhere, np.zeros((arms, features.shape[1])))
    estimated = np.empty((n, arms))
    for rows in time_blocks(n) or [everywhere]:
        others = np.setdiff1d(everywhere, rows, assume_unique=True)
        coefficients = _fit(features, played, possible, others, start)
        estimated[rows] = np.exp(_log_probabilities(features[rows], possible[rows], coefficients))
    return estimated


def _fit(features: Floats, played: Ints, possible: Mask, rows: Ints, start: Floats) -> Floats:
    """Return the coefficients (K, k + 1) with the largest penalised likelihood. The optimum is unique."""
    features, possible = features[rows], possible[rows]
    chosen = np.eye(possible.shape[1])[played[rows]]

    def loss(flat: Floats) -> tuple[float, Floats]:
        coefficients = flat.reshape(start.shape)
        logs = _log_probabilities(features, possible, coefficients)
        gradient = (np.exp(logs) - chosen).T @ features + _PENALTY * coefficients
        fit = -logs[chosen > 0].sum() + 0.5 * _PENALTY * (coefficients**2).sum()
        return float(fit), gradient.ravel()

    found = optimize.minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(found.x).reshape(start.shape)


def _log_probabilities(features: Floats, possible: Mask, coefficients: Floats) -> Floats:
    return np.asarray(special.log_softmax(np.where(possible, features @ coefficients.T, -np.inf), axis=1))
