"""Costs with rewards that are clicks or counts, for every agent that has families."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, context_argument, make_small, simulate_rounds, small_options

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.components import StreamBatch
from halfseen.kernels.random import stream_keys

AGENTS = [name for name, entry in hs.catalog().items() if "reward_family" in entry.options]
COSTS = np.array([0.0, 0.1, 0.3, 0.6])


@pytest.mark.parametrize("family", ["binary", "count"])
@pytest.mark.parametrize("name", AGENTS)
def test_propensities_are_the_frequencies_of_arms(name, family):
    """Let 1,000 streams with the same history decide, and compare frequencies at 5 standard errors."""
    count = 1_000
    options = small_options(name) | {"reward_family": family}
    policy = CATALOG[name].build(StreamBatch(stream_keys(np.arange(count)), OBSERVED, ARMS), options)
    xs, ys, _ = simulate_rounds(3)
    for t in range(3):
        given = {"contexts": np.tile(xs[t], (count, 1))} if policy.estimator.reveals_context else {}
        choices = policy.decide(np.tile(ys[t], (count, 1)), costs=np.tile(COSTS, (count, 1)), **given)
        one = type(choices)(*(part[:1] if isinstance(part, np.ndarray) else part for part in choices))
        probabilities = policy.propensities(one)[0]
        frequencies = np.bincount(choices.arms, minlength=ARMS) / count
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-9)
        errors = np.sqrt(np.maximum(probabilities * (1 - probabilities), 1e-9) / count)
        assert (np.abs(frequencies - probabilities) <= 5 * errors + 1e-6).all()
        policy.learn(choices.rounds, choices.features, np.full(count, t % ARMS), np.full(count, float(t % 2)))


@pytest.mark.parametrize("name", AGENTS)
def test_a_cost_above_every_click_excludes_an_arm(name):
    agent, (xs, ys, _) = make_small(name, reward_family="binary"), simulate_rounds(30)
    for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
        decision = agent.decide(y, costs=[0.0, 1.1, 1.1, 1.1], **context_argument(agent, x))
        assert decision.arm == 0 or name in ("glm-ucb", "adaptive-ids")  # their bonuses are on the scale of rewards
        assert ((decision.expected >= 0.0) & (decision.expected <= 1.0)).all()
        agent.learn(decision, float(t % 2))
