"""The exceptions of the package, and the wording of their messages.

Every message is one line that names the argument, what was expected and what was received.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HalfseenError(Exception):
    """Anything halfseen refuses. The state of whatever was called is as it was before the call."""


class InvalidInput(HalfseenError, ValueError):
    """An argument has the wrong shape, type or value."""


class UnknownName(HalfseenError, KeyError):
    """A name that is not in a table: an agent, a world, an option, an arm."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class DecisionError(HalfseenError):
    """A reward for a decision that is unknown, already rewarded or expired."""


class SaveFileError(HalfseenError):
    """A file that is not a whole, readable save of a version this package knows."""


class MissingExtra(HalfseenError, ImportError):
    """An optional dependency is not installed."""


class HalfseenWarning(UserWarning):
    """Something worth knowing that does not stop the work, such as an unstable fit."""


def invalid(argument: str, expected: str, got: object) -> InvalidInput:
    text = " ".join(str(got).split())  # one line, whatever the repr
    if len(text) > 100:
        text = text[:97] + "..."
    return InvalidInput(f"{argument}: expected {expected}, got {text}")


def unknown(kind: str, name: object, known: Iterable[str], owner: str = "") -> UnknownName:
    """Report a name that is not in a table; `owner` says whose table it is, such as "'adaptive'" for its options."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    if owner:
        message, listed = f"{owner} has no {kind} '{name}'.", f" Its {kind}s are: {', '.join(names)}"
    else:
        message, listed = f"There is no {kind} '{name}'.", f" The {kind}s are: {', '.join(names)}"
    return UnknownName(message + hint + (listed if names else f" There are no {kind}s."))


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtra:
    return MissingExtra(
        f"{purpose} needs the package '{package}', which is not installed; "
        f"install it with: pip install 'halfseen[{extra}]'"
    )
