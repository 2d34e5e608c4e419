"""The programs that some tests start and that pip does not install: a PostgreSQL server and Chromium.

If a program is not installed, the tests that need it are left out and the end of pytest's output says so.
If the environment variable CI is set, these tests are not left out. They fail.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Program:
    name: str
    package: str
    """The Debian package."""
    executables: tuple[str, ...]
    """Its names on different systems, in order of preference."""
    fixtures: frozenset[str]
    """A test that uses one of these fixtures needs the program."""

    def find(self) -> str | None:
        # Debian keeps the executables of each PostgreSQL version in a folder that is not on PATH.
        folders = Path("/usr/lib/postgresql").glob("*/bin")
        newest_first = sorted(folders, key=lambda folder: float(folder.parent.name), reverse=True)
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, newest_first)])
        return next(filter(None, (shutil.which(name, path=path) for name in self.executables)), None)

    def require(self) -> str:
        """Return the path of the executable. Fail the test if the program is not installed."""
        return self.find() or pytest.fail(self.missing_line(), pytrace=False)

    def missing_line(self, consequence: str = "") -> str:
        return f"{self.name} is not installed{consequence}. On Debian, install it with: apt-get install {self.package}"

    def is_needed_by(self, item: pytest.Item) -> bool:
        used = set(getattr(item, "fixturenames", ()))
        if "callspec" in vars(item) and item.callspec.params.get("database") == "postgres":
            used.add("postgres")
        return not used.isdisjoint(self.fixtures)


POSTGRES = Program("PostgreSQL", "postgresql", ("pg_ctl",), frozenset({"postgres", "server"}))
CHROMIUM = Program("Chromium", "chromium", ("chromium", "chromium-browser", "google-chrome"), frozenset({"browser"}))
PROGRAMS = (POSTGRES, CHROMIUM)

_affected_tests: dict[str, int] = {}
"""The number of tests per missing program."""


def missing_programs() -> list[Program]:
    return [program for program in PROGRAMS if program.find() is None]


@pytest.hookimpl(trylast=True)  # after -m and -k have selected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose programs are not installed."""
    affected = {program: list(filter(program.is_needed_by, items)) for program in missing_programs()}
    _affected_tests.update({program.name: len(tests) for program, tests in affected.items()})
    if not os.environ.get("CI"):
        left_out = {test for tests in affected.values() for test in tests}
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
    if hasattr(config, "workeroutput"):  # a worker of pytest-xdist, whose output another process writes
        config.workeroutput["affected_tests"] = _affected_tests


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Receive the numbers from a worker of pytest-xdist. They are the same in all workers."""
    _affected_tests.update(getattr(node, "workeroutput", {}).get("affected_tests", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for program in missing_programs():
        if number := _affected_tests.get(program.name):
            tests = "1 test" if number == 1 else f"{number} tests"
            consequence = f": {tests} {'failed' if os.environ.get('CI') else 'left out'}"
            terminalreporter.write_line(program.missing_line(consequence), red=True, bold=True)


def main() -> int:
    """Print the programs that are not installed. The exit code is 1 if there are any."""
    missing = missing_programs()
    for program in missing:
        print(program.missing_line())
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
