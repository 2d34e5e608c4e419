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

LATE, MISSING = "rewards that arrive late (optional)", "missing entries, as NaN (optional)"


def failures(agent, **options):
    with pytest.raises(hs.HalfseenError) as failed:
        hs.check_agent(agent, **options)
    head, *lines = str(failed.value).splitlines()
    assert head.endswith("checks")
    return dict(line.split(": ", 1) for line in lines)


def test_correct_agents_pass():
    rows = {row["check"]: row["result"] for row in hs.check_agent(EpsilonGreedy, epsilon=0.3).rows}
    assert rows.pop("propensities (optional)") == "no: decide returns an arm without propensities"
    assert rows.pop(MISSING) == "accepted: its decisions hardly depend on observations"
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
        "two instances share no state",
        "other numbers of features and arms",
    }
    assert found["decide does not change the observation"].startswith("expected the same numbers in the array")
    assert found["other numbers of features and arms"].startswith("with observed=1 and arms=2: decide, round")


def test_an_agent_that_fails_is_described_by_its_exception():
    class Broken(EpsilonGreedy):
        def learn(self, round, reward):
            raise ZeroDivisionError("no luck")

    assert failures(Broken)["decide returns an arm"] == "ZeroDivisionError: no luck (round 1, seed 7)"


class LastArm(EpsilonGreedy):
    """An agent that learns every reward for its last arm."""

    def learn(self, round, reward):
        super().learn(len(self.arms) - 1, reward)


class Greedy(EpsilonGreedy):
    """An agent that explores so rarely that the checks are too short for it."""

    def __init__(self, arms, seed):
        super().__init__(arms, seed, epsilon=0.01)


class LinUcb:
    """A regression of rewards on observations for every arm, with missing entries replaced by `fill`."""

    def __init__(self, observed, arms, fill=0.0):
        self.gram, self.moment = np.tile(np.eye(observed + 1), (arms, 1, 1)), np.zeros((arms, observed + 1))
        self.fill, self.played = fill, [None]

    def decide(self, observation):
        x = np.append(np.where(np.isnan(observation), self.fill, observation), 1.0)
        inverse = np.linalg.inv(self.gram)
        scores = np.einsum("aij,aj,i->a", inverse, self.moment, x) + np.sqrt(np.einsum("aij,i,j->a", inverse, x, x))
        self.played.append((int(np.argmax(scores)), x))
        return self.played[-1][0]

    def learn(self, round, reward):
        arm, x = self.played[round]
        self.gram[arm] += np.outer(x, x)
        self.moment[arm] += reward * x


@pytest.mark.parametrize(
    ("agent", "options", "check", "result"),
    [
        (EpsilonGreedy, {}, LATE, "passed"),
        (LinUcb, {}, LATE, "passed"),
        (LastArm, {}, LATE, "no: it prefers the arm with the lower reward if rewards arrive late"),
        (Greedy, {}, LATE, "accepted: it could not be told whether it learns from them"),
        (LinUcb, {}, MISSING, "passed"),
        (
            LinUcb,
            {"fill": np.nan},
            MISSING,
            "no: after rounds with missing entries, its decisions no longer depend on the observation",
        ),
    ],
)
def test_late_rewards_and_missing_entries_are_judged_by_decisions(agent, options, check, result):
    rows = {row["check"]: row["result"] for row in hs.check_agent(agent, **options).rows}
    assert rows[check] == result


def test_no_agent_that_learns_every_reward_for_its_last_arm_passes():
    for epsilon in (0.05, 0.1, 0.2, 0.3):
        rows = {row["check"]: row["result"] for row in hs.check_agent(LastArm, epsilon=epsilon).rows}
        assert rows[LATE].startswith(("no: ", "accepted: ")), epsilon


def test_random_numbers_without_a_seed_are_found():
    class Unseeded(EpsilonGreedy):
        def __init__(self, arms):
            super().__init__(arms, None, epsilon=1.0)

    expected = "expected random draws that depend on the argument `seed` only"
    assert failures(Unseeded)["the same seed gives the same decisions"].startswith(expected)


def test_wrong_propensities_are_found():
    class Certain(EpsilonGreedy):
        def decide(self, observation):
            return Chosen(int(super().decide(observation)), [0.5] * len(self.count))

    expected = "decide, round 1: expected propensities that sum to 1"
    assert failures(Certain)["decide returns an arm"].startswith(expected)


MEMORY = {}


class SharedMemory(LinUcb):
    """A regression whose state all instances share, wherever it is kept, and which explores at random."""

    def __init__(self, observed, arms, seed, epsilon=0.0, keep="default", memory={}):  # noqa: B006
        super().__init__(observed, arms)
        self.rng, self.epsilon = np.random.default_rng(seed), epsilon
        kept = memory if keep == "default" else MEMORY
        self.gram, self.moment = kept.setdefault((observed, arms), (self.gram, self.moment))

    def decide(self, observation):
        arm = super().decide(observation)
        if self.rng.random() < self.epsilon:
            arm = int(self.rng.integers(len(self.gram)))
            self.played[-1] = arm, self.played[-1][1]
        return arm


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("keep", ["default", "module"])
def test_state_that_instances_share_is_found(keep, epsilon):
    for _ in range(3):  # also after the state has seen many rounds
        found = failures(SharedMemory, keep=keep, epsilon=epsilon)
        assert found["two instances share no state"].startswith("expected the decisions of an agent that plays alone")


def test_a_context_or_a_random_number_generator_that_instances_share_is_found():
    class LastContext(LinUcb):
        played: ClassVar = []

        def __init__(self, observed, arms):
            super().__init__(observed, arms)
            self.__dict__.pop("played")

        def learn(self, round, reward):
            super().learn(-1, reward)

    class GlobalDraws(EpsilonGreedy):
        def __init__(self, arms, seed):
            super().__init__(arms, seed)
            np.random.seed(seed)  # noqa: NPY002
            self.rng = type("Rng", (), {"random": np.random.random, "integers": np.random.randint})

    for agent in (LastContext, GlobalDraws):
        assert set(failures(agent)) == {"two instances share no state"}


def test_components_that_share_state_are_found():
    class SharedMeans(Ridge):
        memory: ClassVar = {}

        def __init__(self, streams, dimension, **options):
            super().__init__(streams, dimension, **options)
            for name in ("mean", "cov_packed"):
                key = name, getattr(self, name).shape
                setattr(self, name, self.memory.setdefault(key, getattr(self, name)))

    assert "two instances share no state" in failures((Ewma, SharedMeans, Thompson))


class LateFault(EpsilonGreedy):
    """An agent that is correct until round 71."""

    def __init__(self, arms, seed, fault):
        super().__init__(arms, seed)
        self.fault = fault

    def decide(self, observation):
        arm = super().decide(observation)
        if len(self.arms) <= 71:
            return arm
        if self.fault == "arm":
            return len(self.count)
        raise KeyError("state")


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("arm", "decide, round 71: expected an arm from 0 to 3, got 4"),
        ("error", "KeyError: 'state' (round 71, seed 7)"),
    ],
)
def test_a_fault_in_a_later_round_fails_the_first_check_alone(fault, line):
    assert failures(LateFault, fault=fault) == {"decide returns an arm": line}


def test_a_fault_with_few_arms_or_one_seed_fails():
    class TwoArms(EpsilonGreedy):
        def __init__(self, arms, seed):
            super().__init__(arms, seed)
            self.fails = arms == 2 and seed == 9

        def learn(self, round, reward):
            if self.fails and round == 100:
                raise AssertionError

    assert failures(TwoArms) == {
        "other numbers of features and arms": "with observed=3 and arms=2: AssertionError (round 100, seed 9)"
    }


def test_optional_checks_say_no_with_the_class_of_an_exception_without_a_message():
    class Finite(EpsilonGreedy):
        def decide(self, observation):
            if not np.isfinite(observation).all():
                raise AssertionError
            return super().decide(observation)

    rows = {row["check"]: row["result"] for row in hs.check_agent(Finite).rows}
    assert rows[MISSING] == "no: AssertionError"
    assert rows[LATE] == "passed"


@pytest.mark.parametrize("arm", [0.0, "0", True, None])
def test_an_arm_that_is_no_integer_is_named(arm):
    class NoInteger(EpsilonGreedy):
        def decide(self, observation):
            return arm

    assert failures(NoInteger) == {
        "decide returns an arm": f"decide, round 1: expected an integer from 0 to 3, got {arm!r}"
    }


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
