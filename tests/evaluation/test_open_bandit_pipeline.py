"""All estimators compared with those of Open Bandit Pipeline. reference/open_bandit_pipeline.py printed its numbers."""

from __future__ import annotations

import numpy as np
import pytest
from reference.open_bandit_pipeline import ROUNDS, THRESHOLDS, small_log

import halfseen as hs
from halfseen.evaluation import estimators

EXPECTED = {
    "dr": 0.406887807605,
    "snips": 0.224928443942,
    "ips": 0.183367630231,
    "dm": -0.046289210738,
    "switch_dr": -0.072370645415,
    "clipped_dr": 0.031403748335,
    "mrdr": 0.365669877599,
}


@pytest.fixture(scope="module")
def found():
    log, rows = small_log(), np.arange(ROUNDS)
    table = {
        "observation": log.y,
        "arm": log.arms,
        "propensity": log.propensities[rows, log.arms],
        "propensities": log.propensities.tolist(),
        "reward": log.rewards,
    }
    policy = dict(zip(map(bytes, log.y), log.policy, strict=True))
    table["observation"] = log.y.tolist()
    return hs.evaluate(table, lambda y: policy[bytes(y)]).policies["<lambda>"]


@pytest.mark.parametrize("name", EXPECTED)
def test_estimates_are_those_of_open_bandit_pipeline(found, name):
    assert found.values[name].value == pytest.approx(EXPECTED[name], abs=1e-9)


def test_thresholds_are_those_of_open_bandit_pipeline(found):
    assert found.thresholds == {"switch_dr": 2.0, "clipped_dr": 32.0}
    assert list(estimators.THRESHOLDS) == THRESHOLDS


def test_every_estimator_is_compared(found):
    assert set(EXPECTED) == set(found.values) == set(found.differences) == set(estimators.ESTIMATORS)
