"""Many rounds played by one call are the rounds played one by one, to the last bit."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.agents.catalogue import CATALOG, AgentSpec
from halfseen.agents.policy import Policy
from halfseen.choosers.thompson import Thompson
from halfseen.components import Payoffs, StreamBatch
from halfseen.estimators.kalman import Kalman
from halfseen.estimators.observed import Observed
from halfseen.experiments.plan import Slice
from halfseen.experiments.play import build_policy, play
from halfseen.kernels.random import stream_keys
from halfseen.learners.ridge import Ridge
from halfseen.worlds.linear_gaussian import RandomWorld
from halfseen.worlds.world import Episodes, World

SEEDS, ROUNDS = (4, 0, 9), 450  # two whole chunks and a short one
# `Policy.play_rounds` returns None for these agents. Their learner or their chooser does not support it, or their
# estimator needs rewards.
ROUND_BY_ROUND = {"adaptive", "adaptive-ts", "adaptive-ids", "meb", "mts", "bayes", "random"}
AHEAD = CATALOG.keys() - ROUND_BY_ROUND
TWISTS = ("plain", "noisy", "missing", "switch", "unit", "every")


class Twisted(World):
    """Another world with something changed about what is seen or paid."""

    def __init__(self, inner, change, **attributes):
        self.inner, self._change = inner, change
        vars(self).update(name=inner.name, latent=inner.latent, observed=inner.observed, arms=inner.arms, **attributes)

    def begin(self, seeds):
        return TwistedEpisodes(self.inner.begin(seeds), self._change)

    def settings(self):
        return self.inner.settings()


class TwistedEpisodes(Episodes):
    def __init__(self, inner, change):
        self._inner, self._change, self._past = inner, change, 0
        self.canonical, self.arm_params = inner.canonical, inner.arm_params

    def facts(self):
        return self._inner.facts()

    def advance(self, n):
        rounds = self._inner.advance(n)
        observations = rounds.observations.copy()
        self._change(observations, np.arange(self._past, self._past + n))
        self._past += n
        return rounds._replace(observations=observations)


def lose_some(observations, at):
    """Entries are missing in the first chunk, a whole observation in the second, nothing in the third."""
    lost = np.random.default_rng(int(at[0])).random(observations.shape) < 0.1
    observations[lost & (at < 190)[:, None, None]] = np.nan
    observations[at == 230, 1] = np.nan


def small_world(twist):
    noise = 0.3 if twist == "noisy" else 0.0
    after = 230 if twist == "switch" else None
    inner = RandomWorld("small", 6, 3, 5, "orthogonal", 0.2, 0.7, observation_var=noise, changes_after=after)
    if twist == "missing":
        return Twisted(inner, lose_some)
    options = {"unit": {"reward_unit": 2.5}, "every": {"reward_every": 3}}.get(twist)
    return inner if options is None else Twisted(inner, lambda observations, at: None, **options)


def one_by_one(monkeypatch):
    monkeypatch.setattr(Policy, "play_rounds", lambda *_, **__: None)


def assert_same_tracks(one, other):
    for name, value in vars(one).items():
        if name != "seconds":
            np.testing.assert_array_equal(value, vars(other)[name], err_msg=name)


@pytest.mark.parametrize("twist", TWISTS)
@pytest.mark.parametrize("name", sorted(AHEAD))
def test_tracks_do_not_depend_on_it(name, twist, monkeypatch):
    piece = Slice(small_world(twist), (AgentSpec(name),), SEEDS, ROUNDS)
    ahead = play(piece, lambda rounds: None)[name]
    one_by_one(monkeypatch)
    assert_same_tracks(ahead, play(piece, lambda rounds: None)[name])


@pytest.mark.parametrize("width", ["theory", 0.3])
def test_nor_with_widths_of_their_own(width, monkeypatch):
    spec = AgentSpec("emkf-ts", {"width": width, "window": 70}, label="it")
    piece = Slice(small_world("noisy"), (spec,), SEEDS, ROUNDS)
    ahead = play(piece, lambda rounds: None)["it"]
    one_by_one(monkeypatch)
    assert_same_tracks(ahead, play(piece, lambda rounds: None)["it"])


def small_policy(name, world, episodes, **options):
    return build_policy(AgentSpec(name, options), world, episodes, SEEDS, ROUNDS)


def parts_of(rounds, unit=1.0):
    by_stream = (np.ascontiguousarray(one.swapaxes(0, 1)) for one in (rounds.expected, rounds.reward_noise))
    return rounds.observations, Payoffs(*by_stream, unit)


@pytest.mark.parametrize("name", CATALOG)
def test_who_plays_ahead_and_in_what_state_it_is_left(name):
    """Pieces of all lengths, beside a twin that goes round by round; an arm is retired in between."""
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    policy, twin = (small_policy(name, world, episodes) for _ in range(2))
    policy.retire_arm(2), twin.retire_arm(2)
    for n in (1, 7, 230, 30):
        rounds = episodes.advance(n)
        contexts = np.ascontiguousarray(rounds.contexts) if policy.estimator.reveals_context else None
        played = policy.play_rounds(*parts_of(rounds), contexts=contexts)
        assert (played is not None) == (name in AHEAD), "ROUND_BY_ROUND names the agents that do not play ahead"
        if played is None:
            assert not policy.rounds.any()
            return
        for t in range(n):
            choices = twin.decide(rounds.observations[t], contexts=None if contexts is None else contexts[t])
            paid = rounds.expected[t, twin.all_rows, choices.arms] + rounds.reward_noise[t]
            twin.learn(choices.rounds, choices.features, choices.arms, paid)
            for mine, theirs in zip(played, (choices.arms, paid, choices.features), strict=True):
                np.testing.assert_array_equal(mine[:, t], theirs)
        assert 2 not in played[0]
        state, other = policy.state(), twin.state()
        assert state.keys() == other.keys()
        for key, value in state.items():
            np.testing.assert_array_equal(value, other[key], err_msg=key)


def test_widths_that_follow_what_is_learnt_cannot_be_had_ahead():
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    policy = small_policy("kf-ucb", world, episodes, width="self-normalised")
    assert policy.play_rounds(*parts_of(episodes.advance(5))) is None
    assert not policy.rounds.any()


def test_streams_of_different_ages_are_played_too():
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    policy, twin = (small_policy("emkf-ts", world, episodes, window=30) for _ in range(2))
    for one in (policy, twin):
        one.decide(np.ones((1, 3)), rows=np.array([1]))
    rounds = episodes.advance(80)
    arms, _, _ = policy.play_rounds(*parts_of(rounds))
    for t in range(80):
        choices = twin.decide(rounds.observations[t])
        paid = rounds.expected[t, twin.all_rows, choices.arms] + rounds.reward_noise[t]
        twin.learn(choices.rounds, choices.features, choices.arms, paid)
        np.testing.assert_array_equal(arms[:, t], choices.arms)
    np.testing.assert_array_equal(policy.rounds, [80, 81, 80])


def shout(entries):
    def change(observations, at):
        for when, stream, value in entries:
            observations[at == when, stream, 1] = value

    return change


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(40, 0, 3e8), (25, 1, 4e8), (25, 2, 5e8)], r"context: expected smaller entries .*, got 4e\+08"),
        ([(40, 0, 3e8), (25, 1, 1e101)], "observation: expected numbers within .*, got an entry that is too large"),
        ([(25, 0, 3e8), (40, 1, 1e101)], r"context: expected smaller entries .*, got 3e\+08"),
    ],
)
def test_what_is_refused_is_what_would_be_refused_first(entries, message, monkeypatch):
    piece = Slice(Twisted(small_world("plain"), shout(entries)), (AgentSpec("ts-pco"),), SEEDS, 60)
    with pytest.raises(hs.HalfseenError, match=message) as ahead:
        play(piece, lambda rounds: None)
    one_by_one(monkeypatch)
    with pytest.raises(hs.HalfseenError) as by_one:
        play(piece, lambda rounds: None)
    assert str(ahead.value) == str(by_one.value)


class Doubled(Kalman):
    def observe(self, rows, observations, rounds, complete, contexts):
        return 2.0 * super().observe(rows, observations, rounds, complete, contexts)


class Deaf(Ridge):
    def learn(self, rows, features, arms, rewards):
        pass


class Restless(Thompson):
    def widths(self, rows, rounds, learner):
        return super().widths(rows, rounds, learner) * (1.0 + rounds[:, None] % 2)


def test_a_part_that_changes_a_step_is_heard():
    """One that inherits how rounds are taken ahead, but does otherwise in one round, is asked for one at a time."""
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    rounds = episodes.advance(4)
    streams = StreamBatch(stream_keys(SEEDS), 3, 5)

    def policy(estimator=Kalman, learner=Ridge, chooser=Thompson):
        first = estimator(streams, model=episodes.models)
        return Policy(streams, first, learner(streams, 6), chooser(streams, 6))

    plain, doubled = (policy(estimator=one).play_rounds(*parts_of(rounds)) for one in (Kalman, Doubled))
    np.testing.assert_array_equal(doubled[2], 2.0 * plain[2])
    assert policy(learner=Deaf).play_rounds(*parts_of(rounds)) is None
    assert policy(chooser=Restless).play_rounds(*parts_of(rounds)) is None


def test_the_true_context_is_missed_where_it_must_be_shown():
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    assert small_policy("oracle-ts", world, episodes).play_rounds(*parts_of(episodes.advance(3))) is None


def test_an_estimator_without_a_way_of_its_own_takes_rounds_one_at_a_time():
    streams = StreamBatch(stream_keys(SEEDS), 3, 5)
    ys, features = np.random.default_rng(0).normal(size=(4, 3, 3)), np.empty((3, 4, 3))
    Observed(streams).observe_rounds(ys, np.ones(3, dtype=np.int64), None, features)
    np.testing.assert_array_equal(features, ys.swapaxes(0, 1))
