"""How a policy calls an estimator that updates its belief from rewards or refits its model."""

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


class RefittingEstimator(Observed):
    """Refits in every third round, which adds 1 to its features, and records the rewards it receives."""

    state_names = ("last", "refits", "current_round")

    def __init__(self, streams):
        super().__init__(streams)
        self.refits = np.zeros(streams.count, dtype=np.int64)
        self.current_round = np.zeros(streams.count, dtype=np.int64)
        self.received = []

    def observe(self, rows, observations, rounds, complete, contexts):
        self.current_round[rows] = rounds
        return super().observe(rows, observations, rounds, complete, contexts) + self.refits[rows][:, None]

    def features_of(self, rows, rounds, features):
        return features % 1 + self.refits[rows][:, None]

    def update_from_rewards(self, rows, rounds, arms, rewards, learner):
        self.received.append((rows.tolist(), rounds.tolist(), arms.tolist(), rewards.tolist(), learner.log_det.sum()))

    def due_for_refit(self, rows):
        return rows[self.current_round[rows] % 3 == 0]

    def refit(self, rows, learner):
        self.refits[rows] += 1


def build(count=1):
    streams = StreamBatch(stream_keys(np.arange(count)), OBSERVED, ARMS)
    return Policy(streams, RefittingEstimator(streams), Ridge(streams, OBSERVED), Thompson(streams, OBSERVED))


def test_a_decision_uses_the_belief_of_the_refitted_model():
    policy = build()
    features = [policy.decide(np.full((1, OBSERVED), 0.25)).features[0, 0] for _ in range(7)]
    assert features == [0.25, 0.25, 1.25, 1.25, 1.25, 2.25, 2.25]


def test_every_stream_refits_in_its_own_round():
    policy = build(count=2)
    policy.decide(np.full((1, OBSERVED), 0.25), rows=np.array([1]))
    features = [policy.decide(np.full((2, OBSERVED), 0.25)).features[:, 0].tolist() for _ in range(3)]
    assert features == [[0.25, 0.25], [0.25, 1.25], [1.25, 1.25]]


def test_rewards_are_learnt_with_the_belief_of_the_current_model_and_then_passed_to_the_estimator():
    policy = build()
    first = policy.decide(np.full((1, OBSERVED), 0.25))
    for _ in range(2):
        policy.decide(np.full((1, OBSERVED), 0.5))
    policy.learn(first.rounds, first.features, first.arms, np.array([2.0]))
    expected = Ridge(policy.streams, OBSERVED)
    expected.learn(np.array([0]), np.full((1, OBSERVED), 1.25), first.arms, np.array([2.0]))
    np.testing.assert_array_equal(policy.learner.mean, expected.mean)
    assert policy.estimator.received == [([0], [1], first.arms.tolist(), [2.0], expected.log_det.sum())]


def test_learn_many_passes_rewards_of_one_stream_to_the_estimator_one_by_one():
    agents = [Agent(build(), {"name": "refitting"}, arms=range(ARMS), max_pending=9) for _ in range(2)]
    for agent in agents:
        decisions = [agent.decide(y % 1) for y in simulate_rounds(5)[1]]
        if agent is agents[0]:
            agent.learn_many(decisions, np.arange(5.0))
        else:
            for decision in decisions:
                agent.learn(decision, decision.id - 1.0)
    received = agents[0].policy.estimator.received
    assert [rounds for _, rounds, *_ in received] == [[1], [2], [3], [4], [5]]
    assert received == agents[1].policy.estimator.received


def test_an_arm_can_be_retired_in_some_streams_only():
    policy = build(count=2)
    policy.retire_arm(1, rows=np.array([1]))
    for arm in (0, 2):
        policy.retire_arm(arm)
    assert policy.active.tolist() == [[False, True, False, True], [False, False, False, True]]
    with pytest.raises(
        hs.HalfseenError, match=r"^arm: expected an arm that is not the only active one, got 3, the last active arm"
    ):
        policy.retire_arm(3)
    choices = policy.decide(np.ones((1, OBSERVED)), rows=np.array([1]))
    assert choices.arms.tolist() == [3]
    assert policy.propensities(choices)[0] == pytest.approx([0, 0, 0, 1], abs=1e-9)


def test_missing_entries_are_counted_per_stream():
    policy, ys = build(count=2), np.ones((2, OBSERVED))
    policy.decide(ys)
    ys[0, 1] = np.nan
    for _ in range(3):
        policy.decide(ys)
    policy.decide(np.ones((1, OBSERVED)), rows=np.array([1]))
    assert policy.missing_counts.tolist() == [[0, 3, 0], [0, 0, 0]]
    assert policy.missing_streaks.tolist() == [[0, 3, 0], [0, 0, 0]]
    policy.decide(np.ones((2, OBSERVED)))
    assert policy.missing_counts.tolist() == [[0, 3, 0], [0, 0, 0]]
    assert not policy.missing_streaks.any()
    assert policy.health(0)[0]["share of entries not seen"] == 3 / 15


def test_optional_methods_are_not_called_if_they_are_not_overridden(monkeypatch):
    from halfseen.components import Estimator

    agent = make_small("kf-ts")
    for name in ("features_of", "update_from_rewards", "due_for_refit", "refit"):
        monkeypatch.setattr(Estimator, name, lambda *_: pytest.fail("called"))
    agent.learn(agent.decide([1.0, 2.0, 3.0]), 1.0)


class FortranOrderEstimator(Observed):
    """Returns its features in Fortran order and in single precision."""

    def observe(self, rows, observations, rounds, complete, contexts):
        features = super().observe(rows, observations, rounds, complete, contexts)
        return np.asfortranarray(features, dtype=np.float32)

    def features_of(self, rows, rounds, features):
        return np.repeat(features, 2, axis=1)[:, ::2]


class StridedChooser(Thompson):
    """Returns its widths as a strided view of a larger array."""

    def widths(self, rows, rounds, learner):
        widths = super().widths(rows, rounds, learner)
        return np.stack([widths, 9.0 * widths], axis=2).reshape(len(widths), -1)[:, ::2]


@pytest.mark.parametrize(("estimator", "chooser"), [(FortranOrderEstimator, Thompson), (Observed, StridedChooser)])
def test_components_of_users_may_return_arrays_of_any_memory_layout(estimator, chooser):
    """Without a conversion the kernels would read these arrays wrongly."""
    streams = StreamBatch(stream_keys(np.arange(4)), OBSERVED, ARMS)
    converted, usual = (
        Policy(streams, make_estimator(streams), Ridge(streams, OBSERVED), make_chooser(streams, OBSERVED))
        for make_estimator, make_chooser in ((estimator, chooser), (Observed, Thompson))
    )
    rng = np.random.default_rng(0)
    for _ in range(60):
        y = rng.normal(size=(4, OBSERVED)).astype(np.float32).astype(float)
        picked = []
        for policy in (converted, usual):
            choices = policy.decide(y)
            policy.learn(choices.rounds, choices.features, choices.arms, choices.arms * 0.5 - y[:, 0])
            picked.append(choices.arms)
        np.testing.assert_array_equal(*picked)
    np.testing.assert_array_equal(converted.learner.mean, usual.learner.mean)


def ridge_policy(count=6, arms=3, estimator=Observed, chooser=Thompson):
    streams = StreamBatch(stream_keys(np.arange(count)), 2, arms)
    return Policy(streams, estimator(streams), Ridge(streams, 2), chooser(streams, 2))


def test_rows_masks_and_rewards_may_be_views_of_other_arrays():
    policy, twin = ridge_policy(), ridge_policy()
    y = np.random.default_rng(0).normal(size=(3, 2))
    rows, table = np.arange(6)[::2], np.random.default_rng(1).normal(size=(3, 2))
    only_first = np.broadcast_to(np.array([True, False, False]), (3, 3))
    for one, some_rows, mask, rewards in (
        (policy, rows, only_first, table[:, 1]),
        (twin, rows.copy(), only_first.copy(), table[:, 1].copy()),
    ):
        choices = one.decide(y, rows=some_rows, available=mask)
        assert choices.arms.tolist() == [0, 0, 0]
        one.learn(choices.rounds, choices.features, choices.arms, rewards, rows=some_rows)
        assert np.flatnonzero(one.learner.log_det.any(axis=1)).tolist() == [0, 2, 4]
    np.testing.assert_array_equal(policy.learner.mean, twin.learner.mean)


class FlatFeaturesEstimator(Observed):
    def observe(self, rows, observations, rounds, complete, contexts):
        return super().observe(rows, observations, rounds, complete, contexts)[:, 0]


class SharedWidthsChooser(Thompson):
    def widths(self, rows, rounds, learner):
        return super().widths(rows, rounds, learner)[0]


@pytest.mark.parametrize(
    ("components", "message"),
    [
        (
            {"estimator": FlatFeaturesEstimator},
            r"features: expected an array of shape \(6, 2\) from the component, got shape \(6,\)",
        ),
        (
            {"chooser": SharedWidthsChooser},
            r"widths: expected an array of shape \(6, 3\) from the component, got shape \(3,\)",
        ),
    ],
)
def test_arrays_of_the_wrong_shape_from_components_of_users_are_refused(components, message):
    with pytest.raises(hs.HalfseenError, match=message):
        ridge_policy(**components).decide(np.ones((6, 2)))
