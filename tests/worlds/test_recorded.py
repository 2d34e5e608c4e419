"""Recorded worlds: scaling, missing values, facts for agents, and batches of rewards."""

from __future__ import annotations

import numpy as np
import pytest

import halfseen as hs
from halfseen.errors import HalfseenError
from halfseen.worlds import recorded

ROWS = 200
RNG = np.random.default_rng(11)
DATA = {
    "a": 5.0 + 3.0 * RNG.normal(size=ROWS),
    "b": -2.0 + 0.1 * RNG.normal(size=ROWS),
    "c": 1e4 * RNG.normal(size=ROWS),
    **{name: 0.3 + 2.5 * RNG.normal(size=ROWS) for name in ("r", "s", "u")},
}
ROLES = {"observed": ["a", "b"], "hidden": ["c"], "rewards": ["r", "s", "u"]}


def test_only_the_first_rows_determine_the_scale():
    world = recorded(DATA, **ROLES, scale_on=0.3, intercept=False)
    assert (world.latent, world.observed, world.arms, world.length) == (3, 2, 3, 140)
    for at, name in enumerate("abc"):
        first = DATA[name][:60]
        np.testing.assert_allclose(world.contexts[:, at], (DATA[name][60:] - first.mean()) / first.std(), rtol=1e-12)
    np.testing.assert_array_equal(world.observations, world.contexts[:, :2])
    np.testing.assert_array_equal(world.rewards, np.stack([DATA[name][60:] for name in "rsu"], axis=1))
    assert world.reward_unit == pytest.approx(np.sqrt(np.mean([DATA[name][:60].var() for name in "rsu"])), rel=1e-12)
    later = {name: np.concatenate([values[:60], 7.0 + 9.0 * values[60:]]) for name, values in DATA.items()}
    assert recorded(later, **ROLES, scale_on=0.3).reward_unit == world.reward_unit


def test_rows_for_scaling_are_whole_batches_of_rewards():
    assert recorded(DATA, **ROLES, reward_every=24).scaling == 24
    assert recorded(DATA, **ROLES, reward_every=7).scaling == 35


def test_columns_that_are_constant_in_the_first_rows_are_not_scaled():
    constant = DATA | {"a": np.where(np.arange(ROWS) < 50, 4.0, 4.0 + DATA["b"])}
    np.testing.assert_allclose(recorded(constant, **ROLES).contexts[:, 0], constant["a"][40:] - 4.0)


def test_missing_entries_are_nan_in_observations_and_filled_in_contexts():
    gaps = {name: values.copy() for name, values in DATA.items()}
    gaps["a"][[0, 100, 101]] = np.nan
    gaps["c"][150] = np.nan
    world, whole = recorded(gaps, **ROLES, intercept=False), recorded(DATA, **ROLES, intercept=False)
    assert np.argwhere(np.isnan(world.observations)).tolist() == [[60, 0], [61, 0]]
    assert not np.isnan(world.contexts).any()
    assert world.contexts[60, 0] == world.contexts[61, 0] == world.contexts[59, 0]
    assert world.contexts[110, 2] == whole.contexts[109, 2]  # filled with the previous value
    result = hs.run(["oracle-ts", "ts-pco", "adaptive"], world=world, seeds=2)
    assert all(np.isfinite(track.reward).all() for track in result.tracks.values())


def test_all_seeds_have_the_same_rows():
    episodes = recorded(DATA, **ROLES).begin([3, 8])
    first, second = episodes.advance(100), episodes.advance(60)
    rewards = np.concatenate([first.expected, second.expected])
    for stream in range(2):
        np.testing.assert_array_equal(rewards[:, stream], np.stack([DATA[name][40:] for name in "rsu"], axis=1))
    assert not first.reward_noise.any()
    with pytest.raises(HalfseenError, match="rounds: expected at most 160, the length of 'recorded', got 161"):
        episodes.advance(1)


def test_agents_get_few_facts_about_recorded_worlds():
    for intercept in (False, True):
        facts = recorded(DATA, **ROLES, intercept=intercept).begin([0]).facts()
        assert facts == {"latent": 3 + intercept, "noise_std": 1.0}
    for agent, fact in (("kf-ts", "model"), ("kf-ucb", "model"), ("bayes", "model")):
        with pytest.raises(HalfseenError) as caught:
            hs.run(["ts-pco", agent], world=recorded(DATA, **ROLES, name="mine"), seeds=1)
        assert str(caught.value).startswith("agents: expected ")
        assert fact in str(caught.value)
        assert str(caught.value).endswith(f", got '{agent}' in 'mine'")


def test_an_agent_with_a_given_model_can_play():
    model = hs.LinearGaussianModel(transition=0.9 * np.eye(3), process_cov=np.eye(3), observation_cov=0.1 * np.eye(2))
    result = hs.run(hs.AgentSpec("kf-ts", {"model": model}), world=recorded(DATA, **ROLES, intercept=False), seeds=1)
    assert np.isfinite(result.tracks["recorded", result.agents[0]].reward).all()


@pytest.mark.parametrize("every", [1, 7])
def test_rewards_of_a_batch_are_learnt_together(every):
    """The experiment makes the same decisions as an agent that learns the rewards after the last round of a batch."""
    world = recorded(DATA, **ROLES, reward_every=every)
    for name in ("ts-pco", "lag-ts", "adaptive"):
        result = hs.run(name, world=world, seeds=[5])
        agent = hs.make(name, observed=3, arms=3, seed=5)
        pending, arms = [], []
        for t in range(world.length):
            decision = agent.decide(world.observations[t])
            arms.append(decision.index)
            pending.append((decision.id, world.rewards[t, decision.index] / world.reward_unit))
            if len(pending) == every:
                for decision_id, reward in pending:
                    agent.learn(decision_id, reward)
                pending = []
        np.testing.assert_array_equal(result.tracks["recorded", name].arm[0], arms, err_msg=name)


def test_batches_of_rewards_change_decisions():
    worlds = [recorded(DATA, **ROLES, reward_every=every, scale_on=0.175) for every in (1, 7)]
    one, seven = (hs.run("ts-pco", world=world, seeds=[5]) for world in worlds)
    assert (one.tracks["recorded", "ts-pco"].arm != seven.tracks["recorded", "ts-pco"].arm).any()


@pytest.mark.parametrize("agent", ["oracle-ts", "lag-ts", "ts-pco", "emkf-ts", "emkf-ucb", "adaptive", "random"])
def test_the_units_of_rewards_do_not_matter(agent):
    """A factor of 1024 is a power of two, so that results are equal to the last bit."""
    larger = DATA | {name: 1024.0 * DATA[name] for name in "rsu"}
    one, other = (hs.run(agent, world=recorded(data, **ROLES), seeds=[4]) for data in (DATA, larger))
    np.testing.assert_array_equal(one.tracks["recorded", agent].arm, other.tracks["recorded", agent].arm)
    np.testing.assert_array_equal(1024.0 * one.tracks["recorded", agent].reward, other.tracks["recorded", agent].reward)


def test_defaults_are_all_rounds_and_ten_seeds():
    result = hs.run("random", world=recorded(DATA, **ROLES))
    assert (result.plan.rounds, len(result.plan.seeds)) == (160, 10)
    with pytest.raises(HalfseenError, match="rounds: expected at most 160, the length of 'recorded', got 161"):
        hs.run("random", world=recorded(DATA, **ROLES), rounds=161)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observed": []}, "observed: expected at least 1 column, got nothing"),
        ({"rewards": ["r"]}, "rewards: expected at least 2 columns, got r"),
        (
            {"rewards": ["r", "a"]},
            "columns: expected every column once, got 'a' in observed and in rewards",
        ),
        ({"hidden": ["a"]}, "columns: expected every column once, got 'a' in observed and in hidden"),
        ({"observed": ["a", "a"]}, "columns: expected every column once, got 'a' twice in observed"),
        ({"observed": [1]}, "observed: expected names of columns, got [1]"),
        ({"observed": ["aa"]}, "the table has no column 'aa'. Did you mean 'a'?"),
        ({"scale_on": 0}, "scale_on: expected a number between 0 and 1, got 0"),
        ({"scale_on": "much"}, "scale_on: expected a number between 0 and 1, got 'much'"),
        ({"scale_on": 0.01}, "the table: expected at least 1000 rows, 10 of them for scaling (scale_on=0.01), got 200"),
        ({"reward_every": 50}, "the table: expected at least 250 rows, 50 of them for scaling (scale_on=0.2), got 200"),
        ({"intercept": 1}, "intercept: expected True or False, got 1"),
        ({"reward_every": 0}, "reward_every: expected an integer of at least 1, got 0"),
    ],
)
def test_invalid_arguments(changes, message):
    with pytest.raises(HalfseenError) as caught:
        recorded(DATA, **(ROLES | changes))
    assert str(caught.value).startswith(message)


def test_a_column_without_numbers_in_the_rows_for_scaling():
    late = DATA | {"b": np.where(np.arange(ROWS) < 90, np.nan, DATA["b"])}
    with pytest.raises(HalfseenError, match=r"column 'b': expected .* number in rows 1 to 40, .*, got empty cells"):
        recorded(late, **ROLES)


def test_the_intercept_follows_the_observed_columns():
    with_one, plain = recorded(DATA, **ROLES), recorded(DATA, **ROLES, intercept=False)
    assert (with_one.observed, with_one.latent) == (3, 4)
    np.testing.assert_array_equal(with_one.observations, np.c_[plain.observations, np.ones(160)])
    np.testing.assert_array_equal(with_one.contexts, np.c_[plain.observations, np.ones(160), plain.contexts[:, 2]])
    assert with_one.settings()["intercept"] != plain.settings()["intercept"]
    assert with_one.without_intercept().settings() == plain.settings()
    assert with_one.observed == 3  # the world itself does not change


def test_agents_learn_that_arms_have_different_means():
    """Without the intercept, linear agents on centred columns cannot learn the means and earn far less."""
    rng = np.random.default_rng(2)
    y, noise = rng.normal(size=1000), rng.normal(size=(3, 1000))
    data = {"y": y, "good": 10 + 0.5 * y + noise[0], "bad": noise[1], "mid": 5 - 0.5 * y + noise[2]}
    roles = {"observed": ["y"], "rewards": ["good", "bad", "mid"]}
    linear = ["ts-pco", "oracle-ts", "lag-ts"]
    world, plain = recorded(data, **roles), recorded(data, **roles, intercept=False)
    result = hs.run([*linear, "adaptive", "emkf-ts"], world=world, seeds=2)
    for agent in [*linear, "adaptive"]:
        assert result.tracks["recorded", agent].reward.mean() > 9.5, agent
    assert np.isfinite(result.tracks["recorded", "emkf-ts"].reward).all()
    without = hs.run(linear, world=plain, seeds=2)
    assert max(without.tracks["recorded", agent].reward.mean() for agent in linear) < 8.5
