"""What is sent to the workers of a cluster: functions that need nothing but Python until they know that it is safe.

A worker, and the scheduler between, may have another halfseen than this process, or none. So these functions are
pickled by value (see `engines.dask`), and each imports what it needs only when it runs.
"""

from __future__ import annotations

from typing import Any


def identity() -> dict[str, str]:
    """Return the versions of what makes the numbers and a hash of the code; of another halfseen, that it is another."""
    try:
        from halfseen.experiments.cache import source_hash, versions
    except ImportError:
        return {"halfseen": "another or none"}
    return {**versions(), "source": source_hash()}


def remote_task(
    expected: dict[str, str], payload: bytes, world: bytes, topic: str, report_seconds: float
) -> tuple[dict[str, str], Any]:
    """Call a pickled function on a pickled slice, and report progress as events of the topic.

    Returns the identity of the worker and the outcome, which is None if the identity is not the expected one.
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
            if task is None or task.state == "cancelled":  # nobody waits for it: interrupted, or the client is gone
                raise Cancelled
            worker.log_event(topic, {"key": key, "played": played})

    function, task = pickle.loads(payload)
    try:
        return own_identity, function(dataclasses.replace(task, world=pickle.loads(world)), on_progress)
    except Cancelled:  # Dask ignores this, unless it has changed its mind
        raise Reschedule from None
