"""Exceptions in agents, worlds and modules of the user end a command with a traceback of the user's own code."""

import importlib
import re
import sys

import pytest

from halfseen.agents.catalogue import CATALOG
from halfseen.cli.app import run_app

NAMED_WORLDS = importlib.import_module("halfseen.worlds.named")  # `halfseen.worlds` has a function of this name
MINE = '''
import numpy as np

import halfseen as hs


class TwoNumbers(Exception):
    """An exception that cannot be sent to another process, because it needs two arguments."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Raises:
    def __init__(self, seed, fault):
        self.fault = fault

    def decide(self, observation):
        return 0

    def learn(self, round, reward):
        if round == 41:
            self.fail()

    def fail(self):
        if self.fault == "numpy":
            np.linalg.inv(np.ones((2, 3)))
        if self.fault == "two":
            raise TwoNumbers(1, 2)
        raise ValueError("boom")


def tide(seed, at=30, size=1):
    for t in range(1, 1000):
        if t == at:
            raise ValueError("boom")
        yield [1.0] * size, [1.0, 0.0]


def house(observed=2):
    return hs.worlds.named("keyhole", observed=observed + 0)


hs.register("raises", Raises)
hs.worlds.register("tide", tide)
hs.worlds.register("house", house)
'''


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command that imports a file, and return its exit code and the lines on stderr."""
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CATALOG, "_entries", dict(CATALOG._entries))
    monkeypatch.setattr(NAMED_WORLDS, "_REGISTERED", {})

    def run_command(*arguments, source=MINE):
        (tmp_path / "faulty_code.py").write_text(source)
        code = run_app([*arguments, "--import", "faulty_code.py"])
        lines = capsys.readouterr().err.splitlines()
        return code, [line for line in lines if not line.startswith("playing")]

    yield run_command
    sys.modules.pop("faulty_code", None)


def own_files(lines):
    return {re.search('File "(.+)"', line)[1].rpartition("/")[2] for line in lines if line.startswith("  File")}


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (
            ["keyhole", "--agents", "raises:fault=x"],
            ["ValueError: boom", "'raises:fault=x' in 'keyhole', round 41, seed 5"],
        ),
        (
            ["keyhole", "--agents", "raises:fault=numpy"],
            [
                "numpy.linalg.LinAlgError: Last 2 dimensions of the array must be square",
                "'raises:fault=numpy' in 'keyhole', round 41, seed 5",
            ],
        ),
        (["tide", "--agents", "random"], ["ValueError: boom", "world 'tide', seed 5, round 30"]),
        (["tide:at=1", "--agents", "random"], ["ValueError: boom", "world 'tide', seed 0, round 1"]),
        (
            ["tide:size=a", "--agents", "random"],
            ["TypeError: can't multiply sequence by non-int of type 'str'", "world 'tide', seed 0, round 1"],
        ),
        (
            ["house:observed=a", "--agents", "random"],
            ['TypeError: can only concatenate str (not "int") to str', "world 'house', when it was made"],
        ),
    ],
)
def test_the_traceback_has_the_frames_of_the_users_code_and_says_where_it_happened(run, arguments, last):
    code, lines = run("run", *arguments, "--rounds", "60", "--seeds", "1", "--first-seed", "5", "--jobs", "1")
    assert code == 1
    assert lines[0] == "Traceback (most recent call last):"
    assert own_files(lines) == {"faulty_code.py"}
    assert lines[-2:] == last


@pytest.mark.parametrize(
    ("fault", "exception"), [("x", "ValueError: boom"), ("two", "faulty_code.TwoNumbers: 1 and 2")]
)
def test_an_exception_in_another_process_looks_the_same(run, fault, exception):
    agent = f"raises:fault={fault}"
    code, lines = run("run", "keyhole", "--agents", agent, "--rounds", "60", "--seeds", "2", "--jobs", "2")
    assert code == 1
    assert lines[0] == "Traceback (most recent call last):"
    assert own_files(lines) == {"faulty_code.py"}
    assert exception in lines
    assert re.fullmatch(f"'{agent}' in 'keyhole', round 41, seed [01]", lines[-1])


@pytest.mark.parametrize(
    ("source", "code", "last"),
    [
        ("1 / 0\n", 1, ["ZeroDivisionError: division by zero", "when 'faulty_code.py' was imported"]),
        (
            "def f(:\n",
            2,
            [
                "error: import: expected a module or a file that can be imported, got 'faulty_code.py' (invalid syntax "
                "(faulty_code.py, line 1))"
            ],
        ),
        (
            "import halfseen as hs\nhs.register('a b', int)\n",
            2,
            [
                "error: name: expected letters, digits, '.', '_' and '-', beginning with a letter, got 'a b' (when "
                "'faulty_code.py' was imported)"
            ],
        ),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(run, source, code, last):
    exit_code, lines = run("agents", source=source)
    assert exit_code == code
    assert own_files(lines) <= {"faulty_code.py"}
    assert lines[-len(last) :] == last


def test_an_error_of_halfseen_itself_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(NAMED_WORLDS, "NAMED", None)
    with pytest.raises(TypeError):
        run_app(["worlds"])


def test_unknown_agents_and_worlds_may_need_an_import(run, capsys):
    hint = "Agents and worlds of your own need --import FILE"
    assert run_app(["run", "keyhole", "--agents", "raise"]) == 2
    assert hint in capsys.readouterr().err
    assert run_app(["run", "tides"]) == 2
    assert hint in capsys.readouterr().err
    for arguments in (["run", "keyhole", "--agents", "ts-pco:widht=2"], ["reproduce", "--agents", "raise"]):
        assert run_app(arguments) == 2
        assert hint not in capsys.readouterr().err
    code, (line,) = run("run", "keyhole", "--agents", "raise")
    assert code == 2
    assert hint not in line
