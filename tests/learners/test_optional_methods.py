"""The optional methods of a learner: their default, and when a subclass inherits them."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.components import Estimator, Learner, Payoffs, StreamBatch
from halfseen.kernels.choice import HALF_NORMAL, NORMAL, pick
from halfseen.kernels.random import Purpose, normals, stream_keys
from halfseen.learners.ridge import Ridge

B, N, K, P = 3, 40, 4, 5


class Minimal(Ridge):
    """Ridge regression without the optional methods."""

    score_and_pick = Learner.score_and_pick
    play_rounds = Learner.play_rounds
    replace_rewards = Learner.replace_rewards


def play_round_by_round(learner, features, widths, distribution, keys, rounds, available, payoffs, arms, rewards):
    """Do the same as `play_rounds`, with one call per round."""
    all_rows = np.arange(B)
    for t in range(features.shape[1]):
        current, width = np.ascontiguousarray(features[:, t]), widths if widths.ndim == 2 else widths[:, t].copy()
        means, variances = learner.score(all_rows, current)
        picked = np.empty(B, dtype=np.int64)
        draws = normals(keys, rounds + t, Purpose.CHOICE, K)
        pick(means, variances, width, distribution, draws, available, picked)
        arms[:, t], rewards[:, t] = picked, payoffs.expected[all_rows, t, picked] + payoffs.noise[:, t]
        learner.learn(all_rows, current, picked, rewards[:, t] / payoffs.unit)


@pytest.mark.parametrize("distribution", [NORMAL, HALF_NORMAL])
@pytest.mark.parametrize("every_round", [False, True])
def test_play_rounds_equals_single_rounds(distribution, every_round):
    rng = np.random.default_rng(0)
    streams = StreamBatch(stream_keys(np.arange(B)), 2, K)
    features, noise = rng.normal(size=(B, N, P)), rng.normal(size=(B, N))
    payoffs = Payoffs(rng.normal(size=(B, N, K)), noise, 2.5)
    widths = rng.uniform(0.5, 2.0, size=(B, N, K) if every_round else (B, K))
    available = np.ones((B, K), dtype=np.bool_)
    available[1, 2] = False
    results = []
    for play in (Ridge.play_rounds, play_round_by_round):
        learner = Ridge(streams, P, regularisation=0.7)
        arms, rewards = np.empty((B, N), dtype=np.int64), np.empty((B, N))
        rounds = np.array([1, 1, 7])
        play(learner, features, widths, distribution, streams.keys, rounds, available, payoffs, arms, rewards)
        results.append((arms, rewards, learner.mean, learner.cov_packed, learner.log_det))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(np.unique(results[0][0])) == K
    assert not (results[0][0][1] == 2).any()


def test_a_component_without_an_optional_method_says_so():
    learner = Minimal(StreamBatch(stream_keys(0), 2, K), P)
    with pytest.raises(hs.HalfseenError, match="Minimal cannot score and pick in one call"):
        learner.score_and_pick(*[None] * 8)
    with pytest.raises(hs.HalfseenError, match="Minimal cannot play several rounds in one call"):
        learner.play_rounds(*[None] * 9)
    with pytest.raises(hs.HalfseenError, match="Minimal cannot replace rewards that it has learnt"):
        learner.replace_rewards(np.array([0]), np.ones((1, P)), np.array([1]), np.ones(1), np.ones(1), np.ones((1, 2)))
    estimator = hs.make("ts-pco", observed=1, arms=2).policy.estimator
    with pytest.raises(hs.HalfseenError, match="Observed cannot replace rewards that it has learnt"):
        Estimator.replace_rewards(estimator, *[np.zeros(1, dtype=np.int64)] * 2, *[np.ones(1)] * 3, learner)


class ClippedRewards:
    def learn(self, rows, features, arms, rewards):
        super().learn(rows, features, arms, np.clip(rewards, -1.0, 1.0))


class ClippedRidge(ClippedRewards, Ridge):
    """Ridge regression in which a mixin overrides `learn`."""


def test_shortcuts_are_not_inherited_if_a_mixin_overrides_learn():
    assert ClippedRidge.play_rounds is Learner.play_rounds
    assert ClippedRidge.replace_rewards is Learner.replace_rewards
    assert ClippedRidge.may_refuse is Learner.may_refuse
    assert ClippedRidge.score_and_pick is Ridge.score_and_pick
