"""The error of the service: an HTTP status, a code for programs and one line for people."""

from __future__ import annotations

from halfseen.errors import HalfseenError

STATUSES = {
    "malformed": 400,
    "unauthorised": 401,
    "forbidden": 403,
    "not_found": 404,
    "not_allowed": 405,
    "conflict": 409,
    "too_large": 413,
    "invalid": 422,
    "too_many": 429,
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
    """The error for a request that is refused, with the status of its code."""
    return ServiceError(STATUSES[code], code, message)


def as_service_error(error: Exception, code: str | None = None) -> ServiceError:
    """`error` itself if it is a ServiceError, otherwise an error with that code and the same message.

    Without a code it is an internal error whose message names the type of the exception.
    """
    if isinstance(error, ServiceError):
        return error
    return refusal(code, str(error)) if code else refusal("internal", f"service: {type(error).__name__}: {error}")


def internal_error() -> ServiceError:
    """The error for an unexpected exception in a route, of which the reply reveals nothing."""
    return refusal("internal", "Internal error. Please report it with the line in the log of the service.")
