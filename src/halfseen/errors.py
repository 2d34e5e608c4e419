"""The exceptions of the package and the functions that compose their messages.

Every message is one line. It names the argument, what was expected and what was received.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HalfseenError(Exception):
    """Base class of all exceptions that halfseen raises on purpose.

    If a method of an object raises such an exception, the object remains unchanged.

    Examples
    --------
    >>> import halfseen as hs
    >>> try:
    ...     hs.LinearGaussianModel(transition=[[0.9, 0.1]], process_cov=1.0, observation_cov=[0.5])
    ... except hs.HalfseenError as error:
    ...     print(error)
    transition: expected a square matrix (d, d), got shape (1, 2)
    """


class InvalidInput(HalfseenError, ValueError):
    """An argument has the wrong shape, type or value."""


class UnknownName(HalfseenError, KeyError):
    """There is no agent, world, option or arm of the given name."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class DecisionError(HalfseenError):
    """A reward was given for a decision that is unknown, already rewarded or expired."""


class SaveFileError(HalfseenError):
    """A file is not a complete save file of a version that this package can read."""


class MissingExtra(HalfseenError, ImportError):
    """An optional dependency is not installed."""


class HalfseenWarning(UserWarning):
    """A problem that does not stop the computation, such as a fitted model that is unstable."""


def invalid(argument: str, expected: str, got: object) -> InvalidInput:
    """Return the exception "argument: expected ..., got ...", with `got` on one line of at most 100 characters."""
    text = " ".join(str(got).split())
    if len(text) > 100:
        text = text[:60] + "..." + text[-37:]  # the end is kept, because it may say what is wrong
    return InvalidInput(f"{argument}: expected {expected}, got {text}")


def unknown(kind: str, name: object, known: Iterable[str], owner: str = "") -> UnknownName:
    """Return the exception for an unknown name, with the closest known name as a suggestion.

    `owner` names the object that the name was looked up in, such as "'adaptive'" for the options of that agent.
    """
    names = sorted(known)
    closest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean '{closest[0]}'?" if closest else ""
    if owner:
        message, listing = f"{owner} has no {kind} '{name}'.", f" Its {kind}s are: {', '.join(names)}"
    else:
        message, listing = f"There is no {kind} '{name}'.", f" The {kind}s are: {', '.join(names)}"
    return UnknownName(message + hint + (listing if names else f" There are no {kind}s."))


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtra:
    return MissingExtra(
        f"{purpose} needs the package '{package}', which is not installed; "
        f"install it with: pip install 'halfseen[{extra}]'"
    )
