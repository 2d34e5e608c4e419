"""Executors, which play the slices of an experiment in this process, in several processes or on a cluster."""

from __future__ import annotations

import re

from halfseen.errors import invalid
from halfseen.experiments.engines.executor import ParallelExecutor
from halfseen.experiments.engines.local import ProcessExecutor, SerialExecutor
from halfseen.validation import at_least

_LOCAL = re.compile(r"local:([0-9]+)")
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss)://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")


def choose_executor(jobs: int, cluster: str | None, most: int) -> SerialExecutor | ParallelExecutor:
    """Return the executor for `jobs` or `cluster`, with at most `most` workers."""
    jobs = at_least("jobs", jobs, 1)
    if cluster is None:
        return ProcessExecutor(min(jobs, most)) if min(jobs, most) > 1 else SerialExecutor()
    if jobs != 1:
        raise invalid("jobs", "either jobs or cluster", f"jobs={jobs} and a cluster")
    from halfseen.experiments.engines.dask import LocalDaskExecutor, RemoteDaskExecutor  # an optional dependency

    local, address = _LOCAL.fullmatch(str(cluster)), _ADDRESS.fullmatch(str(cluster))
    if local is not None and int(local[1]) > 0:
        return LocalDaskExecutor(min(int(local[1]), most))
    if local is None and address is not None and 0 < int(address[1]) < 65536:
        return RemoteDaskExecutor(str(cluster))
    raise invalid("cluster", "'local:N', or the address of a scheduler such as tcp://host:8786", repr(cluster))
