"""The belief over the states of a known chain, compared with a sum over all paths; also with late rewards."""

import numpy as np
import pytest
from reference.hidden_markov import paths
from settings import STATE_TRANSITION, state_rewards

import halfseen as hs
from halfseen.components import StreamBatch
from halfseen.estimators.latent_states import LatentStates
from halfseen.kernels.random import stream_keys
from halfseen.learners.ridge import Ridge

S = 3


OPTIONS = {
    "state_rewards": state_rewards(),
    "state_transition": STATE_TRANSITION,
    "state_std": 1.7,
    "state_prior": np.array([0.5, 0.3, 0.2]),
}


def make_mts(**options):
    return hs.make("mts", observed=1, arms=4, **(OPTIONS | options))


def posterior(arms, rewards):
    """Return P(s_{n+1} | rewards of rounds 1..n) by enumeration of all paths. A missing reward is NaN."""
    likelihoods = np.ones((len(arms), S))
    for t, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
        if not np.isnan(reward):
            likelihoods[t] = np.exp(-0.5 * ((reward - state_rewards()[arm]) / 1.7) ** 2)
    # The paths of the reference start one round before the first likelihood that it is given.
    start = OPTIONS["state_prior"] * likelihoods[0]
    listed, weights = paths(start, STATE_TRANSITION, np.concatenate([likelihoods[1:], np.ones((1, S))]))
    belief = np.zeros(S)
    for path, weight in zip(listed, weights, strict=True):
        belief[path[-1]] += weight
    return belief / belief.sum()


@pytest.mark.parametrize("order", ["prompt", "late", "shuffled"])
def test_the_belief_equals_the_sum_over_all_paths(order):
    rng, mts = np.random.default_rng(4), make_mts()
    rewards = np.where(rng.uniform(size=6) < 0.3, np.nan, rng.normal(scale=2.0, size=6))
    decisions = []
    for reward in rewards:
        decisions.append(mts.decide([0.3]))
        if order == "prompt" and not np.isnan(reward):
            mts.learn(decisions[-1], reward)
    rewarded = [i for i in range(6) if not np.isnan(rewards[i])]
    if order != "prompt":
        for i in rewarded[::-1] if order == "late" else rng.permutation(rewarded):
            mts.learn(decisions[i], rewards[i])
    want = posterior([d.index for d in decisions], rewards)
    decision = mts.decide([np.nan])
    np.testing.assert_allclose(decision.context, want, atol=1e-12)
    np.testing.assert_allclose(decision.expected, state_rewards() @ want, atol=1e-12)
    best = state_rewards().argmax(axis=0)
    np.testing.assert_allclose(decision.propensities, [want[best == arm].sum() for arm in range(4)], atol=1e-12)


def test_rewards_older_than_the_memory_are_discarded_and_counted():
    mts, twin = make_mts(memory=3), make_mts(memory=3)
    ids = [mts.decide([0.0]).id for _ in range(5)]
    for _ in range(5):
        twin.decide([0.0])
    mts.learn(ids[1], 5.0)  # three rounds ago
    np.testing.assert_array_equal(mts.decide([0.0]).context, twin.decide([0.0]).context)
    assert mts.health().facts["rewards too late to count"] == 1
    assert "rewards discarded because they arrived 3 or more rounds late: 1" in mts.health().notes
    mts.learn(ids[4], 5.0)
    assert mts.health().facts["rewards too late to count"] == 1
    assert not np.array_equal(mts.decide([0.0]).context, twin.decide([0.0]).context)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "state_transition",
            np.eye(3) * 0.9,
            "state_transition: expected probabilities that sum to 1, got a smallest entry of 0 ",
        ),
        ("state_transition", [0.5, 0.5], "state_transition: expected a square matrix, got shape (2,)"),
        ("state_transition", np.ones((2, 3)) / 3, "state_transition: expected shape (3, 3), got shape (2, 3)"),
        ("state_rewards", np.ones((4, 2)), "state_rewards: expected shape (4, 3), got shape (4, 2)"),
        ("state_std", 0.0, "state_std: expected a finite number above 0, got 0"),
        (
            "state_prior",
            [0.5, 0.6, -0.1],
            "state_prior: expected probabilities that sum to 1, got a smallest entry of -0.1 and a smallest sum of 1",
        ),
        ("memory", 0, "memory: expected an integer between 1 and 1000000, got 0"),
    ],
)
def test_invalid_options_are_refused(option, value, message):
    with pytest.raises(hs.HalfseenError) as caught:
        make_mts(**{option: value})
    assert str(caught.value).startswith(message)


def test_an_added_arm_needs_its_rewards():
    mts = make_mts()
    with pytest.raises(
        hs.HalfseenError, match=r"^params: expected 3 numbers, as this agent is given the arm parameters, got nothing$"
    ):
        mts.add_arm()
    assert mts.add_arm(params=[9.0, 9.0, 9.0]) == 4
    assert mts.decide([0.0]).propensities.tolist() == pytest.approx([0, 0, 0, 0, 1])


def test_a_learner_that_does_not_know_the_rewards_of_the_states_is_refused():
    streams = StreamBatch(stream_keys(0), 1, 4)
    estimator = LatentStates(streams, state_transition=STATE_TRANSITION)
    with pytest.raises(
        hs.HalfseenError,
        match="learner: expected a learner that knows the reward of every arm in every state, got Ridge",
    ):
        estimator.bind_learner(Ridge(streams, S))
