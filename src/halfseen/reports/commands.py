"""The command that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence


def rerun_command(
    words: Sequence[str], *, rounds: int, seeds: Sequence[int], options: Mapping[str, str | None]
) -> str | None:
    """Return the command that repeats a run, or None if its seeds are not consecutive.

    The command line has no option for seeds that are not consecutive. `words` are the name of the command and its
    arguments. Options that are None are left out.
    """
    first = seeds[0]
    if list(seeds) != list(range(first, first + len(seeds))):
        return None
    given = {"--rounds": str(rounds), "--seeds": str(len(seeds)), "--first-seed": str(first) if first else None}
    pairs = [pair for pair in {**given, **options}.items() if pair[1] is not None]
    return shlex.join(["halfseen", *words, *(str(word) for pair in pairs for word in pair)])
