"""What every agent of the catalogue must do with gaps, observations without a decision, previews and forecasts."""

import numpy as np
import pytest
from settings import (
    ARMS,
    OBSERVED,
    assert_same_state,
    context_argument,
    contexts_argument,
    make_small,
    simulate_rounds,
    state_bytes,
)

import halfseen as hs
from halfseen.components import LONGEST_GAP, Estimator

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
ROUNDS = 60
NOTHING = [None] * OBSERVED
BAD_STEPS = [-1, 1.5, float("nan"), float("inf"), "2", None, 2 * 10**12]


def steps_of(t):
    """Return steps between rounds: mostly 1, some more, one gap beyond the cap, and 0 now and then."""
    return LONGEST_GAP + 20 if t == 30 else 0 if t % 11 == 5 else 1 + 2 * (t % 7 == 3)


def play(agent, rounds=ROUNDS, seed=0):
    """Play rounds with gaps and with observations in between.

    Return the arguments with which `fold` replays the same history.
    """
    xs, ys, noise = simulate_rounds(2 * rounds, seed=seed, missing=0.05)
    history = {"observations": [], "arms": [], "rewards": [], "elapsed": []}
    contexts = []
    for t in range(2 * rounds):
        elapsed = steps_of(t // 2) if t % 2 else 1
        if t % 4 == 0:
            agent.observe(ys[t], elapsed=elapsed)
            arm, reward = None, np.nan
        else:
            decision = agent.decide(ys[t], elapsed=elapsed, **context_argument(agent, xs[t]))
            arm, reward = decision.arm, float(noise[t])
            agent.learn(decision.id, reward)
        contexts.append(xs[t])
        for key, value in zip(history, (ys[t], arm, reward, elapsed), strict=True):
            history[key].append(value)
    return history | contexts_argument(agent.name, np.array(contexts))


def test_a_fold_repeats_gaps_and_observations_bit_for_bit(name):
    agent, twin = make_small(name), make_small(name)
    history = play(agent)
    ys, arms, rewards = (history.pop(key) for key in ("observations", "arms", "rewards"))
    twin.fold(ys, arms, rewards, **history)
    assert_same_state(agent, twin)


def test_a_saved_agent_continues_after_gaps_and_observations(name, tmp_path):
    agent = make_small(name)
    play(agent, 20)
    agent.observe(NOTHING)
    agent.save(tmp_path / "agent.hs")
    twin = hs.load(tmp_path / "agent.hs")
    for one in (agent, twin):
        play(one, 15, seed=1)
    assert_same_state(agent, twin)


def test_a_gap_equals_rounds_in_which_nothing_is_seen(name):
    """Agents for which time means nothing decide as if there were no gap."""
    # The rounds of a gap do not make a refit due, but missing observations do.
    options = {"refit": "manual"} if "refit" in hs.catalog()[name].options else {}
    gaps, unseen = make_small(name, **options), make_small(name, **options)
    counts = gaps.policy.estimator.uses_time
    xs, ys, noise = simulate_rounds(40)
    for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
        steps = 1 + t % 4
        if counts:
            for _ in range(steps - 1):
                unseen.observe(NOTHING)
        first = gaps.decide(y, elapsed=steps, **context_argument(gaps, x))
        second = unseen.decide(y, **context_argument(unseen, x))
        np.testing.assert_allclose(first.context, second.context, rtol=1e-12, atol=1e-12)
        assert first.id == second.id
        for agent, decision in ((gaps, first), (unseen, second)):
            agent.learn(decision.id, float(noise[t]))
        if options and t == 25:  # after enough rounds for an identification in both
            gaps.refit()
            unseen.refit()


def test_a_preview_is_the_next_decision_and_changes_nothing(name):
    agent, (xs, ys, _) = make_small(name), simulate_rounds(6, seed=3)
    play(agent, 30)
    for x, y in zip(xs, ys, strict=True):
        before = state_bytes(agent)
        options = {"available": [0, 2, 3], "elapsed": 3, **context_argument(agent, x)}
        preview = agent.preview(y, **options)
        assert state_bytes(agent) == before
        decision = agent.decide(y, **options)
        assert (preview.id, preview.arm) == (decision.id, decision.arm)
        for field in ("propensities", "expected", "context"):
            np.testing.assert_array_equal(getattr(preview, field), getattr(decision, field))
        with pytest.raises(hs.HalfseenError, match="a preview"):
            agent.learn(preview, 1.0)
        agent.learn(decision, 1.0)


def test_a_forecast_changes_nothing(name):
    agent = make_small(name)
    play(agent, 30)
    before = state_bytes(agent)
    if type(agent.policy.estimator).forecast is Estimator.forecast:
        with pytest.raises(hs.HalfseenError, match="has no linear-Gaussian model of the context"):
            agent.forecast(3)
    else:
        ahead = agent.forecast(3)
        assert ahead.expected.shape == ahead.std.shape == ahead.best_arm_probability.shape == (3, ARMS)
        for part in (ahead.context_means, ahead.context_covs, ahead.expected, ahead.std, *ahead.context_in_units()):
            assert np.isfinite(part).all()
        np.testing.assert_allclose(ahead.best_arm_probability.sum(axis=1), 1.0, atol=1e-9)
    assert state_bytes(agent) == before


def test_bad_times_are_refused_and_change_nothing(name):
    agent, (xs, ys, _) = make_small(name), simulate_rounds(1)
    play(agent, 10)
    before = state_bytes(agent)
    context = context_argument(agent, xs[0])
    for elapsed in BAD_STEPS:
        for call in (agent.decide, agent.preview):
            with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
                call(ys[0], elapsed=elapsed, **context)
        with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
            agent.observe(ys[0], elapsed=elapsed)
        with pytest.raises(hs.HalfseenError, match=r"^elapsed: expected"):
            agent.replay(ys[0], 0, elapsed=elapsed, **context)
    with pytest.raises(hs.HalfseenError, match=r"^observation"):
        agent.observe([1e200] * OBSERVED, elapsed=3)
    for horizon in (0, -1, 1.5, None, float("nan")):
        with pytest.raises(hs.HalfseenError, match=r"^(horizon: expected|'.*' has no model)"):
            agent.forecast(horizon)
    assert state_bytes(agent) == before
