"""`emkf-ts` is the paper's Algorithm 1. Further tests show what its estimator cannot learn."""

import numpy as np
import pytest
from reference.algorithm_1 import EmkfThompson
from settings import ARMS, LATENT, OBSERVED, arm_params, simulate_rounds

import halfseen as hs
from halfseen.components import StreamBatch
from halfseen.estimators.windowed_em import initial_transitions
from halfseen.kernels.emkf import maximise
from halfseen.kernels.random import Purpose, normals, stream_keys

WINDOW = 5 * LATENT


@pytest.mark.parametrize("noise", [0.3, 1e-4, 0.0])
def test_emkf_ts_equals_algorithm_1(noise):
    contexts, ys, omegas = simulate_rounds(4 * WINDOW + 9)
    keys = stream_keys(17)
    D0 = initial_transitions(StreamBatch(keys, OBSERVED, ARMS), LATENT, "stochastic")[0]
    Sigma = noise * np.eye(OBSERVED)
    paper = EmkfThompson(D0, 0.6 * np.eye(LATENT), Sigma, ARMS, WINDOW, width=0.8, regularisation=2.3)
    agent = hs.make(
        "emkf-ts",
        observed=OBSERVED,
        arms=ARMS,
        seed=17,
        latent=LATENT,
        observation_cov=noise,
        window=WINDOW,
        initial_process_var=0.6,
        width=0.8,
        regularisation=2.3,
    )
    for t, (x, y, omega) in enumerate(zip(contexts, ys, omegas, strict=True), start=1):
        z = normals(keys, np.array([t]), Purpose.CHOICE, ARMS)[0]
        want, c = paper.decide(y, z)
        decision = agent.decide(y)
        np.testing.assert_allclose(decision.context, c, rtol=1e-6, atol=1e-7)
        assert decision.arm == want
        reward = float(arm_params()[want] @ x + omega)
        paper.learn(want, c, reward)
        agent.learn(decision.id, reward)


def test_hidden_estimates_stay_0_if_the_initial_transition_is_a_multiple_of_the_identity():
    """The default of the initial transition is therefore random and dense."""
    agent = hs.make(
        "emkf-ts",
        observed=OBSERVED,
        arms=2,
        latent=LATENT,
        initial_transition=0.9 * np.eye(LATENT),
        window=WINDOW,
    )
    for y in simulate_rounds(2 * WINDOW + 3)[1]:
        assert agent.decide(y).context[OBSERVED:].tolist() == [0, 0]


def test_a_refit_changes_the_transition_only_in_the_span_of_the_gain():
    """As x̂_t = D̂x̂_{t−1} + Ge_t, the change of D̂ is in the span of G and Q̂ has the rank of G."""
    agent = hs.make("emkf-ts", observed=OBSERVED, arms=2, latent=LATENT, window=200, observation_cov=0.0)
    bank, ys = agent.policy.estimator._bank, simulate_rounds(1001)[1]
    for y in ys[:799]:
        agent.decide(y)
    before, gain = bank.transition[0].copy(), bank.gain[0].copy()
    agent.decide(ys[799])  # ends the fourth window
    change = bank.transition[0] - before
    outside = np.eye(LATENT) - gain @ np.linalg.pinv(gain)
    assert np.linalg.norm(change) > 1e-3
    assert np.linalg.norm(outside @ change) < 1e-2 * np.linalg.norm(change)
    values = np.linalg.eigvalsh(bank.process_cov[0])
    assert values[: LATENT - OBSERVED].max() < 1e-4 * values[LATENT - OBSERVED]


@pytest.mark.parametrize("name", ["emkf-ts", "em-rts-ts"])
def test_a_window_with_few_observations_does_not_change_the_model(name):
    agent = hs.make(name, observed=OBSERVED, arms=2, latent=LATENT, window=WINDOW, observation_cov=0.3)
    bank, ys = agent.policy.estimator._bank, simulate_rounds(3 * WINDOW)[1]
    start = bank.transition.copy()
    for t in range(WINDOW):
        agent.decide(ys[t] if t % 3 == 0 else [None] * OBSERVED)
    np.testing.assert_array_equal(bank.transition, start)
    for t in range(WINDOW, 2 * WINDOW):
        agent.decide(ys[t] if t % 3 else [None] * OBSERVED)
    assert not np.array_equal(bank.transition, start)
    assert np.abs(agent.decide(ys[-1]).context[OBSERVED:]).min() > 0


@pytest.mark.parametrize("scale", [1e-6, 1e3])
def test_the_m_step_does_not_depend_on_units(scale):
    means = np.random.default_rng(6).normal(size=(40, 3)).cumsum(axis=0)
    before, after = means[:-1], means[1:]
    X, Psi = (before.T @ before)[None], (after.T @ before)[None]
    D, Q = maximise(X, Psi, means[:1], means[-1:], 39)
    D_scaled, Q_scaled = maximise(scale**2 * X, scale**2 * Psi, scale * means[:1], scale * means[-1:], 39)
    np.testing.assert_allclose(D_scaled, D, rtol=1e-9)
    floor = 1e-9 * np.eye(3)
    np.testing.assert_allclose(Q_scaled - floor, scale**2 * (Q - floor), rtol=1e-4, atol=1e-9 * scale**2)
    residuals = after - before @ D[0].T
    np.testing.assert_allclose(Q[0] - floor, residuals.T @ residuals / 39, rtol=1e-6)


def test_with_large_noise_the_gain_of_emkf_vanishes_and_that_of_smoothed_em_does_not():
    """With little memory, g ← g²S/(g²S + Σ), and the gain g falls to 0 if the innovations have a variance S < 4Σ."""
    rng = np.random.default_rng(0)
    x, ys = 0.0, []
    for _ in range(4000):
        x = 0.5 * x + 0.5 * rng.normal()
        ys.append([x + rng.normal()])
    spread = {}
    for name in ("emkf-ts", "em-rts-ts"):
        agent = hs.make(name, observed=1, arms=2, latent=1, observation_cov=1.0, window=100)
        spread[name] = np.std([agent.decide(y).context[0] for y in ys][-500:])
    assert spread["emkf-ts"] < 1e-4
    assert spread["em-rts-ts"] > 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latent": 2}, "latent: expected an integer of at least 3, got 2"),
        ({"latent": 5, "window": 24}, "window: expected an integer of at least 25, got 24"),
        (
            {"latent": 5, "initial_transition": "identity"},
            "initial_transition: expected 'stochastic', 'orthogonal' or a matrix, got 'identity'",
        ),
        (
            {"latent": 5, "initial_transition": np.eye(4)},
            "initial_transition: expected shape (5, 5), got shape (4, 4)",
        ),
        (
            {"latent": 5, "observation_cov": -1.0},
            "observation_cov: expected a symmetric positive semi-definite matrix, got a matrix of another kind",
        ),
        ({"latent": 5, "observation_cov": np.eye(2)}, "observation_cov: expected shape (3, 3), got shape (2, 2)"),
        (
            {"latent": 5, "initial_process_var": 0},
            "initial_process_var: expected a number between 1e-100 and 1e+100, got 0",
        ),
        ({}, "'emkf-ts' requires the option 'latent'."),
        ({"latent": 5, "windw": 3}, "'emkf-ts' has no option 'windw'. Did you mean 'window'?"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.make("emkf-ts", observed=3, arms=2, **options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["emkf-ts", "em-rts-ts"])
def test_an_unstable_model_and_missing_observations_stay_finite(name):
    agent = hs.make(
        name, observed=1, arms=2, latent=2, window=10, initial_transition=[[0.0, 1.0], [0.0, 3.0]], observation_cov=0.1
    )
    for t in range(900):
        decision = agent.decide([np.nan if t % 2 else 0.1])
        assert np.isfinite(decision.expected).all()
        assert np.isfinite(decision.context).all()
        assert decision.propensities.sum() == pytest.approx(1.0, abs=1e-9)
    for key, value in agent.state().items():
        assert np.isfinite(value).all() or key == "estimator.window_observations", key


def test_the_process_covariance_is_positive_semi_definite_when_means_grow():
    """The residuals are then smaller than the rounding errors of the sums from which they are computed."""
    means = 2.0 ** np.arange(40)[:, None] * [1.0, 0.3, -0.2]
    X, Psi = means[:-1].T @ means[:-1], means[1:].T @ means[:-1]
    transition, process_cov = maximise(X[None], Psi[None], means[:1], means[-1:], len(means) - 1)
    assert np.isfinite(transition).all()
    assert np.linalg.eigvalsh(process_cov[0] / np.abs(process_cov).max())[0] > -1e-12
