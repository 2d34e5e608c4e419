"""Calibration of expected clicks and counts (docs/mathematics.md, "Reward families")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfseen.components import Learner
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.kernels.random import Ints
from halfseen.learners.calibrated_family import CalibratedFamily
from halfseen.learners.generalised_linear import GeneralisedLinear
from halfseen.statistics.distributions import normal_quantile

ENOUGH_REWARDS = 100  # arms with fewer rewards are not judged
LEVEL = 0.001  # probability of a false alarm, for all arms together
# Rewards of neighbouring rounds depend on the same hidden context, so the variance of their sum is larger than for
# independent rewards. It is assumed to be larger by this factor.
DEPENDENCE = 4.0
RELEVANT = 0.25  # smaller relative differences between expected and observed rewards do not matter


def family_calibration(
    learner: Learner, rows: Ints, names: Sequence[int | str]
) -> tuple[dict[str, object], tuple[Finding, ...]]:
    """Compare the rewards of the streams `rows` with what their learner expected, per arm.

    The expectation of a reward is the one from before it was learnt. The sum of the differences is divided by its
    standard error. The variance of a click is p(1 − p), and the variance of a count is that of a Poisson variable with
    an uncertain mean. Returns facts and findings. Both are empty if the learner has no model of clicks or counts.
    """
    if (
        not isinstance(learner, GeneralisedLinear | CalibratedFamily)
        or learner.reward_range.family == "gaussian"
        or not len(rows)
    ):
        return {}, ()
    counts, sums = learner.checked_rewards(rows)
    checked = np.maximum(counts, 1)
    predicted, observed = sums[:, 0] / checked, sums[:, 1] / checked
    facts: dict[str, object] = {
        "reward family": learner.reward_range.family,
        "mean expected reward of each arm": predicted.tolist(),
        "mean reward of each arm": observed.tolist(),
    }
    judged = np.flatnonzero((counts >= ENOUGH_REWARDS) & (sums[:, 2] > 0.0))
    if not len(judged):
        return facts, ()
    z = (sums[judged, 1] - sums[judged, 0]) / np.sqrt(DEPENDENCE * sums[judged, 2])
    relative = np.abs(observed[judged] - predicted[judged]) / np.maximum(predicted[judged], 1e-300)
    limit = -float(normal_quantile(0.5 * LEVEL / len(judged)))
    worst = int(np.argmax(np.where(relative > RELEVANT, np.abs(z), 0.0)))
    if not relative[worst] > RELEVANT:
        worst = int(np.argmax(np.abs(z)))
    bad = bool(relative[worst] > RELEVANT and abs(z[worst]) > limit)
    arm = judged[worst]
    shown = f"{predicted[arm]:.3g} expected, {observed[arm]:.3g} observed"
    name = repr(names[arm]) if isinstance(names[arm], str) else str(names[arm])
    sentence = (
        f"the rewards of arm {name} are {'higher' if z[worst] > 0 else 'lower'} than expected, by more than chance"
        if bad
        else f"expected and observed rewards agree; arm {name} differs most"
    )
    expected = f"within {limit:.1f} standard errors"
    verdict = Verdict.BAD if bad else Verdict.FINE
    return facts, (Finding("calibration of arms", float(z[worst]), shown, expected, verdict, sentence),)
