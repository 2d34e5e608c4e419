"""Executors for Dask clusters, on this machine or on others.

If a worker is lost, Dask repeats its tasks on another worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import socket
import tempfile
import time
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from halfseen.errors import HalfseenError, invalid, missing_extra
from halfseen.experiments.engines import remote_task as sent_functions
from halfseen.experiments.engines.executor import ParallelExecutor, Play, compile_kernels
from halfseen.experiments.engines.local import CHILD_ENVIRONMENT, NO_GUARD, starting_children
from halfseen.experiments.engines.remote_task import identity, remote_task
from halfseen.experiments.plan import Slice

try:
    import cloudpickle
    import dask
    import distributed
except ImportError as error:
    raise missing_extra(error.name or "distributed", "cluster", "running on a cluster") from None

CONNECT_SECONDS = 5.0
WORKER_SECONDS = 30.0  # the run fails if there has been no worker for this long
_REPORT_SECONDS, _COUNT_SECONDS = 0.25, 2.0
cloudpickle.register_pickle_by_value(sent_functions)


class DaskExecutor(ParallelExecutor):
    """Plays slices on the workers of a Dask scheduler."""

    cluster: str  # the argument of `run`
    _client: Any

    @abstractmethod
    def _lost(self, why: str) -> HalfseenError:
        """Return the exception for a lost cluster."""

    def _connect(self, stack: contextlib.ExitStack, scheduler: Any) -> None:
        self._client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        stack.callback(_close, self._client)
        self._keys = itertools.count()
        # Dask cancels a task when its future is garbage-collected, so the futures are stored.
        self._remote: dict[Future[Any], Any] = {}
        # Worlds and their Dask futures, by `id`. The reference to the world keeps its `id` from being reused.
        self._worlds: dict[int, tuple[Any, Any]] = {}
        self._played: dict[str, int] = {}  # stream-rounds by key of the task
        self._thread_count, self._counted = 0, -_COUNT_SECONDS
        self._had_workers = time.monotonic()
        self._topic = f"halfseen-{uuid.uuid4().hex}"
        self._client.subscribe_topic(self._topic, lambda event: self._count_rounds(event[1]["key"], event[1]["played"]))

    def _check_workers(self) -> None:
        """Raise if a worker has other versions or other code, because its results could differ."""
        workers = self._client.get_versions()["workers"]
        python = {address: ".".join(about["host"]["python"].split(".")[:3]) for address, about in workers.items()}
        for address, version in python.items():  # checked first, since pickled code needs the same version of Python
            if version != identity()["python"]:
                raise _other_worker({"python": version}, address)
        for address, theirs in self._client.run(identity).items():
            if theirs != identity():
                raise _other_worker(theirs, address)

    def _count_rounds(self, key: str, played: int) -> None:
        """Count the rounds of a task. Rounds that are repeated after a worker was lost count once."""
        self._played[key] = max(self._played.get(key, 0), played)

    def _rounds_played(self) -> int:
        return sum(list(self._played.values()))

    def _capacity(self) -> int:
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            self._thread_count, self._counted = self._threads(), time.monotonic()
            self._had_workers = self._counted if self._thread_count else self._had_workers
            if self._counted - self._had_workers > WORKER_SECONDS:
                raise self._lost(f"no worker for {WORKER_SECONDS:.0f} s")
        return 2 * max(1, self._thread_count)

    def _threads(self) -> int:
        with self._detecting_lost_scheduler():
            return sum(self._client.nthreads().values())

    @contextlib.contextmanager
    def _detecting_lost_scheduler(self) -> Iterator[None]:
        """Raise the error 'the scheduler does not answer' in place of Dask's exceptions for a lost scheduler."""
        try:
            yield
        except (OSError, TimeoutError, distributed.client.FuturesCancelledError):
            raise self._lost("the scheduler does not answer") from None

    def _submit(self, function: Play[Any], task: Slice, **options: Any) -> Future[Any]:
        def by_value(*arguments: Any) -> Any:  # Dask pickles a local function by value, a global function by its name
            return remote_task(*arguments)

        if id(task.world) not in self._worlds:
            self._worlds[id(task.world)] = (task.world, self._send_world(task.world))
        with self._detecting_lost_scheduler():
            remote = self._client.submit(
                by_value,
                identity(),
                cloudpickle.dumps((function, replace(task, world=None))),  # type: ignore[arg-type]
                self._worlds[id(task.world)][1],
                self._topic,
                _REPORT_SECONDS,
                key=f"{self._topic}-{next(self._keys)}",
                pure=False,
                **options,
            )
        finished: Future[Any] = Future()
        remote.add_done_callback(lambda _: finished.set_result(None))
        self._remote[finished] = remote
        return finished

    def _send_world(self, world: Any) -> Any:
        """Send the world once, as a task, since it may be large. If its result is lost, Dask repeats the task."""
        content = cloudpickle.dumps(world)
        with self._detecting_lost_scheduler():
            return self._client.submit(bytes, content, key=f"halfseen-world-{hashlib.sha256(content).hexdigest()}")

    def _outcome(self, future: Future[Any], task: Slice) -> Any:
        remote = self._remote.pop(future)
        if remote.status in ("cancelled", "lost"):
            raise self._lost("the scheduler does not answer")
        try:
            with self._detecting_lost_scheduler():
                theirs, outcome = remote.result()
        except distributed.KilledWorker:
            raise HalfseenError(
                "Several workers of the cluster were lost on the same slice. They were killed or ran out of memory."
            ) from None
        except HalfseenError:
            raise
        except Exception:
            self._check_workers()  # the exception may come from a worker that joined later
            raise
        if theirs != identity():
            raise _other_worker(theirs)
        self._count_rounds(remote.key, task.size)
        return outcome


class RemoteDaskExecutor(DaskExecutor):
    """Plays slices on the workers of a scheduler that is already running."""

    def __init__(self, address: str) -> None:
        self.cluster = address

    def _start(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(_quiet())
        try:
            _check_answer(self.cluster)
            self._connect(stack, self.cluster)
        except (OSError, TimeoutError, ValueError):
            raise invalid(
                "cluster", "a running scheduler", f"no answer from '{self.cluster}' in {CONNECT_SECONDS:.0f} s"
            ) from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            expected = f"at least one worker (dask worker {self.cluster} --nthreads 1)"
            raise invalid("cluster", expected, f"no workers at '{self.cluster}'") from None
        self._check_workers()
        self.workers = self._threads()

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Compile on one worker per machine. The other workers load the compiled kernels from disk."""
        by_host = {address.rpartition(":")[0]: address for address in self._client.nthreads()}
        options = [{"workers": [address], "allow_other_workers": True} for address in by_host.values()]
        for future in [self._submit(compile_kernels, sample, **one) for one in options for sample in samples]:
            future.result()
            del self._remote[future]

    def _lost(self, why: str) -> HalfseenError:
        return HalfseenError(f"The cluster at '{self.cluster}' failed: {why}")


class LocalDaskExecutor(DaskExecutor):
    """Starts a cluster on this machine that listens on the loopback interface and ends with this process."""

    def __init__(self, workers: int) -> None:
        self.workers, self.cluster = workers, f"local:{workers}"

    def _start(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(_quiet())

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Compile in this process, then start the workers.

        The workers are not started earlier, because none are needed if the results of all slices are saved already.
        """
        super().prepare(samples)
        stack = self._exit_stack
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="halfseen-", ignore_cleanup_errors=True))
        settings = {"temporary-directory": scratch, "distributed.worker.profile.enabled": False}
        stack.enter_context(dask.config.set(settings))
        try:
            with starting_children():  # threads that start workers, now or later, inherit the signal mask
                cluster = distributed.LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # Dask always opens a port, so let it choose a free one
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                    memory_limit=0,
                    local_directory=scratch,
                    env=CHILD_ENVIRONMENT,
                )
        except (OSError, RuntimeError, TimeoutError) as error:
            raise HalfseenError(
                f"The workers of '{self.cluster}' did not start. They ran out of memory, or they were {NO_GUARD}"
            ) from error
        stack.callback(_close, cluster)
        self._connect(stack, cluster)
        self._check_workers()

    def _lost(self, why: str) -> HalfseenError:
        return HalfseenError(f"The workers of '{self.cluster}' failed: {why}. They may have been killed.")


def _other_worker(theirs: dict[str, str], address: str = "") -> HalfseenError:
    """Return the exception for a worker that differs from this process. The message names the first difference."""
    mine = identity()
    name = next((name for name in ("halfseen", "python", *mine) if theirs.get(name, mine[name]) != mine[name]), "")
    got, expected = ("other code", "the same code") if name == "source" else (f"{name} {theirs[name]}", mine[name])
    return invalid("cluster", f"workers with {expected}", f"a worker{f' at {address}' if address else ''} with {got}")


def _check_answer(address: str) -> None:
    """Raise unless a server at the address sends data first, as a scheduler does.

    Without this check, Dask would wait much longer before it fails.
    """
    protocol, _, location = address.rpartition("://")
    host, _, port = location.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS) as connection:
        if protocol in ("", "tcp") and not connection.recv(1):
            raise ConnectionError


def _close(client_or_cluster: Any) -> None:
    with contextlib.suppress(Exception):
        client_or_cluster.close(timeout=CONNECT_SECONDS)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log messages of Dask about workers that join or leave and about large task graphs."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            yield
    finally:
        logger.setLevel(before)
