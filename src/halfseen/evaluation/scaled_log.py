"""The observations and rewards of a log as agents receive them: scaled, with an intercept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.evaluation.log import Log
from halfseen.kernels.random import Floats
from halfseen.worlds.preparation import LEAST_SCALING, SCALE_ON, Scaling, reward_unit, with_intercept


class ScaledLog(NamedTuple):
    """The observations and rewards of a log for agents that do not scale observations themselves.

    As in an experiment on a table, columns are scaled by their mean and standard deviation in the first fifth of the
    rows. The unit of rewards is the root mean square, in these rows, of the difference between a reward and the mean
    reward of its arm. Unlike in an experiment, the decisions of these rows are evaluated too, and a column that is
    constant or empty in them is scaled by all rows.
    """

    observations: Floats  # (n, k + 1), the last column is the intercept
    reward_unit: float
    scaling: Scaling

    @classmethod
    def of(cls, log: Log, reward_family: str = "gaussian") -> ScaledLog:
        """Scale a log. Rewards that are clicks or counts keep their unit."""
        rows = min(log.rounds, max(int(SCALE_ON * log.rounds), LEAST_SCALING))
        scaling = Scaling.of(log.observations[:rows]).completed_by(Scaling.of(log.observations))
        observations = with_intercept(scaling.apply(log.observations), log.observations.shape[1])
        unit = 1.0
        if reward_family == "gaussian":
            units = (reward_unit(_deviations(log, end)) for end in (rows, log.rounds))
            unit = next((one for one in units if one != 1.0), 1.0)
        return cls(observations, unit, scaling)

    def apply(self, observation: Floats) -> Floats:
        """Scale an observation (k,) that belongs to no decision of the log, and append the intercept."""
        return np.append(self.scaling.apply(observation), 1.0)


def _deviations(log: Log, rows: int) -> Floats:
    """Return the rewards of the first `rows` rounds minus the mean reward of their arm in these rounds."""
    rewarded = log.rewarded[:rows]
    rewards, played = log.rewards[:rows][rewarded], log.played[:rows][rewarded]
    count = np.bincount(played, minlength=len(log.arms))
    mean = np.bincount(played, rewards, minlength=len(log.arms)) / np.maximum(count, 1)
    return np.asarray((rewards - mean[played])[count[played] > 1])
