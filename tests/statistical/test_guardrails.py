"""What a floor costs, and how often the interval of a lift contains the truth."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.statistics.lift import Lift, RewardMoments


def test_the_interval_of_lift_holds_for_autocorrelated_rewards():
    """Rewards do not depend on the arm, so the true lift is 0. They follow an autoregression with coefficient 0.95.

    Of 1,000 streams, between 92 % and 98 % must contain 0: the standard error of the share is 0.7 %.
    """
    streams, rng = 1000, np.random.default_rng(0)
    fleet = hs.Fleet("random", observed=1, arms=3, holdback=0.3, control=(0, 0.2))
    fleet.add(streams)
    level = rng.normal(size=streams) / np.sqrt(1 - 0.95**2)
    for _ in range(200):
        level = 0.95 * level + rng.normal(size=streams)
        fleet.learn(fleet.decide(np.zeros((streams, 1))), level)
    guardrails, contained = fleet._policy.guardrails, {"control": [], "holdback": []}
    for row in range(streams):
        moments = dict(
            zip(("chooser", "floor", "holdback", "control"), guardrails.rewards(np.array([row])), strict=True)
        )
        for baseline, found in contained.items():
            difference = Lift(baseline, moments["chooser"], moments[baseline]).difference
            found.append(difference.low <= 0.0 <= difference.high)
    for baseline, found in contained.items():
        assert 0.92 < np.mean(found) < 0.98, baseline


def test_the_interval_of_relative_lift():
    """Two groups of 40 and 20 rewards with means 3 and 2 and different noise; 2,000 draws."""
    rng, found = np.random.default_rng(1), []
    for _ in range(2000):
        one, other = 3.0 + rng.normal(size=40), 2.0 + 0.5 * rng.normal(size=20)
        relative = Lift("control", RewardMoments.of(one), RewardMoments.of(other)).relative
        found.append(relative.low <= 0.5 <= relative.high)
    assert 0.93 < np.mean(found) < 0.97


@pytest.mark.slow
@pytest.mark.parametrize("world", ["orbit", "keyhole"])
def test_a_floor_costs_at_most_its_share_of_uniform_play(world):
    floor, agents = 0.05, ["ts-pco", "kf-ts"]
    result = hs.run(
        [*agents, *(f"{one}:floor={floor}" for one in agents), "random"], world=world, rounds=3000, seeds=20
    )
    share, uniform = floor * hs.worlds.named(world).arms, result.total_regret(world, "random")
    for agent in agents:
        expected = (1 - share) * result.total_regret(world, agent) + share * uniform
        assert result.total_regret(world, f"{agent}:floor={floor}").mean() <= 1.02 * expected.mean()


def test_guardrails_in_an_experiment():
    """Two agents that only play the control arm have the same regret, round by round."""
    result = hs.run(["ts-pco:control=[1,1.0]", "random:control=[1,1.0]"], world="keyhole", rounds=40, seeds=3)
    one, other = (result.total_regret("keyhole", agent) for agent in result.agents)
    np.testing.assert_array_equal(one, other)
