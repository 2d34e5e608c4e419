"""Tests whose programs are not installed are left out. If CI is set, they fail."""

import pytest
from programs import CHROMIUM, PROGRAMS, Program, main

CONFTEST = """
    import programs
    from browser import browser
    from postgres_server import database, postgres, server
    from programs import pytest_collection_modifyitems, pytest_terminal_summary, pytest_testnodedown

    programs.Program.find = lambda program: None
"""
TESTS = """
    import pytest

    def test_on_each_database(database): pass
    def test_that_stops_a_server(server): pass
    @pytest.mark.parametrize("database", ["sqlite"], indirect=True)
    def test_on_sqlite(database): pass
"""
BROWSER_TEST = """
    def test_in_a_browser(browser): pass
"""
POSTGRES_LINE = "PostgreSQL is not installed: 2 tests {}. On Debian, install it with: apt-get install postgresql"
CHROMIUM_LINE = "Chromium is not installed: 1 test {}. On Debian, install it with: apt-get install chromium"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with tests that need the programs, in an environment that has none of them."""
    monkeypatch.setattr(Program, "find", Program.find)  # is restored after CONFTEST has changed it
    monkeypatch.setattr("programs._affected_tests", {})
    monkeypatch.delenv("CI", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_databases=TESTS)
    return pytester


@pytest.mark.parametrize("processes", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_tests_that_need_a_missing_program_are_left_out(project, processes) -> None:
    project.makepyfile(test_browser=BROWSER_TEST)
    result = project.runpytest("-n", processes)
    assert result.ret == 0
    result.assert_outcomes(passed=2, deselected=3 if processes == "0" else 0)
    result.stdout.fnmatch_lines([POSTGRES_LINE.format("left out"), CHROMIUM_LINE.format("left out")])


@pytest.mark.parametrize("processes", ["0", "1"])
def test_tests_that_need_a_missing_program_fail_in_ci(project, processes, monkeypatch) -> None:
    monkeypatch.setenv("CI", "1")
    result = project.runpytest("-n", processes)
    assert result.ret == 1
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(
        ["PostgreSQL is not installed. On Debian, install it with: *", POSTGRES_LINE.format("failed")]
    )
    result.stdout.no_fnmatch_line("Chromium is not installed*")  # no test needs it


def test_the_command_names_the_missing_programs(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Program, "find", lambda program: None if program is CHROMIUM else "/bin/true")
    assert main() == 1
    assert (
        capsys.readouterr().out == "Chromium is not installed. On Debian, install it with: apt-get install chromium\n"
    )
    monkeypatch.setattr(Program, "find", lambda program: "/bin/true")
    assert main() == 0
    assert capsys.readouterr().out == ""


def test_programs_are_found_on_path(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in PROGRAMS:
        executable = tmp_path / program.executables[-1]
        executable.write_text("#!/bin/sh\n")
        executable.chmod(0o755)
        assert program.find() == str(executable)
