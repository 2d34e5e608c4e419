"""The choice of an arm and its probability against adaptive quadrature and Monte Carlo."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from halfseen.kernels.choice import HALF_NORMAL, NORMAL, POINT, draw_arm, pick, win_probabilities


def probabilities(means, stds, distribution=NORMAL, available=None, width=1.0):
    means, stds = np.array([means], dtype=float), np.array([stds], dtype=float)
    mask = np.ones(means.shape, dtype=bool) if available is None else np.array([available])
    result = np.empty(means.shape)
    win_probabilities(means, stds**2, np.full(means.shape, width), distribution, mask, result)
    return result[0]


def by_adaptive_quadrature(means, stds, arm, distribution=stats.norm):
    others = [b for b in range(len(means)) if b != arm]

    def integrand(x):
        return distribution.pdf(x, means[arm], stds[arm]) * np.prod(distribution.cdf(x, means[others], stds[others]))

    edges = np.unique(np.concatenate([means[:, None] + stds[:, None] * np.linspace(-9, 9, 13)]))
    return sum(integrate.quad(integrand, a, b, epsabs=1e-13, epsrel=1e-11)[0] for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize("seed", range(4))
def test_thompson_probabilities_against_adaptive_quadrature(seed):
    rng = np.random.default_rng(seed)
    means, stds = rng.normal(size=4), 10.0 ** rng.uniform(-2.5, 0.5, size=4)
    got = probabilities(means, stds)
    for arm in range(4):
        assert got[arm] == pytest.approx(by_adaptive_quadrature(means, stds, arm), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), arms=st.integers(1, 20))
def test_probabilities_sum_to_one_at_any_scale(data, arms):
    shift = data.draw(st.sampled_from([0.0, 3e5, -1e12, 1e18]))
    means = [shift + mean for mean in data.draw(st.lists(st.floats(-50, 50), min_size=arms, max_size=arms))]
    spread = st.one_of(st.just(0.0), st.floats(-25, 25).map(lambda power: 10.0**power))
    stds = data.draw(st.lists(spread, min_size=arms, max_size=arms))
    got = probabilities(means, stds)
    assert got.min() >= 0
    assert got.sum() == pytest.approx(1, abs=1e-9)


def test_a_distant_origin_does_not_matter():
    stds = [0.5, 1e-7, 1.4]
    near, far = probabilities([0.25, 0.5, -0.25], stds), probabilities([2**40 + 0.25, 2**40 + 0.5, 2**40 - 0.25], stds)
    np.testing.assert_allclose(far, near, atol=1e-10)


@pytest.mark.parametrize("arms", [2, 50, 51, 400])
def test_equal_arms_are_equally_likely(arms):
    np.testing.assert_allclose(probabilities(np.zeros(arms), np.full(arms, 0.3)), 1 / arms, atol=1e-10)


def test_two_arms_have_a_closed_form():
    got = probabilities([0.3, -0.2], [0.5, 1.4], width=0.7)
    spread = 0.7 * np.hypot(0.5, 1.4)
    assert got[0] == pytest.approx(stats.norm.cdf(0.5 / spread), abs=1e-12)


def test_no_arm_wins_below_the_best_point_mass():
    got = probabilities([1.0, 1.0, 0.2, 0.5], [0.0, 0.0, 0.6, 0.0])
    above = stats.norm.sf((1.0 - 0.2) / 0.6)
    np.testing.assert_allclose(got, [(1 - above) / 2, (1 - above) / 2, above, 0], atol=1e-12)


@pytest.mark.parametrize("distribution", [NORMAL, POINT, HALF_NORMAL])
def test_arms_are_picked_with_their_probabilities(distribution):
    rng, draws = np.random.default_rng(1), 200_000
    means, stds = np.array([0.2, 0.25, 0.1, 0.25, 0.9]), np.array([0.3, 0.0, 0.8, 0.0, 0.4])
    available = np.array([True, True, True, True, False])
    shape = (draws, 5)
    tile = lambda row: np.ascontiguousarray(np.broadcast_to(row, shape))  # noqa: E731
    arms, noise = np.empty(draws, dtype=np.int64), rng.normal(size=shape)
    pick(tile(means), tile(stds**2), np.full(shape, 0.8), distribution, noise, tile(available), arms)
    expected = probabilities(means, stds, distribution, available, width=0.8)
    got = np.bincount(arms, minlength=5) / draws
    assert np.abs(got - expected).max() < 5 * np.sqrt(0.25 / draws)
    assert got[4] == 0


def test_equal_arms_have_equal_probabilities():
    np.testing.assert_allclose(
        probabilities([1, 2, 2, 0, 2], np.zeros(5), distribution=POINT), [0, 1 / 3, 1 / 3, 0, 1 / 3]
    )
    np.testing.assert_allclose(probabilities(np.zeros(4), np.zeros(4)), 0.25)


@pytest.mark.parametrize("without_score", [0, 1, 2])
def test_an_arm_without_a_score_is_picked_last(without_score):
    means, arms = np.array([[0.1, 0.2, 0.3]]), np.empty(1, dtype=np.int64)
    means[0, without_score] = np.nan
    pick(means, np.zeros((1, 3)), np.ones((1, 3)), POINT, np.zeros((1, 3)), np.ones((1, 3), dtype=bool), arms)
    assert arms[0] == (2 if without_score != 2 else 1)


@pytest.mark.parametrize("distribution", [POINT, NORMAL, HALF_NORMAL])
def test_an_arm_without_a_score_has_probability_0_beside_others(distribution):
    got = probabilities([0.3, np.nan, 0.1], [0.5, 0.5, 0.9], distribution)
    assert got[1] == 0
    np.testing.assert_array_equal(got[[0, 2]], probabilities([0.3, 0.1], [0.5, 0.9], distribution))
    np.testing.assert_array_equal(probabilities([np.nan, np.nan], [0.5, 0.5], distribution), 0.5)


def test_negligible_spreads_still_distinguish_arms():
    """The first two arms differ only by their tiny spreads, which are negligible beside the third arm's spread."""
    above = stats.norm.sf(3.0)
    expected = (1 - above) * np.array([stats.norm.sf(1.0), stats.norm.cdf(1.0)])
    np.testing.assert_allclose(probabilities([-1e-15, 0, -3], [1e-15, 0, 1]), [*expected, above], rtol=1e-12)
    above *= 2
    np.testing.assert_allclose(probabilities([0, 0, -3], [1e-15, 0, 1], HALF_NORMAL), [1 - above, 0, above], rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_half_normal_probabilities_against_adaptive_quadrature(seed):
    rng = np.random.default_rng([seed, 1])
    arms = int(rng.integers(2, 7))
    means, stds = rng.normal(size=arms), 10.0 ** rng.uniform(-rng.choice([0.3, 2.5, 5.0]), 0.5, size=arms)
    got = probabilities(means, stds, HALF_NORMAL)
    for arm in range(arms):
        assert got[arm] == pytest.approx(by_adaptive_quadrature(means, stds, arm, stats.halfnorm), abs=1e-9)
    assert got.sum() == pytest.approx(1, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), arms=st.integers(1, 20))
def test_half_normal_probabilities_sum_to_one_at_any_scale(data, arms):
    shift = data.draw(st.sampled_from([0.0, 3e5, -1e12, 1e18]))
    means = [shift + mean for mean in data.draw(st.lists(st.floats(-50, 50), min_size=arms, max_size=arms))]
    spread = st.one_of(st.just(0.0), st.floats(-25, 25).map(lambda power: 10.0**power))
    stds = data.draw(st.lists(spread, min_size=arms, max_size=arms))
    got = probabilities(means, stds, HALF_NORMAL)
    assert got.min() >= 0
    assert got.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("arms", [2, 10, 11, 50, 51, 400])
def test_equal_half_normals_are_equally_likely(arms):
    np.testing.assert_allclose(probabilities(np.zeros(arms), np.full(arms, 0.3), HALF_NORMAL), 1 / arms, atol=1e-10)


@pytest.mark.parametrize("ratio", [1e-12, 1e-3, 0.4, 1.0, 7.0, 1e9])
def test_two_half_normals_of_one_mean_have_a_closed_form(ratio):
    """The angle of (|z_1|, |z_2|) is uniform, and arm 1 wins where its tangent is below s_1/s_2."""
    got = probabilities([0.3, 0.3], [0.7 * ratio, 0.7], HALF_NORMAL, width=0.85)
    np.testing.assert_allclose(got, np.array([np.arctan(ratio), np.arctan(1 / ratio)]) * 2 / np.pi, atol=1e-12)


def test_half_normal_scores_are_not_below_their_means():
    got = probabilities([1.0, 1.0, 0.2, 0.5], [0.0, 0.0, 0.6, 0.0], HALF_NORMAL)
    above = 2 * stats.norm.sf((1.0 - 0.2) / 0.6)
    np.testing.assert_allclose(got, [(1 - above) / 2, (1 - above) / 2, above, 0], atol=1e-12)
    np.testing.assert_allclose(probabilities([1.0, 1.0, 0.2], [0.0, 0.3, 0.0], HALF_NORMAL), [0, 1, 0], atol=1e-15)


@pytest.mark.parametrize("scale", [1e-150, 3.0, 1e150])
def test_units_and_a_distant_origin_do_not_matter_for_half_normals(scale):
    means, stds = np.array([0.25, 0.5, -0.25]), np.array([0.5, 1e-7, 1.4])
    near = probabilities(means, stds, HALF_NORMAL)
    np.testing.assert_allclose(probabilities(scale * means, scale * stds, HALF_NORMAL), near, atol=1e-12)
    np.testing.assert_allclose(probabilities(2**40 + means, stds, HALF_NORMAL), near, atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_half_normal_probabilities_against_draws(seed):
    rng, draws = np.random.default_rng([seed, 2]), 40_000
    arms = int(rng.integers(1, 12))
    means = rng.normal(size=arms) * 10.0 ** rng.uniform(-4, 2)
    stds = 10.0 ** rng.uniform(-rng.choice([0.5, 4, 16]), 1, size=arms) * (rng.uniform(size=arms) > 0.2)
    available = rng.uniform(size=arms) < 0.8
    available[rng.integers(arms)] = True
    scores = np.where(available, means + 0.85 * np.abs(rng.normal(size=(draws, arms))) * stds, -np.inf)
    # Ties are broken at random, so every tied arm gets an equal part of the draw.
    best = scores == scores.max(axis=1, keepdims=True)
    got = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    expected = probabilities(means, stds, HALF_NORMAL, available, width=0.85)
    assert (np.abs(got - expected) < 5 * np.sqrt(expected * (1 - expected) / draws) + 10 / draws).all()
    assert not expected[~available].any()


def test_arms_are_drawn_with_their_probabilities():
    rng, draws = np.random.default_rng(4), 100_000
    expected = np.array([0.0, 0.3, 0.0, 0.69, 0.01, 0.0])
    arms = np.empty(draws, dtype=np.int64)
    draw_arm(np.tile(expected, (draws, 1)), rng.uniform(size=(draws, 1)), arms)
    got = np.bincount(arms, minlength=6) / draws
    assert (np.abs(got - expected) <= 5 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_drawing_when_rounding_leaves_the_sum_below_the_uniform():
    arms = np.empty(1, dtype=np.int64)
    draw_arm(np.array([[0.5, 0.5 - 1e-16, 0.0]]), np.array([[1 - 1e-16]]), arms)
    assert arms[0] == 1


@pytest.mark.parametrize("distribution", [NORMAL, HALF_NORMAL])
@pytest.mark.parametrize("width", [5e-324, 1e-320, 1e-310, 1e-305, 1e-260, 1e-250, 1e-200])
def test_probabilities_with_tiny_widths(distribution, width):
    stds, expected = [1.0, 0.5, 2.0], probabilities([0.0, 0.0, 0.0], [1.0, 0.5, 2.0], distribution)
    got = probabilities([0.0, 0.0, 0.0], stds, distribution, width=width)
    assert got.sum() == pytest.approx(1, abs=1e-9)
    if width > 1e-307:  # smaller numbers have fewer digits
        np.testing.assert_allclose(got, expected, atol=1e-9)
    for means in ([0.0, 1.0, 2.0], [width, 0.0, 2 * width], [1e100, -1e100, 0.0]):
        assert probabilities(means, stds, distribution, width=width).sum() == pytest.approx(1, abs=1e-9)
    mixed = probabilities([0.0, 0.0, -1.0], [width, width, 1.0], distribution)  # two of three are negligible
    assert mixed.sum() == pytest.approx(1, abs=1e-9)
