"""The posterior over the states of a known chain, against every path written out; late rewards included."""

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


def agent(**options):
    return hs.make("mts", observed=1, arms=4, **told(), **options)


def told():
    prior = np.array([0.5, 0.3, 0.2])
    return {
        "state_rewards": state_rewards(),
        "state_transition": STATE_TRANSITION,
        "state_std": 1.7,
        "state_prior": prior,
    }


def posterior(arms, rewards):
    """P(s_n | rewards of rounds 1..n−1), NaN where none came, by enumeration; s_1 is drawn from the prior."""
    likely = np.ones((len(arms), S))
    for t, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
        if not np.isnan(reward):
            likely[t] = np.exp(-0.5 * ((reward - state_rewards()[arm]) / 1.7) ** 2)
    # The path of the reference starts one round before its first likelihood; here that is the first round itself.
    start = told()["state_prior"] * likely[0]
    listed, weights = paths(start, STATE_TRANSITION, np.concatenate([likely[1:], np.ones((1, S))]))
    out = np.zeros(S)
    for path, weight in zip(listed, weights, strict=True):
        out[path[-1]] += weight
    return out / out.sum()


@pytest.mark.parametrize("order", ["prompt", "late", "shuffled"])
def test_the_belief_is_that_of_all_paths(order):
    rng, mts = np.random.default_rng(4), agent()
    rewards = np.where(rng.uniform(size=6) < 0.3, np.nan, rng.normal(scale=2.0, size=6))
    decisions = []
    for reward in rewards:
        decisions.append(mts.decide([0.3]))
        if order == "prompt" and not np.isnan(reward):
            mts.learn(decisions[-1], reward)
    numbers = [i for i in range(6) if not np.isnan(rewards[i])]
    if order != "prompt":
        for i in numbers[::-1] if order == "late" else rng.permutation(numbers):
            mts.learn(decisions[i], rewards[i])
    want = posterior([d.index for d in decisions], rewards)
    now = mts.decide([np.nan])
    np.testing.assert_allclose(now.context, want, atol=1e-12)
    np.testing.assert_allclose(now.expected, state_rewards() @ want, atol=1e-12)
    best = state_rewards().argmax(axis=0)
    np.testing.assert_allclose(now.propensities, [want[best == arm].sum() for arm in range(4)], atol=1e-12)


def test_rewards_older_than_the_memory_are_forgotten_and_said_so():
    mts, twin = agent(memory=3), agent(memory=3)
    ids = [mts.decide([0.0]).id for _ in range(5)]
    for _ in range(5):
        twin.decide([0.0])
    mts.learn(ids[1], 5.0)  # three rounds ago
    np.testing.assert_array_equal(mts.decide([0.0]).context, twin.decide([0.0]).context)
    assert mts.health().facts["rewards too late to count"] == 1
    assert "1 rewards came later than the 3 rounds that are remembered" in mts.health().notes
    mts.learn(ids[4], 5.0)
    assert mts.health().facts["rewards too late to count"] == 1
    assert not np.array_equal(mts.decide([0.0]).context, twin.decide([0.0]).context)


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("state_transition", np.eye(3) * 0.9, "state_transition: expected prob, got entries from 0, sums from 0.9"),
        ("state_transition", [0.5, 0.5], "state_transition: expected a matrix, states by states, got shape (2,)"),
        ("state_transition", np.ones((2, 3)) / 3, "state_transition: expected shape (3, 3), got shape (2, 3)"),
        ("state_rewards", np.ones((4, 2)), "state_rewards: expected shape (4, 3), got shape (4, 2)"),
        ("state_std", 0.0, "state_std: expected a finite number above 0, got 0"),
        ("state_prior", [0.5, 0.6, -0.1], "state_prior: expected probabilities, got entries from -0.1, sums from 1"),
        ("memory", 0, "memory: expected an integer of at least 1, got 0"),
    ],
)
def test_bad_options(option, value, line):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.make("mts", observed=1, arms=4, **(told() | {option: value}))
    assert str(caught.value).startswith(line)


def test_a_new_arm_must_be_told():
    mts = agent()
    with pytest.raises(hs.HalfseenError, match=r"^params: expected 3 numbers: this agent must be told, got nothing"):
        mts.add_arm()
    assert mts.add_arm(params=[9.0, 9.0, 9.0]) == 4
    assert mts.decide([0.0]).propensities.tolist() == pytest.approx([0, 0, 0, 0, 1])


def test_a_learner_that_does_not_know_what_arms_pay_is_refused():
    streams = StreamBatch(stream_keys(0), 1, 4)
    estimator = LatentStates(streams, state_transition=STATE_TRANSITION)
    with pytest.raises(hs.HalfseenError, match="learner: expected one that knows what every arm pays, got Ridge"):
        estimator.bind_learner(Ridge(streams, S))
