"""The measurement-error correction: its sums, its estimate, when it is not applied, and the stored propensity."""

import numpy as np
import pytest
from reference.measurement_error import authors_estimate
from settings import assert_same_state, make_small, simulate_rounds, state_bytes

import halfseen as hs
from halfseen.components import StreamBatch
from halfseen.kernels.random import stream_keys
from halfseen.learners.measurement_error import MeasurementError

K, ARMS = 3, 2
NOISE = np.array([[0.9, 0.2, 0.0], [0.2, 0.5, 0.1], [0.0, 0.1, 0.7]])


def learner(**options):
    streams = StreamBatch(stream_keys([0]), K, ARMS)
    return MeasurementError(streams, K + 1, **({"observation_cov": NOISE, "regularisation": 1.6} | options))


def simulate(rounds, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(ARMS, K)) + 2.0
    xs = 1.0 + rng.normal(size=(rounds, K))
    ys = xs + rng.multivariate_normal(np.zeros(K), NOISE, size=rounds)
    # The arm depends on y, so that it is correlated with the noise of y.
    greedy = (ys @ (theta[0] - theta[1]) > 0).astype(int)
    explore = rng.uniform(size=rounds) < 0.4
    arms = np.where(explore, rng.integers(ARMS, size=rounds), 1 - greedy)
    propensities = np.where(arms == 1 - greedy, 0.8, 0.2)
    rewards = (theta[arms] * xs).sum(axis=1) + 0.5 * rng.normal(size=rounds)
    ys[rng.uniform(size=ys.shape) < missing] = np.nan
    return theta, ys, arms, propensities, rewards


def learn_all(one, ys, arms, propensities, rewards):
    features = np.concatenate([ys, propensities[:, None]], axis=1)
    one.learn(np.zeros(len(ys), dtype=np.int64), features, arms, rewards)
    return one


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_sums_and_estimate_equal_the_formula(missing):
    _, ys, arms, propensities, rewards = simulate(60, missing=missing)
    one = learn_all(learner(burn_in=5), ys, arms, propensities, rewards)
    seen, filled = ~np.isnan(ys), np.nan_to_num(ys)
    for arm in range(ARMS):
        mine = np.flatnonzero(arms == arm)
        V = 1.6 * np.eye(K) + sum(np.outer(filled[t], filled[t]) / propensities[t] for t in mine)
        W = sum(NOISE * np.outer(seen[t], seen[t]) / propensities[t] for t in mine)
        f = sum(rewards[t] * filled[t] / propensities[t] for t in mine)
        np.testing.assert_allclose(one.gram[0, arm], V)
        np.testing.assert_allclose(one.noise_gram[0, arm], W)
        np.testing.assert_allclose(one.theta[0, arm], np.linalg.solve(V - W, f))
    means, variances = one.score(np.array([0]), np.array([[0.5, np.nan, -1.0, 0.9]]))
    np.testing.assert_allclose(means[0], one.theta[0] @ [0.5, 0.0, -1.0])
    assert not variances.any()


def test_the_estimate_is_consistent_where_least_squares_is_biased():
    """The choice of the arm depends on y. The error is as small as that of the authors' form of the estimate."""
    theta, ys, arms, propensities, rewards = simulate(40_000)
    found = learn_all(learner(), ys, arms, propensities, rewards).theta[0]
    authors = authors_estimate(ys, arms, rewards, propensities, NOISE, ARMS)
    squares = np.stack([np.linalg.lstsq(ys[arms == a], rewards[arms == a], rcond=None)[0] for a in range(ARMS)])
    error = {name: np.linalg.norm(one - theta) for name, one in (("ours", found), ("a", authors), ("ls", squares))}
    assert error["ours"] < 0.15
    assert error["a"] < 0.15
    assert np.linalg.norm(found - authors) < 0.1
    assert error["ls"] > 0.8


def test_there_is_no_correction_before_the_burn_in_or_if_it_is_unsafe():
    _, ys, arms, propensities, rewards = simulate(50)
    early = learn_all(learner(burn_in=51), ys, arms, propensities, rewards)
    large_noise = learn_all(learner(burn_in=5, observation_cov=50.0), ys, arms, propensities, rewards)
    high_safety = learn_all(learner(burn_in=5, safety=0.95), ys, arms, propensities, rewards)
    for one in (early, large_noise, high_safety):
        uncorrected = [np.linalg.solve(one.gram[0, a], one.reward_sum[0, a]) for a in range(ARMS)]
        np.testing.assert_allclose(one.theta[0], uncorrected)
    # At the end of the burn-in all arms are corrected, not only the arm of the last reward.
    after = learn_all(learner(burn_in=50), ys, arms, propensities, rewards)
    corrected = [
        np.linalg.solve(after.gram[0, a] - after.noise_gram[0, a], after.reward_sum[0, a]) for a in range(ARMS)
    ]
    np.testing.assert_allclose(after.theta[0], corrected)


def test_the_last_feature_is_the_propensity():
    agent, (_, ys, noise) = make_small("meb"), simulate_rounds(30)
    for y, reward in zip(ys, noise, strict=True):
        agent.learn(agent.decide(y), reward)
    decisions = [agent.decide(y) for y in ys]
    for decision in decisions:
        assert decision.context[-1] == decision.propensity
        np.testing.assert_array_equal(decision.context[:-1], ys[decision.id - 31])
    assert {round(decision.propensity, 12) for decision in decisions} == {0.07, 1 - 3 * 0.07}


def test_fold_with_the_propensities_of_another_policy():
    """If propensities are given, they are used as weights.

    Without them, the agent uses the propensities of its own choices.
    """
    _, ys, noise = simulate_rounds(40)
    arms = [t % 4 for t in range(40)]
    given = make_small("meb").fold(ys, arms, noise, propensities=np.full(40, 0.25))
    weight = 1 / 0.25
    want = 2.3 * np.eye(3) + weight * sum(np.outer(ys[t], ys[t]) for t in range(0, 40, 4))
    np.testing.assert_allclose(given.state()["learner.gram"][0, 0], want)
    own = make_small("meb").fold(ys, arms, noise)
    assert not np.allclose(own.state()["learner.gram"], given.state()["learner.gram"])
    with pytest.raises(AssertionError):
        assert_same_state(own, given)


@pytest.mark.parametrize(
    ("propensities", "message"),
    [
        ([0.5], "propensities: expected 3 probabilities, one per round, got shape (1,)"),
        ([0.5, 0.0, 0.5], "propensities: expected probabilities above 0 and at most 1, got 0.0"),
        ([0.5, 1.5, 0.5], "propensities: expected probabilities above 0 and at most 1, got 1.5"),
        ([0.5, np.nan, 0.5], "propensities: expected probabilities above 0 and at most 1, got nan"),
        ("abc", "propensities: expected 3 probabilities, one per round, got 'abc'"),
    ],
)
def test_invalid_propensities_change_nothing(propensities, message):
    agent = make_small("meb")
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError) as caught:
        agent.fold(np.zeros((3, 3)), [0, 1, 2], [1.0, 2.0, 3.0], propensities=propensities)
    assert str(caught.value).startswith(message)
    assert state_bytes(agent) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation_cov": np.ones((2, 2))}, "observation_cov: expected shape (3, 3), got shape (2, 2)"),
        (
            {"observation_cov": -np.eye(3)},
            "observation_cov: expected a symmetric positive semi-definite matrix, got a matrix of another kind",
        ),
        ({"safety": 1.0}, "safety: expected a number between 0 and 1, got 1.0"),
        ({"burn_in": 0}, "burn_in: expected an integer between 1 and 1000000000, got 0"),
        ({"minimum_probability": "slow"}, "minimum_probability: expected a number or 'decaying', got 'slow'"),
        ({"minimum_probability": 0}, "minimum_probability: expected a number between 1e-100 and 1, got 0"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.make("meb", observed=3, arms=4, **options)
    assert str(caught.value).startswith(message)
