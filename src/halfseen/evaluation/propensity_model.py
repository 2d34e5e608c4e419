"""Propensities estimated from a log that has none (docs/mathematics.md, "Off-policy evaluation")."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import optimize, special

from halfseen.components import Mask
from halfseen.evaluation.log import Log
from halfseen.evaluation.reward_model import BLOCKS, standardised, time_blocks
from halfseen.kernels.random import Floats, Ints
from halfseen.statistics.distributions import chi2_sf

PROPENSITY_FLOOR = 0.01  # a smaller estimated propensity of the arm played is replaced by this
_PENALTY = 1.0  # ridge penalty on the coefficients
_LEAST_BLOCK, _LEAST_EXPECTED = 20, 5.0  # least decisions in a block, and expected plays of an arm in it, for the test
_CHANCE = 0.001  # with a smaller p-value, the choice of arms counts as changed


def with_estimated_propensities(log: Log) -> tuple[Log, str]:
    """Return the log with estimated propensities where none were logged, and one sentence about them.

    An estimate below PROPENSITY_FLOOR is replaced by 0, or by PROPENSITY_FLOOR if the arm was played.
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
    unstable = changed_shares(log, unknown)
    return replace(log, propensity=propensity, propensities=propensities, estimated=True, unstable=unstable), note


def changed_shares(log: Log, rows: Mask) -> str | None:
    """Return a sentence if the shares of arms changed over time and the observed columns do not explain it, or None.

    Pearson's chi-square test compares how often arms were played in each block of time with the propensities of a
    regression on all `rows` (n,). Arms whose expected number of plays is small in some block are tested as one arm.
    """
    played, possible = log.played[rows], log.possible[rows]
    blocks = time_blocks(len(played), min(BLOCKS, len(played) // _LEAST_BLOCK))
    if not blocks:
        return None
    features = standardised(log.observations[rows])
    coefficients = _fit(
        features, played, possible, np.arange(len(played)), np.zeros((len(log.arms), features.shape[1]))
    )
    probabilities = np.exp(_log_probabilities(features, possible, coefficients))
    expected = np.array([probabilities[block].sum(axis=0) for block in blocks])  # (blocks, K)
    found = np.array([np.bincount(played[block], minlength=len(log.arms)) for block in blocks])
    common = expected.min(axis=0) >= _LEAST_EXPECTED
    cells = [np.column_stack([one[:, common], one[:, ~common].sum(axis=1)]) for one in (found, expected)]
    tested = np.append(np.ones(common.sum(), dtype=np.bool_), cells[1][:, -1].min() >= _LEAST_EXPECTED)
    statistic = (((cells[0] - cells[1]) ** 2)[:, tested] / cells[1][:, tested]).sum()
    freedom = (len(blocks) - 1) * (tested.sum() - 1)
    if freedom == 0 or chi2_sf(statistic, freedom) >= _CHANCE:
        return None
    deviations = np.where(common, np.abs(found - expected) / np.sqrt(np.maximum(expected, 1.0)), 0.0)
    block, arm = np.unravel_index(int(np.argmax(deviations)), deviations.shape)
    size, at = len(blocks[block]), np.flatnonzero(rows)[blocks[block]]
    return (
        "estimated propensities do not hold, because the choice of arms changed over time and the observed columns do "
        f"not explain it: in decisions {at[0] + 1:,} to {at[-1] + 1:,}, '{log.names[arm]}' was played in "
        f"{100 * found[block, arm] / size:.0f} % and expected in {100 * expected[block, arm] / size:.0f} %"
    )


def estimated_propensities(observations: Floats, played: Ints, possible: Mask) -> Floats:
    """Estimate the probability (n, K) of every arm that was possible, by cross-fitting.

    Rounds are divided into the same blocks of time as for the reward model. Each block is predicted by a multinomial
    logistic regression on (1, standardised y) in the other blocks, with a penalty on the squared coefficients.
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
