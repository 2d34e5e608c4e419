"""Playing many rounds in one call gives exactly the result of playing them one by one."""

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

SEEDS, ROUNDS = (4, 0, 9), 450  # two full chunks and a shorter one
# `Policy.play_rounds` returns None for these agents, because their learner or their chooser cannot play several rounds
# in one call, or because their estimator needs rewards.
ROUND_BY_ROUND = {"adaptive", "adaptive-ts", "adaptive-ids", "meb", "mts", "bayes", "random", "glm-ts", "glm-ucb"}
IN_ONE_CALL = CATALOG.keys() - ROUND_BY_ROUND
VARIANTS = ("plain", "noisy", "missing", "switch", "unit", "every")


class ModifiedWorld(World):
    """A world with changed observations or attributes."""

    def __init__(self, inner, change, **attributes):
        self.inner, self._change = inner, change
        vars(self).update(name=inner.name, latent=inner.latent, observed=inner.observed, arms=inner.arms, **attributes)

    def begin(self, seeds):
        return ModifiedEpisodes(self.inner.begin(seeds), self._change)

    def settings(self):
        return self.inner.settings()


class ModifiedEpisodes(Episodes):
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


def remove_entries(observations, at):
    """Remove entries in the first chunk, a whole observation in the second, and nothing in the third."""
    lost = np.random.default_rng(int(at[0])).random(observations.shape) < 0.1
    observations[lost & (at < 190)[:, None, None]] = np.nan
    observations[at == 230, 1] = np.nan


def small_world(variant):
    noise = 0.3 if variant == "noisy" else 0.0
    after = 230 if variant == "switch" else None
    inner = RandomWorld("small", 6, 3, 5, "orthogonal", 0.2, 0.7, observation_var=noise, changes_after=after)
    if variant == "missing":
        return ModifiedWorld(inner, remove_entries)
    options = {"unit": {"reward_unit": 2.5}, "every": {"reward_every": 3}}.get(variant)
    return inner if options is None else ModifiedWorld(inner, lambda observations, at: None, **options)


def play_single_rounds(monkeypatch):
    monkeypatch.setattr(Policy, "play_rounds", lambda *_, **__: None)


def assert_same_tracks(one, other):
    for name, value in vars(one).items():
        if name != "seconds":
            np.testing.assert_array_equal(value, vars(other)[name], err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", sorted(IN_ONE_CALL))
def test_playing_rounds_in_one_call_gives_the_same_trajectories(name, variant, monkeypatch):
    task = Slice(small_world(variant), (AgentSpec(name),), SEEDS, ROUNDS)
    ahead = play(task, lambda rounds: None)[name]
    play_single_rounds(monkeypatch)
    assert_same_tracks(ahead, play(task, lambda rounds: None)[name])


@pytest.mark.parametrize("width", ["theory", 0.3])
def test_the_same_with_other_widths(width, monkeypatch):
    spec = AgentSpec("emkf-ts", {"width": width, "window": 70}, label="it")
    task = Slice(small_world("noisy"), (spec,), SEEDS, ROUNDS)
    ahead = play(task, lambda rounds: None)["it"]
    play_single_rounds(monkeypatch)
    assert_same_tracks(ahead, play(task, lambda rounds: None)["it"])


def small_policy(name, world, episodes, **options):
    return build_policy(AgentSpec(name, options), world, episodes, SEEDS, ROUNDS)


def observations_and_payoffs(rounds, unit=1.0):
    by_stream = (np.ascontiguousarray(one.swapaxes(0, 1)) for one in (rounds.expected, rounds.reward_noise))
    return rounds.observations, Payoffs(*by_stream, unit)


@pytest.mark.parametrize("name", CATALOG)
def test_which_agents_play_rounds_in_one_call_and_their_state_afterwards(name):
    """Play different numbers of rounds in one call, and compare with a policy that plays round by round."""
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    policy, twin = (small_policy(name, world, episodes) for _ in range(2))
    policy.retire_arm(2), twin.retire_arm(2)
    for n in (1, 7, 230, 30):
        rounds = episodes.advance(n)
        contexts = np.ascontiguousarray(rounds.contexts) if policy.estimator.reveals_context else None
        played = policy.play_rounds(*observations_and_payoffs(rounds), contexts=contexts)
        assert (played is not None) == (name in IN_ONE_CALL), "ROUND_BY_ROUND lists the agents without `play_rounds`"
        if played is None:
            assert not policy.rounds.any()
            return
        for t in range(n):
            choices = twin.decide(rounds.observations[t], contexts=None if contexts is None else contexts[t])
            round_rewards = rounds.expected[t, twin.all_rows, choices.arms] + rounds.reward_noise[t]
            twin.learn(choices.rounds, choices.features, choices.arms, round_rewards)
            for mine, theirs in zip(played, (choices.arms, round_rewards, choices.features), strict=True):
                np.testing.assert_array_equal(mine[:, t], theirs)
        assert 2 not in played[0]
        state, other = policy.state(), twin.state()
        assert state.keys() == other.keys()
        for key, value in state.items():
            np.testing.assert_array_equal(value, other[key], err_msg=key)


def test_self_normalised_widths_need_single_rounds():
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    policy = small_policy("kf-ucb", world, episodes, width="self-normalised")
    assert policy.play_rounds(*observations_and_payoffs(episodes.advance(5))) is None
    assert not policy.rounds.any()


def test_streams_may_have_played_different_numbers_of_rounds():
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    policy, twin = (small_policy("emkf-ts", world, episodes, window=30) for _ in range(2))
    for one in (policy, twin):
        one.decide(np.ones((1, 3)), rows=np.array([1]))
    rounds = episodes.advance(80)
    arms, _, _ = policy.play_rounds(*observations_and_payoffs(rounds))
    for t in range(80):
        choices = twin.decide(rounds.observations[t])
        round_rewards = rounds.expected[t, twin.all_rows, choices.arms] + rounds.reward_noise[t]
        twin.learn(choices.rounds, choices.features, choices.arms, round_rewards)
        np.testing.assert_array_equal(arms[:, t], choices.arms)
    np.testing.assert_array_equal(policy.rounds, [80, 81, 80])


def insert_large_values(entries):
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
def test_the_first_invalid_round_is_reported(entries, message, monkeypatch):
    task = Slice(ModifiedWorld(small_world("plain"), insert_large_values(entries)), (AgentSpec("ts-pco"),), SEEDS, 60)
    with pytest.raises(hs.HalfseenError, match=message) as ahead:
        play(task, lambda rounds: None)
    play_single_rounds(monkeypatch)
    with pytest.raises(hs.HalfseenError) as single:
        play(task, lambda rounds: None)
    assert str(ahead.value) == str(single.value)


class Doubled(Kalman):
    def observe(self, rows, observations, rounds, complete, contexts):
        return 2.0 * super().observe(rows, observations, rounds, complete, contexts)


class NotLearning(Ridge):
    def learn(self, rows, features, arms, rewards):
        pass


class AlternatingWidths(Thompson):
    def widths(self, rows, rounds, learner):
        return super().widths(rows, rounds, learner) * (1.0 + rounds[:, None] % 2)


def test_a_subclass_with_its_own_step_is_used():
    """A subclass that overrides the step for one round is called round by round."""
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    rounds = episodes.advance(4)
    streams = StreamBatch(stream_keys(SEEDS), 3, 5)

    def policy(estimator=Kalman, learner=Ridge, chooser=Thompson):
        first = estimator(streams, model=episodes.models)
        return Policy(streams, first, learner(streams, 6), chooser(streams, 6))

    plain, doubled = (policy(estimator=one).play_rounds(*observations_and_payoffs(rounds)) for one in (Kalman, Doubled))
    np.testing.assert_array_equal(doubled[2], 2.0 * plain[2])
    assert policy(learner=NotLearning).play_rounds(*observations_and_payoffs(rounds)) is None
    assert policy(chooser=AlternatingWidths).play_rounds(*observations_and_payoffs(rounds)) is None


def test_an_agent_that_sees_the_context_needs_it():
    world = small_world("plain")
    episodes = world.begin(SEEDS)
    assert (
        small_policy("oracle-ts", world, episodes).play_rounds(*observations_and_payoffs(episodes.advance(3))) is None
    )


def test_the_default_of_observe_rounds_calls_observe():
    streams = StreamBatch(stream_keys(SEEDS), 3, 5)
    ys, features = np.random.default_rng(0).normal(size=(4, 3, 3)), np.empty((3, 4, 3))
    Observed(streams).observe_rounds(ys, np.ones(3, dtype=np.int64), None, features)
    np.testing.assert_array_equal(features, ys.swapaxes(0, 1))
