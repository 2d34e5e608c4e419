"""Agents of one's own in experiments: the same rounds as other agents, late rewards, processes, and resumed runs."""

import pickle
import sys
from typing import ClassVar

import numpy as np
import pytest
from experiments.synthetic import assert_same_result
from own_agents import EpsilonGreedy, tide, ts_pco

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.choosers.thompson import Thompson
from halfseen.cli.app import run_app
from halfseen.estimators.observed import Observed
from halfseen.experiments.plan import experiment
from halfseen.experiments.play import play
from halfseen.experiments.report import agent_settings
from halfseen.learners.ridge import Ridge

ROUNDS = 230  # more than one chunk


def test_a_plain_agent_plays_the_rounds_that_other_agents_play():
    result = hs.run([ts_pco, "ts-pco"], world="keyhole", rounds=ROUNDS, seeds=3)
    own, ours = (result.tracks["keyhole", agent] for agent in result.agents)
    for field in ("arm", "reward", "regret", "context_norm"):
        np.testing.assert_array_equal(getattr(own, field), getattr(ours, field))
    assert own.propensity.shape == (3, ROUNDS)
    assert ((own.propensity > 0) & (own.propensity <= 1)).all()
    assert ours.propensity is None
    assert np.isnan(own.error).all()


def test_late_rewards_are_learnt_in_order():
    class Recorder(EpsilonGreedy):
        calls: ClassVar = []

        def decide(self, observation):
            self.calls.append("decide")
            return super().decide(observation)

        def learn(self, round, reward):
            self.calls.append(round)

    rows = np.arange(100.0)
    world = hs.worlds.recorded(
        {"y": rows % 7, "a": rows, "b": -rows}, observed=["y"], rewards=["a", "b"], reward_every=4
    )
    hs.run(Recorder, world=world, rounds=8, seeds=1)
    assert Recorder.calls == ["decide"] * 4 + [1, 2, 3, 4] + ["decide"] * 4 + [5, 6, 7, 8]


def test_a_slice_that_was_sent_to_another_process_is_the_same():
    hs.register("registered", EpsilonGreedy)
    agents = ["registered", EpsilonGreedy, hs.AgentSpec((Observed, Ridge, Thompson), {"width": 0.5})]
    plan = experiment(agents, hs.worlds.generated(tide), 30, 2)
    task = pickle.dumps(plan.slice_of(plan.worlds[0]))
    del CATALOG._entries["registered"]  # the other process has not registered it
    ours, theirs = (play(one, lambda _: None) for one in (plan.slice_of(plan.worlds[0]), pickle.loads(task)))
    for label, track in ours.items():
        np.testing.assert_array_equal(track.arm, theirs[label].arm)


def test_an_agent_that_other_processes_cannot_find_is_refused():
    line = "jobs: expected 1, or 'lambda' at the top level of a module, where other processes find it, got more"
    with pytest.raises(hs.HalfseenError, match=line):
        hs.run(lambda arms: EpsilonGreedy(arms, 0), world="keyhole", rounds=10, seeds=2, jobs=2)


def test_a_resumed_run_uses_slices_of_the_same_code_only(tmp_path, monkeypatch):
    def run():
        return hs.run([ts_pco], world="keyhole", rounds=20, seeds=2, out=tmp_path, resume=True)

    first = run()
    assert_same_result(first, run())
    monkeypatch.setattr("halfseen.agents.catalogue.source_hash_of", lambda thing: "other code")
    with pytest.raises(hs.HalfseenError, match="resume: expected the folder of an interrupted run of this experiment"):
        run()


def test_an_exception_says_where_it_occurred():
    class Broken(EpsilonGreedy):
        def learn(self, round, reward):
            if round == 7:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        hs.run(Broken, world="keyhole", rounds=10, seeds=[4])
    assert raised.value.__notes__ == ["'Broken' in 'keyhole', round 7, seed 4"]


def test_an_arm_that_does_not_exist_is_refused():
    class TooMany(EpsilonGreedy):
        def decide(self, observation):
            return len(self.count)

    with pytest.raises(hs.HalfseenError, match="'TooMany', round 1: expected an arm from 0 to 5, got 6"):
        hs.run(TooMany, world="keyhole", rounds=10, seeds=1)


def test_reports_and_leaderboards_describe_own_agents(tmp_path):
    hs.register("epsilon-greedy", EpsilonGreedy)
    board = hs.leaderboard(["epsilon-greedy:epsilon=0.2"], worlds="keyhole", rounds=20, seeds=2, out=tmp_path)
    assert board.summary["command"] is None
    assert board.summary["agents"]["epsilon-greedy:epsilon=0.2"]["told"] == []
    assert agent_settings(board.plan).rows[1]["options"] == "epsilon = 0.2"


def test_the_command_line_imports_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "agents_of_mine.py").write_text(
        "import halfseen as hs\nfrom own_agents import EpsilonGreedy, tide\n"
        "hs.register('mine', EpsilonGreedy)\nhs.worlds.register('tide', tide)\n"
    )
    file = str(tmp_path / "agents_of_mine.py")
    run = ["run", "tide", "--agents", "mine:epsilon=0.3,random", "--rounds", "20", "--seeds", "2", "--jobs", "1"]
    assert run_app([*run, "--import", file]) == 0
    assert "mine:epsilon=0.3" in capsys.readouterr().out
    assert run_app(["agents", "--import", file]) == 0
    assert run_app([*run, "--import", "no_such_module"]) == 2
    assert "import: expected a module or a file that can be imported, got 'no_such_module'" in capsys.readouterr().err
    assert run_app([*run, "--import", "missing.py"]) == 2
    assert "error: import: expected an existing file, got 'missing.py'" in capsys.readouterr().err
