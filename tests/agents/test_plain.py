"""Plain agents: how a factory is called, what its agents may return, and what is refused."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from own_agents import Chosen, EpsilonGreedy

import halfseen as hs
from halfseen.agents.catalogue import agent_spec
from halfseen.agents.plain import PlainEntry, decided_arm
from halfseen.agents.source_code import source_hash_of


def test_a_factory_is_given_the_arguments_that_it_names():
    given = []

    def factory(observed, rounds, *, width=2.0):
        given.append((observed, rounds, width))
        return SimpleNamespace(decide=lambda observation: 0, learn=lambda round, reward: None)

    hs.run(hs.AgentSpec(factory, {"width": 3.0}), world="keyhole", rounds=20, seeds=2)
    assert given == [(3, 20, 3.0)] * 2
    assert list(PlainEntry("factory", factory).options) == ["width"]


def test_labels_are_the_names_of_classes_and_functions():
    agents = [EpsilonGreedy, hs.AgentSpec(EpsilonGreedy, {"epsilon": 0.2}), hs.AgentSpec(EpsilonGreedy, label="mine")]
    assert [agent_spec(agent).label for agent in agents] == ["EpsilonGreedy", "EpsilonGreedy:epsilon=0.2", "mine"]
    assert agent_spec(functools.partial(EpsilonGreedy, epsilon=0.5)).label == "EpsilonGreedy"
    assert agent_spec(lambda arms: EpsilonGreedy(arms, 0)).label == "lambda"


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        (EpsilonGreedy(2, 0), "agents: expected a class or function that makes agents, because every seed needs its"),
        (int, "'int': expected the methods decide(observation) and learn(round, reward), got int without decide"),
        (7, "agents: expected names of agents, AgentSpecs, classes or triples of components, got 7"),
        (lambda: 3, "'lambda': expected the methods decide(observation) and learn(round, reward), got int without"),
        (lambda depth: 3, "'lambda' requires the option 'depth'."),
        (hs.AgentSpec(EpsilonGreedy, {"epsilon": 0.1}, "a"), None),
    ],
)
def test_what_is_not_an_agent_is_refused(agent, line):
    def run():
        return hs.run(agent, world="keyhole", rounds=3, seeds=1)

    if line is None:
        assert run().agents == ("a",)
    else:
        with pytest.raises(hs.HalfseenError) as refused:
            run()
        assert str(refused.value).startswith(line)


def test_unknown_options_are_refused():
    with pytest.raises(hs.HalfseenError, match="'EpsilonGreedy' has no option 'epsilo'"):
        hs.AgentSpec(EpsilonGreedy, {"epsilo": 0.1})


@pytest.mark.parametrize("decision", [2, np.int64(2), np.array(2), SimpleNamespace(arm=2), Chosen(2, [0.5, 0, 0.5])])
def test_a_decision_is_an_arm_or_has_one(decision):
    arm, propensities = decided_arm("here", decision, 3)
    assert arm == 2
    assert (propensities is not None) == isinstance(decision, Chosen)


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (3, "here: expected an arm from 0 to 2, got 3"),
        (-1, "here: expected an arm from 0 to 2, got -1"),
        (1.0, "here: expected an integer from 0 to 2, got 1.0"),
        (None, "here: expected an integer from 0 to 2, got None"),
        (True, "here: expected an integer from 0 to 2, got True"),
        (Chosen(0, [0.5, 0.5]), "here: expected 3 propensities, one per arm, got shape (2,)"),
        (Chosen(0, [0.5, 0.6, 0]), "here: expected propensities that sum to 1, above 0 for arm 0, got [0.5, 0.6, 0.0]"),
        (Chosen(0, [0, 0.5, 0.5]), "here: expected propensities that sum to 1, above 0 for arm 0, got [0.0, 0.5, 0.5]"),
        (Chosen(0, "much"), "here: expected 3 propensities, got 'much'"),
    ],
)
def test_other_decisions_are_refused(decision, line):
    with pytest.raises(hs.HalfseenError) as refused:
        decided_arm("here", decision, 3)
    assert str(refused.value) == line


def test_the_hash_of_source_code_depends_on_the_code_and_its_arguments():
    half, all_ = (functools.partial(EpsilonGreedy, epsilon=epsilon) for epsilon in (0.5, 1.0))
    assert source_hash_of(half) == source_hash_of(functools.partial(EpsilonGreedy, epsilon=0.5))
    assert len({source_hash_of(one) for one in (EpsilonGreedy, PlainEntry, half, all_)}) == 4


class Needy:
    def __init__(self, d, k): ...

    def decide(self, observation):
        return 0

    def learn(self, round, reward): ...


def test_the_arguments_that_halfseen_passes_are_named():
    line = "'Needy' requires the option 'd'. The arguments that halfseen passes are observed, arms, seed and rounds."
    with pytest.raises(hs.HalfseenError, match=line):
        hs.run(Needy, world="keyhole", rounds=10, seeds=1)


@pytest.mark.parametrize(("fails", "where"), [("__init__", "when it was made"), ("decide", "round 1")])
def test_an_error_of_an_agent_has_a_note_of_where_it_happened(fails, where):
    class Failing(EpsilonGreedy):
        pass

    def fail(*_, **__):
        raise ZeroDivisionError("no luck")

    setattr(Failing, fails, fail)
    with pytest.raises(ZeroDivisionError) as failed:
        hs.run(hs.AgentSpec(Failing, label="mine"), world="keyhole", rounds=10, seeds=[5])
    assert failed.value.__notes__ == [f"'mine' in 'keyhole', {where}, seed 5"]
