"""Off-policy evaluation where the true value is known: bias, coverage, and the benefit of the reward model.

Bounds are four standard errors of the simulation, so that a correct estimator fails once in 10,000 runs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from benchmarks.evaluation import OFFSETS, SLOPES, World, coverage, rule, simulated

import halfseen as hs
from halfseen.evaluation.estimators import SHOWN

SIMULATIONS = 200


@cache
def simulate(rho: float, curved: bool, intervals: str, rounds: int, logs: int) -> tuple[float, dict[str, np.ndarray]]:
    """Return the true value, and (value, low, high) of every simulated log by estimator."""
    world = World(rho, curved)
    return world.truth(), simulated(world, rounds, logs, intervals)


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize(
    "curved",
    [
        pytest.param(False, id="correct reward model"),
        pytest.param(True, id="wrong reward model", marks=pytest.mark.slow),
    ],
)
def test_estimates_are_unbiased(name, curved):
    """snips is a ratio with a bias of order 1/n. A tenth of its standard deviation is allowed."""
    truth, found = simulate(0.0, curved, "hac", 400, SIMULATIONS)
    values = found[name][:, 0]
    allowed = 4.0 * values.std() / np.sqrt(SIMULATIONS)
    assert abs(values.mean() - truth) < allowed + (0.1 * values.std() if name == "snips" else 0.0)


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize(
    ("rho", "curved", "intervals"),
    [(0.0, False, "hac"), (0.0, True, "hac"), pytest.param(0.0, False, "bootstrap", marks=pytest.mark.slow)],
)
def test_intervals_cover(name, rho, curved, intervals):
    """95 %, less 4 standard errors of the simulation, and less 2 % because weights spoil the normal approximation."""
    logs = SIMULATIONS if intervals == "hac" else 100
    truth, found = simulate(rho, curved, intervals, 400, logs)
    covered = coverage(found[name], truth)
    error = np.sqrt(0.95 * 0.05 / logs)
    assert 0.95 - 4.0 * error - 0.02 < covered <= 1.0


@pytest.mark.parametrize("name", ["dm", "mrdr", "switch_dr", "clipped_dr"])
def test_the_other_estimators_are_right_if_the_reward_model_is(name):
    truth, found = simulate(0.0, False, "hac", 400, SIMULATIONS)
    values = found[name][:, 0]
    assert abs(values.mean() - truth) < 4.0 * values.std() / np.sqrt(SIMULATIONS) + 0.1 * values.std()
    assert coverage(found[name], truth) > 0.93 - 4.0 * np.sqrt(0.93 * 0.07 / SIMULATIONS)


def test_the_direct_method_is_biased_if_the_reward_model_is_wrong_and_mrdr_is_not():
    truth, found = simulate(0.0, True, "hac", 400, SIMULATIONS)
    direct, robust = found["dm"][:, 0], found["mrdr"][:, 0]
    assert abs(direct.mean() - truth) > 4.0 * direct.std() / np.sqrt(SIMULATIONS)
    assert abs(robust.mean() - truth) < 4.0 * robust.std() / np.sqrt(SIMULATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dr", "snips"])
def test_intervals_cover_if_rounds_are_autocorrelated(name):
    """Intervals that assume independent rounds would cover the true value in three of four logs."""
    truth, found = simulate(0.8, False, "hac", 1000, 100)
    values, low, high = found[name].T
    covered = coverage(found[name], truth)
    assert covered > 0.93 - 4.0 * np.sqrt(0.93 * 0.07 / 100)
    assert np.mean(high - low) / 3.92 == pytest.approx(values.std(), rel=0.2)


@pytest.mark.slow
def test_a_good_reward_model_reduces_the_variance_of_the_doubly_robust_estimate():
    _, found = simulate(0.0, False, "hac", 400, SIMULATIONS)
    spread = {name: values[:, 0].std() for name, values in found.items()}
    assert spread["dr"] < 0.5 * spread["ips"]
    assert spread["dr"] < spread["snips"]


def test_intervals_of_paired_differences_cover_and_are_narrower():
    """Both policies share the contexts, so their difference varies less than with independent contexts."""
    world, logs = World(rho=0.8), 100
    truth = world.truth() - world.truth(World.logging)
    found, widths = [], []
    for seed in range(logs):
        policies = hs.evaluate(world.log(400, seed), rule).policies
        one = policies["rule"].differences["dr"]
        found.append((one.value, one.low, one.high))
        apart = [policies[label].values["dr"] for label in ("rule", "logged")]
        widths.append([one.high - one.low, np.hypot(*(value.high - value.low for value in apart))])
    values = np.array(found)
    assert abs(values[:, 0].mean() - truth) < 4.0 * values[:, 0].std() / np.sqrt(logs)
    assert coverage(values, truth) > 0.93 - 4.0 * np.sqrt(0.93 * 0.07 / logs)
    paired, unpaired = np.mean(widths, axis=0)
    assert paired < 0.9 * unpaired


@cache
def uniform_values_from_a_learning_agent(runs: int, rounds: int) -> dict[str, np.ndarray]:
    """Return estimates of the uniform policy from logs of a learning agent that plays every arm with at least 10 %."""
    values: dict[str, list[float]] = {name: [] for name in SHOWN}
    for seed in range(runs):
        rng = np.random.default_rng([seed, 5])
        agent = hs.make("meb", observed=2, arms=3, seed=seed, observation_cov=0.01, minimum_probability=0.1)
        y, rows = rng.normal(size=(rounds, 2)), []
        for t in range(rounds):
            decision = agent.decide(y[t])
            arm = decision.index
            reward = float(OFFSETS[arm] + SLOPES[arm] @ y[t] + 0.5 * rng.normal())
            agent.learn(decision, reward)
            rows.append((arm, decision.propensity, decision.propensities.tolist(), reward))
        arms, propensity, lists, rewards = (list(column) for column in zip(*rows, strict=True))
        log = {"observation": y.tolist(), "arm": arms, "propensity": propensity, "propensities": lists}
        log["reward"] = rewards
        found = hs.evaluate(log, "uniform").policies["uniform"]
        for name in SHOWN:
            values[name].append(found.values[name].value)
    return {name: np.array(column) for name, column in values.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_estimates_are_unbiased_if_the_logging_agent_learns(name):
    found = uniform_values_from_a_learning_agent(80, 250)[name]
    slack = 0.1 * found.std() if name == "snips" else 0.0
    assert abs(found.mean() - OFFSETS.mean()) < 4.0 * found.std() / np.sqrt(80) + slack
