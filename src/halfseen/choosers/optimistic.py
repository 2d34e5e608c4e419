"""Optimistic Thompson sampling: play the highest m_a + (bonus_a + width·|z_a|)·std_a, z_a ~ N(0, 1).

After May, Korda, Lee & Leslie (2012): draw scores as Thompson does, but never below their means, because playing a
worse arm for the low draw of a better one explores nothing. They take max(0, z_a). Half of those draws are 0; |z_a|
never is, so every arm explores in every round. With a `bonus` the arms are judged at the upper end of an interval, as
LinUCB does: where all arms are equally unknown it leaves the best mean in front, while a draw shuffles them.

With `foresight` an arm has a larger bonus where one try would settle much for long (`break_even`).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from halfseen.choosers.scored import Scored
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.kernels.choice import HALF_NORMAL
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import positive

FARTHEST = 6.0  # standard deviations that a gap is looked for up to


class Optimistic(Scored):
    """`foresight` is how many rounds ahead count, as a share of those behind; 0 looks no further than this round."""

    distribution = HALF_NORMAL

    def __init__(
        self, streams: StreamBatch, dimension: int, *, width: float = 0.85, bonus: float = 0.0, foresight: float = 0.0
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
        rounds = self._foresight * choices.rounds[:, None] * choices.reuse
        bonus = np.maximum(self._bonus, break_even(choices.variances, choices.noise_variances, rounds))
        return np.asarray(choices.means + bonus * np.sqrt(choices.variances))

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        return self.constant_widths(self._width, rows, learner)


@cache
def _break_even_table() -> tuple[Floats, Floats]:
    """log n and u with n·E(Z − u)⁺ = u, Z standard normal: monotone, so the inverse is one interpolation."""
    from scipy.special import ndtr

    u = np.geomspace(1e-3, FARTHEST, 600)
    gain = np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi) - u * ndtr(-u)
    return np.log(u / gain), u


def break_even(variances: Floats, noise_variances: Floats, rounds: Floats) -> Floats:
    """The gap, in standard deviations of an arm's mean, at which one try of it costs what it is expected to gain.

    One reward moves the mean by q·std·Z, q² = var/(var + noise). If it then overtakes the best arm, the difference is
    gained in each of `rounds` rounds: rounds·q·std·E(Z − gap/(q·std))⁺ against gap (docs/mathematics.md, "The
    choosers").
    """
    logs, u = _break_even_table()
    with np.errstate(divide="ignore"):
        best = np.interp(np.log(rounds), logs, u)
    return np.asarray(np.sqrt(variances / np.maximum(variances + noise_variances, 1e-300)) * best)
