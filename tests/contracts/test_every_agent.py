"""What every agent of the catalogue must do."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from settings import (
    ARMS,
    LATENT,
    OBSERVED,
    arm_params,
    assert_same_state,
    context_argument,
    contexts_argument,
    make_small,
    play_rounds,
    simulate_rounds,
    small_options,
    state_bytes,
)

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.components import StreamBatch
from halfseen.kernels.random import stream_keys
from halfseen.validation import LIMIT, Arrays, Integers, Models, Numbers, Words

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
ROUNDS = 3 * 5 * LATENT + 7  # more than three windows of the estimators that refit


def test_arms_are_valid_and_propensities_are_a_distribution(name):
    agent, (xs, ys, _) = make_small(name), simulate_rounds(20)
    for x, y in zip(xs, ys, strict=True):
        decision = agent.decide(y, **context_argument(agent, x))
        assert decision.arm in range(ARMS)
        assert decision.expected.shape == (ARMS,)
        assert np.isfinite(decision.expected).all()
        assert decision.propensities.min() >= 0
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)
        assert decision.propensity == decision.propensities[decision.index] > 0
        agent.learn(decision.id, 1.5)


def test_every_option_has_bounds(name):
    entry = hs.catalog()[name]
    assert set(entry.bounds) == set(entry.options)
    for option, bound in entry.bounds.items():
        outside = {
            Integers: lambda bound: [bound.high + 1, bound.low - 1, 10**30, -(10**30), 1.5, float("nan"), float("inf")],
            Numbers: lambda bound: [2.0 * bound.high, bound.low / 2.0 - 1e-300, float("nan"), float("inf"), 10**400],
            Arrays: lambda bound: [1e101, *([[[1.0] * (bound.size + 1)]] if bound.axes else [])],
            Models: lambda bound: [SimpleNamespace(latent=bound.dimensions + 1)],
            Words: lambda bound: ["something else", 7],
        }[type(bound)]
        for value in outside(bound):
            with pytest.raises(hs.HalfseenError) as refused:
                make_small(name, **{option: value})
            assert str(refused.value).startswith(f"{option}: expected {bound}, got "), refused.value


def test_propensities_sum_to_one_at_the_bounds_of_every_option(name):
    numbers = {option: bound for option, bound in hs.catalog()[name].bounds.items() if isinstance(bound, Numbers)}
    xs, ys, _ = simulate_rounds(30)
    for option, bound in numbers.items():
        tiny = [5e-324, 1e-310, 1e-300] if bound.low == 0.0 else []
        for value in [bound.low, bound.high, np.nextafter(bound.low, 1), np.nextafter(bound.high, 0), *tiny]:
            try:
                agent = make_small(name, **{option: float(value)})
            except hs.HalfseenError:
                # The bound itself may be excluded, and so are numbers other than 0 whose squares underflow.
                assert value in (bound.low, bound.high) or 0.0 < value < 1.0 / LIMIT
                continue
            for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
                decision = agent.decide(y, **context_argument(agent, x))
                total = decision.propensities.sum()
                assert total == pytest.approx(1, abs=1e-9), f"{option}={value}: {decision.propensities}"
                if t % 3:
                    with contextlib.suppress(hs.HalfseenError):  # a learner may refuse a reward
                        agent.learn(decision.id, float(y[0]))


def test_the_same_seed_gives_the_same_decisions(name):
    played = [play_rounds(make_small(name, seed=5), *simulate_rounds(ROUNDS)) for _ in range(2)]
    assert played[0] == played[1]


def test_fold_gives_the_state_of_an_agent_that_decided_itself(name):
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    agent, twin = make_small(name), make_small(name)
    arms, rewards = play_rounds(agent, xs, ys, noise)
    twin.fold(ys, arms, rewards, **contexts_argument(name, xs))
    assert_same_state(agent, twin)


def test_a_loaded_agent_continues_bit_for_bit(name, tmp_path):
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    cut = ROUNDS // 2
    agent = make_small(name)
    play_rounds(agent, xs[:cut], ys[:cut], noise[:cut])
    pending = agent.decide(ys[cut], **context_argument(agent, xs[cut]))
    agent.save(tmp_path / "agent.hs")
    twin = hs.load(tmp_path / "agent.hs")
    assert_same_state(agent, twin)
    for one in (agent, twin):
        one.learn(pending.id, -0.7)
    assert play_rounds(agent, xs[cut:], ys[cut:], noise[cut:]) == play_rounds(twin, xs[cut:], ys[cut:], noise[cut:])
    assert_same_state(agent, twin)


def test_a_batch_equals_single_agents(name):
    """Compare a policy for four streams with four agents, bit for bit."""
    simulations = [simulate_rounds(ROUNDS, seed=s, missing=0.05 * s) for s in range(4)]
    streams = StreamBatch(stream_keys([11, 12, 13, 14]), OBSERVED, ARMS)
    policy, table = CATALOG[name].build(streams, small_options(name)), arm_params()
    singles = [make_small(name, seed=11 + s) for s in range(4)]
    played = [play_rounds(agent, *one) for agent, one in zip(singles, simulations, strict=True)]
    for t in range(ROUNDS):
        contexts, ys, noise = (np.stack([one[part][t] for one in simulations]) for part in range(3))
        choices = policy.decide(ys, contexts=contexts if policy.estimator.reveals_context else None)
        assert choices.arms.tolist() == [arms[t] for arms, _ in played]
        rewards = np.array([table[arm] @ x for arm, x in zip(choices.arms, contexts, strict=True)]) + noise
        policy.learn(choices.rounds, choices.features, choices.arms, rewards)
    for s, agent in enumerate(singles):
        for key, value in policy.learner.state().items():
            np.testing.assert_array_equal(value[s], agent.policy.learner.state()[key][0])


def test_the_fused_kernel_equals_scoring_and_picking(name):
    """One compiled call that scores and picks gives the same as two calls, bit for bit."""
    for count in (1, 3):
        simulations = [simulate_rounds(ROUNDS, seed=s, missing=0.05) for s in range(count)]
        streams = StreamBatch(stream_keys(range(count)), OBSERVED, ARMS)
        fused, separate = (CATALOG[name].build(streams, small_options(name)) for _ in range(2))
        assert fused._distribution is not None or name not in ("ts-pco", "kf-ts", "emkf-ucb", "pco-greedy")
        separate._distribution = None
        for t in range(ROUNDS):
            contexts, ys, noise = (np.stack([one[part][t] for one in simulations]) for part in range(3))
            true_contexts = contexts if fused.estimator.reveals_context else None
            available = np.arange(ARMS) != np.full((count, 1), t % ARMS) if t % 3 == 0 else None
            one, other = (
                policy.decide(ys, contexts=true_contexts, available=available) for policy in (fused, separate)
            )
            for field, mine, theirs in zip(one._fields, one, other, strict=True):
                np.testing.assert_array_equal(mine, theirs, err_msg=field)
            np.testing.assert_array_equal(fused.propensities(one), separate.propensities(other))
            for policy, choices in ((fused, one), (separate, other)):
                policy.learn(choices.rounds, choices.features, choices.arms, noise + choices.arms)
        for key, value in fused.state().items():
            np.testing.assert_array_equal(value, separate.state()[key], err_msg=key)


def test_streams_of_a_batch_may_have_different_numbers_of_rounds(name):
    xs, ys, _ = simulate_rounds(30)
    streams = StreamBatch(stream_keys([21, 22]), OBSERVED, ARMS)
    policy, single = CATALOG[name].build(streams, small_options(name)), make_small(name, seed=22)
    revealed = policy.estimator.reveals_context
    second = np.array([1])
    for t in range(30):
        if t % 3 == 0:
            policy.decide(ys[:2], contexts=xs[:2] if revealed else None)
            single.decide(ys[1], **context_argument(single, xs[1]))
        choices = policy.decide(ys[t : t + 1], contexts=xs[t : t + 1] if revealed else None, rows=second)
        expected = single.decide(ys[t], **context_argument(single, xs[t]))
        assert choices.arms[0] == expected.index
        np.testing.assert_array_equal(choices.features[0], expected.context)


def test_late_rewards_are_learnt_with_the_context_of_their_round(name):
    xs, ys, _ = simulate_rounds(25)
    in_order, reversed_order = make_small(name), make_small(name)
    for agent in (in_order, reversed_order):
        ids = [agent.decide(y, **context_argument(agent, x)).id for x, y in zip(xs, ys, strict=True)]
        order = ids if agent is in_order else ids[::-1]
        for number in order:
            agent.learn(number, 0.1 * number)
    for key, value in in_order.state().items():
        np.testing.assert_allclose(reversed_order.state()[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


def test_only_available_arms_are_chosen(name):
    agent, (xs, ys, _) = make_small(name), simulate_rounds(40)
    for x, y in zip(xs, ys, strict=True):
        decision = agent.decide(y, available=[1, 3], **context_argument(agent, x))
        assert decision.arm in (1, 3)
        assert decision.propensities[[0, 2]].tolist() == [0, 0]
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)


def test_observations_may_be_missing(name):
    agent, (xs, ys, _) = make_small(name), simulate_rounds(10)
    ys[2], ys[5, 1] = np.nan, np.nan
    for x, y in zip(xs, ys, strict=True):
        decision = agent.decide([None if np.isnan(v) else v for v in y], **context_argument(agent, x))
        assert np.isfinite(decision.expected).all()
        agent.learn(decision.id, 2.0)


@pytest.mark.parametrize(
    ("observation", "line"),
    [
        ([1.0, 2.0], "observation: expected 3 numbers, got shape (2,)"),
        ([[1.0, 2.0, 3.0]], "observation: expected 3 numbers, got shape (1, 3)"),
        (
            [1.0, -np.inf, 2.0],
            "observation: expected numbers within ±1e+100, NaN where missing, got an entry that is too large",
        ),
        (
            [1.0, 1e200, 2.0],
            "observation: expected numbers within ±1e+100, NaN where missing, got an entry that is too large",
        ),
        ("abc", "observation: expected 3 numbers, got 'abc'"),
        ([1.0, "x", 2.0], "observation: expected 3 numbers, got [1.0, 'x', 2.0]"),
    ],
)
def test_an_invalid_observation_changes_nothing(name, observation, line):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(30)
    play_rounds(agent, xs, ys, noise)
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError) as caught:
        agent.decide(observation, **context_argument(agent, xs[0]))
    assert str(caught.value).startswith(line)
    assert state_bytes(agent) == before


@pytest.mark.parametrize(
    ("decision_id", "reward", "line"),
    [
        (
            999,
            1.0,
            "decision_id: expected a decision of agent.pending, got 999, which was never made (decisions so far: 31)",
        ),
        (1, 1.0, "decision_id: expected a decision of agent.pending, got 1, which already has its reward"),
        ("x", 1.0, "decision_id: expected a decision of agent.pending, got 'x', which was never made"),
        ([31], 1.0, "decision_id: expected the id of a decision, got [31]"),
        (31, float("nan"), "reward: expected a number within ±1e+100, got nan"),
        (31, float("inf"), "reward: expected a number within ±1e+100, got inf"),
        (31, "much", "reward: expected a number within ±1e+100, got 'much'"),
    ],
)
def test_an_invalid_reward_changes_nothing(name, decision_id, reward, line):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(30)
    play_rounds(agent, xs, ys, noise)
    agent.decide(ys[0], **context_argument(agent, xs[0]))
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError) as caught:
        agent.learn(decision_id, reward)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    assert state_bytes(agent) == before


def test_invalid_available_arms_change_nothing(name):
    agent, (xs, ys, _) = make_small(name), simulate_rounds(2)
    before = state_bytes(agent)
    for available, line in [
        ([], "available: expected at least one arm, got no arms"),
        ([7], "available: expected arm numbers from 0 to 3, got 7"),
        ("0", "available: expected a list of arms, got '0'"),
    ]:
        with pytest.raises(hs.HalfseenError) as caught:
            agent.decide(ys[0], available=available, **context_argument(agent, xs[0]))
        assert str(caught.value) == line
    assert state_bytes(agent) == before


def test_the_largest_allowed_numbers_leave_a_finite_state(name):
    """Rewards that cannot be learnt in double precision are refused and change nothing."""
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(60)
    for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
        huge = 1e100 if t in (3, 30) else 1.0
        decision = agent.decide(np.clip(huge * y, -1e100, 1e100), **context_argument(agent, x))
        before = state_bytes(agent)
        try:
            agent.learn(decision.id, huge * np.sign(noise[t]))
        except hs.HalfseenError:
            assert state_bytes(agent) == before
    for key, value in agent.state().items():
        # NaN marks missing observations and rewards.
        present = ~np.isnan(value) if key in ("estimator.observations", "estimator.rewards") else np.True_
        assert np.isfinite(value.astype(float)[np.broadcast_to(present, value.shape)]).all(), key
    assert np.isfinite(agent.decide(ys[0], **context_argument(agent, xs[0])).expected).all()


def test_a_restored_agent_shares_no_arrays_with_the_original(name):
    xs, ys, noise = simulate_rounds(30)
    agent, twin = make_small(name), make_small(name)
    play_rounds(agent, xs, ys, noise)
    agent.decide(ys[0], **context_argument(agent, xs[0]))
    state = agent.state()
    twin.restore(state)
    before = state_bytes(twin)
    play_rounds(agent, xs, ys, noise)
    assert state_bytes(twin) == before
    assert {key: value.tobytes() for key, value in state.items()} == before
