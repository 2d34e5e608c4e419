"""Properties are checked on the same examples every time: a failure is the change's, not the day's."""

from hypothesis import settings
from postgres_server import database, postgres

__all__ = ["database", "postgres"]

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
