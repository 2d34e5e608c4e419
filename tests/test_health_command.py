"""`halfseen health`: a table of one's own, a named world, bad input."""

import json

import numpy as np
import pytest

import halfseen as hs
from halfseen.cli import run_app
from halfseen.experiments.health_run import examine_world
from halfseen.health import Verdict


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """One sensor of a slow turn of two coordinates, a column of noise, and two arms that pay for the hidden one."""
    rng, n = np.random.default_rng(4), 1500
    x, rows, turn = np.zeros(2), [], 0.25
    D = 0.98 * np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    for _ in range(n):
        x = D @ x + 0.2 * rng.normal(size=2)
        rows.append([*x, rng.normal(), x[1] + 0.3 * rng.normal(), -x[1] + 0.3 * rng.normal()])
    path = tmp_path_factory.mktemp("health") / "turn.csv"
    np.savetxt(path, np.array(rows), delimiter=",", header="a,b,noise,left,right", comments="")
    return path


def test_a_table_is_examined(table, tmp_path, capsys):
    words = ["health", str(table), "--observed", "a,noise", "--hidden", "b", "--rewards", "left,right"]
    assert run_app([*words, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "use of the hidden" in shown
    assert "noise would not be missed" in " ".join(shown.split())
    summary = json.loads((tmp_path / "out/health.json").read_text())
    assert summary["hidden_pays"] == "much"
    assert {"seen", "filtered context", "whole record"} <= summary["shares"].keys()
    assert {"worth of a", "worth of noise", "worth of seeing b"} <= {one["name"] for one in summary["findings"]}
    assert "turn" in (tmp_path / "out/health.html").read_text()


def test_a_named_world_is_examined(capsys):
    assert run_app(["health", "keyhole", "--rounds", "400", "--seed", "3"]) == 0
    assert "the true context" in " ".join(capsys.readouterr().out.split())


def test_rewards_that_come_in_batches():
    world = hs.worlds.recorded(
        {name: np.random.default_rng(i).normal(size=600) for i, name in enumerate(("a", "b", "r", "s"))},
        observed=["a", "b"],
        rewards=["r", "s"],
        reward_every=7,
    )
    agent, found = examine_world(world)
    assert agent.rounds == world.length
    assert agent.health().facts["rewards"] == world.length // 7 * 7
    assert found.hidden_pays == "little"
    assert found.finding("rewards explained").verdict is Verdict.LOOK
    assert found.measured.arms.rewards.sum() == world.length // 7 * 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "world: got 'nowhere'"),
        (["orbit", "--observed", "a"], "observed: got a value, with 'orbit'"),
        (["data.csv", "--rewards", "r,s"], "observed: got nothing, with 'data.csv'"),
        (["orbit", "--rounds", "10"], "agent: got 'adaptive' after 10 rounds, which has no kept history with a model"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert run_app(["health", *words]) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert err[-1].startswith(f"error: {message}")
