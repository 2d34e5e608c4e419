"""The agent that is told nothing: its state is that of the model it has found, whatever the units, orders and gaps."""

from functools import cache

import numpy as np
import pytest
from reference import gaussian
from settings import assert_same_state, state_bytes

import halfseen as hs
from halfseen.estimators.adaptive import estimator as adaptive
from halfseen.kernels.random import stream_keys
from halfseen.learners.calibrated import fit_rewards
from halfseen.models.identification.selection import RECENT

K, D, ARMS = 2, 3, 3
TABLE = np.random.default_rng(77).normal(size=(ARMS, D))
NAMES = ("adaptive", "adaptive-ts", "adaptive-ids")


def rotating(seed, rounds, observed=K, latent=D, noise=0.3, missing=0.0, radius=0.97):
    """Contexts and observations of a slowly turning system, and reward noise."""
    rng = np.random.default_rng([seed, 12])
    turn = radius * np.linalg.qr(rng.normal(size=(latent, latent)))[0]
    x, xs = rng.normal(size=latent), np.empty((rounds, latent))
    for t in range(rounds):
        x = turn @ x + 0.3 * rng.normal(size=latent)
        xs[t] = x
    ys = xs[:, :observed] + noise * rng.normal(size=(rounds, observed))
    ys[rng.uniform(size=ys.shape) < missing] = np.nan
    return xs, ys, 0.4 * rng.normal(size=rounds)


def make(name="adaptive", seed=3, **options):
    return hs.make(name, observed=options.pop("observed", K), arms=ARMS, seed=seed, **options)


def play(agent, xs, ys, noise, *, reward=lambda r: r, table=TABLE):
    """Live through it; the arms."""
    arms = []
    for x, y, omega in zip(xs, ys, noise, strict=True):
        decision = agent.decide(y)
        arms.append(decision.index)
        agent.learn(decision.id, float(reward(table[decision.index] @ x[: table.shape[1]] + omega)))
    return arms


def estimator(agent):
    return agent.policy.estimator


# ---------------------------------------------------------------------- state is a fold


@pytest.fixture
def found(monkeypatch):
    """What the last identification has found."""
    seen = []

    def select(y, fits, **given):
        seen.append((y, select_model(y, fits, **given)))
        return seen[-1][1]

    select_model = adaptive.select_model
    monkeypatch.setattr(adaptive, "select_model", select)
    return seen


def until_identified(agent, story, times, rewarded):
    """Live until the decision in which the nth identification fell; its round is not rewarded. The number of rounds."""
    for t, (x, y, omega) in enumerate(zip(*story, strict=True)):
        decision = agent.decide(y)
        if estimator(agent).epochs[0] == times:
            return t + 1
        if rewarded:
            agent.learn(decision, TABLE[decision.index] @ x + omega)
    raise AssertionError("no identification")


def dense_model(y, model):
    return gaussian.posterior(model.D, model.Q, np.eye(y.shape[1], len(model.D)), model.R, model.m0, model.P0, y)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("times", [1, 4])
def test_after_an_identification_the_filter_is_as_if_the_model_had_been_known(missing, times, found):
    agent = make(latent=4)
    n = until_identified(agent, rotating(1, 200, missing=missing), times, rewarded=False)
    y, last = found[-1]
    part, d = estimator(agent), 4
    assert len(y) == n
    assert part.sizes[0] == d or last.plain
    d = int(part.sizes[0])
    means, covs, _ = dense_model(y, last.model)
    np.testing.assert_allclose(part.x[0, :d], means[n], rtol=1e-6, atol=1e-7)
    cov = agent.policy.learner.belief_cov[0, : d * d].reshape(d, d)
    np.testing.assert_allclose(cov, gaussian.block(covs, d, n, n), rtol=1e-6, atol=1e-7)
    model = hs.LinearGaussianModel(
        transition=last.model.D,
        process_cov=last.model.Q,
        observation_cov=last.model.R,
        initial_mean=last.model.m0,
        initial_cov=last.model.P0,
    )
    np.testing.assert_allclose(part.x[0, :d], model.filter(y).means[-1], rtol=1e-8, atol=1e-9)
    want = means[1:n] + last.shift
    np.testing.assert_allclose(part.history.belief[0, : n - 1, 1 : d + 1], want, rtol=1e-5, atol=1e-6)
    assert (part.history.belief[0, :n, 0] == 1).all()


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_after_an_identification_the_arms_and_the_heard_rewards_are_those_of_the_model(missing, found):
    agent = make(latent=4)
    n = until_identified(agent, rotating(2, 300, missing=missing), 7, rewarded=True)
    y, last = found[-1]
    part, learner = estimator(agent), agent.policy.learner
    d, p = int(part.sizes[0]), int(part.sizes[0]) + 1
    smoothed = dense_model(y, last.model)[0]
    features = np.hstack([np.ones((n, 1)), smoothed[1:] + last.shift])
    want = fit_rewards(features, part.history.arm[0, :n], part.history.reward[0, :n], ARMS)
    mean, cov = learner.mean[0, : ARMS * p].reshape(ARMS, p), learner.cov[0, : ARMS * p * p].reshape(ARMS, p, p)
    np.testing.assert_allclose(mean, want.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(cov, want.cov, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.noise_var[0], want.noise, rtol=1e-4)
    assert not last.plain
    assert n > RECENT
    # the filter over the last rounds with their rewards, written out
    m, filtered = last.model, gaussian.exact_filter(*_system(last.model, y.shape[1]), y)
    x, P = filtered[0][n - RECENT - 1], filtered[1][n - RECENT - 1]
    inner = learner.smooth_cov[0, : d * d].reshape(d, d)
    for t in range(n - RECENT, n):
        if t > n - RECENT:
            a, r = part.history.arm[0, t - 1], part.history.reward[0, t - 1] - learner.origin[0]
            mu, c, s = mean[a, 1:], np.concatenate([[1.0], x + last.shift]), learner.noise_var[0, a]
            v = max(s - mu @ inner @ mu, 0.1 * s) + mu @ P @ mu
            left = v - c @ cov[a] @ c
            if left > 0:
                share = min(left / v**2, 1 / (mu @ P @ mu))
                x, P = x + P @ mu * (r - mean[a] @ c) / v, P - np.outer(P @ mu, P @ mu) * share
        x, P = m.D @ x, m.D @ P @ m.D.T + m.Q
        there = np.isfinite(y[t])
        A = np.eye(y.shape[1], d)[there]
        gain = P @ A.T @ np.linalg.inv(A @ P @ A.T + m.R[np.ix_(there, there)])
        x, P = x + gain @ (y[t, there] - A @ x), P - gain @ A @ P
    np.testing.assert_allclose(part.x[0, :d], x, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(learner.belief_cov[0, : d * d].reshape(d, d), P, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(part.history.belief[0, n - 1, 1 : d + 1], x + last.shift, rtol=1e-6, atol=1e-7)


def _system(model, k):
    return model.D, model.Q, np.eye(k, len(model.D)), model.R, model.m0, model.P0


def test_late_rewards_in_any_order_across_identifications():
    xs, ys, noise = rotating(4, 150, missing=0.1)
    agents, rng = [], np.random.default_rng(0)
    for order in (lambda ids: ids, lambda ids: ids[::-1], lambda ids: rng.permutation(ids)):
        agent, waiting = make(latent=4), []
        for t in range(150):
            decision = agent.decide(ys[t], available=[t % ARMS])
            waiting.append(decision.id)
            if t % 17 == 16:
                for number in order(np.array(waiting)):
                    agent.learn(int(number), TABLE[(number - 1) % ARMS] @ xs[number - 1] + noise[number - 1])
                waiting = []
        assert estimator(agent).epochs[0] >= 5
        agents.append(agent)
    for agent in agents[1:]:
        for key, value in agents[0].state().items():
            np.testing.assert_allclose(agent.state()[key], value, rtol=1e-8, atol=1e-10, err_msg=key)


def test_rewards_of_forgotten_rounds_are_counted_and_teach_nothing():
    xs, ys, noise = rotating(5, 260)
    agent = make(latent=3, history=80)
    late = [agent.decide(y) for y in ys[:3]]
    play(agent, xs[3:], ys[3:], noise[3:])
    assert estimator(agent).history.count[0] <= 120
    before = agent.state()
    for decision in late:
        agent.learn(decision, 1e6)
    after = agent.state()
    same = {"learner.mean", "learner.cov", "learner.noise_var", "estimator.x", "estimator.reward", "learner.origin"}
    for key in same:
        np.testing.assert_array_equal(after[key], before[key], err_msg=key)
    assert estimator(agent).forgotten[0] == 3
    assert any(note.startswith("3 rewards came after their round was forgotten") for note in agent.health().notes)
    play(agent, xs[:40], ys[:40], noise[:40])


@pytest.mark.parametrize("name", NAMES)
def test_save_and_load_in_mid_history_changes_nothing_that_follows(name, tmp_path):
    xs, ys, noise = rotating(6, 330, missing=0.1)
    agent = make(name, latent=4, history=100)
    play(agent, xs[:125], ys[:125], noise[:125])
    waiting = agent.decide(ys[125])
    agent.save(tmp_path / "agent.hs")
    twin, epochs = hs.load(tmp_path / "agent.hs"), int(estimator(agent).epochs[0])
    other = make(name, latent=4, history=100)
    other.restore(agent.state())
    for one in (agent, twin, other):
        one.learn(waiting.id, 0.3)
    rest = xs[126:], ys[126:], noise[126:]
    assert play(agent, *rest) == play(twin, *rest) == play(other, *rest)
    assert estimator(agent).epochs[0] >= epochs + 3
    assert_same_state(agent, twin)
    assert_same_state(agent, other)


def test_the_covariance_is_one_array_also_after_restore():
    xs, ys, noise = rotating(6, 60)
    agent, twin = make(latent=4), make(latent=4)
    play(agent, xs, ys, noise)
    twin.restore(agent.state())
    before = state_bytes(agent)
    twin.decide(ys[0])
    assert state_bytes(agent) == before
    agent.decide(ys[0])
    np.testing.assert_array_equal(twin.policy.learner.belief_cov, agent.policy.learner.belief_cov)


# ---------------------------------------------------------------------- natural units


UNITS = {
    "sizes of features": ([1e-3, 1e3], [0.0, 0.0], 1.0, 0.0),
    "shifts of features": ([1.0, 1.0], [1e4, -300.0], 1.0, 0.0),
    "rewards": ([1.0, 1.0], [0.0, 0.0], 250.0, -1e3),
    "all": ([1e-3, 300.0], [-1e4, 7.0], 1e-3, 5.0),
}


@cache
def in_plain_units(name):
    agent = make(name)
    return agent, play(agent, *rotating(8, 320, missing=0.05))


@pytest.mark.parametrize(
    ("units", "name"), [*((units, "adaptive") for units in UNITS), *(("all", n) for n in NAMES[1:])]
)
def test_units_do_not_matter(units, name):
    (factors, shifts, pay, bonus), (agent, arms) = UNITS[units], in_plain_units(name)
    (xs, ys, noise), other = rotating(8, 320, missing=0.05), make(name)
    assert play(other, xs, ys * factors + shifts, noise, reward=lambda r: pay * r + bonus) == arms
    assert len(set(arms)) > 1
    assert estimator(agent).epochs[0] > 5
    np.testing.assert_array_equal(estimator(agent).sizes, estimator(other).sizes)


# ---------------------------------------------------------------------- choices


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounds", [5, 40, 120])
def test_propensities_are_how_often_an_arm_is_chosen(name, rounds):
    xs, ys, noise = rotating(9, rounds + 1)
    agent, draws = make(name, latent=4), 20_000
    play(agent, xs[:-1], ys[:-1], 3 * noise[:-1])
    policy = agent.policy
    one = policy.decide(ys[-1:])
    want = policy.propensities(one)[0]
    parts = {key: value for key, value in one._asdict().items() if value is not None}
    tiled = one._replace(**{key: np.repeat(value, draws, axis=0) for key, value in parts.items()})
    policy.chooser.pick(tiled, stream_keys(np.arange(draws)))
    got = np.bincount(tiled.arms, minlength=ARMS) / draws
    assert want.sum() == pytest.approx(1, abs=1e-9)
    assert (np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / draws) + 1e-4).all()


# ---------------------------------------------------------------------- what it says of itself


def test_hidden_coordinates_are_found():
    for seed in (1, 2):
        xs, ys, noise = rotating(seed, 400, observed=3, latent=5, noise=0.1)
        agent = make(observed=3, seed=seed)
        play(agent, xs, ys, noise, table=np.random.default_rng(5).normal(size=(ARMS, 5)))
        facts = agent.health().facts
        assert 2 <= facts["hidden coordinates"] <= 4, seed
        assert facts["context"] == "filtered"


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_no_hidden_coordinates_where_there_are_none(memory):
    """White or AR(1) observations whose rewards depend on them alone."""
    rng, x, ys = np.random.default_rng(4), np.zeros(K), []
    for _ in range(400):
        x = memory * x + rng.normal(size=K)
        ys.append(x)
    agent = make()
    play(agent, np.array(ys), np.array(ys), 0.3 * rng.normal(size=400), table=TABLE[:, :K])
    facts = agent.health().facts
    assert facts["context"] == "the observation itself" or facts["hidden coordinates"] == 0


def bad_days():
    rng = np.random.default_rng(2)
    ys, pay = rng.normal(size=(200, K)), rng.normal(size=200)
    nothing = np.full_like(ys, np.nan)
    constant, half = ys.copy(), ys.copy()
    constant[:, 1], half[:, 1] = 4.0, np.nan
    return {
        "constant feature": (constant, pay, {}, "entry 1 of the observation is constant and tells nothing"),
        "all constant": (np.full_like(ys, -3.0), pay, {}, "entry 0 of the observation is constant"),
        "feature never seen": (half, pay, {}, "entry 1 of the observation has never been seen"),
        "nothing ever seen": (nothing, pay, {}, "entry 0 of the observation has never been seen"),
        "constant rewards": (ys, np.full(200, 2.5), {}, "all rewards are equal"),
        "no rewards": (ys, np.full(200, np.nan), {}, "no reward has come in the last 200 decisions"),
        "nothing at all": (nothing, np.full(200, np.nan), {}, "no reward has come"),
        "latent too large": (ys[:45], pay[:45], {"latent": 14}, "latent=14 asks for more than 90 numbers can support"),
        "manual, never refitted": (ys[:60], pay[:60], {"refit": "manual"}, "no model yet, and one is due"),
        "manual, rewards wait": (ys[:15], pay[:15], {"refit": "manual"}, "rewards have come and none was learnt yet"),
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("day", bad_days())
def test_a_bad_day_is_lived_through_and_told(name, day):
    ys, pay, options, line = bad_days()[day]
    agent = make(name, **options)
    for y, reward in zip(ys, pay, strict=True):
        decision = agent.decide(y)
        assert np.isfinite(decision.expected).all()
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)
        if np.isfinite(reward):
            agent.learn(decision, reward)
    health = agent.health()
    assert any(note.startswith(line) for note in health.notes), health.notes
    for key, value in agent.policy.learner.state().items():
        assert np.isfinite(value.astype(float)).all(), key


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"latent": 1}, "latent: expected an integer of at least 2, got 1"),
        ({"latent": "many"}, "latent: expected an integer of at least 2, or 'auto, got 'many''"),
        ({"history": 10}, "history: expected an integer of at least 80, got 10"),
        ({"refit": "never"}, "refit: expected 'inline' or 'manual, got 'never''"),
    ],
)
def test_bad_options(options, line):
    with pytest.raises(hs.HalfseenError) as caught:
        make(**options)
    assert str(caught.value) == line


# ---------------------------------------------------------------------- change


def test_nothing_of_the_old_model_outlives_a_change():
    """The state right after an alarm is that of an agent that has seen only the rounds kept."""
    xs, ys, noise = rotating(1, 400, latent=3, noise=0.1)
    agent = make(latent=4)
    play(agent, xs, ys, noise)
    part = estimator(agent)
    assert part.sizes[0] == 4
    part.surprise[0] = 50.0
    agent.decide(ys[0])
    assert part.changes[0] == 1
    fresh = make(latent=4)
    kept, arms, rewards = part.history.ys[0, :10], part.history.arm[0, :10], part.history.reward[0, :10]
    fresh.fold(kept, list(arms), list(rewards))
    estimator(fresh).refit(np.array([0]), fresh.policy.learner)
    for name in ("belief_cov", "smooth_cov", "mean", "cov", "slopes", "noise_var", "origin", "sizes", "fitted"):
        got, want = getattr(agent.policy.learner, name), getattr(fresh.policy.learner, name)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=name)
    for name in (
        "x",
        "shift",
        "transition",
        "process_cov",
        "observation_cov",
        "centre",
        "scale",
        "plain",
        "identified",
    ):
        np.testing.assert_allclose(getattr(part, name), getattr(estimator(fresh), name), rtol=1e-9, err_msg=name)


def test_a_change_of_the_dynamics_is_noticed():
    before, after = rotating(1, 450, noise=0.1), rotating(2, 450, noise=0.1)
    agent = make(latent=3)
    play(agent, *before)
    assert estimator(agent).changes[0] == 0
    play(agent, *(part[:100] for part in after))
    assert estimator(agent).changes[0] == 1
    assert 430 <= estimator(agent).began[0] <= 550
    assert any(note.startswith("the dynamics changed") for note in agent.health().notes)
    play(agent, *(part[100:] for part in after))
    assert estimator(agent).changes[0] == 1
    assert estimator(agent).identified[0]


@pytest.mark.parametrize("seed", range(3))
def test_an_unchanged_world_raises_no_alarm(seed):
    agent = make(latent=3, seed=seed)
    play(agent, *rotating(20 + seed, 1500))
    assert estimator(agent).changes[0] == 0
