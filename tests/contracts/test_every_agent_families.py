"""What every agent that takes a reward family must do with clicks and counts."""

import numpy as np
import pytest
from scipy.special import expit
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
    state_bytes,
)

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.components import StreamBatch
from halfseen.kernels.random import stream_keys

NAMES = [name for name, entry in hs.catalog().items() if "reward_family" in entry.options]
OTHERS = [name for name in hs.catalog() if name not in NAMES]
pytestmark = pytest.mark.parametrize("family", ["binary", "count"])
every_agent = pytest.mark.parametrize("name", NAMES)
ROUNDS = 90


def make(name, family, **options):
    return make_small(name, **{"reward_family": family} | options)


def reward_of(family, arm, context, noise):
    """A click or a count that depends on the context, from a normal draw."""
    predictor = 0.7 * arm_params()[arm] @ context - 1.0
    if family == "binary":
        return float(expit(predictor) > 0.5 + 0.4 * noise)
    return float(np.floor(np.exp(min(predictor, 3.0)) + abs(noise)))


def play(agent, family, xs, ys, noise):
    """Play rounds with rewards, of which every third is late and some are provisional."""
    late, played = [], []
    for t, (x, y, omega) in enumerate(zip(xs, ys, noise, strict=True)):
        decision = agent.decide(y, **context_argument(agent, x))
        reward = reward_of(family, decision.index, x, omega)
        played.append((decision.index, reward))
        if t % 3 == 2:
            if t % 2:
                agent.learn(decision, 0.0, provisional=True)
            late.append((decision.id, reward))
        else:
            agent.learn(decision, reward)
        if len(late) > 4:
            agent.learn(*late.pop(0))
    return played


@every_agent
def test_decisions_are_valid_and_expectations_are_on_the_scale_of_rewards(name, family):
    agent, (xs, ys, noise) = make(name, family), simulate_rounds(60, missing=0.1)
    for x, y, omega in zip(xs, ys, noise, strict=True):
        decision = agent.decide(y, **context_argument(agent, x))
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)
        assert decision.propensity > 0.0
        assert np.isfinite(decision.expected).all()
        assert (decision.expected >= 0.0).all()
        if family == "binary":
            assert (decision.expected <= 1.0).all()
        agent.learn(decision, reward_of(family, decision.index, x, omega))
    for state, array in agent.policy.learner.state().items():
        assert np.isfinite(array).all(), state


@every_agent
def test_propensities_are_the_frequencies_of_arms(name, family):
    """Let 4,000 streams with the same history decide, and compare frequencies at 5 standard errors."""
    count = 4_000
    options = small_options(name) | {"reward_family": family}
    policy = CATALOG[name].build(StreamBatch(stream_keys(np.arange(count)), OBSERVED, ARMS), options)
    xs, ys, _ = simulate_rounds(5)
    for t in range(5):
        given = {"contexts": np.tile(xs[t], (count, 1))} if policy.estimator.reveals_context else {}
        choices = policy.decide(np.tile(ys[t], (count, 1)), **given)
        probabilities = policy.propensities(choices)
        frequencies = np.bincount(choices.arms, minlength=ARMS) / count
        error = np.sqrt((probabilities * (1 - probabilities)).mean(axis=0) / count)
        assert (np.abs(frequencies - probabilities.mean(axis=0)) <= 5 * error).all()
        policy.learn(choices.rounds, choices.features, choices.arms, (choices.arms % 2).astype(float))


@every_agent
def test_a_loaded_agent_continues_bit_for_bit(name, family, tmp_path):
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    cut = ROUNDS // 2
    agent = make(name, family)
    play(agent, family, xs[:cut], ys[:cut], noise[:cut])
    agent.save(tmp_path / "agent.hs")
    twin = hs.load(tmp_path / "agent.hs")
    assert_same_state(agent, twin)
    played = [play(one, family, xs[cut:], ys[cut:], noise[cut:]) for one in (agent, twin)]
    assert played[0] == played[1]
    assert_same_state(agent, twin)
    assert agent.health().facts == twin.health().facts


@every_agent
def test_fold_gives_the_state_of_an_agent_that_decided_itself(name, family):
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    agent, twin = make(name, family), make(name, family)
    played = []
    for x, y, omega in zip(xs, ys, noise, strict=True):
        decision = agent.decide(y, **context_argument(agent, x))
        played.append((decision.index, reward_of(family, decision.index, x, omega)))
        agent.learn(decision, played[-1][1])
    arms, rewards = zip(*played, strict=True)
    twin.fold(ys, arms, rewards, **contexts_argument(name, xs))
    assert_same_state(agent, twin)


@every_agent
def test_a_fleet_decides_as_single_agents(name, family):
    simulations = [simulate_rounds(15, seed=s) for s in range(3)]
    fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **small_options(name) | {"reward_family": family})
    fleet.add(3, seeds=[5, 6, 7])
    singles = [make(name, family, seed=5 + s) for s in range(3)]
    for t in range(15):
        xs, ys, noise = (np.stack([one[part][t] for one in simulations]) for part in range(3))
        decisions = fleet.decide(ys, **contexts_argument(name, xs))
        single = [agent.decide(y, **context_argument(agent, x)) for agent, x, y in zip(singles, xs, ys, strict=True)]
        assert decisions.arms.tolist() == [one.arm for one in single]
        np.testing.assert_array_equal(decisions.expected, np.stack([one.expected for one in single]))
        rewards = [reward_of(family, one.index, x, omega) for one, x, omega in zip(single, xs, noise, strict=True)]
        fleet.learn(decisions, rewards)
        for agent, one, reward in zip(singles, single, rewards, strict=True):
            agent.learn(one, reward)
    for s, agent in enumerate(singles):
        assert_same_state(fleet.agent(s), agent)
    assert fleet.health().facts["reward family"] == family


@every_agent
def test_a_reward_outside_of_the_range_changes_nothing(name, family):
    agent, (xs, ys, _) = make(name, family), simulate_rounds(3)
    decisions = [agent.decide(y, **context_argument(agent, x)) for x, y in zip(xs, ys, strict=True)]
    before = state_bytes(agent)
    for reward in (-0.5, float("nan"), *([1.01] if family == "binary" else [])):
        with pytest.raises(hs.HalfseenError, match=r"^reward: expected a number from 0 to "):
            agent.learn(decisions[0], reward)
        with pytest.raises(hs.HalfseenError, match=r"^rewards: expected numbers from 0 to "):
            agent.learn_many(decisions, [1.0, 1.0, reward])
    assert state_bytes(agent) == before


@every_agent
def test_arms_come_and_go(name, family):
    agent, (xs, ys, noise) = make(name, family), simulate_rounds(ROUNDS)
    play(agent, family, xs[:40], ys[:40], noise[:40])
    new = agent.add_arm()
    agent.retire_arm(0)
    for x, y in zip(xs[40:], ys[40:], strict=True):
        decision = agent.decide(y, **context_argument(agent, x))
        assert decision.index != 0
        assert decision.expected.shape == (ARMS + 1,)
        agent.learn(decision, 1.0)
    decision = agent.decide(ys[0], available=[new], **context_argument(agent, xs[0]))
    assert decision.arm == new
    agent.learn(decision, 0.0)


@pytest.mark.parametrize("name", OTHERS)
def test_agents_without_families_say_so(name, family):
    with pytest.raises(hs.HalfseenError, match=f"'{name}' has no option 'reward_family'"):
        make(name, family)
