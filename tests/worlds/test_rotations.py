import json

import numpy as np
import pytest

import halfseen as hs
from halfseen.worlds import named


@pytest.mark.parametrize("name", ["deep", "two-scales"])
def test_rounds_follow_the_model(name):
    world = named(name)
    episodes = world.begin([3, 4])
    rounds = episodes.advance(6000)
    for b, model in enumerate(episodes.models):
        x, y = rounds.contexts[:, b], rounds.observations[:, b]
        moved = x[1:] - x[:-1] @ model.transition.T
        np.testing.assert_allclose(moved.T @ moved / len(moved), model.process_cov, atol=0.08 * model.process_cov.max())
        noise = y - x @ model.observation.T
        np.testing.assert_allclose(noise.T @ noise / len(y), model.observation_cov, atol=0.005)
        np.testing.assert_allclose(rounds.expected[:, b], x @ episodes.arm_params[b].T, atol=1e-9)
    assert not np.array_equal(episodes.arm_params[0], episodes.arm_params[1])
    json.dumps(world.settings())


def test_eigenvalues_of_deep():
    for model in named("deep").begin([0, 1, 2]).models:
        values = np.linalg.eigvals(model.transition)
        assert ((np.abs(values) > 0.96) & (np.abs(values) < 0.995)).all()
        assert ((np.abs(np.angle(values)) > 0.05) & (np.abs(np.angle(values)) < 1.2)).all()
        assert ((np.diag(model.process_cov) > 0.03) & (np.diag(model.process_cov) < 0.2)).all()
    assert named("deep").begin([0]).arm_params.std() == pytest.approx(24**-0.5, rel=0.2)


def test_two_scales_hides_the_slow_rotation():
    model = named("two-scales").begin([0]).models[0]
    np.testing.assert_allclose(np.sort(np.abs(np.linalg.eigvals(model.transition))), [0.5] * 3 + [0.996] * 2)
    np.testing.assert_array_equal(model.observation[:, :3], np.eye(3))
    np.testing.assert_array_equal(np.diag(model.process_cov), [1, 1, 1, 0.02, 0.02])


def test_a_seed_gives_the_same_world_in_every_batch():
    both, alone = (named("deep").begin(seeds).advance(20) for seeds in ([4, 9], [9]))
    np.testing.assert_allclose(both.observations[:, 1], alone.observations[:, 0], rtol=1e-12)


def test_invalid_sizes_are_refused():
    with pytest.raises(hs.HalfseenError, match="observed: expected at most 2, the dimension of the context, got 3"):
        named("two-scales", latent=2)
