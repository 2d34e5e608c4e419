"""The origin of contexts and rewards: 0 in the units of the user, or another one, and the vote of the other origin."""

import numpy as np
import pytest
from settings import assert_same_state

import halfseen as hs
from halfseen.kernels.adaptive import VOTE
from halfseen.learners.calibrated import NO_LEAD, fit_rewards

K, ARMS = 3, 4


def walking(seed, rounds, *, shift=0.0, reward_shift=0.0):
    """Simulate a random walk from near 0, arms chosen at random, and rewards that are linear in the context."""
    rng = np.random.default_rng([seed, 8])
    ys = np.cumsum(0.1 * rng.normal(size=(rounds, K)), axis=0) + rng.normal(size=K)
    arms = rng.integers(ARMS, size=rounds)
    params = rng.normal(size=(ARMS, K))
    rewards = (params[arms] * ys).sum(axis=1) + 0.3 * rng.normal(size=rounds)
    return ys + shift, arms, rewards + reward_shift


def folded(seed=0, rounds=120, **options):
    shifts = {name: options.pop(name) for name in ("shift", "reward_shift") if name in options}
    return hs.make("adaptive", observed=K, arms=ARMS, seed=1, **options).fold(*walking(seed, rounds, **shifts))


def test_zero_is_found_where_it_is_the_origin():
    in_force = [bool(folded(seed).policy.learner.through_zero[0]) for seed in range(8)]
    assert sum(in_force) >= 6


def test_zero_is_not_used_where_it_is_not_the_origin():
    for seed in range(4):
        learner = folded(seed, shift=40.0, reward_shift=500.0).policy.learner
        assert not learner.through_zero[0]
        assert learner.lead[0] < VOTE


def test_without_an_intercept_the_evidence_is_that_of_a_regression_through_zero():
    ys, arms, rewards = walking(3, 80)
    features = np.hstack([np.ones((80, 1)), ys])
    found = fit_rewards(features, arms, rewards, ARMS, through_zero=True)
    assert (found.origin, found.baseline) == (0.0, 0.0)
    evidence = 0.0
    for a in range(ARMS):
        F, r = ys[arms == a], rewards[arms == a]
        cov = F @ found.prior[1:, 1:] @ F.T + found.noise[a] * np.eye(len(r))
        evidence -= 0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + r @ np.linalg.solve(cov, r))
    assert found.evidence == pytest.approx(evidence, abs=1e-3)
    assert np.abs(found.mean[:, 0]).max() < 1e-3 * np.abs(rewards).mean()


def agent_with_two_origins(**options):
    """Return an agent in which the other origin is fitted too."""
    for seed in range(20):
        agent = folded(seed, rounds=70, refit="manual", **options)
        agent.refit()
        if agent.policy.learner.has_other[0]:
            return agent, seed
    raise AssertionError("no agent has two origins")


def test_the_other_origin_has_the_posterior_of_its_own_regression():
    """The posterior is stored in the coordinates of the origin in force. Both predict at the same contexts."""
    agent, _seed = agent_with_two_origins()
    learner, estimator = agent.policy.learner, agent.policy.estimator
    _, arms, rewards, window = estimator.window(0)
    p = int(learner.latent_dims[0]) + 1
    features = estimator.history.features[0, window, :p]
    moved = features.copy()
    moved[:, 1 : K + 1] += learner.other_shift[0]
    found = fit_rewards(moved, arms, rewards, ARMS, through_zero=not learner.through_zero[0])
    mean = learner.other_mean[0, : ARMS * p].reshape(ARMS, p)
    cov = learner.other_cov[0, : ARMS * p * p].reshape(ARMS, p, p)
    for a in range(ARMS):
        want, got = moved @ found.mean[a] + found.origin, features @ mean[a] + learner.reward_origin[0]
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7)
        want, got = (np.einsum("ni,ij,nj->n", F, C, F) for F, C in ((moved, found.cov[a]), (features, cov[a])))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)


def test_rewards_change_the_lead_by_their_log_likelihood_ratio():
    agent, seed = agent_with_two_origins()
    learner, estimator = agent.policy.learner, agent.policy.estimator
    ys, arms, _rewards = walking(seed, 71)
    before = {name: getattr(learner, name).copy() for name in ("mean", "cov", "other_mean", "other_cov", "lead")}
    decision, p = agent.replay(ys[70], int(arms[70])), int(learner.latent_dims[0]) + 1
    c, a = estimator.history.features[0, 70, :p], int(arms[70])
    noise = learner.replacement_data(np.array([0]), np.array([a]))[0, 0]
    r = learner.fit_mean[0, a * p : (a + 1) * p] @ c + 0.5 * np.sqrt(noise)  # close to its prediction, so weight 1
    agent.learn(decision.id, r + learner.reward_origin[0])
    densities = []
    for prefix, v in (("other_", noise * learner.other_noise_var[0, a] / learner.noise_var[0, a]), ("", noise)):
        m = before[f"{prefix}mean"][0, a * p : (a + 1) * p]
        C = before[f"{prefix}cov"][0, a * p * p : (a + 1) * p * p].reshape(p, p)
        s = v + c @ C @ c
        densities.append(-0.5 * (np.log(s) + (r - m @ c) ** 2 / s))
    assert learner.lead[0] - before["lead"][0] == pytest.approx(densities[0] - densities[1], rel=1e-6)


def test_both_origins_survive_saving_and_accepting(tmp_path):
    agent, _seed = agent_with_two_origins()
    agent.save(tmp_path / "agent.hs")
    twin = hs.load(tmp_path / "agent.hs")
    assert_same_state(agent, twin)
    lead = float(agent.policy.learner.lead[0])
    agent.accept(agent.model())
    assert agent.policy.learner.has_other[0]
    assert agent.policy.learner.lead[0] == pytest.approx(lead, abs=0.5)


def test_an_added_arm_starts_from_the_prior_of_both_origins():
    agent, _ = agent_with_two_origins()
    learner = agent.policy.learner
    agent.add_arm()
    p = int(learner.latent_dims[0]) + 1
    shear = np.eye(p)
    shear[0, 1 : K + 1] = learner.other_shift[0]
    prior = shear @ learner.other_prior_cov[0, : p * p].reshape(p, p) @ shear.T
    np.testing.assert_allclose(learner.other_cov[0, ARMS * p * p : (ARMS + 1) * p * p].reshape(p, p), prior)
    assert agent.decide(walking(0, 1)[0][0]).propensities.shape == (ARMS + 1,)


def test_an_origin_that_is_far_away_is_not_considered():
    learner = folded(0, shift=1e6).policy.learner
    assert not learner.through_zero[0]
    assert learner.lead[0] == NO_LEAD


@pytest.mark.parametrize("rounds", [16, 70])  # before and after the first identification
def test_a_model_with_origin_0_is_accepted_by_an_agent_far_away_from_0(rounds):
    for seed in range(20):
        agent = folded(seed, rounds=rounds, refit="manual")
        agent.refit()
        if agent.policy.learner.through_zero[0]:
            break
    assert agent.policy.learner.through_zero[0]
    far = folded(seed, rounds=rounds, refit="manual", shift=1e6)
    far.accept(agent.model())
    assert np.isfinite(far.decide(np.full(K, 1e6)).expected).all()
