"""Fits of clicks and counts to a history: against statsmodels, numerical integration, and in `adaptive`."""

import numpy as np
import pytest
from scipy import integrate, special

import halfseen as hs
from halfseen.kernels.generalised_linear import BINARY, COUNT
from halfseen.learners.calibrated import NO_LEAD, ArmFit
from halfseen.learners.calibrated_family import FamilyRewardHistory, fit_family

SLOPES = np.array([[0.8, 0.0, -0.3], [-0.4, 0.7, 0.2]])


def simulate(family, rounds, *, intercept=-0.7, seed=0):
    rng = np.random.default_rng(seed)
    features = np.column_stack([np.ones(rounds), rng.normal(size=(rounds, 3))])
    arms = rng.integers(2, size=rounds)
    predictors = intercept + (features[:, 1:] * SLOPES[arms]).sum(axis=1)
    if family == BINARY:
        rewards = (rng.uniform(size=rounds) < special.expit(predictors)).astype(float)
    else:
        rewards = rng.poisson(np.exp(predictors)).astype(float)
    rewards[rng.uniform(size=rounds) < 0.1] = np.nan
    return features, arms, rewards


def start(baseline, prior):
    empty = np.empty(0)
    return ArmFit(empty, empty, np.ones(2), np.asarray(prior, dtype=float), baseline, 1.0, 0.0, 0.0, empty)


@pytest.mark.parametrize("family", [BINARY, COUNT])
def test_with_a_wide_prior_the_fit_is_that_of_statsmodels(family):
    """Iteratively reweighted least squares until convergence: the same estimates and standard errors."""
    api = pytest.importorskip("statsmodels.api")
    features, arms, rewards = simulate(family, 1_500)
    found = fit_family(family, features, arms, rewards, 2, start(0.0, 1e8 * np.eye(4)), fixed_hyperparameters=True)
    distribution = api.families.Binomial() if family == BINARY else api.families.Poisson()
    for arm in range(2):
        used = (arms == arm) & ~np.isnan(rewards)
        glm = api.GLM(rewards[used], features[used], family=distribution).fit(tol=1e-12)
        np.testing.assert_allclose(found.mean[arm], glm.params, rtol=1e-5, atol=1e-6)  # both stop before the limit
        np.testing.assert_allclose(found.cov[arm], glm.cov_params(), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("family", [BINARY, COUNT])
def test_the_evidence_is_close_to_the_integral(family):
    """One arm with one parameter, for which log p(r) is a one-dimensional integral."""
    rng = np.random.default_rng(2)
    rewards = (rng.uniform(size=80) < 0.3).astype(float) if family == BINARY else rng.poisson(1.5, size=80) * 1.0
    features, arms = np.ones((80, 1)), np.zeros(80, dtype=np.int64)
    prior_var, baseline = 0.7, -0.2
    found = fit_family(family, features, arms, rewards, 1, start(baseline, [[prior_var]]), fixed_hyperparameters=True)

    def log_joint(theta):
        norm = np.logaddexp(0.0, theta) if family == BINARY else np.exp(theta)
        prior = -0.5 * (theta - baseline) ** 2 / prior_var - 0.5 * np.log(2.0 * np.pi * prior_var)
        return rewards.sum() * theta - len(rewards) * norm + prior

    mode = found.mean[0, 0]
    integral = integrate.quad(lambda theta: np.exp(log_joint(theta) - log_joint(mode)), mode - 2, mode + 2)[0]
    exact = np.log(integral) + log_joint(mode)
    assert found.evidence == pytest.approx(exact, abs=0.02)  # the error of Laplace's approximation with 80 rewards


@pytest.mark.parametrize("family", [BINARY, COUNT])
def test_the_evidence_prefers_the_features_that_matter(family):
    features, arms, rewards = simulate(family, 800)
    history = FamilyRewardHistory(arms, rewards, 2, family)
    noise = np.column_stack([np.ones(800), np.random.default_rng(9).normal(size=(800, 3))])
    assert history.evidence(features) > history.evidence(noise) + 10.0
    assert history.leave_one_out_error(features, features) < history.leave_one_out_error(noise, noise)


@pytest.mark.parametrize("family", [BINARY, COUNT])
def test_few_or_separated_rewards_give_a_finite_fit(family):
    features, arms, _ = simulate(family, 12)
    for rewards in (np.zeros(12), np.ones(12), (features[:, 1] > 0).astype(float)):
        found = fit_family(family, features, arms, rewards, 3)
        assert found.is_finite()
        assert (np.linalg.eigvalsh(found.cov) > 0).all()
        np.testing.assert_allclose(found.mean[2, 1:], 0.0)  # an arm without rewards is at its prior


def test_adaptive_recovers_clicks_of_a_hidden_context_and_is_calibrated():
    world = hs.worlds.named("clicks", rate=0.2)
    rounds = world.begin([11]).advance(1_500)
    agent = hs.make("adaptive", observed=world.observed, arms=world.arms, seed=1, reward_family="binary")
    expected, clicks, regret, random = [], [], 0.0, 0.0
    for t in range(1_500):
        decision = agent.decide(rounds.observations[t, 0])
        reward = float(rounds.rewards[t, 0, decision.index])
        expected.append(decision.expected[decision.index])
        clicks.append(reward)
        regret += rounds.expected[t, 0].max() - rounds.expected[t, 0, decision.index]
        random += rounds.expected[t, 0].max() - rounds.expected[t, 0].mean()
        agent.learn(decision, reward)
    assert regret < 0.35 * random
    late = slice(500, None)
    error = np.sqrt(np.mean(np.array(expected[late]) * (1 - np.array(expected[late]))) / 1_000)
    assert abs(np.mean(expected[late]) - np.mean(clicks[late])) < 4 * error
    health = agent.health()
    assert health.ok, health
    assert health.finding("calibration of arms").verdict == "fine"
    assert health.facts["reward family"] == "binary"


def test_a_model_of_another_process_is_accepted():
    agent = hs.make("adaptive", observed=1, arms=2, seed=1, refit="manual", reward_family="binary")
    rng = np.random.default_rng(0)
    for t in range(60):
        agent.learn(agent.decide([np.sin(0.3 * t) + 0.1 * rng.normal()]), float(rng.uniform() < 0.4))
    copy = hs.make(**agent.recipe)
    copy.restore(agent.state())
    copy.refit()
    agent.accept(copy.model())
    assert agent.policy.learner.fitted.all()
    np.testing.assert_allclose(agent.policy.learner.mean, copy.policy.learner.mean, atol=0.01)
    # The contexts of the last rounds are computed again, from the model alone.


def test_a_replaced_reward_is_exact_after_the_next_fit():
    agents = [hs.make("adaptive", observed=1, arms=2, seed=1, refit="manual", reward_family="count") for _ in range(2)]
    rng = np.random.default_rng(3)
    for t in range(60):
        y, reward = [np.sin(0.3 * t) + 0.1 * rng.normal()], float(rng.poisson(1.0))
        for agent, provisional in zip(agents, (True, False), strict=True):
            decision = agent.replay(y, t % 2)
            if provisional and t > 50:
                agent.learn(decision, 0.0, provisional=True)
            agent.learn(decision, reward)
    for agent in agents:
        agent.refit()
    one, other = (agent.policy.learner for agent in agents)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.cov, other.cov)


@pytest.mark.parametrize("family", ["binary", "count"])
def test_adaptive_uses_all_clicks_and_counts_and_has_one_origin(family):
    """For numbers, 0 might be the origin of this walk, which begins at 0, and one of the rewards would be left out."""
    rng = np.random.default_rng(6)
    ys, arms = np.cumsum(0.1 * rng.normal(size=(120, 3)), axis=0), rng.integers(2, size=120)
    rewards = (rng.uniform(size=120) < special.expit((SLOPES[arms] * ys).sum(axis=1))).astype(float)
    if family == "count":
        rewards[70] = 1e4
    agent = hs.make("adaptive", observed=3, arms=2, seed=1, reward_family=family).fold(ys, arms, rewards)
    learner, estimator = agent.policy.learner, agent.policy.estimator
    assert estimator.identified[0]
    assert not learner.through_zero[0]
    assert not learner.has_other[0]
    assert learner.lead[0] == NO_LEAD
    _, arms, rewards, window = estimator.window(0)
    features = estimator.history.features[0, window]
    assert learner.without_wild(0, features, arms, rewards) is rewards
    assert learner.reward_history(arms, rewards).evidence(features, through_zero=True) == -np.inf


def test_adaptive_as_numbers_keeps_its_learner():
    from halfseen.learners.calibrated import Calibrated

    agent = hs.make("adaptive", observed=1, arms=2, reward_family="gaussian")
    assert type(agent.policy.learner) is Calibrated
