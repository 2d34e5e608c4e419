"""The command `halfseen health` with tables, named worlds and invalid arguments."""

import json

import numpy as np
import pytest

import halfseen as hs
from halfseen.cli.app import run_app
from halfseen.diagnostics.health import Verdict
from halfseen.experiments.examine import examine_world


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Write a table with two rotating coordinates, a column of noise, and the rewards of two arms.

    One coordinate is observed. The rewards depend on the other, hidden coordinate.
    """
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
    output = capsys.readouterr().out
    assert "use of the hidden" in output
    assert "noise could be removed" in " ".join(output.split())
    summary = json.loads((tmp_path / "out/health.json").read_text())
    assert summary["hidden_pays"] == "much"
    assert {"seen", "filtered context", "whole record"} <= summary["shares"].keys()
    assert {"worth of a", "worth of noise", "worth of seeing b"} <= {one["name"] for one in summary["findings"]}
    assert "turn" in (tmp_path / "out/health.html").read_text()


def test_a_named_world_is_examined(capsys):
    assert run_app(["health", "keyhole", "--rounds", "400", "--seed", "3"]) == 0
    assert "the true context" in " ".join(capsys.readouterr().out.split())


def test_rewards_that_arrive_in_batches():
    world = hs.worlds.recorded(
        {name: np.random.default_rng(i).normal(size=600) for i, name in enumerate(("a", "b", "r", "s"))},
        observed=["a", "b"],
        rewards=["r", "s"],
        reward_every=7,
    )
    agent, examination = examine_world(world)
    assert agent.rounds == world.length
    assert agent.health().facts["rewards"] == world.length // 7 * 7
    assert examination.hidden_pays == "little"
    assert examination.finding("rewards explained").verdict is Verdict.LOOK
    assert examination.measured.arms.rewards.sum() == world.length // 7 * 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "There is no world 'nowhere'"),
        (
            ["orbit", "--observed", "a"],
            "observed: expected no value unless the world is a table such as data.csv, got 'orbit'",
        ),
        (
            ["data.csv", "--rewards", "r,s"],
            "observed: expected columns of 'data.csv', separated by commas, got none",
        ),
        (["orbit", "--rounds", "10"], "rounds: expected at least 50 to examine a model, got 10 in 'orbit'"),
    ],
)
def test_invalid_arguments_are_one_line(words, message, capsys):
    assert run_app(["health", *words]) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert err[-1].startswith(f"error: {message}")


ROLES = ["--observed", "a", "--rewards", "r,s"]


@pytest.mark.parametrize("command", ["run", "health"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "data.csv",
            "a,r,größe\n1,2,3\n".encode("latin-1"),
            "table: expected a file in UTF-8, got 'data.csv' in another encoding",
        ),
        (
            "data.csv",
            b"a;r;s\n1,5;2;3\n",
            "table: expected columns separated by commas, got 'data.csv', which seems to be",
        ),
        (
            "data.txt",
            b"a,r,s\n1,2,3\n",
            "table: expected a file whose name ends in .csv, .csv.gz, .parquet or .pq, got 'data.txt'",
        ),
    ],
)
def test_files_that_cannot_be_read_are_one_line(command, name, content, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert run_app([command, name, *ROLES]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"error: {message}")


def test_a_short_table_is_refused_before_it_is_played(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.csv").write_text("a,r,s\n" + "".join(f"{i % 7},{i % 3},{i % 5}\n" for i in range(60)))
    monkeypatch.setattr("halfseen.experiments.examine.make", None)  # fails if an agent is created
    assert run_app(["health", "short.csv", *ROLES]) == 2
    assert "rounds: expected at least 50 to examine a model, got 48 in 'short'" in capsys.readouterr().err


def test_constant_columns_are_noted_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i % 7},4,{max(i, 30)},{i % 3},{i % 5}\n" for i in range(80))
    (tmp_path / "still.csv").write_text("a,sensor,late,r,s\n" + rows)
    words = ["run", "still.csv", "--observed", "a,sensor,late", "--rewards", "r,s", "--agents", "ts-pco,random"]
    assert run_app([*words, "--seeds", "2", "--jobs", "1"]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: column 'sensor' is constant in the rows used for scaling and carries no information",
        "note: column 'late' is constant in the rows used for scaling and is not scaled, as it varies later",
    ]


def test_a_named_world_takes_precedence_over_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orbit").write_text("not a table")
    assert run_app(["run", "orbit", "--agents", "random", "--rounds", "5", "--seeds", "1", "--jobs", "1"]) == 0
