"""Worlds with a hidden Markov chain, and the facts about them."""

import numpy as np
import pytest

from halfseen.agents.catalogue import CATALOG, AgentSpec
from halfseen.experiments.play import build_policy
from halfseen.worlds import named
from halfseen.worlds.named import NAMED

ROUNDS, SEEDS = 20_000, (0, 1, 2)


@pytest.fixture(scope="module")
def played():
    episodes = named("regimes").begin(SEEDS)
    return episodes, episodes.advance(ROUNDS)


def test_state_frequencies_match_the_transition_matrix(played):
    episodes, rounds = played
    states = rounds.contexts.argmax(axis=2)
    assert set(np.unique(rounds.contexts)) == {0.0, 1.0}
    np.testing.assert_array_equal(rounds.contexts.sum(axis=2), 1.0)
    counts = np.zeros((3, 3))
    np.add.at(counts, (states[:-1].ravel(), states[1:].ravel()), 1)
    visits = counts.sum(axis=1, keepdims=True)
    F = episodes.chain.transition
    assert (np.abs(counts / visits - F) < 4.5 * np.sqrt(F * (1 - F) / visits)).all()
    share = episodes.chain.stationary
    np.testing.assert_allclose(share @ F, share, atol=1e-12)
    assert share.sum() == pytest.approx(1)


def test_observations_and_rewards_depend_on_the_state(played):
    episodes, rounds = played
    states = rounds.contexts.argmax(axis=2)
    for s in range(3):
        here = rounds.observations[states == s]
        np.testing.assert_allclose(here.mean(axis=0), episodes.chain.means[s], atol=4.5 / np.sqrt(len(here)))
        np.testing.assert_allclose(np.cov(here.T), np.eye(2), atol=0.05)
    expected = np.einsum("tbd,bkd->tbk", rounds.contexts, episodes.arm_params)
    np.testing.assert_allclose(rounds.expected, expected, atol=1e-12)
    assert not np.allclose(episodes.arm_params[0], episodes.arm_params[1])


def test_the_linear_gaussian_model_has_the_moments_of_the_chain(played):
    """Autocovariances of y up to lag 5, and the covariance of the process noise."""
    episodes, rounds = played
    model = episodes.chain.linear_gaussian()
    x, y = rounds.contexts, rounds.observations
    centred = y - model.observation @ model.initial_mean
    D, A = model.transition, model.observation
    cov = model.initial_cov
    np.testing.assert_allclose(D @ cov @ D.T + model.process_cov, cov, atol=1e-12)
    for lag in range(6):
        expected = A @ np.linalg.matrix_power(D, lag) @ cov @ A.T + (model.observation_cov if lag == 0 else 0)
        found = np.einsum("tbi,tbj->ij", centred[lag:], centred[: len(y) - lag]) / centred[lag:, :, 0].size
        np.testing.assert_allclose(found, expected, atol=0.15)
    jumps = (x[1:] - x[:-1] @ D.T).reshape(-1, 3)
    np.testing.assert_allclose(jumps.mean(axis=0), 0, atol=0.005)
    np.testing.assert_allclose(jumps.T @ jumps / len(jumps), model.process_cov, atol=0.005)


def test_noise_depends_neither_on_the_batch_nor_on_the_length_of_calls():
    whole = named("regimes").begin([4, 9]).advance(60)
    alone = named("regimes").begin([9])
    pieces = [alone.advance(n) for n in (25, 35)]
    for part in range(4):
        np.testing.assert_array_equal(np.concatenate([piece[part][:, 0] for piece in pieces]), whole[part][:, 1])


@pytest.mark.parametrize("world", list(NAMED))
@pytest.mark.parametrize("name", list(CATALOG))
def test_every_agent_can_be_built_in_every_world(world, name):
    instance = named(world)
    episodes = instance.begin([0, 1])
    policy = build_policy(AgentSpec(name), instance, episodes, (0, 1), 50)
    rounds = episodes.advance(3)
    for t in range(3):
        contexts = rounds.contexts[t] if policy.estimator.reveals_context else None
        choices = policy.decide(rounds.observations[t], contexts=contexts)
        policy.learn(choices.rounds, choices.features, choices.arms, rounds.expected[t, [0, 1], choices.arms])
