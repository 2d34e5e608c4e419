"""PostgreSQL servers that the tests start and stop with pg_ctl, on a socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from programs import POSTGRES


class Server:
    def __init__(self) -> None:
        self._executable = POSTGRES.require()
        self.folder = Path(tempfile.mkdtemp(prefix="halfseen-postgres-"))
        self._account: dict[str, Any] = {}
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            names = {entry.pw_name for entry in pwd.getpwall()}
            account = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._pg_ctl("initdb", "-o", "-N -A trust -U halfseen -E UTF8 --locale=C")

    def _pg_ctl(self, command: str, *options: str) -> None:
        done = subprocess.run(
            [self._executable, command, "-D", "data", *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self._account,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        self._pg_ctl("start", "-l", "log", "-o", f"-k {self.folder} -c listen_addresses=")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server in a mode of pg_ctl: "fast" shuts down properly, "immediate" is like a crash."""
        self._pg_ctl("stop", "-m", mode)

    def processes(self) -> list[int]:
        """Return the process ids of the server, the first of which started the others."""
        first = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    def url(self, database: str) -> str:
        return f"postgresql:///{database}?host={self.folder}&user=halfseen"

    def database(self) -> str:
        """Create an empty database and return its address."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def remove(self) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running_server() -> Iterator[Server]:
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Start a server for all tests."""
    with running_server() as started:
        yield started


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a server for one test, which may stop it."""
    with running_server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    return request.getfixturevalue("postgres").database()
