"""Output in terminals of different widths, and without a terminal."""

from types import SimpleNamespace

import pytest

from halfseen.cli import terminal
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.evaluation.estimators import SHOWN
from halfseen.experiments.leaderboard import Progress
from halfseen.reports.tables import Table, policy_table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 00 s"),
        (754.6, "12 min 35 s"),
        (3600, "1 h 00 min"),
        (9e4, "25 h 00 min"),
    ],
)
def test_durations(seconds, text):
    assert terminal.duration(seconds) == text


def test_progress_of_slices_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "_LINE_SECONDS", -1.0)
    with terminal.slice_progress("2 agents") as update:
        update(Progress(3, 9, 3, 0, 4, None))
        update(Progress(4, 9, 3, 0, 4, 75.0))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert lines[:3] == [
        "playing 2 agents",
        "resuming: 3 of 9 slices done",
        "slices in the folder from other settings or other code: 4 (--fresh discards them)",
    ]
    assert "4 of 9 slices done, 1 min 15 s left" in lines
    assert lines[-1].startswith("done in ")
    assert out == ""


@pytest.mark.parametrize("columns", [30, 44, 80])
def test_a_narrow_table_keeps_names_and_numbers(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    row = {"agent": "kf-ts", "foggy-keyhole": "1.00", "paper ε=0.01": "12.3", "wall s": "4.0"}
    terminal.print_table(Table([row]), "a title", optional=("wall s",), numeric=True)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert all(cell in out for cell in ("kf-ts", "1.00", "12.3"))
    assert ("foggy-keyhole" in out) == (columns == 80)
    assert ("4.0" in out) == (columns > 30)


def test_a_table_that_is_too_wide_is_continued_below(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = {"agent": "foggy-agent"} | {f"world-{i}": f"{i}.25" for i in range(12)}
    terminal.print_table(Table([row]), "a title", numeric=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    named = [line for line in lines if "foggy-agent" in line]
    assert 1 < len(named) < 12
    assert " ".join(" ".join(named).replace("foggy-agent", "").split()) == " ".join(f"{i}.25" for i in range(12))
    assert sum("a title, continued" in line for line in lines) == len(named) - 1


def policy(value, half):
    estimates = {name: {"value": value, "low": value - half, "high": value + half} for name in ("dr", "snips", "ips")}
    notes = ["6.2 % of its choices had a propensity of 0 in the log, so their rewards are not known"]
    sizes = {"effective_sample_size": 1447.0, "largest_weight": 1.0, "uncovered": 0.062}
    return estimates | sizes | {"more than logged": estimates, "notes": notes}


@pytest.mark.parametrize("columns", [60, 80, 120, 160])
def test_an_evaluation_fits_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = {"logged": (82.0, 3.8), "uniform": (6.5, 0.84), "adaptive:history=200": (80.5, 3.7)}
    policies = {label: policy(*ends) for label, ends in rows.items()}
    warnings = [f"{label}: {note}" for label, one in policies.items() for note in one["notes"]]
    evaluation = SimpleNamespace(table=lambda: policy_table(policies, SHOWN), lifts=(), warnings=warnings)
    terminal.print_evaluation(evaluation)
    out = capsys.readouterr().out
    assert all(name in out for name in ("dr", "snips", "ips", "dr − logged", "uncovered"))
    assert ("continued" in out) == (columns < 120)
    check_width([line for line in out.splitlines() if line[:2] in ("! ", "  ")], columns, warnings)
    assert max(map(len, out.splitlines())) <= columns


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_findings_fit_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    sentence = "the observation explains as much as the filtered context, so that " * 3 + "there is no gain"
    findings = (Finding("use of filtering", 0.0, "0 %", "–", Verdict.LOOK, sentence),)
    table = Table([{"finding": "use of filtering", "value": "0 %", "expected": "–", "verdict": "look"}])
    answer = "Yes: filtering raises the explained share of rewards from 37 % to 78 %. " * 2 + "So it helps."
    terminal.print_findings(SimpleNamespace(answer=answer, findings=findings, title="Health", table=lambda: table))
    answer_lines, *_, sentence_lines, term_lines = (part.splitlines() for part in capsys.readouterr().out.split("\n\n"))
    check_width(answer_lines, columns, [answer])
    first = next(number for number, line in enumerate(sentence_lines) if line.startswith("? "))
    check_width(sentence_lines[first:], columns, [sentence])
    assert term_lines[0] == "Terms:"
    assert [line.split(":")[0].strip() for line in term_lines[1:] if ":" in line] == [
        "filtered context",
        "explained share",
    ]


def check_width(lines, columns, sentences):
    """Check that the sentences are complete, that no line is too long, and that lines use the whole width."""
    assert " ".join(" ".join(lines).replace("! ", "").replace("? ", "").split()) == " ".join(sentences)
    assert columns - 12 < max(map(len, lines)) <= columns
