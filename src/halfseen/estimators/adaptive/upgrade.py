"""Arrays of version 0.2.0 of the agent `adaptive`, completed for this version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfseen.learners.calibrated import NO_LEAD

NEW_CANDIDATES = 2  # the candidate with a slow start and the level
_CANDIDATES = ("candidate_transition", "candidate_process_cov", "candidate_observation_var", "candidate_scale")


def upgrade_arrays(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays of a model (with `prefix` "") or of a state ("estimator."), with those that 0.2.0 did not have.

    The agent then continues as before: 0 is not the origin of contexts, no other origin has a vote, and there is no
    level among the candidates yet.
    """
    new = dict(arrays)
    first = f"{prefix}candidate_fitted"
    if "learner.through_zero" in new or "learner.fitted" not in new or first not in new:
        return new
    for name in _CANDIDATES:
        array = np.asarray(new[f"{prefix}{name}"])
        blank = np.full_like(array[..., :NEW_CANDIDATES, :], 1.0 if name == "candidate_scale" else 0.0)
        new[f"{prefix}{name}"] = np.concatenate([array, blank], axis=-2)
    fitted = np.asarray(new[first])
    new[first] = np.concatenate([fitted, np.zeros_like(fitted[..., :NEW_CANDIDATES])], axis=-1)
    no = np.zeros_like(np.asarray(new["learner.fitted"]))
    new[f"{prefix}uses_level"] = new["learner.through_zero"] = new["learner.has_other"] = no
    new["learner.other_shift"] = np.zeros_like(np.asarray(new[f"{prefix}centre"]))
    new["learner.other_noise_var"] = np.ones_like(np.asarray(new["learner.noise_var"]))
    new["learner.other_prior_cov"] = np.zeros_like(np.asarray(new["learner.prior_cov"]))
    new["learner.other_baseline"] = np.zeros_like(np.asarray(new["learner.baseline"]))
    new["learner.other_pooled_noise_var"] = np.ones_like(np.asarray(new["learner.pooled_noise_var"]))
    if "learner.mean" in new:  # a state, not a model
        for name in ("mean", "cov"):
            new[f"learner.fit_{name}"] = np.asarray(new[f"learner.{name}"])
            new[f"learner.other_{name}"] = np.zeros_like(np.asarray(new[f"learner.{name}"]))
        count = len(no)
        new["learner.lead"] = np.full(count, NO_LEAD)
        new["learner.wild_rewards"] = new[f"{prefix}wild_entries"] = np.zeros(count, dtype=np.int64)
    return new
