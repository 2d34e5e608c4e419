"""Agents of one's own in the catalogue: names, triples, and where they can be used."""

import numpy as np
import pytest
from own_agents import EpsilonGreedy, Ewma

import halfseen as hs
from halfseen.choosers.thompson import Thompson
from halfseen.choosers.ucb import Ucb
from halfseen.estimators.lagged import Lagged
from halfseen.learners.ridge import Ridge


def test_a_registered_class_is_made_run_and_listed():
    hs.register("epsilon-greedy", EpsilonGreedy, source="a book", defaults={"epsilon": 0.5})
    agent = hs.make("epsilon-greedy", observed=2, arms=3, seed=4)
    assert isinstance(agent, EpsilonGreedy)
    assert agent.epsilon == 0.5
    result = hs.run(["epsilon-greedy:epsilon=0", "random"], world="keyhole", rounds=20, seeds=1)
    assert result.agents == ("epsilon-greedy:epsilon=0", "random")
    row = next(row for row in hs.catalog().table().rows if row["agent"] == "epsilon-greedy")
    assert row["description"].startswith("The arm with the highest mean reward so far")


def test_a_registered_triple_can_do_what_catalogued_agents_can(tmp_path):
    hs.register("ewma-ts", (Ewma, Ridge, Thompson), defaults={"rate": 0.25})
    agent = hs.make("ewma-ts", observed=2, arms=["low", "high"], floor=0.1)
    for observation in ([4.0, None], [8.0, 1.0]):
        decision = agent.decide(observation)
        agent.learn(decision, 1.0)
    np.testing.assert_allclose(decision.context, [0.75 * 1.0 + 2.0, 0.25])
    agent.save(tmp_path / "agent.hs")
    assert hs.load(tmp_path / "agent.hs").rounds == 2
    fleet = hs.Fleet("ewma-ts", observed=2, arms=2)
    fleet.add(2)
    assert len(fleet.decide([[1.0, 2.0], [3.0, 4.0]])) == 2
    log = {"observation": [0.1, 0.7], "arm": [0, 1], "propensity": [0.5, 0.5], "reward": [1.0, 0.0]}
    assert list(hs.evaluate(log, "ewma-ts").policies) == ["logged", "ewma-ts"]


def test_a_triple_runs_beside_other_agents_and_is_an_agent_of_the_catalogue_if_its_components_are():
    result = hs.run([(Ewma, Ridge, Thompson), (Lagged, Ridge, Thompson), "lag-ts"], world="keyhole", rounds=60, seeds=2)
    assert result.agents == ("ewma-ridge-thompson", "lagged-ridge-thompson", "lag-ts")
    own, ours = (result.tracks["keyhole", agent] for agent in ("lagged-ridge-thompson", "lag-ts"))
    np.testing.assert_array_equal(own.arm, ours.arm)


def test_a_triple_alone_is_one_agent():
    result = hs.run((Lagged, Ridge, Ucb), world="keyhole", rounds=10, seeds=1)
    assert result.agents == ("lagged-ridge-ucb",)


@pytest.mark.parametrize(
    ("name", "agent", "line"),
    [
        ("ts-pco", EpsilonGreedy, "name: expected a name that no agent of halfseen has, got 'ts-pco'"),
        ("my agent", EpsilonGreedy, "name: expected letters, digits, '.', '_' and '-', beginning with a letter, got"),
        (7, EpsilonGreedy, "name: expected letters"),
        ("mine", "ts-pco", "agent: expected a class, a function that makes agents, or a triple of components, got"),
        ("mine", (Ewma, Thompson, Ridge), "agent: expected a class derived from Learner, got <class"),
        ("mine", (Ewma, Ridge), "agent: expected an estimator, a learner and a chooser, got 2 components"),
        ("mine", int, "'mine': expected the methods decide(observation) and learn(round, reward), got int without"),
    ],
)
def test_invalid_registrations_change_nothing(name, agent, line):
    before = list(hs.catalog())
    with pytest.raises(hs.HalfseenError) as refused:
        hs.register(name, agent)
    assert str(refused.value).startswith(line)
    assert list(hs.catalog()) == before


def test_unknown_defaults_are_refused():
    with pytest.raises(hs.HalfseenError, match="'mine' has no option 'rat'"):
        hs.register("mine", (Ewma, Ridge, Thompson), defaults={"rat": 1})
    assert "mine" not in hs.catalog()


def test_plain_agents_are_refused_where_components_are_needed():
    hs.register("epsilon-greedy", EpsilonGreedy)
    log = {"observation": [0.1, 0.7], "arm": [0, 1], "propensity": [0.5, 0.5], "reward": [1.0, 0.0]}
    with pytest.raises(hs.HalfseenError, match="got 'epsilon-greedy', a class of its own"):
        hs.Fleet("epsilon-greedy", observed=2, arms=3)
    with pytest.raises(hs.HalfseenError, match=r"a class of one's own decides itself .*, got 'epsilon-greedy'"):
        hs.evaluate(log, "epsilon-greedy")
    with pytest.raises(hs.HalfseenError, match="arms: expected a count, because 'epsilon-greedy' numbers its arms"):
        hs.make("epsilon-greedy", observed=2, arms=["low", "high"])
