"""Linear-Gaussian worlds: their distributions, common random numbers, and changing dynamics."""

import json
from dataclasses import replace

import numpy as np
import pytest
from settings import arm_params, small_model

import halfseen as hs
from halfseen.experiments.plan import world_spec
from halfseen.kernels.random import Purpose, orthogonal_matrices, stream_keys
from halfseen.worlds import linear_gaussian, named
from halfseen.worlds.linear_gaussian import Change, LinearGaussianEpisodes, RandomWorld
from halfseen.worlds.named import NAMED

SEEDS = [2, 5]  # for worlds with changing dynamics
RANDOM = [name for name in NAMED if isinstance(named(name), RandomWorld)]


@pytest.mark.parametrize("name", RANDOM)
def test_named_worlds_have_the_documented_distribution(name):
    world = named(name, **({"at": 4000} if name == "switch" else {}))
    episodes = world.begin(range(3))
    rounds = episodes.advance(4000)
    for b, model in enumerate(episodes.models):
        x, y = rounds.contexts[:, b], rounds.observations[:, b]
        moved = x[1:] - x[:-1] @ model.transition.T
        np.testing.assert_allclose(moved.T @ moved / len(moved), model.process_cov, atol=0.1 * world.process_var)
        noise = y - x[:, : world.observed]
        np.testing.assert_allclose(
            noise.T @ noise / len(y), model.observation_cov, atol=0.1 * world.observation_var + 1e-12
        )
        np.testing.assert_allclose(rounds.expected[:, b], x @ episodes.arm_params[b].T, atol=1e-9)
        assert rounds.reward_noise[:, b].std() == pytest.approx(world.reward_std, rel=0.06)
        if world.dynamics == "stochastic":
            np.testing.assert_allclose(model.transition.sum(axis=1), 1)
            assert model.transition.min() >= 0
        else:
            np.testing.assert_allclose(
                model.transition @ model.transition.T, 0.98**2 * np.eye(world.latent), atol=1e-12
            )
    assert not np.array_equal(episodes.models[0].transition, episodes.models[1].transition)


def test_named_worlds_have_the_documented_sizes():
    sizes = {name: (w.latent, w.observed, w.arms, w.process_var, w.reward_std, w.observation_var)
             for name, w in ((n, named(n)) for n in RANDOM)}  # fmt: skip
    assert sizes == {
        "paper": (20, 10, 15, 0.1, 1.0, 0.0),
        "orbit": (20, 10, 15, 0.01, 0.1, 0.0),
        "keyhole": (8, 3, 6, 0.1, 1.0, 0.0),
        "foggy-keyhole": (8, 3, 6, 0.1, 1.0, 0.5),
        "fog": (10, 5, 8, 0.01, 1.0, 1.0),
        "switch": (20, 10, 15, 0.01, 0.1, 0.0),
    }
    assert named("paper", noise=0.01).process_var == 0.01


def test_all_named_worlds_take_sizes():
    for name, default in NAMED.items():
        sizes = {"observed": 3, "arms": 4} if name == "blurred" else {"latent": 7, "observed": 3, "arms": 4}
        world = named(name, **sizes)
        assert (world.observed, world.arms) == (3, 4)
        assert world.latent == (4 if name == "blurred" else 7)
        assert world.name.startswith(default().name)
        assert world.name.endswith(" K=4")
        rounds = world.begin([1, 2]).advance(5)
        assert (rounds.contexts.shape, rounds.observations.shape) == ((5, 2, world.latent), (5, 2, 3))
        assert rounds.expected.shape == (5, 2, 4)
    assert named("keyhole", latent=8, observed=3).name == "keyhole"  # the usual sizes


def test_sensor_noise_of_the_papers_world():
    world = named("paper", noise=0.001, sensor_noise=0.1)
    assert world.name == "paper ε=0.001 Σ=0.1"
    np.testing.assert_array_equal(world.begin([1]).models[0].observation_cov, 0.1 * np.eye(10))
    cov = [[0.5, 0.2], [0.2, 0.3]]
    world = named("paper", sensor_noise=cov, latent=4, observed=2)
    assert world.name == "paper ε=0.1 Σ=matrix d=4 k=2"
    assert world == named("paper", sensor_noise=np.array(cov), latent=4, observed=2)
    json.dumps(world.settings())
    rounds = world.begin(range(50)).advance(200)
    errors = (rounds.observations - rounds.contexts[:, :, :2]).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(errors.T), cov, atol=0.02)


def test_noise_depends_neither_on_the_batch_nor_on_the_length_of_calls():
    world = named("foggy-keyhole")
    whole = world.begin([4, 9]).advance(60)
    alone = world.begin([9])
    pieces = [alone.advance(n) for n in (25, 35)]
    for part in range(4):
        joined = np.concatenate([piece[part][:, 0] for piece in pieces])
        np.testing.assert_allclose(joined, whole[part][:, 1], rtol=1e-12, atol=1e-12)


def test_a_world_from_given_matrices():
    """The rewards are the same in original and in canonical coordinates."""
    rng = np.random.default_rng(0)
    model = small_model()
    form = replace(model, observation=rng.normal(size=(3, 5))).canonical()
    world = linear_gaussian(model=form.model, arm_params=form.arms_to_canonical(arm_params()), reward_std=0.4)
    rounds = world.begin([1]).advance(50)
    original = form.contexts_to_original(rounds.contexts[:, 0])
    np.testing.assert_allclose(rounds.expected[:, 0], original @ arm_params().T, atol=1e-9)
    assert (world.latent, world.observed, world.arms) == (5, 3, 4)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: named("orbitt"), "There is no world 'orbitt'. Did you mean 'orbit'?"),
        (
            lambda: named("orbit", noise=1),
            "World 'orbit' has no option 'noise'. Its options are: arms, latent, observed",
        ),
        (lambda: named("paper", noise=0), "noise: expected a finite number above 0, got 0"),
        (
            lambda: linear_gaussian(model=small_model(), arm_params=np.eye(3)),
            "arm_params: expected shape (3, 5), got shape (3, 3)",
        ),
        (lambda: linear_gaussian(model={}, arm_params=np.eye(5)), "model: expected a LinearGaussianModel, got dict"),
        (lambda: named("switch", at=0), "at: expected an integer of at least 1, got 0"),
        (lambda: named("switch", at=1.5), "at: expected an integer of at least 1, got 1.5"),
        (lambda: named("orbit").begin([]), "seeds: expected a list of at least one seed, got []"),
        (lambda: named("orbit").begin(3), "seeds: expected a list of at least one seed, got 3"),
        (lambda: named("orbit").begin([-1]), "seeds: expected an integer of at least 0, got -1"),
        (lambda: named("orbit").begin([1]).advance(0), "n: expected an integer of at least 1, got 0"),
        (
            lambda: linear_gaussian(model=small_model(), arm_params=[1, 2]),
            "arm_params: expected shape (arms, 5), got shape (2,)",
        ),
    ],
)
def test_invalid_worlds(call, line):
    with pytest.raises(hs.HalfseenError) as caught:
        call()
    assert str(caught.value).startswith(line)


def assert_same_rounds(one, other):
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_switch_equals_orbit_until_the_change():
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
        noise = noise_source[1:, b] - noise_source[:-1, b] @ model.transition.T  # from round 2 on
        before, after = moved[: at - 1, b] @ model.transition.T, moved[at - 1 : -1, b] @ second[b].T
        np.testing.assert_allclose(moved[1:, b], np.concatenate([before, after]) + noise, atol=1e-12)
        np.testing.assert_allclose(second[b] @ second[b].T, 0.98**2 * np.eye(world.latent), atol=1e-12)
        assert np.linalg.norm(second[b] - model.transition) > 1.0


@pytest.mark.parametrize("pieces", [(90,), (40, 50), (39, 1, 1, 49), (41, 49), (30,) * 3, (1,) * 90])
def test_rounds_do_not_depend_on_the_length_of_calls(pieces):
    world = named("switch", at=40)
    whole, episodes = world.begin(SEEDS).advance(90), world.begin(SEEDS)
    parts = [episodes.advance(n) for n in pieces]
    for at, expected in enumerate(whole):
        np.testing.assert_allclose(np.concatenate([part[at] for part in parts]), expected, rtol=1e-12, atol=1e-12)


def test_dynamics_can_change_several_times():
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


def test_facts_contain_the_model_of_the_first_round():
    facts, steady = named("switch", at=1).begin(SEEDS).facts(), named("orbit").begin(SEEDS).facts()
    assert facts.keys() == steady.keys()
    for mine, theirs in zip(facts["model"], steady["model"], strict=True):
        np.testing.assert_array_equal(mine.transition, theirs.transition)


def test_settings_and_names_of_switch():
    assert named("switch").settings() == named("orbit").settings() | {"name": "switch", "changes_after": 1500}
    assert "changes_after" not in named("orbit").settings()
    assert world_spec("switch:at=500") == named("switch", at=500)
    assert named("switch", at=500).name == "switch at=500"
    assert (named("switch").changes_after, named("orbit").changes_after) == (1500, None)


def test_the_model_of_the_first_round_is_correct_until_the_change():
    result = hs.run(["kf-ts", "oracle-ts"], world=["orbit", "switch:at=300"], rounds=600, seeds=4)
    for agent in result.agents:
        steady, changed = (result.tracks[world, agent].regret for world in result.worlds)
        np.testing.assert_array_equal(steady[:, :300], changed[:, :300])
    error = {world: result.tracks[world, "kf-ts"].error[:, 300:].mean() for world in result.worlds}
    assert error["switch at=300"] > 2 * error["orbit"]
