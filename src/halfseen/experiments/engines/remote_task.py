"""The functions that are sent to the workers of a cluster.

A worker or the scheduler may have another version of halfseen than this process, or none. These functions are therefore
pickled by value (see `engines.dask`), and they import halfseen only when they run.
"""

from __future__ import annotations

from typing import Any


def identity() -> dict[str, str]:
    """Return what must be equal here and on a worker: the versions of Python and packages, and a hash of the source."""
    try:
        from halfseen.experiments.cache import source_hash, versions
    except ImportError:
        return {"halfseen": "another or none"}
    return {**versions(), "source": source_hash()}


def remote_task(
    expected: dict[str, str], payload: bytes, world: bytes, topic: str, report_seconds: float
) -> tuple[dict[str, str], Any]:
    """Call a pickled function with a pickled slice, and report progress as events of the Dask topic.

    Returns the `identity()` of the worker and the outcome, which is None if the identity differs from `expected`.
    """
    import dataclasses
    import pickle
    import time

    from distributed import Reschedule, get_worker

    own_identity = identity()
    if own_identity != expected:
        return own_identity, None
    from halfseen.experiments.play import Cancelled

    worker = get_worker()
    key = worker.get_current_task()
    played, reported = 0, time.monotonic()

    def on_progress(rounds: int) -> None:
        nonlocal played, reported
        played += rounds
        if time.monotonic() - reported > report_seconds:
            reported = time.monotonic()
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":  # the run was interrupted or its process has ended
                raise Cancelled
            worker.log_event(topic, {"key": key, "played": played})

    function, task = pickle.loads(payload)
    try:
        return own_identity, function(dataclasses.replace(task, world=pickle.loads(world)), on_progress)
    except Cancelled:  # Dask ignores `Reschedule` for a cancelled task, and otherwise plays the task again
        raise Reschedule from None
