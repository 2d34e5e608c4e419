"""Widths and probabilities of the choosers."""

import numpy as np
import pytest
from scipy import stats
from settings import make_small, simulate_rounds, small_options

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.choosers.thompson import Thompson
from halfseen.choosers.ucb import Ucb
from halfseen.components import StreamBatch
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.kernels.random import stream_keys
from halfseen.learners.ridge import Ridge

STREAMS = StreamBatch(stream_keys([1, 2]), 3, 4)
ROWS = np.array([0, 1])


def test_theory_width_is_that_of_theorem_1():
    chooser = Thompson(STREAMS, 7, width="theory", noise_std=0.4, delta=0.2)
    got = chooser.widths(ROWS, np.array([1, 50]), Ridge(STREAMS, 7))
    want = 0.4 * np.sqrt(9 * 7 * np.log(np.array([1, 50]) / 0.2))
    np.testing.assert_allclose(got, np.repeat(want[:, None], 4, axis=1))


def test_horizon_width_is_constant():
    got = Ucb(STREAMS, 7, horizon=500, delta=0.3).widths(ROWS, np.array([1, 50]), Ridge(STREAMS, 7))
    np.testing.assert_allclose(got, 1 + np.sqrt(0.5 * np.log(2 * 500 * 4 / 0.3)))


def test_self_normalised_width_depends_on_the_determinant():
    learner = Ridge(STREAMS, 3, regularisation=2.5)
    features, arms = np.random.default_rng(0).normal(size=(6, 3)), np.full(6, 2)
    learner.learn(np.ones(6, dtype=np.int64), features, arms, np.ones(6))
    chooser = Ucb(STREAMS, 3, width="self-normalised", noise_std=0.4, delta=0.2, arm_norm=1.5)
    got = chooser.widths(ROWS, np.array([1, 7]), learner)
    precision = 2.5 * np.eye(3) + features.T @ features
    ratio = np.linalg.det(precision) / 2.5**3
    assert got[1, 2] == pytest.approx(0.4 * np.sqrt(2 * np.log(np.sqrt(ratio) / 0.2)) + np.sqrt(2.5) * 1.5)
    assert got[0, 2] == pytest.approx(0.4 * np.sqrt(2 * np.log(1 / 0.2)) + np.sqrt(2.5) * 1.5)


def test_sampling_scores_is_equivalent_to_sampling_parameters():
    """The paper draws μ̃_a ~ N(μ̂_a, v²B_a⁻¹) and plays argmax cᵀμ̃_a. This gives the same distribution of arms."""
    rng, draws = np.random.default_rng(5), 100_000
    agent, (_, ys, noise) = make_small("ts-pco", width=0.6), simulate_rounds(40)
    for y, reward in zip(ys[:-1], noise, strict=False):
        agent.learn(agent.decide(y).id, reward)
    decision = agent.decide(ys[-1])
    learner = agent.policy.learner
    sampled = np.stack(
        [
            rng.multivariate_normal(learner.mean[0, a], 0.6**2 * learner.covariances[0, a], size=draws)
            @ decision.context
            for a in range(4)
        ],
        axis=1,
    )
    counts = np.bincount(sampled.argmax(axis=1), minlength=4)
    likely = decision.propensities * draws > 5
    _, p = stats.chisquare(
        counts[likely],
        decision.propensities[likely] / decision.propensities[likely].sum() * counts[likely].sum(),
    )
    assert p > 1e-3
    assert likely.sum() >= 2


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name.startswith("hmm") else name
        for name in hs.catalog()
        if CATALOG[name].estimator is not Adaptive
    ],
)
def test_propensities_equal_the_frequencies_of_the_arms(name):
    """Agents with many seeds get the same state, and the frequency of each arm is compared with its propensity.

    Adaptive agents are tested in tests/estimators/adaptive/test_estimator.py, because the identified model depends on
    the seed.
    """
    xs, ys, noise = simulate_rounds(30)
    seeds = 4000
    streams = StreamBatch(stream_keys(np.arange(seeds)), 3, 4)
    policy = CATALOG[name].build(streams, small_options(name))
    if "initial_transition" in CATALOG[name].options:  # the default depends on the seed
        policy = CATALOG[name].build(streams, small_options(name) | {"initial_transition": 0.9 * np.eye(5)[::-1]})
    revealed = policy.estimator.reveals_context
    for t in range(30):
        contexts = np.tile(xs[t], (seeds, 1)) if revealed else None
        _, rounds, features = policy.observe(np.tile(ys[t], (seeds, 1)), contexts=contexts)
        policy.learn(rounds, features, np.full(seeds, t % 4), np.full(seeds, noise[t]))
    choices = policy.decide(np.tile(ys[-1], (seeds, 1)), contexts=np.tile(xs[-1], (seeds, 1)) if revealed else None)
    want = policy.propensities(choices)[0]
    got = np.bincount(choices.arms, minlength=4) / seeds
    assert np.abs(got - want).max() < 5 * np.sqrt(0.25 / seeds)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ts-pco", {"width": "wide"}, "width: expected a number or 'theory', got 'wide'"),
        ("ts-pco", {"width": -1}, "width: expected a number between 0 and 1e+100, got -1"),
        ("ts-pco", {"delta": 1.0}, "delta: expected a number between 0 and 1, got 1.0"),
        ("kf-ucb", {"width": "theory"}, "width: expected a number, 'horizon' or 'self-normalised', got 'theory'"),
        ("kf-ucb", {"horizon": 0}, "horizon: expected an integer between 1 and 1000000000, got 0"),
        ("ts-pco", {"regularisation": 0}, "regularisation: expected a number between 1e-100 and 1e+100, got 0"),
    ],
)
def test_invalid_options_are_refused(name, options, message):
    with pytest.raises(hs.HalfseenError) as caught:
        make_small(name, **options)
    assert str(caught.value) == message


def test_propensities_of_state_sampling_never_exceed_1():
    """The probabilities of many states sum to more than 1 by rounding."""
    rng, S = np.random.default_rng(2), 7
    options = {"state_rewards": np.ones((1, S)), "state_transition": rng.dirichlet(np.ones(S), size=S)}
    agent = hs.make("mts", observed=1, arms=1, **options)
    propensities = []
    for _ in range(200):
        decision = agent.decide([0.0])
        propensities.append(decision.propensity)
        agent.learn(decision, 1.0)
    assert max(propensities) == 1.0
