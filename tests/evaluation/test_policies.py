"""Probabilities of policies in the rounds of a log. Agents replay the log as `fold` does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from benchmarks.evaluation import World, rule
from evaluation.logs import agent_events, write
from settings import ARMS, OBSERVED, assert_same_state, make_small, simulate_rounds, small_options

import halfseen as hs
from halfseen.choosers.thompson import Thompson
from halfseen.errors import HalfseenError
from halfseen.estimators.observed import Observed
from halfseen.evaluation import policies
from halfseen.evaluation.log import Log, LogBuilder, StepKind
from halfseen.evaluation.readers import read_log
from halfseen.learners.ridge import Ridge

AGENTS = [name for name, entry in hs.catalog().items() if not entry.reveals_context]


def random_log(rounds: int, seed: int = 3, delay: int = 0) -> Log:
    """Return a log of random arms in the small setting, with missing entries and missing rewards."""
    rng = np.random.default_rng(seed)
    _, ys, noise = simulate_rounds(rounds, seed=seed, missing=0.1)
    builder = LogBuilder("random", range(ARMS), OBSERVED)
    pending = []
    for t, y in enumerate(ys):
        propensities = rng.dirichlet(np.full(ARMS, 4.0))
        arm = int(rng.choice(ARMS, p=propensities))
        logged = {"propensity": propensities[arm], "propensities": propensities.tolist()}
        builder.decided(f"row {t}", observation=y.tolist(), arm=arm, **logged)
        if rng.uniform() < 0.9:
            pending.append((t, float(noise[t] + arm)))
        while pending and pending[0][0] + delay <= t:
            row, value = pending.pop(0)
            builder.rewarded(f"row {t}", row, value)
    return builder.finish()


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_replays_a_log_equals_one_that_folds_it(name):
    log = random_log(60)
    probabilities, agent = policies.by_agent(log, name, small_options(name))
    folded = make_small(name, max_pending=log.rounds + 1)
    folded.fold(log.observations, log.played.tolist(), log.rewards, propensities=log.propensity)
    assert_same_state(agent, folded)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-8)


def test_adaptive_with_an_identified_model_equals_one_that_folds_the_log():
    log = random_log(260)
    _, agent = policies.by_agent(log, "adaptive", {"latent": 4, "history": 200})
    folded = hs.make("adaptive", observed=OBSERVED, arms=ARMS, latent=4, history=200, max_pending=log.rounds + 1)
    folded.fold(log.observations, log.played.tolist(), log.rewards)
    assert agent.health().facts["identifications"] > 0
    assert_same_state(agent, folded)


@pytest.mark.parametrize("delay", [0, 4])
def test_a_reward_changes_only_the_probabilities_of_later_rounds(delay):
    log = random_log(60, delay=delay)
    row = int(np.flatnonzero(log.rewarded)[10])
    steps = tuple(
        step._replace(value=step.value + 50.0) if step.kind is StepKind.REWARDED and step.at == row else step
        for step in log.steps
    )
    before, _ = policies.by_agent(log, "ts-pco", {})
    after, _ = policies.by_agent(dataclasses.replace(log, steps=steps), "ts-pco", {})
    changed = np.abs(before - after).max(axis=1) > 1e-9
    assert not changed[: row + delay + 1].any()
    assert changed[row + delay + 1]


def test_replaying_the_logging_agent_gives_the_logged_propensities(tmp_path):
    log = read_log(write(tmp_path / "j.ndjson", agent_events(120, agent="ts-pco", delay=3, missing=0.2)))
    probabilities, _ = policies.by_agent(log, "ts-pco", {}, seed=99)
    np.testing.assert_allclose(probabilities, log.propensities, atol=1e-12)


def test_arms_can_be_added_and_retired():
    builder = LogBuilder("log", ["a", "b"], 1)
    builder.decided("1", observation=[0.3], arm="a", propensity=0.5)
    builder.arm_added("2", "c")
    builder.decided("3", observation=[0.1], arm="c", propensity=0.2)
    builder.rewarded("4", 1, 1.0)
    builder.arm_retired("5", "a")
    builder.decided("6", observation=[0.2], arm="b", propensity=0.5)
    builder.decided("7", observation=[0.2], arm="b", propensity=1.0, available=["b"])
    log = builder.finish()
    np.testing.assert_allclose(policies.uniform(log), [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5], [0, 1, 0]])
    probabilities, agent = policies.by_agent(log, "random", {})
    np.testing.assert_allclose(probabilities, policies.uniform(log))
    assert agent.arms == ("a", "b", "c")
    assert agent.active_arms == ("b", "c")
    np.testing.assert_array_equal(policies.always(log, "c"), [[0, 0, 1]] * 4)


def test_numbered_arms_are_added_in_order():
    builder = LogBuilder("log", range(2), 1)
    builder.decided("1", observation=[0.3], arm=0, propensity=0.5)
    with pytest.raises(HalfseenError, match="2: expected the new arm 2, got arm 5"):
        builder.arm_added("2", 5)
    builder.arm_added("2", 2)
    builder.decided("3", observation=[0.1], arm=2, propensity=0.2)
    builder.rewarded("4", 1, 1.0)
    probabilities, agent = policies.by_agent(builder.finish(), "ts-pco", {})
    assert agent.arms == (0, 1, 2)
    assert probabilities[0, 2] == 0


def test_a_function_is_called_in_every_round():
    table = World().log(50, seed=2)
    log = read_log(table)
    reports = []
    probabilities = policies.by_rule(log, rule, "rule", lambda done, total: reports.append((done, total)))
    np.testing.assert_allclose(probabilities, World.target(log.observations))
    assert reports == [(50, 50)]


def overwrite(observation: np.ndarray) -> list[float]:
    observation[:] = 0.0
    return [1.0, 0.0, 0.0]


def test_a_function_cannot_change_the_log():
    log = read_log(World().log(5, seed=2))
    before = log.observations.copy()
    policies.by_rule(log, overwrite, "overwrite")
    np.testing.assert_array_equal(log.observations, before)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda y: [0.5, 0.5], r"policy 'f', round 1: expected 3 probabilities, one per arm, got shape \(2,\)"),
        (lambda y: [0.5, 0.5, 0.5], "policy 'f', round 1: expected probabilities that sum to 1, got .*"),
        (lambda y: [1.5, -0.5, 0.0], "policy 'f', round 1: expected probabilities that sum to 1, got .*"),
        (lambda y: [np.nan, 0.5, 0.5], "policy 'f', round 1: expected probabilities that sum to 1, got .*"),
        (lambda y: "red", "policy 'f', round 1: expected probabilities, got ValueError: .*"),
    ],
)
def test_a_function_that_does_not_return_probabilities(given, message):
    with pytest.raises(HalfseenError, match=message):
        policies.by_rule(read_log(World().log(5, seed=2)), given, "f")


def test_policies_that_cannot_be_evaluated():
    log = read_log(World().log(5, seed=2))
    with pytest.raises(HalfseenError, match=r"There is no arm '7'\. The arms are: 0, 1, 2"):
        policies.always(log, "7")
    with pytest.raises(HalfseenError, match=r"policy: expected an agent that does not need .*, got 'oracle-ts'"):
        policies.by_agent(log, "oracle-ts", {})
    with pytest.raises(HalfseenError, match=r"^'kf-ts' requires the option 'model'.$"):
        policies.by_agent(log, "kf-ts", {})


def test_an_invalid_replay_does_not_change_the_agent():
    agent = make_small("ts-pco")
    for bad in ({"arm": 9}, {"arm": 0, "propensity": 0.0}, {"arm": 0, "propensity": 1.5}, {"arm": 0, "available": []}):
        with pytest.raises(HalfseenError):
            agent.replay(np.zeros(OBSERVED), **bad)
    assert agent.rounds == 0
    assert_same_state(agent, make_small("ts-pco"))


def clicks_log(rounds=600):
    rng = np.random.default_rng(5)
    y, arm = rng.normal(size=rounds), rng.integers(2, size=rounds)
    clicked = rng.uniform(size=rounds) < 1 / (1 + np.exp(2.0 - 2.0 * np.where(arm == 1, y, -y)))
    return {"observation": y, "arm": arm, "propensity": np.full(rounds, 0.5), "reward": clicked.astype(float)}


def test_a_log_of_clicks_is_evaluated_with_its_family():
    log = clicks_log()
    told = hs.evaluate(log, ["ts-pco", "uniform"], reward_family="binary")
    spelt_out = hs.evaluate(log, "ts-pco:reward_family=binary", reward_family="binary")
    told_agent, spelt_agent = told.policies["ts-pco"], spelt_out.policies["ts-pco:reward_family=binary"]
    assert told_agent.values["dr"].value == spelt_agent.values["dr"].value
    assert told.policies["ts-pco"].values["dr"].value > told.policies["uniform"].values["dr"].value
    as_numbers = hs.evaluate(log, "ts-pco")
    assert as_numbers.policies["ts-pco"].values["ips"].value != told.policies["ts-pco"].values["ips"].value


def test_clicks_are_not_scaled_for_an_agent_that_expects_clicks():
    log = clicks_log()
    told = hs.evaluate(log, ["glm-ts", "ts-pco:reward_family=binary"], reward_family="binary")
    by_default = hs.evaluate(log, ["glm-ts", "ts-pco:reward_family=binary"])
    for label, one in told.policies.items():
        np.testing.assert_array_equal(one.weights, by_default.policies[label].weights)
    numbers = log | {"reward": np.where(np.arange(len(log["reward"])) == 9, 3.5, log["reward"])}
    with pytest.raises(hs.HalfseenError, match=r"from 0 to 1, because the reward family is 'binary', got 3\.5$"):
        hs.evaluate(numbers, "glm-ts")


class Mine:
    """An agent of one's own."""

    def decide(self, observation):
        return 0

    def learn(self, round, reward):
        pass


@pytest.mark.parametrize("call", [hs.evaluate, hs.study])
@pytest.mark.parametrize(
    "policy",
    [Mine, Mine(), hs.AgentSpec(Mine), "of-mine", (Observed, Ridge, Thompson),
     hs.AgentSpec((Observed, Ridge, Thompson))],
)  # fmt: skip
def test_agents_that_cannot_replay_a_log_are_refused_with_advice(call, policy):
    hs.register("of-mine", Mine)
    line = r"^policy: expected an agent of the catalogue, to which hs.register adds triples of components \(a class"
    with pytest.raises(hs.HalfseenError, match=line) as refused:
        call(clicks_log(50), policy=[policy])
    assert "\n" not in str(refused.value)


def test_a_registered_triple_replays_a_log():
    hs.register("a-triple", (Observed, Ridge, Thompson))
    found = hs.evaluate(clicks_log(100), ["a-triple", "ts-pco"])
    assert found.policies["a-triple"].values == found.policies["ts-pco"].values


def test_logged_rewards_outside_of_the_family_are_refused():
    log = clicks_log(50)
    log["reward"][3] = 2.0
    with pytest.raises(hs.HalfseenError, match=r"^rewards: expected numbers from 0 to 1, because the reward family"):
        hs.evaluate(log, "uniform", reward_family="binary")
    with pytest.raises(hs.HalfseenError, match=r"^reward_family: expected 'gaussian' or 'binary' or 'count', got 'x'"):
        hs.evaluate(log, "uniform", reward_family="x")
    with pytest.raises(hs.HalfseenError, match=r"decision 5: reward: expected a number from 0 to 1"):
        hs.evaluate(log, "glm-ts")
