"""Worlds of which a share of the rounds is left out."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.worlds.gaps import GapsWorld, kept_rounds
from halfseen.worlds.named import named


@pytest.mark.parametrize("base", ["keyhole", "clicks"])
def test_the_rounds_that_are_left_are_those_of_the_world(base):
    episodes, rounds = named("gaps", world=base).begin([3, 4]), 400
    parts = [episodes.advance(n) for n in (100, 1, 299)]
    kept = kept_rounds(1, 2000, 0.4)[:rounds] - 1
    complete = named(base).begin([3, 4]).advance(int(kept[-1]) + 1)
    for field in ("contexts", "observations", "expected", "reward_noise"):
        joined = np.concatenate([getattr(part, field) for part in parts])
        # Matrix products of blocks of another length may differ by rounding.
        np.testing.assert_allclose(joined, getattr(complete, field)[kept], rtol=0, atol=1e-12)
    if complete.rewards is not None:
        np.testing.assert_array_equal(np.concatenate([part.rewards for part in parts]), complete.rewards[kept])
    elapsed = np.concatenate([part.elapsed for part in parts])
    np.testing.assert_array_equal(np.cumsum(elapsed) - 1, kept)
    assert 0.37 < 1.0 - rounds / elapsed.sum() < 0.43


def test_agents_that_are_not_told_see_consecutive_rounds():
    told, untold = (named("gaps", world="keyhole", told=one).begin([1]).advance(50) for one in (True, False))
    assert untold.elapsed is None
    np.testing.assert_array_equal(told.observations, untold.observations)


def test_a_run_tells_the_agent_how_many_rounds_have_passed():
    """The regret of a run equals that of an agent that is told by hand."""
    world, rounds = named("gaps", world="keyhole", share=0.5), 60
    result = hs.run(["kf-ts"], world=world, rounds=rounds, seeds=[7])
    episodes = world.begin([7])
    facts, played = episodes.facts(), episodes.advance(rounds)
    agent = hs.make("kf-ts", observed=3, arms=6, seed=7, model=facts["model"][0])
    regret = 0.0
    for t in range(rounds):
        decision = agent.decide(played.observations[t, 0], elapsed=int(played.elapsed[t]))
        agent.learn(decision, float(played.expected[t, 0, decision.index] + played.reward_noise[t, 0]))
        regret += played.expected[t, 0].max() - played.expected[t, 0, decision.index]
    assert result.total_regret(world.name, "kf-ts")[0] == pytest.approx(regret, rel=1e-12)


def test_a_filter_that_is_told_estimates_the_context_better():
    worlds = [named("gaps", world="keyhole", told=told) for told in (True, False)]
    result = hs.run(["kf-ts"], world=worlds, rounds=300, seeds=4)
    told, ignored = (result.tracks[one.name, "kf-ts"].error.mean() for one in worlds)
    assert told < 0.8 * ignored


def test_a_change_and_the_length_move_with_the_rounds():
    world = named("gaps", world="switch")
    assert world.changes_after == len(kept_rounds(1, 1500, 0.4))


def test_rewards_that_come_together_still_do():
    table = {"y": np.arange(200.0) % 7, "a": np.arange(200.0), "b": -np.arange(200.0)}
    daily = hs.worlds.recorded(table, observed=["y"], rewards=["a", "b"], reward_every=5)
    assert GapsWorld(daily, 0.4, told=True, base_name="daily").reward_every == 5


@pytest.mark.parametrize("options", [{"world": "gaps"}, {"share": 0.0}, {"share": 1.0}, {"told": 1}, {"world": "none"}])
def test_bad_options_are_refused(options):
    with pytest.raises(hs.HalfseenError):
        named("gaps", **options)
