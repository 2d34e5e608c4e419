"""What is shown in a terminal of some width, and where there is none."""

import pytest

from halfseen import terminal
from halfseen.experiments.leaderboard import Progress
from halfseen.table import Table


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 00 s"),
        (754.6, "12 min 35 s"),
        (3600, "1 h 00 min"),
        (9e4, "25 h 00 min"),
    ],
)
def test_durations(seconds, said):
    assert terminal.duration(seconds) == said


def test_progress_of_cells_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "_SAY_EVERY", -1.0)
    with terminal.cell_progress("2 agents") as told:
        told(Progress(3, 9, 3, 0, 4, None))
        told(Progress(4, 9, 3, 0, 4, 75.0))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert lines[:3] == [
        "playing 2 agents",
        "resuming: 3 of 9 cells done",
        "4 cells in the folder are of other settings or other code; --fresh discards them",
    ]
    assert "4 of 9 cells done, 1 min 15 s left" in lines
    assert lines[-1].startswith("done in ")
    assert out == ""


@pytest.mark.parametrize("columns", [30, 44, 80])
def test_a_table_of_numbers_keeps_its_names_and_numbers(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    row = {"agent": "kf-ts", "foggy-keyhole": "1.00", "paper ε=0.01": "12.3", "wall s": "4.0"}
    terminal.print_table(Table([row]), "a title", least_worth=("wall s",), numeric=True)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert all(cell in out for cell in ("kf-ts", "1.00", "12.3"))
    assert ("foggy-keyhole" in out) == (columns == 80)
    assert ("4.0" in out) == (columns > 30)


def test_a_table_too_wide_is_continued_below(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = {"agent": "foggy-agent"} | {f"world-{i}": f"{i}.25" for i in range(12)}
    terminal.print_table(Table([row]), "a title", numeric=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    named = [line for line in lines if "foggy-agent" in line]
    assert 1 < len(named) < 12
    assert " ".join(" ".join(named).replace("foggy-agent", "").split()) == " ".join(f"{i}.25" for i in range(12))
    assert sum("a title, continued" in line for line in lines) == len(named) - 1
