"""The world whose dynamics change: when, to what, and nothing else."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.experiments.plan import world_spec
from halfseen.kernels.random import Purpose, orthogonal_matrices, stream_keys
from halfseen.worlds import named
from halfseen.worlds.linear_gaussian import Change, LinearGaussianEpisodes

SEEDS = [2, 5]


def assert_same_rounds(one, other):
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_until_the_change_it_is_orbit_and_a_later_change_is_no_change_yet():
    worlds = named("switch", at=40), named("switch", at=70), named("orbit")
    changed, later, never = (world.begin(SEEDS).advance(90) for world in worlds)
    assert_same_rounds([part[:40] for part in changed], [part[:40] for part in later])
    assert_same_rounds([part[:70] for part in later], [part[:70] for part in never])
    assert (changed.contexts[40] != never.contexts[40]).all()
    np.testing.assert_array_equal(changed.reward_noise, never.reward_noise)


def test_after_the_change_contexts_follow_the_new_transition():
    at, rounds = 40, 90
    world = named("switch", at=at)
    episodes, steady = world.begin(SEEDS), named("orbit").begin(SEEDS)
    moved, noise_source = episodes.advance(rounds).contexts, steady.advance(rounds).contexts
    second = 0.98 * orthogonal_matrices(stream_keys(SEEDS), Purpose.SECOND_TRANSITION, world.latent)
    for b, model in enumerate(steady.models):
        np.testing.assert_array_equal(model.transition, episodes.models[b].transition)
        noise = noise_source[1:, b] - noise_source[:-1, b] @ model.transition.T  # of the rounds 2, 3, …
        before, after = moved[: at - 1, b] @ model.transition.T, moved[at - 1 : -1, b] @ second[b].T
        np.testing.assert_allclose(moved[1:, b], np.concatenate([before, after]) + noise, atol=1e-12)
        np.testing.assert_allclose(second[b] @ second[b].T, 0.98**2 * np.eye(world.latent), atol=1e-12)
        assert np.linalg.norm(second[b] - model.transition) > 1.0


@pytest.mark.parametrize("pieces", [(90,), (40, 50), (39, 1, 1, 49), (41, 49), (30,) * 3, (1,) * 90])
def test_the_rounds_do_not_depend_on_the_pieces_they_come_in(pieces):
    world = named("switch", at=40)
    whole, episodes = world.begin(SEEDS).advance(90), world.begin(SEEDS)
    parts = [episodes.advance(n) for n in pieces]
    for at, expected in enumerate(whole):
        np.testing.assert_allclose(np.concatenate([part[at] for part in parts]), expected, rtol=1e-12, atol=1e-12)


def test_a_schedule_may_hold_several_changes():
    steady = named("orbit").begin(SEEDS)
    stop = np.zeros((2, 20, 20))
    own = np.stack([model.transition for model in steady.models])
    changes = [Change(3, stop), Change(4, own), Change(50, stop)]
    episodes = LinearGaussianEpisodes(stream_keys(SEEDS), steady.models, steady.arm_params, 0.1, changes=changes)
    got, noise_source = episodes.advance(6).contexts, steady.advance(6).contexts
    np.testing.assert_array_equal(got[:2], noise_source[:2])
    for b, D in enumerate(own):
        noise = noise_source[1:, b] - noise_source[:-1, b] @ D.T
        np.testing.assert_allclose(got[2, b], noise[1], atol=1e-12)
        np.testing.assert_allclose(got[3, b], D @ got[2, b] + noise[2], atol=1e-12)


def test_agents_are_told_the_model_that_holds_at_the_start():
    facts, steady = named("switch", at=1).begin(SEEDS).facts(), named("orbit").begin(SEEDS).facts()
    assert facts.keys() == steady.keys()
    for mine, theirs in zip(facts["model"], steady["model"], strict=True):
        np.testing.assert_array_equal(mine.transition, theirs.transition)


def test_the_record_and_the_names():
    assert named("switch").settings() == named("orbit").settings() | {"name": "switch", "changes_after": 1500}
    assert "changes_after" not in named("orbit").settings()
    assert world_spec("switch:at=500") == named("switch", at=500)
    assert named("switch", at=500).name == "switch at=500"
    assert (named("switch").changes_after, named("orbit").changes_after) == (1500, None)


def test_the_model_given_at_the_start_serves_until_the_change():
    result = hs.run(["kf-ts", "oracle-ts"], world=["orbit", "switch:at=300"], rounds=600, seeds=4)
    for agent in result.agents:
        calm, changed = (result.tracks[world, agent].regret for world in result.worlds)
        np.testing.assert_array_equal(calm[:, :300], changed[:, :300])
    error = {world: result.tracks[world, "kf-ts"].error[:, 300:].mean() for world in result.worlds}
    assert error["switch at=300"] > 2 * error["orbit"]
