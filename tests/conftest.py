"""Fixtures that several test files use. Hypothesis checks the same examples in every run."""

import pytest
from browser import browser, open_page, page, pages_by_device
from hypothesis import settings
from postgres_server import database, postgres, server
from programs import pytest_collection_modifyitems, pytest_terminal_summary, pytest_testnodedown
from service.served import http, service

from halfseen.agents.catalogue import CATALOG
from halfseen.worlds.named import _REGISTERED

__all__ = [
    "browser",
    "database",
    "http",
    "open_page",
    "page",
    "pages_by_device",
    "postgres",
    "pytest_collection_modifyitems",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "server",
    "service",
]

pytest_plugins = ["pytester"]

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def registrations_are_undone():
    """Remove the agents and worlds that a test has registered."""
    agents, worlds = dict(CATALOG._entries), dict(_REGISTERED)
    yield
    for registered, before in ((CATALOG._entries, agents), (_REGISTERED, worlds)):
        if registered != before:
            registered.clear()
            registered.update(before)
