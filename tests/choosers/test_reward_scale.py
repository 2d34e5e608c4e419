"""Choices by scores on the scale of rewards."""

import numpy as np
import pytest
from scipy.special import ndtr

from halfseen.choosers import reward_scale
from halfseen.kernels.choice import HALF_NORMAL, NORMAL, POINT
from halfseen.learners import links

LINKS = {family: link for family, link in links.LINKS.items() if link is not None}


def arms(seed, count=5):
    rng = np.random.default_rng(seed)
    means, spreads = rng.normal(size=(1, count)), 10.0 ** rng.uniform(-2, 0.3, size=(1, count))
    return means, spreads, 0.2 * rng.uniform(size=(1, count)), np.ones((1, count), dtype=bool)


@pytest.mark.parametrize("family", LINKS)
@pytest.mark.parametrize("distribution", [POINT, NORMAL, HALF_NORMAL])
@pytest.mark.parametrize("seed", range(4))
def test_probabilities_are_the_frequencies_of_choices(family, distribution, seed):
    """Compare with 200,000 choices, at 5 standard errors. One arm has no spread and one is not available."""
    count, (means, spreads, penalties, available) = 200_000, arms(seed)
    spreads[0, seed % 4], available[0, 4] = 0.0, seed % 2 == 0
    shares = reward_scale.probabilities(LINKS[family], means, spreads, distribution, penalties, available)[0]
    noise = np.random.default_rng(seed + 100).normal(size=(count, 5))
    rows = [np.repeat(one, count, axis=0) for one in (means, spreads, penalties, available)]
    chosen = reward_scale.pick(LINKS[family], *rows[:2], distribution, noise, *rows[2:])
    frequencies = np.bincount(chosen, minlength=5) / count
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.abs(frequencies - shares) <= 5.0 * np.sqrt(shares * (1 - shares) / count) + 1e-7).all()


@pytest.mark.parametrize("family", LINKS)
@pytest.mark.parametrize("seed", range(6))
def test_two_arms_against_a_dense_sum(family, seed):
    """P(arm 0 wins) by a sum over two million draws on a regular grid."""
    link, grid = LINKS[family], np.linspace(-9.0, 9.0, 2_000_001)
    means, spreads, penalties, available = arms(seed, 2)
    scores = link.mean(means[0, 0] + spreads[0, 0] * grid) - penalties[0, 0]
    below = ndtr((link.inverse(scores + penalties[0, 1]) - means[0, 1]) / spreads[0, 1])
    expected = np.sum(np.exp(-0.5 * grid**2) * below) * (grid[1] - grid[0]) / np.sqrt(2 * np.pi)
    found = reward_scale.probabilities(link, means, spreads, NORMAL, penalties, available)[0, 0]
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("family", LINKS)
@pytest.mark.parametrize("distribution", [POINT, NORMAL, HALF_NORMAL])
def test_extreme_predictors(family, distribution):
    for means in ([800.0, -800.0, 0.0], [800.0, 800.0, 800.0], [-800.0] * 3, [1e300, -1e300, 0.0]):
        for spread in (0.0, 1e-300, 1.0, 1e3):
            given = np.array([means]), np.full((1, 3), spread)
            penalties, available = np.array([[0.1, 0.0, 1e200]]), np.ones((1, 3), dtype=bool)
            shares = reward_scale.probabilities(LINKS[family], *given, distribution, penalties, available)
            assert np.isfinite(shares).all()
            assert shares.sum() == pytest.approx(1.0, abs=1e-9)
