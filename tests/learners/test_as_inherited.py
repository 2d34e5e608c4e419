"""What a learner does that says nothing of its own about many rounds, or about rewards in the place of others."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.components import Estimator, Learner, Payoffs, StreamBatch
from halfseen.kernels.choice import HALF_NORMAL, NORMAL, pick
from halfseen.kernels.random import Purpose, normals, stream_keys
from halfseen.learners.ridge import Ridge

B, N, K, P = 3, 40, 4, 5


class Plain(Ridge):
    """Ridge regression without its calls for whole rounds, and without a way to replace rewards."""

    score_and_pick = Learner.score_and_pick
    play_rounds = Learner.play_rounds
    replace_rewards = Learner.replace_rewards


def play_round_by_round(learner, features, widths, distribution, keys, rounds, available, payoffs, arms, rewards):
    """What `play_rounds` is a shortcut for."""
    everyone = np.arange(B)
    for t in range(features.shape[1]):
        now, wide = np.ascontiguousarray(features[:, t]), widths if widths.ndim == 2 else widths[:, t].copy()
        means, variances = learner.score(everyone, now)
        picked = np.empty(B, dtype=np.int64)
        draws = normals(keys, rounds + t, Purpose.CHOICE, K)
        pick(means, variances, wide, distribution, draws, available, picked)
        arms[:, t], rewards[:, t] = picked, payoffs.expected[everyone, t, picked] + payoffs.noise[:, t]
        learner.learn(everyone, now, picked, rewards[:, t] / payoffs.unit)


@pytest.mark.parametrize("distribution", [NORMAL, HALF_NORMAL])
@pytest.mark.parametrize("every_round", [False, True])
def test_rounds_one_by_one_are_those_of_one_call(distribution, every_round):
    rng = np.random.default_rng(0)
    streams = StreamBatch(stream_keys(np.arange(B)), 2, K)
    features, noise = rng.normal(size=(B, N, P)), rng.normal(size=(B, N))
    payoffs = Payoffs(rng.normal(size=(B, N, K)), noise, 2.5)
    widths = rng.uniform(0.5, 2.0, size=(B, N, K) if every_round else (B, K))
    available = np.ones((B, K), dtype=np.bool_)
    available[1, 2] = False
    played = []
    for play in (Ridge.play_rounds, play_round_by_round):
        learner = Ridge(streams, P, regularisation=0.7)
        arms, rewards = np.empty((B, N), dtype=np.int64), np.empty((B, N))
        rounds = np.array([1, 1, 7])
        play(learner, features, widths, distribution, streams.keys, rounds, available, payoffs, arms, rewards)
        played.append((arms, rewards, learner.mean, learner.cov_packed, learner.log_det))
    for one, other in zip(*played, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(np.unique(played[0][0])) == K
    assert not (played[0][0][1] == 2).any()


def test_a_part_without_an_optional_call_says_so():
    learner = Plain(StreamBatch(stream_keys(0), 2, K), P)
    with pytest.raises(hs.HalfseenError, match="Plain: it does not score and pick in one call"):
        learner.score_and_pick(*[None] * 8)
    with pytest.raises(hs.HalfseenError, match="Plain: it does not play several rounds in one call"):
        learner.play_rounds(*[None] * 9)
    with pytest.raises(hs.HalfseenError, match="Plain: it cannot put another reward in the place"):
        learner.replace_rewards(np.array([0]), np.ones((1, P)), np.array([1]), np.ones(1), np.ones((1, 2)))
    estimator = hs.make("ts-pco", observed=1, arms=2).policy.estimator
    with pytest.raises(hs.HalfseenError, match="Observed: it cannot put another reward in the place"):
        Estimator.replace_rewards(estimator, *[np.zeros(1, dtype=np.int64)] * 2, *[np.ones(1)] * 3, learner)


class Clip:
    def learn(self, rows, features, arms, rewards):
        super().learn(rows, features, arms, np.clip(rewards, -1.0, 1.0))


class Mixed(Clip, Ridge):
    """Changes a step by what it is mixed with, and says nothing itself."""


def test_a_step_may_be_changed_by_a_class_mixed_in():
    assert Mixed.play_rounds is Learner.play_rounds
    assert Mixed.replace_rewards is Learner.replace_rewards
    assert Mixed.may_refuse is Learner.may_refuse
    assert Mixed.score_and_pick is Ridge.score_and_pick
