"""The errors of the service, each with an HTTP status, a code for programs and a one-line message for people."""

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
    "headers_too_large": 431,
    "internal": 500,
    "busy": 503,
    "unavailable": 503,
}


class ServiceError(HalfseenError):
    """The error for a request that was refused.

    A refused request is not recorded, with one exception: if the code is `unavailable`, it may or may not have been
    recorded. It is safe to send such a request again if it is a reward or a decision with an idempotency key.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def refusal(code: str, message: str) -> ServiceError:
    """Return the error for a refused request. The HTTP status follows from the code."""
    return ServiceError(STATUSES[code], code, message)


def as_service_error(error: Exception, code: str | None = None) -> ServiceError:
    """Convert an exception to a ServiceError with the given code and the same message.

    A ServiceError is returned unchanged. Without a code, the result is an internal error whose message names the type
    of the exception.
    """
    if isinstance(error, ServiceError):
        return error
    return refusal(code, str(error)) if code else refusal("internal", f"service: {type(error).__name__}: {error}")


def shutting_down() -> ServiceError:
    return refusal("unavailable", "The service is shutting down. Try again later.")


def internal_error() -> ServiceError:
    """Return the error for an unexpected exception. It reveals nothing about the exception, which is in the log."""
    return refusal("internal", "Internal error. Please report it together with the error in the service's log.")
