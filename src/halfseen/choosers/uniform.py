"""Play any available arm, each as likely as the others."""

from __future__ import annotations

import numpy as np

from halfseen.choosers.greedy import Greedy
from halfseen.components import Choices
from halfseen.kernels.random import Floats


class Uniform(Greedy):
    """Every arm is judged equal, and equals are drawn by lot."""

    def adjusted_means(self, choices: Choices) -> Floats:
        return np.zeros_like(choices.means)
