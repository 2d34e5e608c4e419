"""One base exception. Every message is one line: the argument, what was given, what is wanted."""

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


def invalid(argument: str, got: object, wanted: str) -> InvalidInput:
    given = " ".join(str(got).split())  # one line, whatever the repr
    if len(given) > 100:
        given = given[:97] + "..."
    return InvalidInput(f"{argument}: got {given}; want {wanted}")


def unknown(kind: str, name: object, known: Iterable[str]) -> UnknownName:
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    wanted = f"want one of: {', '.join(names)}" if names else "it takes none"
    return UnknownName(f"{kind}: got '{name}'; {hint}{wanted}")


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtra:
    return MissingExtra(
        f"{purpose} needs the package '{package}', which is not installed; "
        f"install it with: pip install 'halfseen[{extra}]'"
    )
