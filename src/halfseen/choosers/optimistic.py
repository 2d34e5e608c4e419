"""Optimistic Thompson sampling."""

from __future__ import annotations

from functools import cache
from typing import Annotated

import numpy as np

from halfseen.choosers.scored import Scored
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.kernels.choice import HALF_NORMAL, add_bonus
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Numbers, positive

MAX_GAP = 6.0  # the largest u in `break_even_table`, in standard deviations


class Optimistic(Scored):
    """Optimistic Thompson sampling with an upper confidence bonus.

    The arm with the highest score m_a + (bonus_a + width·|z_a|)·std_a is played, where z_a ~ N(0, 1). Scores are drawn
    as in Thompson sampling, but never below their means: a worse arm should not be played merely because the draw of a
    better arm is low. May et al. use max(0, z_a), which is 0 in half of the draws. With |z_a|, every score is
    drawn above its mean. The bonus is as in LinUCB. If all arms are equally uncertain, the bonus does not change their
    order, whereas random draws do. With `foresight`, the bonus of an arm is larger if one reward of the arm could
    improve many later decisions (see `kernels.choice.break_even`).

    Parameters
    ----------
    width : float
        Width of the random part of the score, in standard deviations.
    bonus : float
        Smallest bonus of an arm, in standard deviations.
    foresight : float
        Number of future rounds to consider, as a fraction of the number of rounds so far. With 0, the bonus of every
        arm is `bonus`.

    References
    ----------
    May, Korda, Lee & Leslie (2012). Optimistic Bayesian sampling in contextual-bandit problems. JMLR 13.
    """

    distribution = HALF_NORMAL

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        width: Annotated[float, Numbers(0.0, 1e100)] = 0.85,
        bonus: Annotated[float, Numbers(0.0, 1e100)] = 0.0,
        foresight: Annotated[float, Numbers(0.0, 1e100)] = 0.0,
    ) -> None:
        self._width = positive("width", width, zero_allowed=True)
        self._bonus = positive("bonus", bonus, zero_allowed=True)
        self._foresight = positive("foresight", foresight, zero_allowed=True)
        self.weighs_noise = self.weighs_reuse = self._foresight > 0.0

    def adjusted_means(self, choices: Choices) -> Floats:
        if not self.weighs_reuse:
            return choices.means + self._bonus * np.sqrt(choices.variances) if self._bonus else choices.means
        assert choices.noise_variances is not None
        assert choices.reuse is not None
        scores = np.empty_like(choices.means)
        add_bonus(
            choices.means,
            choices.variances,
            choices.noise_variances,
            choices.reuse,
            choices.decisions,
            self._foresight,
            self._bonus,
            *break_even_table(),
            scores,
        )
        return scores

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        return self.constant_widths(self._width, rows, learner)


@cache
def break_even_table() -> tuple[Floats, Floats]:
    """Return arrays of log n and of the u that solve n·E(Z − u)⁺ = u for Z ~ N(0, 1).

    Both arrays increase, so interpolation gives u for any n.
    """
    from scipy.special import ndtr

    u = np.geomspace(1e-3, MAX_GAP, 600)
    gain = np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi) - u * ndtr(-u)
    return np.log(u / gain), u
