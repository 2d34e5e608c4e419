"""Optimistic Thompson sampling and information-directed sampling as choosers of a policy."""

import numpy as np
import pytest
from scipy import integrate, stats

import halfseen as hs
from halfseen.agents.policy import Policy
from halfseen.choosers.information_directed import InformationDirected
from halfseen.choosers.optimistic import Optimistic, break_even_table
from halfseen.choosers.thompson import Thompson
from halfseen.components import Choices, StreamBatch
from halfseen.estimators.observed import Observed
from halfseen.kernels.choice import break_even
from halfseen.kernels.random import Purpose, normals, stream_keys, uniforms
from halfseen.learners.ridge import Ridge

OBSERVED, ARMS = 3, 5


class Foresighted(Optimistic):
    """Optimistic Thompson sampling with foresight."""

    def __init__(self, streams, dimension, *, width=0.4, bonus=0.3, foresight=0.7):
        super().__init__(streams, dimension, width=width, bonus=bonus, foresight=foresight)


every_chooser = pytest.mark.parametrize("kind", [Optimistic, InformationDirected, Foresighted])


class UnequalNoise(Ridge):
    """Ridge regression with the noise variances 0.2, 0.7, 1.2, ... of the arms."""

    def noise(self, rows, features):
        return np.tile(0.2 + 0.5 * np.arange(self.arms), (len(rows), 1))


def build(kind, seeds=1, learner=UnequalNoise, **options):
    """Return a policy of many streams that have learnt the same 25 rewards."""
    streams, rng = StreamBatch(stream_keys(np.arange(seeds)), OBSERVED, ARMS), np.random.default_rng(3)
    policy = Policy(
        streams, Observed(streams), learner(streams, OBSERVED, regularisation=2.3), kind(streams, OBSERVED, **options)
    )
    for t in range(25):
        features = np.tile(rng.normal(size=OBSERVED), (seeds, 1))
        policy.learner.learn(policy.all_rows, features, np.full(seeds, t % 4), np.full(seeds, rng.normal()))
    return policy


def observation(seeds=1):
    return np.tile([-0.1, -0.8, 1.1], (seeds, 1))


@every_chooser
@pytest.mark.parametrize("width", [0.3, 0.85, 2.0])
@pytest.mark.parametrize("available", [None, [0, 2, 4]])
def test_propensities_equal_the_frequencies_of_the_arms(kind, width, available):
    seeds = 4000
    policy = build(kind, seeds, width=width)
    mask = None
    if available is not None:
        mask = np.zeros((seeds, ARMS), dtype=bool)
        mask[:, available] = True
    choices = policy.decide(observation(seeds), available=mask)
    want = policy.propensities(choices)[0]
    got = np.bincount(choices.arms, minlength=ARMS) / seeds
    assert want.sum() == pytest.approx(1, abs=1e-12)
    assert (np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / seeds) + 1e-9).all()
    if available is not None:
        assert want[[1, 3]].tolist() == [0, 0]


def test_optimistic_plays_the_highest_score():
    policy = build(Optimistic, 50)
    choices = policy.decide(observation(50))
    z = normals(policy.streams.keys, choices.rounds, Purpose.CHOICE, ARMS)
    scores = choices.means + 0.85 * np.abs(z) * np.sqrt(choices.variances)
    np.testing.assert_array_equal(choices.arms, scores.argmax(axis=1))
    assert len(set(choices.arms.tolist())) > 2


def test_information_directed_uses_one_uniform_draw_per_round():
    policy = build(InformationDirected, 50, width=0.4)
    choices = policy.decide(observation(50))
    shares = policy.propensities(choices)
    assert np.count_nonzero(shares[0]) == 2
    u = uniforms(policy.streams.keys, choices.rounds, Purpose.CHOICE, 1)
    np.testing.assert_array_equal(choices.arms, (shares.cumsum(axis=1) > u).argmax(axis=1))


def test_information_directed_minimises_the_ratio_with_the_noise_of_the_learner():
    policy = build(InformationDirected, width=0.4)
    choices = policy.decide(observation())
    means, stds = choices.means[0], np.sqrt(choices.variances[0])
    regrets = (means + 0.4 * stds).max() - means
    gains = 0.5 * np.log(1 + stds**2 / (0.2 + 0.5 * np.arange(ARMS)))
    got = policy.propensities(choices)[0]
    arms, share = np.eye(ARMS), np.linspace(0, 1, 2001)[:, None]
    mixtures = np.concatenate([share * arms[a] + (1 - share) * arms[b] for a in range(ARMS) for b in range(a)])
    best = ((mixtures @ regrets) ** 2 / (mixtures @ gains)).argmin()
    np.testing.assert_allclose(got, mixtures[best], atol=1e-3)
    equal_noise = build(InformationDirected, learner=Ridge, width=0.4)
    assert np.abs(equal_noise.propensities(equal_noise.decide(observation()))[0] - got).max() > 0.05


@every_chooser
def test_propensities_of_a_decision_do_not_depend_on_later_rewards(kind):
    policy = build(kind, width=0.4)
    choices = policy.decide(observation())
    before = policy.propensities(choices)
    policy.learner.learn(policy.all_rows, choices.features, choices.arms, np.array([7.0]))
    np.testing.assert_array_equal(policy.propensities(choices), before)
    assert np.abs(policy.propensities(policy.decide(observation())) - before).max() > 0.01


@pytest.mark.parametrize("kind", [Optimistic, Thompson])
def test_noise_and_reuse_are_not_computed_for_choosers_without_them(kind):
    class WithoutNoise(Ridge):
        def noise(self, rows, features):
            raise AssertionError("not needed")

        def reuse(self, rows, features):
            raise AssertionError("not needed")

    choices = build(kind, learner=WithoutNoise).decide(observation())
    assert choices.noise_variances is None
    assert choices.reuse is None


def test_ridge_variances_are_in_units_of_the_noise_variance():
    policy = build(InformationDirected, 3, learner=Ridge)
    np.testing.assert_array_equal(policy.decide(observation(3)).noise_variances, np.ones((3, ARMS)))


@every_chooser
def test_an_added_arm_has_the_same_width(kind):
    policy = build(kind, 200)
    policy.learner.add_arm(None)
    widths = policy.chooser.widths(policy.all_rows, np.ones(200, dtype=np.int64), policy.learner)
    default = {Optimistic: 0.85, InformationDirected: 1.25, Foresighted: 0.4}
    np.testing.assert_array_equal(widths, np.full((200, ARMS + 1), default[kind]))


@every_chooser
def test_the_choice_of_a_row_does_not_depend_on_other_rows(kind):
    rng, rows = np.random.default_rng(8), 30
    keys, streams = stream_keys(np.arange(rows)), StreamBatch(stream_keys([0]), OBSERVED, ARMS)
    choices = Choices(
        rounds=rng.integers(1, 100, size=rows),
        arms=np.empty(rows, dtype=np.int64),
        features=np.zeros((rows, OBSERVED)),
        means=rng.normal(size=(rows, ARMS)),
        variances=rng.uniform(size=(rows, ARMS)) ** 4,
        widths=np.full((rows, ARMS), 0.6),
        available=rng.uniform(size=(rows, ARMS)) < 0.8,
        noise_variances=rng.uniform(size=(rows, ARMS)),
        reuse=10.0 ** rng.uniform(-2, 1, size=(rows, ARMS)),
    )
    choices.available[:, 1] = True
    chooser = kind(streams, OBSERVED)
    chooser.pick(choices, keys)
    together = chooser.probabilities(choices)
    for i in range(rows):
        one = Choices(*(None if array is None else array[i : i + 1].copy() for array in choices))
        one.arms[0] = -1
        chooser.pick(one, keys[i : i + 1])
        assert one.arms[0] == choices.arms[i]
        np.testing.assert_array_equal(chooser.probabilities(one)[0], together[i])
    assert (together[np.arange(rows), choices.arms] > 0).all()


def test_an_arm_with_a_lower_mean_must_score_above_the_best_mean():
    policy = build(Optimistic)
    choices = policy.decide(observation())
    best = choices.means[0].argmax()
    mask = np.zeros((1, ARMS), dtype=bool)
    other = (best + 1) % ARMS
    mask[0, [best, other]] = True
    got = policy.propensities(choices._replace(available=mask))[0, other]
    gap = choices.means[0, best] - choices.means[0, other]
    assert got < 2 * stats.norm.sf(gap / (0.85 * np.sqrt(choices.variances[0, other])))


@every_chooser
def test_a_negative_width_is_refused(kind):
    with pytest.raises(hs.HalfseenError) as caught:
        build(kind, width=-0.5)
    assert str(caught.value) == "width: expected a finite number of at least 0, got -0.5"


@every_chooser
@pytest.mark.parametrize("setting", range(12))
def test_frequencies_in_random_settings(kind, setting):
    rng, draws = np.random.default_rng([setting, 5]), 20_000
    arms = int(rng.integers(1, 10))
    means = rng.normal(size=arms) * 10.0 ** rng.uniform(-3, 2)
    variances = 10.0 ** rng.uniform(-rng.choice([1, 6, 28]), 2, size=arms) * (rng.uniform(size=arms) > 0.2)
    means[rng.integers(arms)] = means.max()  # sometimes two arms have the same mean
    available = rng.uniform(size=arms) < 0.8
    available[rng.integers(arms)] = True
    row = {
        "features": np.zeros(OBSERVED),
        "means": means,
        "variances": variances,
        "widths": np.full(arms, rng.uniform(0.2, 2)),
        "available": available,
        "noise_variances": 10.0 ** rng.uniform(-3, 3, size=arms),
        "reuse": 10.0 ** rng.uniform(-2, 1, size=arms),
    }
    tiled = {name: np.tile(value, (draws, 1)) for name, value in row.items()}
    choices = Choices(rounds=np.full(draws, 17), arms=np.empty(draws, dtype=np.int64), **tiled)
    chooser = kind(StreamBatch(stream_keys([0]), OBSERVED, arms), OBSERVED)
    chooser.pick(choices, stream_keys(np.arange(draws)))
    want = chooser.probabilities(Choices(*(None if array is None else array[:1] for array in choices)))[0]
    got = np.bincount(choices.arms, minlength=arms) / draws
    assert (np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / draws) + 5 / draws).all()
    assert not want[~available].any()
    assert want.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("bonus", [0.6, 1.3])
def test_propensities_with_a_bonus_equal_the_frequencies(bonus):
    seeds = 8000
    policy, no_bonus = build(Optimistic, seeds, width=0.3, bonus=bonus), build(Optimistic, width=0.3)
    choices = policy.decide(observation(seeds))
    want = policy.propensities(choices)[0]
    without = no_bonus.propensities(no_bonus.decide(observation()))[0]
    got, error = np.bincount(choices.arms, minlength=ARMS) / seeds, 5 * np.sqrt(want * (1 - want) / seeds) + 1e-9
    assert want.sum() == pytest.approx(1, abs=1e-9)
    assert (np.abs(got - want) <= error).all()
    assert (np.abs(got - without) > error).any()  # so the test can tell the two apart


def test_the_bonus_is_added_to_the_scores():
    policy = build(Optimistic, 50, width=0.3, bonus=1.3)
    choices = policy.decide(observation(50))
    z = normals(policy.streams.keys, choices.rounds, Purpose.CHOICE, ARMS)
    scores = choices.means + (1.3 + 0.3 * np.abs(z)) * np.sqrt(choices.variances)
    np.testing.assert_array_equal(choices.arms, scores.argmax(axis=1))


def test_a_negative_bonus_is_refused():
    with pytest.raises(hs.HalfseenError) as caught:
        build(Optimistic, bonus=-1.0)
    assert str(caught.value) == "bonus: expected a finite number of at least 0, got -1.0"


@pytest.mark.parametrize("rounds", [3.0, 40.0, 2500.0])
@pytest.mark.parametrize(("variance", "noise"), [(0.4, 0.09), (2.3, 7.0)])
def test_at_the_break_even_gap_one_play_costs_what_it_gains(rounds, variance, noise):
    """A reward r ~ N(m, variance + noise) changes the mean to m + gain·(r − m); the best arm is better by `gap`."""
    gap = np.sqrt(variance) * break_even(variance, noise, rounds, *break_even_table())
    move = variance / np.sqrt(variance + noise)
    won, _ = integrate.quad(lambda z: max(move * z - gap, 0.0) * stats.norm.pdf(z), gap / move, 12.0, epsabs=1e-14)
    assert rounds * won == pytest.approx(gap, rel=1e-3)


def test_the_break_even_gap_is_0_without_future_rounds_or_uncertainty():
    for rounds in (0.0, 1e-9):
        assert break_even(2.0, 0.5, rounds, *break_even_table()) < 2e-3
    assert break_even(0.0, 0.0, 100.0, *break_even_table()) == 0.0


def test_foresight_raises_the_bonus_of_arms_whose_reward_is_useful_later():
    rng = np.random.default_rng(2)
    choices = Choices(
        rounds=np.full(1, 2000),
        arms=np.zeros(1, dtype=np.int64),
        features=np.zeros((1, OBSERVED)),
        means=rng.normal(size=(1, ARMS)),
        variances=np.array([[1.0, 1.0, 1.0, 1e-6, 1.0]]),
        widths=np.full((1, ARMS), 0.1),
        available=np.ones((1, ARMS), dtype=bool),
        noise_variances=np.array([[0.1, 0.1, 50.0, 0.1, 0.1]]),
        reuse=np.array([[1.0, 1e-3, 1.0, 1.0, 4.0]]),
    )
    chooser = Optimistic(StreamBatch(stream_keys([0]), OBSERVED, ARMS), OBSERVED, bonus=1.1, foresight=0.5)
    bonus = (chooser.adjusted_means(choices) - choices.means)[0] / np.sqrt(choices.variances[0])
    np.testing.assert_allclose(bonus[[1, 2, 3]], 1.1)  # rare context; noisy reward; certain prediction
    assert bonus[0] == pytest.approx(break_even(1.0, 0.1, 1000.0, *break_even_table()))
    assert 1.1 < bonus[0] < bonus[4] < 3.2


def test_invalid_foresight_is_refused():
    with pytest.raises(hs.HalfseenError) as caught:
        build(Optimistic, foresight=float("nan"))
    assert str(caught.value) == "foresight: expected a finite number of at least 0, got nan"
