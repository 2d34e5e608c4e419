"""The command `halfseen study`, and the commands that send the user there."""

from __future__ import annotations

import sys

import pytest
from experiments.test_study import small

from halfseen.cli.app import run_app


@pytest.fixture
def csv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = small()
    rows = zip(*columns.values(), strict=True)
    (tmp_path / "log.csv").write_text("\n".join(",".join(map(str, row)) for row in [columns, *rows]))
    return tmp_path


@pytest.mark.parametrize("width", [80, 120])
def test_one_command(csv, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("halfseen.experiments.study.Study._page", lambda *_: "<p>tested elsewhere, because it is slow")
    assert run_app(["study", "log.csv", "--policy", "uniform,always:1"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    wrapped = " ".join(" ".join(lines).split())
    assert wrapped.startswith(
        "The log log.csv has 60 decisions, 2 arms and 1 observed feature, in order of the column time. Does what is "
        "hidden matter? "
    )
    assert "Facts: - worth of sensors: y " in wrapped
    assert "- the step of 'time' is 1 " in wrapped
    assert max(map(len, lines)) <= width
    assert "To go on in the service: halfseen import study/study.ndjson" in printed.out
    assert sorted(path.name for path in (csv / "study").iterdir()) == [
        "study.csv", "study.html", "study.json", "study.ndjson",
    ]  # fmt: skip


def test_errors_are_one_line(csv, capsys):
    assert run_app(["study", "log.csv", "--reward", "clicks"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert line.startswith("error: 'log.csv' has no column 'clicks'") or "has no column 'clicks'" in line
    assert run_app(["study", "nothing.csv"]) == 2
    assert "log: expected an existing file, got 'nothing.csv'" in capsys.readouterr().err
    assert not (csv / "study").exists()


@pytest.mark.parametrize("command", ["evaluate", "study"])
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("alwys:1", "There is no agent 'alwys' and no other policy of this name. Did you mean 'always:1'? The pol"),
        ("always", "There is no agent 'always' and no other policy of this name. Did you mean 'always:ARM'? The"),
        ("unifrom", "There is no agent 'unifrom' and no other policy of this name. Did you mean 'uniform'? The pol"),
        ("lag-t:lags=2", "There is no agent 'lag-t' and no other policy of this name. Did you mean 'lag-ts:lags=2'?"),
        ("uniform:1", "policy: expected 'uniform' without options, got 'uniform:1'"),
    ],
)
def test_names_of_policies_that_do_not_exist(csv, command, policy, message, capsys):
    assert run_app([command, "log.csv", "--observed", "y", "--policy", policy]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert message in line


@pytest.mark.parametrize("command", ["evaluate", "study"])
def test_registered_agents_can_be_imported(csv, command, capsys, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("halfseen.experiments.study.Study._page", lambda *_: "<p>tested elsewhere, because it is slow")
    file = f"triples_for_{command}.py"  # a module is imported only once
    (csv / file).write_text(
        "import halfseen as hs\nfrom halfseen.choosers.ucb import Ucb\nfrom halfseen.estimators.lagged import Lagged\n"
        "from halfseen.learners.ridge import Ridge\nhs.register('my-lag-ucb', (Lagged, Ridge, Ucb))\n"
    )
    columns = ["--observed", "y", "--policy", "my-lag-ucb:lags=2", "--import", file]
    assert run_app([command, "log.csv", *columns]) == 0
    assert "my-lag-ucb:lags=2" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["health", "run"])
def test_other_commands_send_logs_here(csv, command, capsys):
    (csv / "journal.ndjson").write_text("")
    for log in ("log.csv", "journal.ndjson"):
        assert run_app([command, log]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.endswith(f"which is a log of decisions. To study a log: halfseen study {log}")


@pytest.mark.parametrize("command", ["health", "run"])
@pytest.mark.parametrize("words", [[], ["--observed", "y", "--rewards", "profit"]])
def test_other_commands_name_this_one_for_a_log_with_other_names(csv, command, words, capsys):
    (csv / "log.csv").write_text((csv / "log.csv").read_text().replace("arm,", "action,").replace("reward", "profit"))
    assert run_app([command, "log.csv", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.endswith("; for a log with one reward per row: halfseen study log.csv")
