"""How a policy calls an estimator that learns from rewards or learns its model again."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, make_small, simulate_rounds

import halfseen as hs
from halfseen.agents.agent import Agent
from halfseen.agents.policy import Policy
from halfseen.choosers.thompson import Thompson
from halfseen.components import StreamBatch
from halfseen.estimators.observed import Observed
from halfseen.kernels.random import stream_keys
from halfseen.learners.ridge import Ridge


class Attentive(Observed):
    """Refits in every third round, from when on its features are larger by 1; writes down what it hears."""

    state_names = ("last", "refits", "now")

    def __init__(self, streams):
        super().__init__(streams)
        self.refits = np.zeros(streams.count, dtype=np.int64)
        self.now = np.zeros(streams.count, dtype=np.int64)
        self.heard = []

    def observe(self, rows, observations, rounds, complete, contexts):
        self.now[rows] = rounds
        return super().observe(rows, observations, rounds, complete, contexts) + self.refits[rows][:, None]

    def features_of(self, rows, rounds, features):
        return features % 1 + self.refits[rows][:, None]

    def update_from_rewards(self, rows, rounds, arms, rewards, learner):
        self.heard.append((rows.tolist(), rounds.tolist(), arms.tolist(), rewards.tolist(), learner.log_det.sum()))

    def due_for_refit(self, rows):
        return rows[self.now[rows] % 3 == 0]

    def refit(self, rows, learner):
        self.refits[rows] += 1


def build(count=1):
    streams = StreamBatch(stream_keys(np.arange(count)), OBSERVED, ARMS)
    return Policy(streams, Attentive(streams), Ridge(streams, OBSERVED), Thompson(streams, OBSERVED))


def test_a_decision_is_made_on_the_belief_of_the_model_learnt_again():
    policy = build()
    features = [policy.decide(np.full((1, OBSERVED), 0.25)).features[0, 0] for _ in range(7)]
    assert features == [0.25, 0.25, 1.25, 1.25, 1.25, 2.25, 2.25]


def test_streams_learn_again_each_in_its_own_round():
    policy = build(count=2)
    policy.decide(np.full((1, OBSERVED), 0.25), rows=np.array([1]))
    features = [policy.decide(np.full((2, OBSERVED), 0.25)).features[:, 0].tolist() for _ in range(3)]
    assert features == [[0.25, 0.25], [0.25, 1.25], [1.25, 1.25]]


def test_rewards_are_credited_with_the_belief_of_the_model_in_force_and_then_heard_of():
    policy = build()
    first = policy.decide(np.full((1, OBSERVED), 0.25))
    for _ in range(2):
        policy.decide(np.full((1, OBSERVED), 0.5))
    policy.learn(first.rounds, first.features, first.arms, np.array([2.0]))
    want = Ridge(policy.streams, OBSERVED)
    want.learn(np.array([0]), np.full((1, OBSERVED), 1.25), first.arms, np.array([2.0]))
    np.testing.assert_array_equal(policy.learner.mean, want.mean)
    assert policy.estimator.heard == [([0], [1], first.arms.tolist(), [2.0], want.log_det.sum())]


def test_many_rewards_are_heard_of_one_by_one():
    agents = [Agent(build(), {"name": "attentive"}, arms=range(ARMS), max_pending=9) for _ in range(2)]
    for agent in agents:
        decisions = [agent.decide(y % 1) for y in simulate_rounds(5)[1]]
        if agent is agents[0]:
            agent.learn_many(decisions, np.arange(5.0))
        else:
            for decision in decisions:
                agent.learn(decision, decision.id - 1.0)
    heard = agents[0].policy.estimator.heard
    assert [rounds for _, rounds, *_ in heard] == [[1], [2], [3], [4], [5]]
    assert heard == agents[1].policy.estimator.heard


def test_retiring_an_arm_of_some_streams_only():
    policy = build(count=2)
    policy.retire_arm(1, rows=np.array([1]))
    for arm in (0, 2):
        policy.retire_arm(arm)
    assert policy.active.tolist() == [[False, True, False, True], [False, False, False, True]]
    with pytest.raises(
        hs.HalfseenError, match=r"^arm: expected at least one arm left active, got 3, the last active one"
    ):
        policy.retire_arm(3)
    choices = policy.decide(np.ones((1, OBSERVED)), rows=np.array([1]))
    assert choices.arms.tolist() == [3]
    assert policy.propensities(choices)[0] == pytest.approx([0, 0, 0, 1], abs=1e-9)


def test_streams_with_gaps_of_their_own_are_counted_apart():
    policy, ys = build(count=2), np.ones((2, OBSERVED))
    policy.decide(ys)
    ys[0, 1] = np.nan
    for _ in range(3):
        policy.decide(ys)
    policy.decide(np.ones((1, OBSERVED)), rows=np.array([1]))
    assert policy.missed.tolist() == [[0, 3, 0], [0, 0, 0]]
    assert policy.silent.tolist() == [[0, 3, 0], [0, 0, 0]]
    policy.decide(np.ones((2, OBSERVED)))
    assert policy.missed.tolist() == [[0, 3, 0], [0, 0, 0]]
    assert not policy.silent.any()
    assert policy.health(0)[0]["share of entries not seen"] == 3 / 15


def test_catalogued_agents_pay_nothing_for_what_their_estimator_leaves_out(monkeypatch):
    """The four calls are not made where they are not overridden."""
    from halfseen.components import Estimator

    agent = make_small("kf-ts")
    for name in ("features_of", "update_from_rewards", "due_for_refit", "refit"):
        monkeypatch.setattr(Estimator, name, lambda *_: pytest.fail("called"))
    agent.learn(agent.decide([1.0, 2.0, 3.0]), 1.0)


class Sideways(Observed):
    """Hands its features over column by column, and in single precision."""

    def observe(self, rows, observations, rounds, complete, contexts):
        features = super().observe(rows, observations, rounds, complete, contexts)
        return np.asfortranarray(features, dtype=np.float32)

    def features_of(self, rows, rounds, features):
        return np.repeat(features, 2, axis=1)[:, ::2]


class Spread(Thompson):
    """Widths with other numbers between them."""

    def widths(self, rows, rounds, learner):
        widths = super().widths(rows, rounds, learner)
        return np.stack([widths, 9.0 * widths], axis=2).reshape(len(widths), -1)[:, ::2]


@pytest.mark.parametrize(("estimator", "chooser"), [(Sideways, Thompson), (Observed, Spread)])
def test_parts_of_other_people_may_lay_their_arrays_out_as_they_like(estimator, chooser):
    """The kernels that are called directly would read them wrongly."""
    streams = StreamBatch(stream_keys(np.arange(4)), OBSERVED, ARMS)
    mine, plain = (
        Policy(streams, one(streams), Ridge(streams, OBSERVED), other(streams, OBSERVED))
        for one, other in ((estimator, chooser), (Observed, Thompson))
    )
    rng = np.random.default_rng(0)
    for _ in range(60):
        y = rng.normal(size=(4, OBSERVED)).astype(np.float32).astype(float)
        picked = []
        for policy in (mine, plain):
            choices = policy.decide(y)
            policy.learn(choices.rounds, choices.features, choices.arms, choices.arms * 0.5 - y[:, 0])
            picked.append(choices.arms)
        np.testing.assert_array_equal(*picked)
    np.testing.assert_array_equal(mine.learner.mean, plain.learner.mean)


def plain_policy(count=6, arms=3, estimator=Observed, chooser=Thompson):
    streams = StreamBatch(stream_keys(np.arange(count)), 2, arms)
    return Policy(streams, estimator(streams), Ridge(streams, 2), chooser(streams, 2))


def test_rows_masks_and_rewards_may_be_cut_out_of_other_arrays():
    policy, twin = plain_policy(), plain_policy()
    y = np.random.default_rng(0).normal(size=(3, 2))
    rows, table = np.arange(6)[::2], np.random.default_rng(1).normal(size=(3, 2))
    only_first = np.broadcast_to(np.array([True, False, False]), (3, 3))
    for one, where, mask, paid in (
        (policy, rows, only_first, table[:, 1]),
        (twin, rows.copy(), only_first.copy(), table[:, 1].copy()),
    ):
        choices = one.decide(y, rows=where, available=mask)
        assert choices.arms.tolist() == [0, 0, 0]
        one.learn(choices.rounds, choices.features, choices.arms, paid, rows=where)
        assert np.flatnonzero(one.learner.log_det.any(axis=1)).tolist() == [0, 2, 4]
    np.testing.assert_array_equal(policy.learner.mean, twin.learner.mean)


class Flat(Observed):
    def observe(self, rows, observations, rounds, complete, contexts):
        return super().observe(rows, observations, rounds, complete, contexts)[:, 0]


class OneWidthAnArm(Thompson):
    def widths(self, rows, rounds, learner):
        return super().widths(rows, rounds, learner)[0]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"estimator": Flat}, r"features: expected one of shape \(6, 2\), got an array of shape \(6,\) from a part"),
        (
            {"chooser": OneWidthAnArm},
            r"widths: expected one of shape \(6, 3\), got an array of shape \(3,\) from a part",
        ),
    ],
)
def test_arrays_of_another_shape_from_parts_of_other_people_are_refused(parts, message):
    with pytest.raises(hs.HalfseenError, match=message):
        plain_policy(**parts).decide(np.ones((6, 2)))
