"""Worlds whose rewards are clicks or counts."""

import numpy as np
import pytest

import halfseen as hs

SEEDS = range(30)


@pytest.mark.parametrize("rate", [0.01, 0.03, 0.1, 0.3])
def test_random_play_is_clicked_at_the_base_rate(rate):
    rounds = hs.worlds.named("clicks", rate=rate).begin(SEEDS).advance(2_000)
    assert set(np.unique(rounds.rewards)) == {0.0, 1.0}
    # The long-run mean over 30 draws of the dynamics and six arms each: four standard errors.
    by_seed = rounds.expected.mean(axis=(0, 2))
    assert abs(by_seed.mean() - rate) < 4 * by_seed.std() / np.sqrt(len(SEEDS))


def test_random_play_has_the_mean_count():
    rounds = hs.worlds.named("counts", rate=2.0).begin(SEEDS).advance(2_000)
    by_seed = rounds.expected.mean(axis=(0, 2))
    assert abs(by_seed.mean() - 2.0) < 4 * by_seed.std() / np.sqrt(len(SEEDS))
    assert (rounds.rewards == np.round(rounds.rewards)).all()
    assert rounds.rewards.min() >= 0.0


@pytest.mark.parametrize("name", ["clicks", "counts"])
def test_rewards_have_their_expectations(name):
    """Rewards of many rounds against their expected rewards, at five standard errors."""
    rounds = hs.worlds.named(name).begin([3]).advance(20_000)
    variance = rounds.expected * (1 - rounds.expected) if name == "clicks" else rounds.expected
    gaps = (rounds.rewards - rounds.expected)[:, 0].sum(axis=0)
    assert (np.abs(gaps) < 5 * np.sqrt(variance[:, 0].sum(axis=0))).all()


@pytest.mark.parametrize("name", ["clicks", "counts"])
def test_rounds_do_not_depend_on_how_they_are_requested(name):
    world = hs.worlds.named(name)
    at_once, episodes = world.begin([1, 2]).advance(30), world.begin([1, 2])
    parts = [episodes.advance(10) for _ in range(3)]
    for field in ("contexts", "observations", "expected", "rewards"):
        np.testing.assert_array_equal(getattr(at_once, field), np.concatenate([getattr(one, field) for one in parts]))


def test_contexts_are_those_of_keyhole():
    clicks, keyhole = (hs.worlds.named(name).begin([4]).advance(20) for name in ("clicks", "keyhole"))
    np.testing.assert_array_equal(clicks.observations, keyhole.observations)


@pytest.mark.parametrize(("name", "rate"), [("clicks", 1.0), ("clicks", 0.0), ("counts", -1.0), ("counts", 1e7)])
def test_an_impossible_rate_is_refused(name, rate):
    with pytest.raises(hs.HalfseenError, match=r"^rate: expected "):
        hs.worlds.named(name, rate=rate)


@pytest.mark.parametrize("name", ["clicks", "counts"])
def test_regret_is_on_the_scale_of_rewards_and_agents_are_told_the_family(name):
    result = hs.run(
        ["ts-pco", "ts-pco:reward_family=gaussian", "glm-ucb", "random", "bayes"], world=name, rounds=600, seeds=6
    )
    regret = {agent: result.tracks[name, agent].regret.sum(axis=1).mean() for agent in result.agents}
    rewards = {agent: result.tracks[name, agent].reward for agent in result.agents}
    assert regret["bayes"] < regret["ts-pco"] < regret["random"]
    assert regret["ts-pco"] != regret["ts-pco:reward_family=gaussian"]
    if name == "clicks":
        assert all(np.isin(one, (0.0, 1.0)).all() for one in rewards.values())
        assert max(regret.values()) < 600


@pytest.mark.parametrize("name", ["clicks", "counts"])
def test_rounds_played_in_a_batch_equal_single_rounds(name):
    """`ts-pco` on rewards taken as numbers plays many rounds in one call, and a guarded agent round by round."""
    agents = ["ts-pco:reward_family=gaussian", "ts-pco:reward_family=gaussian,floor=0.0"]
    result = hs.run(agents, world=name, rounds=300, seeds=3)
    one, other = (result.tracks[name, agent] for agent in result.agents)
    np.testing.assert_array_equal(one.reward, other.reward)
    np.testing.assert_array_equal(one.regret, other.regret)


def table(rows=120):
    rng = np.random.default_rng(0)
    load = rng.normal(size=rows)
    return {
        "load": load,
        "buy": (rng.uniform(size=rows) < 1 / (1 + np.exp(-load))).astype(float),
        "wait": (rng.uniform(size=rows) < 0.3).astype(float),
    }


def test_recorded_clicks_are_not_scaled():
    world = hs.worlds.recorded(table(), observed=["load"], rewards=["buy", "wait"], reward_family="binary")
    assert world.reward_unit == 1.0
    assert world.settings()["family of rewards"] == "binary"
    result = hs.run(["ts-pco", "glm-ts", "glm-ucb"], world=world, seeds=2)
    assert all(np.isin(result.tracks[world.name, agent].reward, (0.0, 1.0)).all() for agent in result.agents)


def test_recorded_rewards_outside_of_the_range_are_refused():
    columns = table()
    columns["buy"][7] = 1.5
    with pytest.raises(
        hs.HalfseenError, match=r"column 'buy': expected numbers from 0 to 1, because the reward family"
    ):
        hs.worlds.recorded(columns, observed=["load"], rewards=["buy", "wait"], reward_family="binary")
    with pytest.raises(hs.HalfseenError, match=r"^reward_family: expected"):
        hs.worlds.recorded(table(), observed=["load"], rewards=["buy", "wait"], reward_family="clicks")


def test_the_command_runs_a_table_of_clicks(tmp_path, capsys):
    from halfseen.cli.app import run_app

    columns = table()
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path = tmp_path / "clicks.csv"
    path.write_text("\n".join(lines))
    command = ["run", str(path), "--observed", "load", "--rewards", "buy,wait", "--agents", "glm-ts", "--seeds", "2"]
    assert run_app([*command, "--reward-family", "binary"]) == 0
    assert "glm-ts" in capsys.readouterr().out
    assert run_app([*command, "--reward-family", "clicks"]) != 0
    assert "reward_family: expected 'gaussian' or 'binary' or 'count'" in capsys.readouterr().err
    assert run_app(["run", "clicks", "--reward-family", "binary"]) != 0
    assert "reward-family: expected no value unless the world is a table" in capsys.readouterr().err
