"""What travels to the workers of a cluster: functions that need nothing there but Python, until they know it is safe.

A worker, and the scheduler that passes work on to it, may have another halfseen than this process, or none. So these
functions are sent as they stand, and each imports what it needs only when it runs.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def by_value(function: Function) -> Function:
    """The function as something that pickles send whole: it claims to be of a module that nobody can import it from."""
    code: types.FunctionType = function  # type: ignore[assignment]
    own = types.FunctionType(code.__code__, {"__builtins__": builtins, "__name__": "__main__"}, code.__name__)
    own.__kwdefaults__, own.__module__ = code.__kwdefaults__, "__main__"
    return own  # type: ignore[return-value]


def identity() -> dict[str, str]:
    """Versions of what makes the numbers, and a hash of the code; of a halfseen that cannot say, that it is another."""
    try:
        from halfseen.experiments.result import versions
        from halfseen.experiments.source import source_hash
    except ImportError:
        return {"halfseen": "another or none"}
    return {**versions(), "source": source_hash()}


def errand(
    wanted: dict[str, str], whoami: Any, payload: bytes, world: bytes, number: int, topic: str, every: float
) -> tuple[str, Any]:
    """Do a piece of work, and tell now and then how far it is.

    What comes back is ("done", outcome), ("raised", error), ("other", identity) or ("stopped", None). Nothing is
    raised, so that workers have nothing to log.
    """
    import dataclasses
    import pickle
    import time

    from distributed import get_worker

    me = whoami()
    if me != wanted:
        return "other", me
    from halfseen.experiments.play import Stopped

    worker = get_worker()
    key = worker.get_current_task()
    played, said = 0, time.monotonic()

    def tick(rounds: int) -> None:
        nonlocal played, said
        played += rounds
        if time.monotonic() - said > every:
            said = time.monotonic()
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":  # nobody waits for it: interrupted, or the asker is gone
                raise Stopped
            worker.log_event(topic, {"number": number, "played": played})

    try:
        work, piece = pickle.loads(payload)
        return "done", pickle.dumps(work(dataclasses.replace(piece, world=pickle.loads(world)), tick))
    except Stopped:
        return "stopped", None
    except Exception as error:
        try:
            return "raised", pickle.dumps(error)
        except Exception:
            return "raised", pickle.dumps(RuntimeError(repr(error)))
