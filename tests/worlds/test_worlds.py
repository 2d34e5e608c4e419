"""Worlds are what they say they are, and the same noise for everybody."""

import numpy as np
import pytest
from settings import arm_params, small_model

import halfseen as hs
from halfseen.worlds import linear_gaussian, named
from halfseen.worlds.linear_gaussian import RandomWorld
from halfseen.worlds.named import NAMED

RANDOM = [name for name in NAMED if isinstance(named(name), RandomWorld)]


@pytest.mark.parametrize("name", RANDOM)
def test_named_worlds_have_the_stated_law(name):
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


def test_the_sizes_of_the_specification():
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


def test_noise_does_not_depend_on_batch_or_pieces():
    world = named("foggy-keyhole")
    whole = world.begin([4, 9]).advance(60)
    alone = world.begin([9])
    pieces = [alone.advance(n) for n in (25, 35)]
    for part in range(4):
        joined = np.concatenate([piece[part][:, 0] for piece in pieces])
        np.testing.assert_allclose(joined, whole[part][:, 1], rtol=1e-12, atol=1e-12)


def test_a_world_of_ones_own_matrices():
    """The same world in other coordinates gives the same observations and rewards."""
    rng = np.random.default_rng(0)
    model = small_model()
    form = hs.LinearGaussianModel(
        transition=model.transition,
        process_cov=model.process_cov,
        observation_cov=model.observation_cov,
        observation=rng.normal(size=(3, 5)),
        initial_cov=model.initial_cov,
    ).canonical()
    world = linear_gaussian(model=form.model, arm_params=form.arms_to_canonical(arm_params()), reward_std=0.4)
    rounds = world.begin([1]).advance(50)
    original = form.contexts_to_original(rounds.contexts[:, 0])
    np.testing.assert_allclose(rounds.expected[:, 0], original @ arm_params().T, atol=1e-9)
    assert (world.latent, world.observed, world.arms) == (5, 3, 4)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: named("orbitt"), "world: got 'orbitt'; did you mean 'orbit'?"),
        (lambda: named("orbit", noise=1), "option of world 'orbit': got 'noise'; it takes none"),
        (lambda: named("paper", noise=0), "noise: got 0; want a finite number above 0"),
        (
            lambda: linear_gaussian(model=small_model(), arm_params=np.eye(3)),
            "arm_params: got shape (3, 3); want",
        ),
        (lambda: linear_gaussian(model={}, arm_params=np.eye(5)), "model: got dict; want a LinearGaussianModel"),
        (lambda: named("switch", at=0), "at: got 0; want an integer of at least 1"),
        (lambda: named("switch", at=1.5), "at: got 1.5; want an integer of at least 1"),
        (lambda: named("orbit").begin([]), "seeds: got []; want a list of at least one seed"),
        (lambda: named("orbit").begin(3), "seeds: got 3; want a list of at least one seed"),
        (lambda: named("orbit").begin([-1]), "seeds: got -1; want an integer of at least 0"),
        (lambda: named("orbit").begin([1]).advance(0), "n: got 0; want an integer of at least 1"),
        (lambda: linear_gaussian(model=small_model(), arm_params=[1, 2]), "arm_params: got shape (2,); want"),
    ],
)
def test_bad_worlds(call, line):
    with pytest.raises(hs.HalfseenError) as caught:
        call()
    assert str(caught.value).startswith(line)
