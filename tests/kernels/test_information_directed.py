"""The minimum of the information ratio against brute force over the simplex, its invariances and edge cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from halfseen.kernels.information_directed import minimise_information_ratio


def distribution(means, stds, noise=1.0, width=1.25, available=None):
    means, stds = np.array([means], dtype=float), np.array([stds], dtype=float)
    mask = np.ones(means.shape, dtype=bool) if available is None else np.array([available])
    noises = np.array(np.broadcast_to(np.asarray(noise, dtype=float), means.shape))
    probabilities = np.full(means.shape, np.nan)
    minimise_information_ratio(means, stds**2, np.full(means.shape, float(width)), noises, mask, probabilities)
    return probabilities[0]


def terms(means, stds, noise, width):
    """Return Δ and g by their definitions."""
    means, stds = np.asarray(means), np.asarray(stds)
    return (means + width * stds).max() - means, 0.5 * np.log(1 + stds**2 / noise)


def random_case(seed):
    rng = np.random.default_rng(seed)
    arms = int(rng.integers(2, 8))
    means, stds = rng.normal(size=arms) * 10.0 ** rng.uniform(-2, 2), 10.0 ** rng.uniform(-3, 1, size=arms)
    return means, stds, 10.0 ** rng.uniform(-2, 2, size=arms), rng.uniform(0.1, 3)


@pytest.mark.parametrize("seed", range(60))
def test_no_mixture_has_a_lower_ratio(seed):
    """No mixture on a grid for every pair and no random mixture of three or all arms has a lower ratio."""
    means, stds, noise, width = random_case(seed)
    arms, rng = len(means), np.random.default_rng([seed, 1])
    regrets, gains = terms(means, stds, noise, width)
    share = np.linspace(0, 1, 501)[:, None]
    corners = np.eye(arms)
    mixtures = [share * corners[a] + (1 - share) * corners[b] for a in range(arms) for b in range(a)]
    mixtures.append(rng.dirichlet(np.full(arms, 0.4), size=2000))
    for _ in range(20):
        three = rng.permutation(arms)[:3]
        mixtures.append(rng.dirichlet(np.ones(len(three)), size=300) @ corners[three])
    candidates = np.concatenate(mixtures)
    got = distribution(means, stds, noise, width)
    ratio, lowest = (got @ regrets) ** 2 / (got @ gains), ((candidates @ regrets) ** 2 / (candidates @ gains)).min()
    assert got.min() >= 0
    assert got.sum() == pytest.approx(1, abs=1e-14)
    assert np.count_nonzero(got) <= 2
    assert ratio <= lowest * (1 + 1e-12)


def test_the_probabilities_of_two_arms_minimise_the_ratio():
    """The ratio is flat at its minimum, so the probability is compared with the root of its derivative."""
    mixed = 0
    for seed in range(150):
        means, stds, noise, width = random_case(seed)
        got = distribution(means, stds, noise, width)
        if np.count_nonzero(got) < 2:
            continue
        a, b = np.flatnonzero(got)
        regrets, gains = terms(means, stds, noise, width)

        def slope(p, a=a, b=b, regrets=regrets, gains=gains):
            regret, gain = regrets[a] + p * (regrets[b] - regrets[a]), gains[a] + p * (gains[b] - gains[a])
            return 2 * (regrets[b] - regrets[a]) * gain - regret * (gains[b] - gains[a])

        assert got[b] == pytest.approx(optimize.brentq(slope, 0, 1, xtol=1e-15), abs=1e-11)
        mixed += 1
    assert mixed > 15


@pytest.mark.parametrize("seed", range(20))
def test_units_origin_and_order_do_not_matter(seed):
    means, stds, noise, width = random_case(seed)
    got = distribution(means, stds, noise, width)
    for unit in (1e-90, 0.37, 1e90):
        np.testing.assert_allclose(distribution(unit * means, unit * stds, unit**2 * noise, width), got, atol=1e-12)
    np.testing.assert_allclose(distribution(means + 1e5, stds, noise, width), got, atol=1e-7)
    order = np.random.default_rng(seed).permutation(len(means))
    np.testing.assert_array_equal(distribution(means[order], stds[order], noise[order], width), got[order])


def test_a_distant_origin_does_not_matter():
    means, stds, noise = np.array([0.0, -1.5, -0.125]), [0.4, 0.6, 0.3], [1, 0.01, 1]
    near = distribution(means, stds, noise)
    assert np.count_nonzero(near) == 2
    np.testing.assert_array_equal(distribution(means + 2.0**48, stds, noise), near)


@pytest.mark.parametrize("seed", range(20))
def test_equal_arms_have_equal_probabilities_in_any_order(seed):
    means, stds, noise, width = random_case(seed)
    alone, rng = distribution(means, stds, noise, width), np.random.default_rng(seed)
    copies = rng.integers(1, 4, size=len(means))
    order = rng.permutation(np.repeat(np.arange(len(means)), copies))
    got = distribution(means[order], stds[order], noise[order], width)
    np.testing.assert_allclose(got, (alone / copies)[order], rtol=1e-14)


@pytest.mark.parametrize("seed", range(20))
def test_unavailable_arms_do_not_matter(seed):
    means, stds, noise, width = random_case(seed)
    rng = np.random.default_rng(seed)
    present = rng.permutation(np.arange(len(means) + 3) < len(means))
    padded = [np.empty(len(present)) for _ in range(3)]
    for wide, narrow in zip(padded, (means, stds, noise), strict=True):
        wide[present], wide[~present] = narrow, 1e3 * rng.uniform(size=3)
    got = distribution(*padded, width, available=present)
    np.testing.assert_array_equal(got[present], distribution(means, stds, noise, width))
    assert not got[~present].any()


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"means": [0.3], "stds": [0.7]}, [1]),
        ({"means": [0.3, 9], "stds": [0.7, 1], "available": [True, False]}, [1, 0]),
        ({"means": [1, 2, 2, 0], "stds": [0, 0, 0, 0]}, [0, 0.5, 0.5, 0]),  # no information: the best mean
        ({"means": [1, 2, 2, 0], "stds": [0.1, 0, 0, 0.5]}, [0, 0.5, 0.5, 0]),  # no regret: the ratio is 0
        (
            {"means": [1, 2, 2], "stds": [0.5, 0.1, 0.3], "width": 0},
            [0, 0, 1],
        ),  # of two best means, the one with more information
        ({"means": [1, 1, 1], "stds": [0.5, 0.5, 0.5]}, [1 / 3, 1 / 3, 1 / 3]),
        ({"means": [1, np.nan, 0.9], "stds": [0, 1, 0]}, [1, 0, 0]),
        ({"means": [1, 0.5, 0.9], "stds": [0, np.nan, 0]}, [1, 0, 0]),
        ({"means": [1, 0.5, 0.9], "stds": [0, 1, 0], "noise": [1, np.nan, 1]}, [1, 0, 0]),
        ({"means": [np.nan, np.nan, 1], "stds": [1, 2, 1], "available": [True, True, False]}, [0.5, 0.5, 0]),
        ({"means": [1e200, -1e200, 0], "stds": [1e99, 1e100, 1e99]}, [1, 0, 0]),
        ({"means": [0, -1, 0.1], "stds": [1, np.inf, 1]}, [0, 1, 0]),
    ],
)
def test_edge_cases(case, expected):
    np.testing.assert_allclose(distribution(**case), expected, atol=1e-15)


def test_zero_noise_is_the_limit_of_small_noise():
    """Arms without noise have an infinite gain, so the gains of the others count as 0."""
    means, stds = [0, -1.5, -1.5, -0.2], [0.4, 0.6, 0.6, 0.3]
    got = distribution(means, stds, [1, 0, 0, 1])
    # Δ is U at the best mean and U + 1.5 at the arms without noise; p minimises (U + 1.5p)²/p.
    assert got[0] == pytest.approx(1 - (1.25 * 0.4) / 1.5, abs=1e-15)
    np.testing.assert_allclose(got[1:], [(1.25 * 0.4) / 3, (1.25 * 0.4) / 3, 0], atol=1e-15)
    errors = [np.abs(distribution(means, stds, [1, tiny, tiny, 1]) - got).max() for tiny in (1e-20, 1e-100, 1e-300)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 2e-3  # gains grow like log(1/noise)
    np.testing.assert_allclose(distribution(means, stds, [1e30, 1e-20, 1e-20, 1e30]), got, atol=1e-12)


@given(data=st.data(), arms=st.integers(1, 8))
def test_any_numbers_give_a_distribution(data, arms):
    def row(strategy):
        return data.draw(st.lists(strategy, min_size=arms, max_size=arms))

    size = st.one_of(st.sampled_from([0.0, 1.0, np.nan, np.inf]), st.floats(-100, 100).map(lambda power: 10.0**power))
    means = row(st.one_of(st.sampled_from([0.0, 1.0, np.nan, np.inf, -np.inf]), st.floats(-1e200, 1e200)))
    available = row(st.booleans())
    available[data.draw(st.integers(0, arms - 1))] = True
    got = distribution(means, row(size), row(size), data.draw(st.floats(0, 5)), available)
    assert got.min() >= 0
    assert got.sum() == pytest.approx(1, abs=1e-12)
    assert not got[~np.array(available)].any()
