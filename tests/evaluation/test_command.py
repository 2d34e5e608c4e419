"""The command `halfseen evaluate`: its table, notes, files and error messages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.evaluation import World, rule
from evaluation.logs import agent_events, created, write

import halfseen as hs
from halfseen.cli.app import run_app
from halfseen.evaluation.evaluate import FILES


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    return write(tmp_path_factory.mktemp("journal") / "shop.ndjson", agent_events(200, delay=2, missing=0.1))


def test_a_journal_is_evaluated(journal, tmp_path, capsys):
    arguments = ["evaluate", str(journal), "--policy", "uniform,always:red", "--policy", "lag-ts:lags=2,width=0.5"]
    assert run_app([*arguments, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    text = " ".join(printed.out.split())
    assert printed.err.splitlines()[0] == f"evaluating the log {journal}"
    assert all(name in printed.out for name in FILES)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    summary = json.loads((tmp_path / "out/evaluation.json").read_text())
    assert list(summary["policies"]) == ["logged", "uniform", "always:red", "lag-ts:lags=2,width=0.5"]
    assert summary["decisions"] == 200
    assert f"{summary['without_reward']} decisions of 200 have no reward and are left out" in text
    assert summary["arms"] == ["red", "green", "blue"]
    one = summary["policies"]["uniform"]
    assert one["ips"]["low"] < one["ips"]["value"] < one["ips"]["high"]
    assert one["more than logged"]["dr"]["value"] == pytest.approx(
        one["dr"]["value"] - summary["policies"]["logged"]["dr"]["value"]
    )
    page = (tmp_path / "out/evaluation.html").read_text()
    assert "always:red" in page
    assert "had propensity 0 in the log" in page
    assert "<script" not in page
    assert (tmp_path / "out/evaluation.png").read_bytes()[:4] == b"\x89PNG"


def test_the_command_and_the_function_give_the_same_results(journal, tmp_path):
    arguments = ["--intervals", "bootstrap", "--seed", "5", "--missing", "0.5", "--out", str(tmp_path)]
    assert run_app(["evaluate", str(journal), *arguments]) == 0
    found = hs.evaluate(journal, intervals="bootstrap", seed=5, missing=0.5)
    assert list(found.policies) == ["logged", "uniform", "always:red", "always:green", "always:blue"]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == json.loads(json.dumps(found.summary()))
    assert "note: uniform: " in str(found)


def test_a_table_is_evaluated(tmp_path, capsys):
    table = World().log(120, seed=1)
    names = np.array(["low", "middle", "high"])[table["arm"]]
    rows = zip(table["observation_0"], table["observation_1"], names, table["propensity"], table["reward"], strict=True)
    lines = [",".join(map(str, row)) for row in rows]
    (tmp_path / "log.csv").write_text("warm,wet,arm,propensity,reward\n" + "\n".join(lines) + "\n")
    arguments = ["evaluate", str(tmp_path / "log.csv"), "--observed", "warm,wet", "--arms", "low,middle,high"]
    assert run_app([*arguments, "--policy", "always:middle"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "always:middle" in text
    assert "the log has no propensities of the arms that were not played" in text


def test_progress_counts_the_rounds_of_agents_and_functions(journal):
    reports = []
    hs.evaluate(journal, ["random", "uniform", one_third], progress=lambda done, total: reports.append((done, total)))
    assert reports == [(done, 400) for done in range(50, 401, 50)]


def one_third(observation: np.ndarray) -> list[float]:
    return [1 / 3] * 3


def test_the_figure_is_saved_as_svg_or_png(tmp_path):
    found = hs.evaluate(World().log(60, seed=1), [rule, "always:1", "always:2"])
    found.plot(tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()
    with pytest.raises(hs.HalfseenError, match=r"expected a name ending in .png or .svg"):
        found.plot(tmp_path / "figure.txt")


def test_an_agent_spec_is_a_policy(journal):
    found = hs.evaluate(journal, hs.AgentSpec("ts-pco", {"width": 0.4}, label="narrow"))
    assert list(found.policies) == ["logged", "narrow"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.ndjson"], "log: expected an existing file, got 'nowhere.ndjson'"),
        (["shop.ndjson", "--policy", "nobody"], "There is no agent 'nobody'"),
        (["shop.ndjson", "--policy", "always:pink"], "There is no arm 'pink'. The arms are: blue, green, red"),
        (["shop.ndjson", "--policy", "kf-ts"], "'kf-ts' requires the option 'model'."),
        (
            ["shop.ndjson", "--policy", "oracle-ts"],
            "policy: expected an agent that does not need the true context, got 'oracle-ts'",
        ),
        (["shop.ndjson", "--stream", "bakery"], "There is no stream 'bakery'. The streams are: shop"),
        (["shop.ndjson", "--intervals", "narrow"], "intervals: expected 'hac' or 'bootstrap', got 'narrow'"),
        (["shop.ndjson", "--out", "shop.ndjson"], "out: expected a writable folder"),
        (["cut.ndjson"], 'cut.ndjson, line 2: expected an event as JSON, got \'{"stream": "sh\' (Unterminated string'),
        (["empty.ndjson"], "empty.ndjson: expected a journal with one event per line, got an empty file"),
    ],
)
def test_error_messages(arguments, message, journal, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.ndjson").write_bytes(journal.read_bytes())
    (tmp_path / "empty.ndjson").write_bytes(b"")
    (tmp_path / "cut.ndjson").write_text(json.dumps(created()) + '\n{"stream": "sh')
    assert run_app(["evaluate", *arguments]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith(f"error: {message}")


def test_estimators_and_propensities_can_be_chosen(journal, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    chosen = ["--estimators", "dm,switch_dr", "--propensities", "estimated"]
    assert run_app(["evaluate", str(journal), "--policy", "uniform", *chosen, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "dm − logged" in text
    assert "dr − logged" not in text
    assert "propensities were estimated by a logistic regression" in " ".join(text.split())
    assert json.loads((tmp_path / "evaluation.json").read_text())["propensities"] == "estimated"
    assert run_app(["evaluate", str(journal), "--estimators", "drr"]) == 2
    assert "There is no estimator 'drr'. Did you mean 'dr'?" in " ".join(capsys.readouterr().err.split())
