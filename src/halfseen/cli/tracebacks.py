"""Tracebacks of exceptions in the user's own code, without the frames of halfseen and of other libraries."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

_FRAME = re.compile(r'^  File "(.+)", line \d+, in .*\n(?:    .*\n|  \[Previous .*\n)*', re.MULTILINE)
_LIBRARIES = tuple(str(folder) + os.sep for folder in (Path(__file__).parents[1], Path(traceback.__file__).parent))


def own_traceback(error: BaseException) -> str | None:
    """Return the traceback with only the frames of the user's own code, or None if there are none.

    The last lines are the exception and its notes.
    """
    in_worker = getattr(error.__cause__, "tb", None)  # the traceback of an error in another process, as text
    text = "".join(traceback.format_exception(error)) if in_worker is None else in_worker.strip('\n"') + "\n"
    if not any(_is_own(file) for file in _FRAME.findall(text)):
        return None
    return _FRAME.sub(lambda frame: frame[0] if _is_own(frame[1]) else "", text)


def _is_own(file: str) -> bool:
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return not installed and not file.startswith(("<", *_LIBRARIES))
