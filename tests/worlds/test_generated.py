"""Worlds from generator functions: their rounds, their names, and what is refused."""

import random
import re

import numpy as np
import pytest
from own_agents import EpsilonGreedy, tide

import halfseen as hs


def test_rounds_are_those_of_the_generator_however_they_are_divided():
    world = hs.worlds.generated(tide, reward_std=0.5, period=20)
    whole, parts = world.begin([3, 5]).advance(12), world.begin([3, 5])
    for start, n in ((0, 5), (5, 7)):
        part = parts.advance(n)
        for ours, all_rounds in zip(part, whole, strict=True):
            np.testing.assert_array_equal(ours, all_rounds[start : start + n])
    rounds = tide(5, period=20)
    for t in range(12):
        observation, expected, context = next(rounds)
        assert whole.observations[t, 1].tolist() == observation
        assert whole.expected[t, 1].tolist() == expected
        assert whole.contexts[t, 1].tolist() == context


def test_noise_has_the_given_standard_deviation():
    noise = hs.worlds.generated(tide, reward_std=0.5).begin(range(20)).advance(200).reward_noise
    assert noise.std() == pytest.approx(0.5, rel=0.05)  # 4,000 draws
    assert (hs.worlds.generated(tide, reward_std=0).begin([1]).advance(5).reward_noise == 0).all()


def test_agents_are_told_the_dimension_of_the_context_only_if_there_are_contexts():
    hs.run(["oracle-ts", "emkf-ts", EpsilonGreedy], world=hs.worlds.generated(tide), rounds=20, seeds=2)
    blind = hs.worlds.generated(tide, contexts=False)
    hs.run(["ts-pco", "emkf-ts:latent=2"], world=blind, rounds=20, seeds=2)
    for agent, fact in (("oracle-ts", "latent"), ("kf-ts", "model")):
        line = f"agents: expected agents that do not require {fact}, which is unknown for this world, got '{agent}'"
        with pytest.raises(hs.HalfseenError, match=line):
            hs.run(agent, world=blind, rounds=20, seeds=2)


def test_a_registered_world_has_a_name_and_options():
    hs.worlds.register("tide", tide, reward_std=0.1)
    hs.worlds.register("narrow", lambda observed=2: hs.worlds.named("keyhole", observed=observed))
    result = hs.run("random", world=["tide", "tide:period=10", "narrow"], rounds=10, seeds=1)
    assert result.worlds == ("tide", "tide period=10", "narrow")
    assert hs.worlds.named("narrow", observed=1).observed == 1
    with pytest.raises(hs.HalfseenError, match="World 'tide' has no option 'perod'"):
        hs.worlds.named("tide", perod=3)


def unseeded(seed):
    rng = np.random.default_rng()
    while True:
        yield [rng.normal()], [1.0, 0.0]


def shares_random_numbers(seed):
    random.seed(seed)
    while True:
        yield [random.random()], [1.0, 0.0]


@pytest.mark.parametrize(("function", "at"), [(unseeded, 1), (shares_random_numbers, 2)])
def test_rounds_that_differ_with_the_same_seed_are_refused(function, at):
    world = hs.worlds.generated(function)
    line = f"world '{function.__name__}', seed 3, round {at}: expected the same round whenever the seed is the same"
    with pytest.raises(hs.HalfseenError, match=line):
        hs.run("random", world=world, rounds=10, seeds=[3])


def missing_at_times(seed):
    yield [np.nan], [1.0, 0.0]
    yield [1.0], [1.0, 0.0]


def test_missing_entries_and_short_generators_begin():
    rounds = hs.worlds.generated(missing_at_times).begin([0, 1]).advance(2)
    assert np.isnan(rounds.observations[0]).all()


def fails(seed, at=41):
    for t in range(1, 100):
        if t == at:
            raise ZeroDivisionError("no luck")
        yield [0.0], [1.0, 2.0]


def fails_at_once(seed):
    raise ZeroDivisionError("no luck")


@pytest.mark.parametrize(
    ("function", "options", "where"),
    [
        (fails, {}, "world 'fails', seed 5, round 41"),
        (fails, {"at": 3}, "world 'fails', seed 5, round 3"),
        (fails, {"at": 1}, "world 'fails', seed 0, round 1"),
        (fails_at_once, {}, "world 'fails_at_once', seed 0, when it was made"),
    ],
)
def test_an_error_of_a_world_has_a_note_of_where_it_happened(function, options, where):
    with pytest.raises(ZeroDivisionError) as failed:
        hs.run("random", world=hs.worlds.generated(function, **options), rounds=60, seeds=[5])
    assert failed.value.__notes__ == [where]


def test_what_is_no_world_is_refused_with_the_way_to_make_one():
    with pytest.raises(
        hs.HalfseenError, match=r"a world \(hs.worlds.generated\(tide, ...\) makes one\), got <function"
    ):
        hs.run("random", world=tide, rounds=10, seeds=1)
    with pytest.raises(hs.HalfseenError, match="these options, got an unexpected keyword argument 'reward_every'"):
        hs.worlds.generated(tide, reward_every=24)


def ends(seed):
    yield [0.0], [1.0, 2.0]


def grows(seed):
    yield [0.0], [1.0, 2.0]
    yield [0.0, 1.0], [1.0, 2.0]


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (ends, "world 'ends', seed 0, round 2: expected another round, got the end of the generator"),
        (grows, "world 'grows', seed 0, round 2: expected shapes as in round 1 of seed 0, ((1,), (2,), None), got"),
        (lambda seed: iter([([0.0], [1.0, np.nan])]), "world 'lambda', round 1, expected_rewards: expected numbers"),
        (lambda seed: iter([[0.0]]), "world 'lambda', round 1: expected a tuple of observation, expected_rewards and,"),
        (lambda seed: iter([(["x"], [1.0])]), "world 'lambda', round 1, observation: expected an array of real"),
        (lambda seed: 3, "world 'lambda': expected a generator function, which yields rounds, got int"),
        (lambda: iter([]), "world 'lambda': expected a function that is called with a seed and these options, got too"),
        (7, "function: expected a generator function, got 7"),
    ],
)
def test_generators_of_something_else_are_refused(function, line):
    with pytest.raises(hs.HalfseenError) as refused:
        hs.worlds.generated(function).begin([0]).advance(2)
    assert str(refused.value).startswith(line)


@pytest.mark.parametrize(
    ("name", "function", "line"),
    [
        ("orbit", tide, "name: expected a name that no world of halfseen has, got 'orbit'"),
        ("a b", tide, "name: expected letters"),
        ("mine", lambda: 3, "world 'mine': expected a generator function, or a function that returns a world, got 3"),
        ("mine", lambda size: 3, "world 'mine': expected options with defaults, got 'size' without one"),
        ("mine", 3, "function: expected a generator function, or a function that returns a world, got 3"),
    ],
)
def test_invalid_registrations_change_nothing(name, function, line):
    with pytest.raises(hs.HalfseenError, match=re.escape(line)):
        hs.worlds.register(name, function)
    with pytest.raises(hs.HalfseenError):
        hs.worlds.named("mine")
