"""The estimated memory and work of a stream, against measurements."""

import gc
import time
import tracemalloc

import numpy as np
import pytest

import halfseen as hs
from halfseen.agents.stream_cost import stream_cost

STATES, HISTORY = 6, 400
SIZES = [(3, 5, 4), (12, 16, 10), (30, 34, 12)]  # observed features, dimension of the context, arms
QUICK = ("ts-pco", "kf-ts", "emkf-ts", "adaptive", "random")  # the other agents are measured by make test-all


def options_for(name, observed, latent, arms):
    """Return the required options, and a history that a few rounds can fill."""
    rng, entry = np.random.default_rng(0), hs.catalog()[name]
    model = {"transition": 0.9 * np.eye(latent), "process_cov": np.eye(latent), "observation_cov": np.ones(observed)}
    values = {
        "model": lambda: hs.LinearGaussianModel(**model),
        "latent": lambda: latent,
        "arm_params": lambda: rng.normal(size=(arms, latent)),
        "state_rewards": lambda: rng.normal(size=(arms, STATES)),
        "state_transition": lambda: np.full((STATES, STATES), 1 / STATES),
    }
    options = {option: values[option]() for option in entry.required}
    if "history" in entry.options:
        options |= {"history": max(HISTORY, 24 * observed), "refit": "manual"}
    if "reward_family" in entry.options and entry.options["reward_family"].default != "gaussian":
        options["reward_family"] = "gaussian"  # the rewards of `measure` are any numbers
    return options


def measure(name, observed, arms, options, rounds, *, rewarded):
    """Return the bytes that an agent uses after some rounds."""
    rng = np.random.default_rng(0)
    context = {"context": rng.normal(size=options["latent"])} if hs.catalog()[name].reveals_context else {}
    gc.collect()
    tracemalloc.start()
    agent = hs.make(name, observed=observed, arms=arms, max_pending=rounds, **options)
    for y in rng.normal(size=(rounds, observed)):
        decision = agent.decide(y, **context)
        if rewarded:
            agent.learn(decision.id, float(y[0]))
    del decision, y
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in hs.catalog()]
)
def test_the_estimated_memory_is_close_to_the_measured_memory(name):
    for observed, latent, arms in SIZES:
        options = options_for(name, observed, latent, arms)
        rounds = 1 + 3 * options["history"] // 2 if "history" in options else 60
        if observed == SIZES[0][0]:
            measure(name, observed, arms, options, rounds, rewarded=True)  # import what is imported on first use
        used = measure(name, observed, arms, options, rounds, rewarded=True)
        estimate = stream_cost(name, observed, arms, options, max_pending=1).agent_bytes
        assert used / 1.5 < estimate < 3.0 * used, (observed, estimate, used)


@pytest.mark.parametrize(("observed", "rounds"), [(3, 3_000), (100, 1_000)])
def test_the_estimated_memory_of_waiting_decisions_is_close_to_the_measured_memory(observed, rounds):
    cost = stream_cost("ts-pco", observed, 3, {}, max_pending=rounds)
    used = measure("ts-pco", observed, 3, {}, rounds, rewarded=False)
    assert used / 1.5 < cost.agent_bytes + cost.pending_bytes < 3.0 * used


@pytest.mark.parametrize(
    ("name", "options", "observed", "growth"),
    [
        ("em-rts-ts", {"latent": 30, "window": 400}, 20, {"iterations": 500}),
        ("hmm-ts", {"states": 3, "warm_up": 100}, 3, {"restarts": 9}),
        ("mts", {"state_transition": np.eye(3), "state_rewards": np.ones((4, 3))}, 3, {"memory": 100_000}),
        ("lag-ts", {}, 20, {"lags": 200}),
        ("adaptive", {"history": 1_000}, 5, {"history": 500_000}),
    ],
)
def test_expensive_options_increase_the_estimate(name, options, observed, growth):
    low, high = (stream_cost(name, observed, 4, options | more, 10) for more in ({}, growth))
    assert max(after / max(before, 1.0) for before, after in zip(low, high, strict=True)) > 50


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "observed", "options", "rounds"),
    [
        ("em-rts-ts", 20, {"latent": 24}, 201),
        ("em-rts-ts", 40, {"latent": 44}, 221),
        ("hmm-ts", 100, {}, 401),
        ("blup-ts", 200, {}, 5),
        ("emkf-ts", 100, {"latent": 120}, 601),  # the last round ends a window
    ],
)
def test_a_billion_operations_take_about_a_second(name, observed, options, rounds):
    """The factor of 10 allows for processors, and for rounds that cost less than the most expensive one."""
    cost, rng, slowest_of_runs = stream_cost(name, observed, 5, options, 10), np.random.default_rng(0), []
    for _ in range(3):  # kernels are loaded in the first run, and other processes may delay a round of any run
        agent, slowest = hs.make(name, observed=observed, arms=5, **options), 0.0
        for y in rng.normal(size=(rounds, observed)):
            began = time.perf_counter()
            decision = agent.decide(np.where(rng.uniform(size=observed) < 0.2, np.nan, y))
            agent.learn(decision.id, 1.0)
            slowest = max(slowest, time.perf_counter() - began)
        slowest_of_runs.append(slowest)
    assert 0.1 < cost.decision_operations / 1e9 / min(slowest_of_runs) < 20.0
