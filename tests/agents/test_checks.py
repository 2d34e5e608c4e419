"""`hs.check_agent` passes correct agents, and names what is wrong with others in one line each."""

from typing import ClassVar

import numpy as np
import pytest
from own_agents import Chosen, EpsilonGreedy, Ewma, ts_pco
from settings import ARMS, OBSERVED, small_options

import halfseen as hs
from halfseen.choosers.sampled import Sampled
from halfseen.choosers.thompson import Thompson
from halfseen.learners.ridge import Ridge


def failures(agent, **options):
    with pytest.raises(hs.HalfseenError) as failed:
        hs.check_agent(agent, **options)
    head, *lines = str(failed.value).splitlines()
    assert head.endswith("checks")
    return dict(line.split(": ", 1) for line in lines)


def test_correct_agents_pass():
    rows = {row["check"]: row["result"] for row in hs.check_agent(EpsilonGreedy, epsilon=0.3).rows}
    assert rows.pop("propensities (optional)") == "no: decide returns an arm without propensities"
    assert set(rows.values()) == {"passed"}
    assert {row["result"] for row in hs.check_agent(ts_pco).rows} == {"passed"}
    rows = {row["check"]: row["result"] for row in hs.check_agent((Ewma, Ridge, Thompson)).rows}
    assert set(rows.values()) == {"passed"}


@pytest.mark.parametrize("name", ["ts-pco", "oracle-ucb", "emkf-ts", "meb", "lag-ts", "bayes", "random", "mts"])
def test_agents_of_the_catalogue_pass(name):
    hs.check_agent(name, observed=OBSERVED, arms=ARMS, **small_options(name))


class Wrong:
    """An agent that does everything wrong."""

    shared: ClassVar = [0]

    def __init__(self, arms):
        self.arms = arms

    def decide(self, observation):
        observation[0] = 0.0
        self.shared[0] += 1
        return self.shared[0] // 7 % 4

    def learn(self, round, reward): ...


def test_each_failed_check_has_a_line():
    found = failures(Wrong)
    assert set(found) == {
        "decide does not change the observation",
        "the same seed gives the same decisions",
        "two agents share nothing",
        "other numbers of features and arms",
    }
    assert found["decide does not change the observation"].startswith("expected the same numbers in the array")
    assert found["other numbers of features and arms"].startswith("with observed=1 and arms=2: decide, round")


def test_an_agent_that_fails_is_described_by_its_exception():
    class Broken(EpsilonGreedy):
        def learn(self, round, reward):
            raise ZeroDivisionError("no luck")

    assert failures(Broken)["decide returns an arm"] == "ZeroDivisionError: no luck"


def test_random_numbers_without_a_seed_are_found():
    class Unseeded(EpsilonGreedy):
        def __init__(self, arms):
            super().__init__(arms, None, epsilon=1.0)

    expected = "expected random draws that depend on the argument `seed` only"
    assert failures(Unseeded)["the same seed gives the same decisions"].startswith(expected)


def test_wrong_propensities_are_found():
    class Certain(EpsilonGreedy):
        def decide(self, observation):
            super().decide(observation)
            return Chosen(int(self.arm), [0.5] * len(self.count))

    expected = "decide, round 1: expected propensities that sum to 1"
    assert failures(Certain)["decide returns an arm"].startswith(expected)


class Uniform(Sampled):
    """A chooser that draws its arms at random, but not with the probabilities that it states."""

    def __init__(self, streams, dimension): ...

    def widths(self, rows, rounds, learner):
        return self.constant_widths(1.0, rows, learner)

    def pick(self, choices, keys):
        choices.arms[:] = 0

    def probabilities(self, choices):
        return np.full(choices.means.shape, 1.0 / choices.means.shape[1])


class Forgetful(Ewma):
    """An estimator whose state is not in `state_names`, and which fails if entries are missing."""

    state_names = ()

    def observe(self, rows, observations, rounds, complete, contexts):
        self.mean[rows] += 0.3 * (observations - self.mean[rows])
        return self.mean[rows]


def test_wrong_components_are_found():
    found = failures((Forgetful, Ridge, Uniform))
    assert found["propensities equal frequencies"].startswith(
        "expected arm 0 in 0.250 of the decisions of round 1, got 1"
    )
    assert found["only available arms are chosen"].startswith("expected one of the available arms")
    found = failures((Forgetful, Ridge, Thompson))
    assert found["state_names contain all of the state"].startswith("expected the same arms after `restore(state())`")
    assert "missing entries, as NaN" in found
