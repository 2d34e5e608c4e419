"""Conversion of arrays that older versions of the agent `adaptive` have saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from halfseen.estimators.adaptive.candidate_models import SLOW_STEPS
from halfseen.learners.calibrated import NO_LEAD
from halfseen.models.identification.order import candidate_dimensions


def upgrade_arrays(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return `arrays`, extended by what version 0.2.0 did not save.

    `prefix` is "" for the arrays of a model and "estimator." for the arrays of a state. The agent then continues as in
    version 0.2.0: 0 is not the origin of contexts, the arms are fitted under one origin only, and the level has not
    been fitted.
    """
    new = dict(arrays)
    if f"{prefix}regime_start" in new and f"{prefix}gap_rounds" not in new:  # no gaps before version 0.3.0
        new[f"{prefix}gap_rounds"] = np.zeros_like(np.asarray(new[f"{prefix}regime_start"]))
        if f"{prefix}arms" in new:  # a state, not a model
            new[f"{prefix}gaps"] = np.zeros(np.shape(new[f"{prefix}arms"]), dtype=np.int8)
    first = f"{prefix}candidate_fitted"
    if "learner.through_zero" in new or "learner.fitted" not in new or first not in new:
        return new
    fitted, k = np.asarray(new[first]), np.asarray(new[f"{prefix}centre"]).shape[-1]
    largest = math.isqrt(np.asarray(new[f"{prefix}candidate_transition"]).shape[-1])
    told = fitted.shape[-1] == 2  # the dimension of the context was given
    dimensions = (largest, largest) if told else (*candidate_dimensions(k), k)
    added = (largest if told else k + SLOW_STEPS[0], k)  # the candidate with a slow start and the level
    if max(added) > largest:  # not from 0.2.0; such arrays are refused later, so they are not enlarged here
        return new
    for name in ("candidate_transition", "candidate_process_cov"):
        array = np.asarray(new[f"{prefix}{name}"])
        parts = [array[..., i, : d * d] for i, d in enumerate(dimensions)]
        blank = np.zeros((*array.shape[:-2], sum(d * d for d in added)))
        new[f"{prefix}{name}"] = np.concatenate([*parts, blank], axis=-1)
    for name, value in (("candidate_observation_var", 0.0), ("candidate_scale", 1.0)):
        array = np.asarray(new[f"{prefix}{name}"])
        new[f"{prefix}{name}"] = np.concatenate([array, np.full_like(array[..., :2, :], value)], axis=-2)
    new[first] = np.concatenate([fitted, np.zeros_like(fitted[..., :2])], axis=-1)
    no = np.zeros_like(np.asarray(new["learner.fitted"]))
    for name in (f"{prefix}uses_level", f"{prefix}is_robust", "learner.through_zero", "learner.has_other"):
        new[name] = no
    new["learner.other_shift"] = np.zeros_like(np.asarray(new[f"{prefix}centre"]))
    new["learner.other_noise_var"] = np.ones_like(np.asarray(new["learner.noise_var"]))
    new["learner.other_prior_cov"] = np.zeros_like(np.asarray(new["learner.prior_cov"]))
    new["learner.other_baseline"] = np.zeros_like(np.asarray(new["learner.baseline"]))
    new["learner.other_pooled_noise_var"] = np.ones_like(np.asarray(new["learner.pooled_noise_var"]))
    if "learner.mean" in new:  # a state, not a model
        mean, cov = (np.asarray(new[f"learner.{name}"]) for name in ("mean", "cov"))
        new["learner.fit_mean"], new["learner.fit_var"] = mean, np.zeros_like(mean)
        for row, d in enumerate(np.asarray(new["learner.latent_dims"]).tolist()):
            p, arms = d + 1, np.asarray(new["learner.noise_var"]).shape[-1]
            covs = cov[row, : arms * p * p].reshape(arms, p, p)
            new["learner.fit_var"][row, : arms * p] = np.einsum("aii->ai", covs).ravel()
        new["learner.other_mean"], new["learner.other_cov"] = np.zeros_like(mean), np.zeros_like(cov)
        count = len(no)
        new["learner.lead"] = np.full(count, NO_LEAD)
        new["learner.wild_rewards"] = new[f"{prefix}wild_entries"] = np.zeros(count, dtype=np.int64)
    return new
