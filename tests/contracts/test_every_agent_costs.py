"""What every agent of the catalogue must do with costs and with a budget."""

import numpy as np
import pytest
from settings import (
    ARMS,
    OBSERVED,
    arm_params,
    assert_same_state,
    context_argument,
    contexts_argument,
    make_small,
    simulate_rounds,
    small_options,
)

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.components import StreamBatch
from halfseen.kernels.random import stream_keys

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
COSTS = np.array([0.0, 0.2, 0.5, 1.0, 0.3, 0.8])[:ARMS]
ROUNDS = 60
BUDGET = (0.25 * ROUNDS, ROUNDS)


def play(agent, contexts, ys, noise, *, late=True):
    """Play rounds and return the arms and the rewards. The rewards of every third round are late or missing."""
    params, played, waiting = arm_params(), [], []
    for t, (x, y, omega) in enumerate(zip(contexts, ys, noise, strict=True)):
        decision = agent.decide(y, costs=COSTS, **context_argument(agent, x))
        reward = float(params[decision.index] @ x + omega)
        played.append((decision.index, reward))
        if late and t % 3 == 2:
            waiting.append((decision.id, reward))
        else:
            agent.learn(decision, reward)
        if len(waiting) > 4:
            agent.learn(*waiting.pop(0))
    return played


def test_propensities_with_costs_are_the_frequencies_of_arms(name):
    """Let 4,000 streams with the same history decide, and compare frequencies at 5 standard errors."""
    count = 4_000
    policy = CATALOG[name].build(StreamBatch(stream_keys(np.arange(count)), OBSERVED, ARMS), small_options(name))
    xs, ys, noise = simulate_rounds(3)
    for t in range(3):
        given = {"contexts": np.tile(xs[t], (count, 1))} if policy.estimator.reveals_context else {}
        choices = policy.decide(np.tile(ys[t], (count, 1)), costs=np.tile(COSTS, (count, 1)), **given)
        probabilities = policy.propensities(choices)
        frequencies = np.bincount(choices.arms, minlength=ARMS) / count
        error = np.sqrt(np.maximum(probabilities.mean(axis=0) * (1 - probabilities.mean(axis=0)), 1e-12) / count)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-9)
        assert (np.abs(frequencies - probabilities.mean(axis=0)) <= 5 * error + 1e-9).all()
        policy.learn(choices.rounds, choices.features, np.full(count, t % ARMS), np.full(count, float(noise[t])))


def test_an_arm_that_costs_too_much_is_not_chosen(name):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(40)
    costs = np.full(ARMS, 1e6)
    costs[1] = 0.0
    least = 1.0 - 1e-9
    if name == "random":
        least = 1.0 / ARMS - 1e-9  # uniform play weighs nothing
    if name == "meb":
        least = 0.0  # every arm keeps a smallest probability, which decays slowly
    for x, y, omega in zip(xs, ys, noise, strict=True):
        decision = agent.decide(y, costs=costs, **context_argument(agent, x))
        assert decision.propensities[1] >= least
        assert decision.propensities[1] == decision.propensities.max()
        agent.learn(decision, float(omega))


def test_costs_of_zero_change_nothing(name):
    (xs, ys, noise), one, other = simulate_rounds(30), make_small(name), make_small(name)
    for x, y, omega in zip(xs, ys, noise, strict=True):
        first = one.decide(y, **context_argument(one, x))
        second = other.decide(y, costs=np.zeros(ARMS), **context_argument(other, x))
        assert first.arm == second.arm
        np.testing.assert_array_equal(first.propensities, second.propensities)
        np.testing.assert_array_equal(first.expected, second.expected)
        one.learn(first, float(omega))
        other.learn(second, float(omega))


def test_spend_never_exceeds_the_budget(name):
    agent, rounds = make_small(name, budget=BUDGET), simulate_rounds(ROUNDS + 10)
    played = play(agent, *rounds)
    facts = agent.health().facts
    assert facts["spent"] == pytest.approx(COSTS[[arm for arm, _ in played]].sum(), abs=1e-12)
    assert facts["spent"] <= BUDGET[0]
    assert facts["rounds left of the budget"] == 0


def test_a_fold_of_the_history_has_the_same_state(name, tmp_path):
    (xs, ys, noise), agent = simulate_rounds(ROUNDS), make_small(name, budget=BUDGET)
    played = play(agent, xs, ys, noise, late=False)
    folded = make_small(name, budget=BUDGET)
    folded.fold(ys, *zip(*played, strict=True), costs=COSTS, **contexts_argument(name, xs))
    if name != "meb":  # which learns from propensities, and those of a fold are among all arms
        assert_same_state(agent, folded)
    agent.save(tmp_path / "agent.hs")
    loaded, more = hs.load(tmp_path / "agent.hs"), simulate_rounds(2 * ROUNDS)
    rest = [part[ROUNDS:] for part in more]
    assert play(agent, *rest) == play(loaded, *rest)
    assert_same_state(agent, loaded)


def test_a_fleet_decides_as_its_agents_do(name):
    (xs, ys, noise), agent = simulate_rounds(30), make_small(name, budget=BUDGET, seed=0)
    fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **small_options(name), budget=BUDGET)
    fleet.add(2)
    for x, y, omega in zip(xs, ys, noise, strict=True):
        one = agent.decide(y, costs=COSTS, **context_argument(agent, x))
        given = {"contexts": np.tile(x, (2, 1))} if hs.catalog()[name].reveals_context else {}
        both = fleet.decide(np.tile(y, (2, 1)), costs=COSTS, **given)
        assert both.indices[0] == one.index
        agent.learn(one, float(omega))
        fleet.learn(both, [float(omega)] * 2)
    np.testing.assert_array_equal(fleet.agent(0).state()["budget.spent"], agent.state()["budget.spent"])
