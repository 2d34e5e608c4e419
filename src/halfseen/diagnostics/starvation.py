"""Arms of which too little is known to tell whether they should be played (docs/mathematics.md, "Model health")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from halfseen.diagnostics.held_out import with_intercept
from halfseen.diagnostics.record import Payments
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import ArmFit

UNKNOWN = 0.25  # of the prior variance that is still there
CONTENDING = 0.05  # of the rounds in which it may have been the best
_WIDTH = 1.645  # 95 % one-sided


class ArmKnowledge(NamedTuple):
    """An entry an arm."""

    rewards: Ints  # how many
    unknown: Floats  # share of the prior variance of its predicted reward that is left, mean over rounds
    contending: Floats  # share of rounds in which the arm could, at 95 %, pay more than the best is expected to

    @property
    def starved(self) -> Ints:
        """Arms that are mostly unknown and might be worth playing."""
        return np.flatnonzero((self.unknown > UNKNOWN) & (self.contending > CONTENDING))


def arm_knowledge(contexts: Floats, paid: Payments, fit: ArmFit, retired: Iterable[int] = ()) -> ArmKnowledge:
    """How well every arm is known; one that is `retired` is no rival to the others."""
    features = with_intercept(contexts)
    before = np.einsum("ti,ij,tj->t", features, fit.prior, features, optimize=True)
    left = np.einsum("ti,aij,tj->ta", features, fit.cov, features, optimize=True)
    means = features @ fit.mean.T
    upper = means + _WIDTH * np.sqrt(np.maximum(left, 0.0))
    rivals = means.copy()
    rivals[:, list(retired)] = -np.inf
    best = rivals.max(axis=1, keepdims=True)
    own = rivals.argmax(axis=1)
    could = upper >= best
    could[np.arange(len(own)), own] = True
    counts = np.bincount(paid.arms, minlength=len(fit.noise))
    return ArmKnowledge(counts, left.sum(axis=0) / max(float(before.sum()), 1e-300), could.mean(axis=0))
