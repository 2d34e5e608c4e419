"""The adaptive agents: their state follows from the identified model and the history, in any units and any order."""

from functools import cache

import numpy as np
import pytest
from reference import gaussian
from settings import assert_same_state, state_bytes

import halfseen as hs
from halfseen.estimators.adaptive import estimator as adaptive
from halfseen.kernels.adaptive import VOTE
from halfseen.kernels.random import stream_keys
from halfseen.learners.calibrated import fit_rewards
from halfseen.models.identification.selection import RECENT

K, D, ARMS = 2, 3, 3
PARAMS = np.random.default_rng(77).normal(size=(ARMS, D))
NAMES = ("adaptive", "adaptive-ts", "adaptive-ids")


def rotating(seed, rounds, observed=K, latent=D, noise=0.3, missing=0.0, radius=0.97):
    """Simulate contexts and observations of a rotating linear system, and reward noise."""
    rng = np.random.default_rng([seed, 12])
    transition = radius * np.linalg.qr(rng.normal(size=(latent, latent)))[0]
    x, xs = rng.normal(size=latent), np.empty((rounds, latent))
    for t in range(rounds):
        x = transition @ x + 0.3 * rng.normal(size=latent)
        xs[t] = x
    ys = xs[:, :observed] + noise * rng.normal(size=(rounds, observed))
    ys[rng.uniform(size=ys.shape) < missing] = np.nan
    return xs, ys, 0.4 * rng.normal(size=rounds)


def make(name="adaptive", seed=3, **options):
    return hs.make(name, observed=options.pop("observed", K), arms=ARMS, seed=seed, **options)


def play(agent, xs, ys, noise, *, reward=lambda r: r, params=PARAMS):
    """Let the agent play the rounds, and return its arms."""
    arms = []
    for x, y, omega in zip(xs, ys, noise, strict=True):
        decision = agent.decide(y)
        arms.append(decision.index)
        agent.learn(decision.id, float(reward(params[decision.index] @ x[: params.shape[1]] + omega)))
    return arms


def estimator(agent):
    return agent.policy.estimator


# ---------------------------------------------------------------------- the state follows from the history


@pytest.fixture
def identified(monkeypatch):
    """The observations and the results of all identifications so far."""
    results = []

    def select(y, fits, **options):
        results.append((y, select_model(y, fits, **options)))
        return results[-1][1]

    select_model = adaptive.select_model
    monkeypatch.setattr(adaptive, "select_model", select)
    return results


def play_until_identified(agent, rounds, times, rewarded):
    """Play until the nth identification and return the number of rounds. The last round has no reward."""
    for t, (x, y, omega) in enumerate(zip(*rounds, strict=True)):
        decision = agent.decide(y)
        if estimator(agent).identifications[0] == times:
            return t + 1
        if rewarded:
            agent.learn(decision, PARAMS[decision.index] @ x + omega)
    raise AssertionError("no identification")


def dense_posterior(y, model):
    return gaussian.posterior(model.D, model.Q, np.eye(y.shape[1], len(model.D)), model.R, model.m0, model.P0, y)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("times", [1, 4])
def test_after_an_identification_the_belief_is_that_of_a_known_model(missing, times, identified):
    agent = make(latent=4)
    n = play_until_identified(agent, rotating(1, 200, missing=missing), times, rewarded=False)
    y, last = identified[-1]
    part, d = estimator(agent), 4
    assert len(y) == n
    assert part.latent_dims[0] == d or last.plain
    d = int(part.latent_dims[0])
    means, covs, _ = dense_posterior(y, last.model)
    np.testing.assert_allclose(part.belief_mean[0, :d], means[n], rtol=1e-6, atol=1e-7)
    cov = agent.policy.learner.belief_cov[0, : d * d].reshape(d, d)
    np.testing.assert_allclose(cov, gaussian.block(covs, d, n, n), rtol=1e-6, atol=1e-7)
    model = hs.LinearGaussianModel(
        transition=last.model.D,
        process_cov=last.model.Q,
        observation_cov=last.model.R,
        initial_mean=last.model.m0,
        initial_cov=last.model.P0,
    )
    np.testing.assert_allclose(part.belief_mean[0, :d], model.filter(y).means[-1], rtol=1e-8, atol=1e-9)
    want = means[1:n] + last.shift
    np.testing.assert_allclose(part.history.features[0, : n - 1, 1 : d + 1], want, rtol=1e-5, atol=1e-6)
    assert (part.history.features[0, :n, 0] == 1).all()


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_after_an_identification_arms_and_reward_updates_are_those_of_a_known_model(missing, identified):
    agent = make(latent=4)
    n = play_until_identified(agent, rotating(2, 300, missing=missing), 7, rewarded=True)
    y, last = identified[-1]
    part, learner = estimator(agent), agent.policy.learner
    d, p = int(part.latent_dims[0]), int(part.latent_dims[0]) + 1
    smoothed = dense_posterior(y, last.model)[0]
    features = np.hstack([np.ones((n, 1)), smoothed[1:] + last.shift])
    want = fit_rewards(features, part.history.arms[0, :n], part.history.rewards[0, :n], ARMS)
    mean, cov = learner.mean[0, : ARMS * p].reshape(ARMS, p), learner.cov[0, : ARMS * p * p].reshape(ARMS, p, p)
    np.testing.assert_allclose(mean, want.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(cov, want.cov, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.noise_var[0], want.noise, rtol=1e-4)
    assert not last.plain
    assert n > RECENT
    # The filter over the last rounds, with their rewards as measurements of the context.
    m, filtered = last.model, gaussian.exact_filter(*_system(last.model, y.shape[1]), y)
    x, P = filtered[0][n - RECENT - 1], filtered[1][n - RECENT - 1]
    inner = learner.smooth_cov[0, : d * d].reshape(d, d)
    for t in range(n - RECENT, n):
        if t > n - RECENT:
            a, r = part.history.arms[0, t - 1], part.history.rewards[0, t - 1] - learner.reward_origin[0]
            mu, c, s = mean[a, 1:], np.concatenate([[1.0], x + last.shift]), learner.noise_var[0, a]
            v = max(s - mu @ inner @ mu, 0.1 * s) + mu @ P @ mu
            remaining = v - c @ cov[a] @ c
            if remaining > 0:
                share = min(remaining / v**2, 1 / (mu @ P @ mu))
                x, P = x + P @ mu * (r - mean[a] @ c) / v, P - np.outer(P @ mu, P @ mu) * share
        x, P = m.D @ x, m.D @ P @ m.D.T + m.Q
        observed = np.isfinite(y[t])
        A = np.eye(y.shape[1], d)[observed]
        gain = P @ A.T @ np.linalg.inv(A @ P @ A.T + m.R[np.ix_(observed, observed)])
        x, P = x + gain @ (y[t, observed] - A @ x), P - gain @ A @ P
    np.testing.assert_allclose(part.belief_mean[0, :d], x, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(learner.belief_cov[0, : d * d].reshape(d, d), P, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(part.history.features[0, n - 1, 1 : d + 1], x + last.shift, rtol=1e-6, atol=1e-7)


def _system(model, k):
    return model.D, model.Q, np.eye(k, len(model.D)), model.R, model.m0, model.P0


def test_the_order_of_late_rewards_does_not_matter():
    xs, ys, noise = rotating(4, 150, missing=0.1)
    agents, rng = [], np.random.default_rng(0)
    for order in (lambda ids: ids, lambda ids: ids[::-1], lambda ids: rng.permutation(ids)):
        agent, waiting = make(latent=4), []
        for t in range(150):
            decision = agent.decide(ys[t], available=[t % ARMS])
            waiting.append(decision.id)
            if t % 17 == 16:
                for number in order(np.array(waiting)):
                    agent.learn(int(number), PARAMS[(number - 1) % ARMS] @ xs[number - 1] + noise[number - 1])
                waiting = []
        assert estimator(agent).identifications[0] >= 5
        agents.append(agent)
    for agent in agents[1:]:
        for key, value in agents[0].state().items():
            np.testing.assert_allclose(agent.state()[key], value, rtol=1e-8, atol=1e-10, err_msg=key)


def test_rewards_of_dropped_rounds_are_discarded_and_counted():
    xs, ys, noise = rotating(5, 260)
    agent = make(latent=3, history=80)
    late = [agent.decide(y) for y in ys[:3]]
    play(agent, xs[3:], ys[3:], noise[3:])
    assert estimator(agent).history.stored_rounds[0] <= 120
    before = agent.state()
    for decision in late:
        agent.learn(decision, 1e6)
    after = agent.state()
    same = {
        "learner.mean",
        "learner.cov",
        "learner.noise_var",
        "estimator.belief_mean",
        "estimator.rewards",
        "learner.reward_origin",
    }
    for key in same:
        np.testing.assert_array_equal(after[key], before[key], err_msg=key)
    assert estimator(agent).discarded_rewards[0] == 3
    assert "rewards discarded because their round was no longer in the history: 3" in agent.health().notes
    play(agent, xs[:40], ys[:40], noise[:40])


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_agent_continues_like_the_saved_one(name, tmp_path):
    xs, ys, noise = rotating(6, 330, missing=0.1)
    agent = make(name, latent=4, history=100)
    play(agent, xs[:125], ys[:125], noise[:125])
    waiting = agent.decide(ys[125])
    agent.save(tmp_path / "agent.hs")
    twin, before = hs.load(tmp_path / "agent.hs"), int(estimator(agent).identifications[0])
    other = make(name, latent=4, history=100)
    other.restore(agent.state())
    for one in (agent, twin, other):
        one.learn(waiting.id, 0.3)
    remaining = xs[126:], ys[126:], noise[126:]
    assert play(agent, *remaining) == play(twin, *remaining) == play(other, *remaining)
    assert estimator(agent).identifications[0] >= before + 3
    assert_same_state(agent, twin)
    assert_same_state(agent, other)


def test_estimator_and_learner_share_the_covariance_after_restore():
    xs, ys, noise = rotating(6, 60)
    agent, twin = make(latent=4), make(latent=4)
    play(agent, xs, ys, noise)
    twin.restore(agent.state())
    before = state_bytes(agent)
    twin.decide(ys[0])
    assert state_bytes(agent) == before
    agent.decide(ys[0])
    np.testing.assert_array_equal(twin.policy.learner.belief_cov, agent.policy.learner.belief_cov)


# ---------------------------------------------------------------------- units


SCALES = {"features": ([1e-3, 1e3], 1.0), "rewards": ([1.0, 1.0], 250.0), "both": ([1e-3, 300.0], 1e-3)}
SHIFTS = {"features": ([1e4, -300.0], 0.0), "rewards": ([0.0, 0.0], -1e3), "both": ([-1e4, 7.0], 5.0)}


@cache
def played_in_original_units(name):
    agent = make(name)
    return agent, play(agent, *rotating(8, 320, missing=0.05))


@pytest.mark.parametrize(
    ("units", "name"), [*((units, "adaptive") for units in SCALES), *(("both", n) for n in NAMES[1:])]
)
def test_the_scale_of_features_and_rewards_does_not_matter(units, name):
    (factors, factor), (agent, arms) = SCALES[units], played_in_original_units(name)
    (xs, ys, noise), other = rotating(8, 320, missing=0.05), make(name)
    assert play(other, xs, ys * factors, noise, reward=lambda r: factor * r) == arms
    assert len(set(arms)) > 1
    assert estimator(agent).identifications[0] > 5
    np.testing.assert_array_equal(estimator(agent).latent_dims, estimator(other).latent_dims)


def uses_zero(agent):
    """Return whether 0 is the origin of contexts and rewards, or has a vote."""
    learner = agent.policy.learner
    return bool(learner.through_zero[0] or learner.lead[0] > VOTE)


@pytest.mark.parametrize(
    ("shift", "name"), [*((shift, "adaptive") for shift in SHIFTS), *(("both", n) for n in NAMES[1:])]
)
def test_shifts_of_features_and_rewards_matter_only_where_zero_is_an_origin(shift, name):
    """The same arms are played in both runs, and decisions are compared where neither run uses 0."""
    shifts, reward_shift = SHIFTS[shift]
    (xs, ys, noise), agents, compared = rotating(8, 320, missing=0.05), (make(name), make(name)), 0
    for t in range(320):
        arm = t % ARMS
        decisions = [agent.replay(ys[t] + moved, arm) for agent, moved in zip(agents, (0.0, shifts), strict=True)]
        if not any(map(uses_zero, agents)):
            got, want = (decision.propensities for decision in decisions)
            np.testing.assert_allclose(got, want, atol=1e-5, err_msg=f"round {t + 1}")
            compared += 1
        for agent, decision, moved in zip(agents, decisions, (0.0, reward_shift), strict=True):
            agent.learn(decision.id, PARAMS[arm] @ xs[t] + noise[t] + moved)
    assert compared > 100


# ---------------------------------------------------------------------- choices


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounds", [5, 40, 120])
def test_propensities_equal_the_frequencies_of_the_arms(name, rounds):
    xs, ys, noise = rotating(9, rounds + 1)
    agent, draws = make(name, latent=4), 20_000
    play(agent, xs[:-1], ys[:-1], 3 * noise[:-1])
    policy = agent.policy
    one = policy.decide(ys[-1:])
    want = policy.propensities(one)[0]
    arrays = {key: value for key, value in one._asdict().items() if value is not None}
    tiled = one._replace(**{key: np.repeat(value, draws, axis=0) for key, value in arrays.items()})
    policy.chooser.pick(tiled, stream_keys(np.arange(draws)))
    got = np.bincount(tiled.arms, minlength=ARMS) / draws
    assert want.sum() == pytest.approx(1, abs=1e-9)
    assert (np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / draws) + 1e-4).all()


# ---------------------------------------------------------------------- health


def test_hidden_coordinates_are_identified():
    for seed in (1, 2):
        xs, ys, noise = rotating(seed, 400, observed=3, latent=5, noise=0.1)
        agent = make(observed=3, seed=seed)
        play(agent, xs, ys, noise, params=np.random.default_rng(5).normal(size=(ARMS, 5)))
        facts = agent.health().facts
        assert 2 <= facts["hidden coordinates"] <= 4, seed
        assert facts["context"] == "filtered"


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_no_hidden_coordinates_are_used_if_there_are_none(memory):
    """The observations are white noise or AR(1), and the rewards depend only on them."""
    rng, x, ys = np.random.default_rng(4), np.zeros(K), []
    for _ in range(400):
        x = memory * x + rng.normal(size=K)
        ys.append(x)
    agent = make()
    play(agent, np.array(ys), np.array(ys), 0.3 * rng.normal(size=400), params=PARAMS[:, :K])
    facts = agent.health().facts
    assert facts["context"] == "the observation itself" or facts["hidden coordinates"] == 0


def degenerate_histories():
    rng = np.random.default_rng(2)
    ys, rewards = rng.normal(size=(200, K)), rng.normal(size=200)
    missing = np.full_like(ys, np.nan)
    constant, half_missing = ys.copy(), ys.copy()
    constant[:, 1], half_missing[:, 1] = 4.0, np.nan
    return {
        "constant feature": (constant, rewards, {}, "entry 1 of the observation is constant, so it carries no"),
        "all constant": (np.full_like(ys, -3.0), rewards, {}, "entry 0 of the observation is constant"),
        "feature always missing": (half_missing, rewards, {}, "entry 1 of the observation is missing in all stored"),
        "no observations": (missing, rewards, {}, "entry 0 of the observation is missing in all stored"),
        "constant rewards": (ys, np.full(200, 2.5), {}, "all rewards are equal"),
        "no rewards": (ys, np.full(200, np.nan), {}, "no reward has come in the last 200 decisions"),
        "neither observations nor rewards": (missing, np.full(200, np.nan), {}, "no reward has come"),
        "latent too large": (
            ys[:45],
            rewards[:45],
            {"latent": 14},
            "latent=14 has too many parameters for 90 observed",
        ),
        "manual, never refitted": (ys[:60], rewards[:60], {"refit": "manual"}, "no model has been identified yet"),
        "manual, arms never fitted": (ys[:15], rewards[:15], {"refit": "manual"}, "no reward has been learnt yet"),
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", degenerate_histories())
def test_degenerate_histories_are_reported_and_do_no_harm(name, case):
    ys, rewards, options, message = degenerate_histories()[case]
    agent = make(name, **options)
    for y, reward in zip(ys, rewards, strict=True):
        decision = agent.decide(y)
        assert np.isfinite(decision.expected).all()
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)
        if np.isfinite(reward):
            agent.learn(decision, reward)
    health = agent.health()
    assert any(note.startswith(message) for note in health.notes), health.notes
    for key, value in agent.policy.learner.state().items():
        assert np.isfinite(value.astype(float)).all(), key


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latent": 1}, "latent: expected an integer of at least 2, got 1"),
        ({"latent": "many"}, "latent: expected an integer of at least 2, or 'auto', got 'many'"),
        ({"history": 10}, "history: expected an integer of at least 80, got 10"),
        ({"refit": "never"}, "refit: expected 'inline' or 'manual', got 'never'"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(hs.HalfseenError) as caught:
        make(**options)
    assert str(caught.value) == message


# ---------------------------------------------------------------------- changes of the dynamics


def test_after_a_detected_change_the_state_does_not_depend_on_the_old_model():
    """The state equals that of an agent that has only played the rounds after the change."""
    xs, ys, noise = rotating(1, 400, latent=3, noise=0.1)
    agent = make(latent=4)
    play(agent, xs, ys, noise)
    part = estimator(agent)
    assert part.latent_dims[0] == 4
    part.surprise[0] = 50.0
    agent.decide(ys[0])
    assert part.detected_changes[0] == 1
    fresh = make(latent=4)
    ys, arms, rewards = part.history.observations[0, :10], part.history.arms[0, :10], part.history.rewards[0, :10]
    fresh.fold(ys, list(arms), list(rewards))
    estimator(fresh).refit(np.array([0]), fresh.policy.learner)
    for name in (
        "belief_cov",
        "smooth_cov",
        "mean",
        "cov",
        "slopes",
        "noise_var",
        "reward_origin",
        "latent_dims",
        "fitted",
    ):
        got, want = getattr(agent.policy.learner, name), getattr(fresh.policy.learner, name)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=name)
    for name in (
        "belief_mean",
        "shift",
        "transition",
        "process_cov",
        "observation_cov",
        "centre",
        "scale",
        "uses_raw_observation",
        "identified",
    ):
        np.testing.assert_allclose(getattr(part, name), getattr(estimator(fresh), name), rtol=1e-9, err_msg=name)


def test_a_change_of_the_dynamics_is_detected():
    before, after = rotating(1, 450, noise=0.1), rotating(2, 450, noise=0.1)
    agent = make(latent=3)
    play(agent, *before)
    assert estimator(agent).detected_changes[0] == 0
    play(agent, *(array[:100] for array in after))
    assert estimator(agent).detected_changes[0] == 1
    assert 430 <= estimator(agent).regime_start[0] <= 550
    assert any(note.startswith("the dynamics have changed") for note in agent.health().notes)
    play(agent, *(array[100:] for array in after))
    assert estimator(agent).detected_changes[0] == 1
    assert estimator(agent).identified[0]


@pytest.mark.parametrize("seed", range(3))
def test_no_change_is_detected_if_there_is_none(seed):
    agent = make(latent=3, seed=seed)
    play(agent, *rotating(20 + seed, 1500))
    assert estimator(agent).detected_changes[0] == 0
