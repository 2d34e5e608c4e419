"""Uniformly random choice."""

from __future__ import annotations

import numpy as np

from halfseen.choosers.greedy import Greedy
from halfseen.components import Choices
from halfseen.kernels.random import Floats


class Uniform(Greedy):
    """Play an available arm uniformly at random."""

    def adjusted_means(self, choices: Choices) -> Floats:
        return np.zeros_like(choices.means)
