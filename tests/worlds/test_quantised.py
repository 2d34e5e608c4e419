"""Approximation of linear-Gaussian worlds by Markov chains, and limits of their second moments."""

import importlib

import numpy as np
import pytest
from settings import small_model

import halfseen as hs
from halfseen.worlds import named
from halfseen.worlds.linear_gaussian import long_run_second_moment
from halfseen.worlds.quantised import STATES


def resolved(facts, name):
    return facts[name]() if callable(facts[name]) else facts[name]


def test_states_explain_most_of_the_expected_rewards():
    """The rewards of the chain have about the covariance of the rewards of the world."""
    episodes = named("keyhole").begin([3, 5])
    facts = episodes.facts()
    F, rewards, std, prior = (resolved(facts, f"state_{n}") for n in ("transition", "rewards", "std", "prior"))
    assert F.shape == (2, STATES, STATES)
    np.testing.assert_allclose(F.sum(axis=2), 1)
    np.testing.assert_allclose(prior.sum(axis=1), 1)
    expected = episodes.advance(4000).expected
    for b in range(2):
        chain, world = np.cov(rewards[b], aweights=prior[b]), np.cov(expected[:, b].T)
        assert np.trace(chain) == pytest.approx(np.trace(world), rel=0.5)
        nearest = ((expected[:, b, :, None] - rewards[b]) ** 2).sum(axis=1).min(axis=1).mean()
        assert nearest < 0.5 * np.trace(world)
        assert std[b] > 1.0
        assert F[b].max(axis=1).mean() > 2.0 / STATES  # the current state predicts the next one


def test_chains_do_not_depend_on_the_batch():
    both, alone = named("fog").begin([3, 5]).facts(), named("fog").begin([5]).facts()
    for name in ("state_transition", "state_rewards", "state_std", "state_prior"):
        np.testing.assert_array_equal(resolved(both, name)[1], resolved(alone, name)[0])


def test_chains_are_only_computed_for_agents_that_need_them(monkeypatch):
    module = importlib.import_module("halfseen.worlds.linear_gaussian")  # the package has a function of this name
    calls = []
    original = module.quantise
    monkeypatch.setattr(module, "quantise", lambda *given: calls.append(1) or original(*given))
    hs.run(["kf-ts", "ts-pco"], world="keyhole", rounds=5, seeds=2)
    assert not calls
    hs.run(["mts"], world="keyhole", rounds=5, seeds=2)
    assert len(calls) == 1


def test_limits_of_second_moments():
    model = small_model()
    found = long_run_second_moment(model)
    np.testing.assert_allclose(found, model.transition @ found @ model.transition.T + model.process_cov, atol=1e-10)
    constant = named("blurred").model
    expected = np.ones((6, 6)) + np.diag([1.0] * 5 + [0.0])
    np.testing.assert_allclose(long_run_second_moment(constant), expected, atol=1e-12)
    assert long_run_second_moment(named("paper").begin([0]).models[0]) is None
    facts = named("paper").begin([0]).facts()
    assert resolved(facts, "context_cov") == "running"
    assert resolved(named("orbit").begin([0]).facts(), "context_cov").shape == (1, 20, 20)


def test_blurred_has_the_documented_distribution():
    episodes = named("blurred", noise=0.25, common=2).begin(range(4))
    rounds = episodes.advance(3000)
    x = rounds.contexts[:, :, :5].reshape(-1, 5)
    np.testing.assert_array_equal(rounds.contexts[:, :, 5], 1.0)
    np.testing.assert_allclose(x.mean(axis=0), 1.0, atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), np.eye(5), atol=0.06)
    assert abs(np.corrcoef(rounds.contexts[1:, 0, 0], rounds.contexts[:-1, 0, 0])[0, 1]) < 0.08
    noise = (rounds.observations - rounds.contexts[:, :, :5]).reshape(-1, 5)
    np.testing.assert_allclose(np.cov(noise.T), 0.25 * np.eye(5), atol=0.02)
    np.testing.assert_allclose(rounds.expected[..., 0], rounds.contexts[..., :5] @ [3, 2, 2, 2, 2], atol=1e-12)
    np.testing.assert_allclose(rounds.expected[..., 1], rounds.contexts[..., :5] @ [2, 3, 1, 3, 1], atol=1e-12)
    assert named("blurred").name == "blurred"
    assert named("blurred", noise=0.25).name == "blurred noise=0.25 common=5"
    with pytest.raises(hs.HalfseenError, match=r"^noise: expected a finite number of at least 0, got -1"):
        named("blurred", noise=-1)
