"""One open service for all tests of a file that need no other; a PostgreSQL of a test's own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from postgres_server import Server
from service.served import Served, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


@pytest.fixture
def server() -> Iterator[Server]:
    """One of this test's own, which it may stop."""
    own = Server()
    try:
        own.start()
        yield own
    finally:
        own.remove()
