"""The calibration of clicks and counts in `health()`: no false alarms, and an alarm if rewards change."""

import numpy as np
import pytest
from scipy.special import expit

import halfseen as hs
from halfseen.diagnostics.family_calibration import family_calibration
from halfseen.experiments.play import Player, build_policy

SEEDS = tuple(range(12))


@pytest.mark.parametrize(
    ("world", "name"),
    [
        *((world, name) for world in ("clicks:rate=0.01", "clicks") for name in ("kf-ts", "ts-pco", "glm-ucb")),
        ("counts", "kf-ts"),
    ],
)
def test_there_are_no_false_alarms(world, name):
    """`ts-pco` and `glm-ucb` do not see most of what determines clicks, and are calibrated all the same.

    Given what these two see, counts vary more than a Poisson variable. Their alarms in `counts` are not false.
    """
    from halfseen.experiments.plan import world_spec

    place = world_spec(world)
    episodes = place.begin(SEEDS)
    player = Player(build_policy(hs.AgentSpec(name), place, episodes, SEEDS, 1_500), place)
    player.play_round_by_round(episodes.advance(1_500))
    for row in SEEDS:
        facts, findings = family_calibration(player.policy.learner, np.array([row]), range(place.arms))
        assert facts["reward family"] == place.reward_family
        assert all(finding.verdict == "fine" for finding in findings), findings


def test_rewards_that_collapse_are_noticed():
    agent = hs.make("pco-greedy", observed=1, arms=["only"], reward_family="binary", seed=1)
    rng = np.random.default_rng(0)
    for t in range(4_000):
        y = rng.normal()
        decision = agent.decide([y])
        agent.learn(decision, float(rng.uniform() < expit(2.0 + y)) if t < 2_000 else 0.0)
    health = agent.health()
    assert not health.ok
    assert "lower than expected" in health.finding("calibration of arms").sentence


def test_few_rewards_give_no_verdict():
    agent = hs.make("ts-pco", observed=1, arms=2, reward_family="count", seed=1)
    for _ in range(50):
        agent.learn(agent.decide([1.0]), 1.0)
    assert agent.health().findings == ()
    assert agent.health().facts["reward family"] == "count"
