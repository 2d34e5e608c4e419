"""What the service refuses: an HTTP status, a word for programs, a line for people."""

from __future__ import annotations

from halfseen.errors import HalfseenError

STATUSES = {
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "invalid": 422,
    "internal": 500,
    "busy": 503,
    "unavailable": 503,
}


class ServiceError(HalfseenError):
    """A request that was refused. Nothing of it was recorded, unless the code is `unavailable`: then it may have been.

    An idempotency key finds out, and so does sending the same reward again.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def refusal(code: str, message: str) -> ServiceError:
    """A refusal with the status of its code."""
    return ServiceError(STATUSES[code], code, message)
