"""Generalised linear regression against ridge regression, a dense Laplace fit and maximum likelihood."""

import numpy as np
import pytest
from scipy import optimize, special

import halfseen as hs
from halfseen.components import Choices, StreamBatch
from halfseen.kernels.random import stream_keys
from halfseen.learners.generalised_linear import INTERCEPT_VAR, GeneralisedLinear, QuasiLikelihood
from halfseen.learners.ridge import Ridge

K, P = 3, 2


def make(family, learner=GeneralisedLinear, *, streams=1, arms=K, dimension=P, **options):
    batch = StreamBatch(stream_keys(range(streams)), dimension, arms)
    return learner(batch, dimension, reward_family=family, **options)


def decide(learner, features):
    rows = np.zeros(len(features), dtype=np.int64)
    available = np.ones((len(rows), learner.arms), dtype=np.bool_)
    means, variances = learner.score(rows, features)
    return Choices(rows + 1, rows, features, means, variances, np.ones_like(means), available, None)


def draw(family, rng, predictors):
    if family == "gaussian":
        return predictors + rng.normal(size=predictors.shape)
    if family == "binary":
        return (rng.uniform(size=predictors.shape) < special.expit(predictors)).astype(float)
    return rng.poisson(np.exp(predictors)).astype(float)


def simulate(family, rounds, *, intercept=-0.5, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rounds, P))
    arms = rng.integers(K, size=rounds)
    slopes = np.array([[0.8, 0.0], [-0.4, 0.7], [0.0, -0.6]])
    return features, arms, draw(family, rng, intercept + (features * slopes[arms]).sum(axis=1)), slopes


def log_likelihood(family, predictors, rewards):
    if family == "gaussian":
        return -0.5 * (rewards - predictors) ** 2
    if family == "binary":
        return rewards * predictors - np.logaddexp(0.0, predictors)
    return rewards * predictors - np.exp(predictors)


def laplace(family, features, rewards, prior_mean, prior_precision):
    """The mode and the covariance of the posterior of one arm, by scipy's optimiser and a dense matrix."""
    design = np.column_stack([np.ones(len(features)), features])

    def loss(theta):
        gap = theta - prior_mean
        return 0.5 * gap @ prior_precision @ gap - log_likelihood(family, design @ theta, rewards).sum()

    mode = optimize.minimize(loss, prior_mean, method="BFGS", options={"gtol": 1e-9}).x
    predictors = design @ mode
    weights = {
        "gaussian": np.ones_like(predictors),
        "binary": special.expit(predictors) * special.expit(-predictors),
        "count": np.exp(predictors),
    }[family]
    return mode, np.linalg.inv(prior_precision + design.T @ (weights[:, None] * design))


def test_gaussian_is_ridge_regression_with_an_intercept():
    features, arms, rewards, _ = simulate("gaussian", 200)
    learner, rows = make("gaussian", regularisation=1.7), np.zeros(200, dtype=np.int64)
    learner.learn(rows, features, arms, rewards)
    prior = np.diag([1.0 / INTERCEPT_VAR, 1.7 * P, 1.7 * P])
    for arm in range(K):
        of_arm = arms == arm
        mean, cov = laplace("gaussian", features[of_arm], rewards[of_arm], np.zeros(3), prior)
        np.testing.assert_allclose(learner.mean[0, arm], mean, atol=1e-7)  # the tolerance of BFGS
        np.testing.assert_allclose(learner.covariances[0, arm], cov, atol=1e-10)
    choices = decide(learner, features[:1])
    np.testing.assert_array_equal(learner.expected_rewards(choices), choices.means)


@pytest.mark.parametrize("family", ["binary", "count"])
def test_one_reward_is_a_laplace_step(family):
    """After one reward, the mean is the mode of the posterior of all parameters, and the covariance is Laplace's."""
    for seed in range(5):
        features, arms, rewards, _ = simulate(family, 1, seed=seed)
        learner = make(family)
        before = float(learner.baseline[0])
        learner.learn(np.array([0]), features, arms, rewards)
        shift = (learner.baseline[0] - before) / INTERCEPT_VAR
        mean = learner.mean[0, arms[0]] - learner.covariances[0, arms[0]][0] * shift  # undo the shift of the base rate
        prior = np.diag([1.0 / INTERCEPT_VAR, P, P])
        mode, cov = laplace(family, features, rewards, np.array([before, 0.0, 0.0]), prior)
        np.testing.assert_allclose(mean, mode, atol=1e-6)  # the tolerance of BFGS
        np.testing.assert_allclose(learner.covariances[0, arms[0]], cov, atol=1e-7)


@pytest.mark.parametrize("family", ["binary", "count"])
@pytest.mark.parametrize("learner", [GeneralisedLinear, QuasiLikelihood])
def test_many_rewards_come_close_to_the_dense_laplace_fit(family, learner):
    features, arms, rewards, _ = simulate(family, 3_000)
    found = make(family, learner)
    found.learn(np.zeros(3_000, dtype=np.int64), features, arms, rewards)
    prior_mean = np.array([float(found.baseline[0]), 0.0, 0.0])
    for arm in range(K):
        of_arm = arms == arm
        mode, cov = laplace(family, features[of_arm], rewards[of_arm], prior_mean, np.diag([1.0 / INTERCEPT_VAR, P, P]))
        std = np.sqrt(np.diag(cov))
        # Each reward is approximated once, at the posterior of its time: within half a standard deviation.
        assert (np.abs(found.mean[0, arm] - mode) < 0.5 * std).all()
        np.testing.assert_allclose(np.sqrt(np.diag(found.covariances[0, arm])), std, rtol=0.1)


@pytest.mark.parametrize("family", ["binary", "count"])
def test_estimates_agree_with_statsmodels(family):
    api = pytest.importorskip("statsmodels.api")
    features, arms, rewards, slopes = simulate(family, 6_000, seed=3)
    learner = make(family)
    learner.learn(np.zeros(6_000, dtype=np.int64), features, arms, rewards)
    distribution = api.families.Binomial() if family == "binary" else api.families.Poisson()
    for arm in range(K):
        of_arm = arms == arm
        fit = api.GLM(rewards[of_arm], api.add_constant(features[of_arm]), family=distribution).fit()
        assert (np.abs(learner.mean[0, arm] - fit.params) < 0.5 * fit.bse).all()
        np.testing.assert_allclose(np.sqrt(np.diag(learner.covariances[0, arm])), fit.bse, rtol=0.1)
        assert (np.abs(learner.mean[0, arm, 1:] - slopes[arm]) < 4.0 * fit.bse[1:]).all()


def test_a_logit_on_filtered_contexts_recovers_its_slope():
    """A known filter of a slowly moving context with little noise, and one arm whose slope is 2."""
    rng = np.random.default_rng(1)
    model = hs.LinearGaussianModel(transition=[[0.95]], process_cov=0.1, observation_cov=[0.02])
    agent = hs.make("kf-ts", observed=1, arms=1, model=model, reward_family="binary", regularisation=0.05)
    x = 0.0
    for _ in range(6_000):
        x = 0.95 * x + np.sqrt(0.1) * rng.normal()
        decision = agent.decide([x + np.sqrt(0.02) * rng.normal()])
        agent.learn(decision, float(rng.uniform() < special.expit(-1.0 + 2.0 * x)))
    intercept, slope = agent.policy.learner.mean[0, 0]
    assert slope == pytest.approx(2.0, abs=0.25)  # about four standard errors
    assert intercept == pytest.approx(-1.0, abs=0.2)


@pytest.mark.parametrize("family", ["binary", "count"])
@pytest.mark.parametrize("learner", [GeneralisedLinear, QuasiLikelihood])
def test_extreme_predictors_leave_a_finite_state(family, learner):
    found, rows = make(family, learner, arms=1), np.zeros(1, dtype=np.int64)
    for sign, reward in ((1.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, 1.0)):
        found.mean[0, 0] = np.array([0.0, 800.0, 0.0])
        found.learn(rows, np.array([[sign, 0.0]]), rows, np.array([reward]))
        assert np.isfinite(found.expected_rewards(decide(found, np.array([[1.0, 0.0]])))).all()
        for name in found.state_names:
            assert np.isfinite(getattr(found, name)).all(), name


@pytest.mark.parametrize("family", ["binary", "count"])
def test_a_replaced_reward_is_the_first_order_change(family):
    """Replacing r by r' moves the mean by C(1, c)(r' − r). Learning r' instead gives nearly the same."""
    features, arms, rewards, _ = simulate(family, 600)
    rows = np.zeros(600, dtype=np.int64)
    given = rewards.copy()
    given[-20:] = 0.0
    replaced, at_once = make(family), make(family)
    data = []
    for t in range(600):
        data.append(replaced.replacement_data(rows[:1], arms[t : t + 1]))
        replaced.learn(rows[:1], features[t : t + 1], arms[t : t + 1], given[t : t + 1])
    last, learnt = slice(-20, None), np.concatenate(data[-20:])
    replaced.replace_rewards(rows[last], features[last], arms[last], given[last], rewards[last], learnt)
    at_once.learn(rows, features, arms, rewards)
    std = np.sqrt(np.einsum("kii->ki", at_once.covariances[0]))
    assert (np.abs(replaced.mean[0] - at_once.mean[0]) < 0.2 * std).all()
    assert (given != rewards).any()
    np.testing.assert_allclose(replaced.reward_totals, at_once.reward_totals)
    np.testing.assert_allclose(replaced.baseline, at_once.baseline)
    np.testing.assert_allclose(replaced.calibration[..., 1], at_once.calibration[..., 1])


@pytest.mark.parametrize(
    ("family", "reward", "expected"),
    [
        ("binary", 1.5, "a number from 0 to 1, because the reward family is 'binary'"),
        ("binary", -0.1, "a number from 0 to 1, because the reward family is 'binary'"),
        ("binary", float("nan"), "a number from 0 to 1, because the reward family is 'binary'"),
        ("count", -1.0, r"a number from 0 to 1e\+100, because the reward family is 'count'"),
        ("count", float("inf"), r"a number from 0 to 1e\+100, because the reward family is 'count'"),
    ],
)
def test_a_reward_outside_of_its_range_is_refused(family, reward, expected):
    agent = hs.make("ts-pco", observed=P, arms=K, reward_family=family)
    first, second = agent.decide([0.5, 1.0]), agent.decide([0.1, 0.2])
    agent.learn(first, 1.0, provisional=True)
    before = {name: array.tobytes() for name, array in agent.state().items()}
    several = expected.replace("a number", "numbers")
    for act in (
        lambda: agent.learn(second, reward),
        lambda: agent.learn(first, reward),
        lambda: agent.learn(second, reward, provisional=True),
    ):
        with pytest.raises(hs.HalfseenError, match=rf"^reward: expected {expected}, got "):
            act()
    with pytest.raises(hs.HalfseenError, match=rf"^rewards: expected {several}, got "):
        agent.learn_many([second, first], [1.0, reward])
    if not np.isnan(reward):  # in `fold`, NaN is a reward that was never received
        with pytest.raises(hs.HalfseenError, match=r"^rewards: expected "):
            agent.fold([[0.1, 0.2]] * 2, [0, 1], [1.0, reward])
    assert {name: array.tobytes() for name, array in agent.state().items()} == before
    fleet = hs.Fleet("ts-pco", observed=P, arms=K, reward_family=family)
    fleet.add(2)
    decisions = fleet.decide([[0.5, 1.0], [0.1, 0.2]])
    with pytest.raises(hs.HalfseenError, match=rf"^rewards: expected {several}, got "):
        fleet.learn(decisions, [1.0, reward])
    fleet.learn(decisions, [1.0, 0.0])


def test_an_unknown_family_is_refused():
    with pytest.raises(
        hs.HalfseenError, match=r"^reward_family: expected 'gaussian' or 'binary' or 'count', got 'logit'"
    ):
        hs.make("ts-pco", observed=P, arms=K, reward_family="logit")
    with pytest.raises(hs.HalfseenError, match="'meb' has no option 'reward_family'"):
        hs.make("meb", observed=P, arms=K, reward_family="binary")


def test_gaussian_agents_keep_their_learner():
    assert type(hs.make("ts-pco", observed=P, arms=K, reward_family="gaussian").policy.learner) is Ridge
    assert type(hs.make("ts-pco", observed=P, arms=K).policy.learner) is Ridge


def test_an_added_arm_starts_from_the_base_rate():
    agent = hs.make("ts-pco", observed=P, arms=K, reward_family="binary", regularisation=1e6)
    for _ in range(99):
        agent.learn(agent.decide([0.0, 0.0]), 0.0)
    agent.add_arm()
    # With negligible slopes, the variance of the new arm's predictor is that of its intercept.
    assert agent.decide([0.0, 0.0]).expected[-1] == pytest.approx(0.5 / 100, rel=0.01)
