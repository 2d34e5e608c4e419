"""What every agent of the catalogue must do with guardrails."""

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
    simulate_rounds,
    small_options,
)

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.agents.guardrails import BRANCHES
from halfseen.components import StreamBatch
from halfseen.kernels.random import stream_keys

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
ROUNDS = 3 * 5 * LATENT + 7
FLOOR, HOLDBACK, CONTROL, SHARE = 0.05, 0.2, 2, 0.15
GUARDRAILS = {"floor": FLOOR, "holdback": HOLDBACK, "control": (CONTROL, SHARE)}


def play(agent, contexts, ys, noise):
    """Play rounds and return the arms, the rewards and the branches. Rewards of every third round are late."""
    params, played, late = arm_params(), [], []
    for t, (x, y, omega) in enumerate(zip(contexts, ys, noise, strict=True)):
        decision = agent.decide(y, **context_argument(agent, x))
        reward = float(params[decision.index] @ x + omega)
        played.append((decision.index, reward, decision.branch))
        if t % 3 == 2:
            late.append((decision.id, reward))
        else:
            agent.learn(decision, reward)
        if len(late) > 4:
            agent.learn(*late.pop(0))
    return played, late


def formula(weights, available):
    """The propensities of specification 2, section 4, for the weights of a chooser."""
    count = available.sum()
    inner = HOLDBACK / count + SHARE * (np.arange(ARMS) == CONTROL) + (1 - HOLDBACK - SHARE) * weights
    return np.where(available, FLOOR + (1 - count * FLOOR) * inner, 0.0)


def test_propensities_follow_the_formula(name):
    agent, plain, (xs, ys, noise) = make_small(name, **GUARDRAILS), make_small(name), simulate_rounds(40)
    for t, (x, y, omega) in enumerate(zip(xs, ys, noise, strict=True)):
        available = [0, 2, 3] if t % 4 == 1 else list(range(ARMS))
        decision = agent.decide(y, available=available, **context_argument(agent, x))
        free = plain.replay(
            y, decision.arm, available=available, propensity=decision.propensity, **context_argument(plain, x)
        )
        expected = formula(free.propensities, np.isin(np.arange(ARMS), available))
        np.testing.assert_allclose(decision.propensities, expected, rtol=0, atol=1e-12)  # rounding
        assert decision.branch in BRANCHES
        assert decision.branch != "control" or decision.arm == CONTROL
        for one, made in ((agent, decision), (plain, free)):
            one.learn(made, float(omega))


def test_propensities_are_the_frequencies_of_arms(name):
    """Let 4,000 streams with the same history decide, and compare frequencies at 5 standard errors."""
    count = 4_000
    policy = CATALOG[name].build(
        StreamBatch(stream_keys(np.arange(count)), OBSERVED, ARMS), small_options(name) | GUARDRAILS
    )
    xs, ys, noise = simulate_rounds(3)
    for t in range(3):
        given = {"contexts": np.tile(xs[t], (count, 1))} if policy.estimator.reveals_context else {}
        choices = policy.decide(np.tile(ys[t], (count, 1)), **given)
        probabilities = policy.propensities(choices)
        frequencies = np.bincount(choices.arms, minlength=ARMS) / count
        error = np.sqrt((probabilities * (1 - probabilities)).mean(axis=0) / count)
        assert (np.abs(frequencies - probabilities.mean(axis=0)) <= 5 * error).all()
        shares = np.bincount(choices.branches, minlength=4) / count
        rest = 1 - ARMS * FLOOR
        expected = np.array([rest * (1 - HOLDBACK - SHARE), ARMS * FLOOR, rest * HOLDBACK, rest * SHARE])
        assert (np.abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / count)).all()
        policy.learn(choices.rounds, choices.features, choices.arms, np.full(count, noise[t]))


def test_the_choosers_decisions_are_those_without_guardrails(name):
    """A branch is drawn with random numbers of its own, so the chooser's draws are the same as without guardrails."""
    guarded, plain, (xs, ys, _) = make_small(name, **GUARDRAILS), make_small(name), simulate_rounds(30)
    compared = 0
    for x, y in zip(xs, ys, strict=True):
        one, other = (agent.decide(y, **context_argument(agent, x)) for agent in (guarded, plain))
        if one.branch == "chooser":
            assert one.arm == other.arm
            compared += 1
    assert compared > 5


def test_a_loaded_agent_continues_bit_for_bit(name, tmp_path):
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    cut = ROUNDS // 2
    agent = make_small(name, **GUARDRAILS)
    play(agent, xs[:20], ys[:20], noise[:20])
    agent.set_guardrails(holdback=0.4, control=(1, 0.1))
    play(agent, xs[20:cut], ys[20:cut], noise[20:cut])
    agent.save(tmp_path / "agent.hs")
    twin = hs.load(tmp_path / "agent.hs")
    assert_same_state(agent, twin)
    assert twin.guardrails == agent.guardrails == hs.load(tmp_path / "agent.hs").guardrails
    played = [play(one, xs[cut:], ys[cut:], noise[cut:])[0] for one in (agent, twin)]
    assert played[0] == played[1]
    assert_same_state(agent, twin)


def test_fold_with_branches_gives_the_state_of_an_agent_that_decided_itself(name):
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    agent, twin = make_small(name, **GUARDRAILS), make_small(name, **GUARDRAILS)
    params, played = arm_params(), []
    for x, y, omega in zip(xs, ys, noise, strict=True):
        decision = agent.decide(y, **context_argument(agent, x))
        played.append((decision.index, float(params[decision.index] @ x + omega), decision.branch))
        agent.learn(decision, played[-1][1])
    arms, rewards, branches = zip(*played, strict=True)
    twin.fold(ys, arms, rewards, branches=branches, **contexts_argument(name, xs))
    assert_same_state(agent, twin)
    assert agent.policy.guardrails.reward_counts.sum() == ROUNDS


def test_a_fleet_decides_as_single_agents(name):
    simulations = [simulate_rounds(12, seed=s) for s in range(3)]
    fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **small_options(name), **GUARDRAILS)
    fleet.add(3, seeds=[5, 6, 7])
    singles = [make_small(name, seed=5 + s, **GUARDRAILS) for s in range(3)]
    for t in range(12):
        xs, ys, noise = (np.stack([one[part][t] for one in simulations]) for part in range(3))
        decisions = fleet.decide(ys, **contexts_argument(name, xs))
        expected = [agent.decide(y, **context_argument(agent, x)) for agent, x, y in zip(singles, xs, ys, strict=True)]
        assert decisions.branches.tolist() == [one.branch for one in expected]
        assert decisions.arms.tolist() == [one.arm for one in expected]
        if t == 6:
            fleet.set_guardrails(floor=0.1, holdback=0.3)
            for agent in singles:
                agent.set_guardrails(floor=0.1, holdback=0.3)
        if t % 3:
            fleet.learn(decisions, noise)
            for agent, one, reward in zip(singles, expected, noise, strict=True):
                agent.learn(one, float(reward))
    for s, agent in enumerate(singles):
        assert_same_state(fleet.agent(s), agent)
