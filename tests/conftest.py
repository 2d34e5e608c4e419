"""Properties are checked on the same examples every time: a failure is the change's, not the day's."""

from hypothesis import settings
from postgres_server import database, postgres, server
from service.served import http, service

__all__ = ["database", "http", "postgres", "server", "service"]

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
