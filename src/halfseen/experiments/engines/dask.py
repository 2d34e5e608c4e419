"""A Dask cluster, on this machine or elsewhere. Dask gives the tasks of a lost worker to another."""

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
WORKER_SECONDS = 30.0  # without any worker, after which the run is given up
_REPORT_SECONDS, _COUNT_SECONDS = 0.25, 2.0
cloudpickle.register_pickle_by_value(sent_functions)


class DaskExecutor(ParallelExecutor):
    """Plays slices on the workers of a Dask scheduler."""

    cluster: str  # as it was asked for
    _client: Any

    @abstractmethod
    def _lost(self, why: str) -> HalfseenError:
        """Return the error of a cluster that was lost."""

    def _connect(self, stack: contextlib.ExitStack, scheduler: Any) -> None:
        self._client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        stack.callback(_close, self._client)
        self._keys = itertools.count()
        self._remote: dict[Future[Any], Any] = {}  # the future of Dask, which cancels a task when it is dropped
        self._worlds: dict[int, tuple[Any, Any]] = {}  # by identity: the world, which is kept alive, and its future
        self._played: dict[str, int] = {}  # stream-rounds by task
        self._slots, self._counted = 0, -_COUNT_SECONDS
        self._had_workers = time.monotonic()
        self._topic = f"halfseen-{uuid.uuid4().hex}"
        self._client.subscribe_topic(self._topic, lambda event: self._count_rounds(event[1]["key"], event[1]["played"]))

    def _check_workers(self) -> None:
        """Refuse workers that would not compute the same numbers."""
        workers = self._client.get_versions()["workers"]
        python = {at: ".".join(about["host"]["python"].split(".")[:3]) for at, about in workers.items()}
        for at, version in python.items():  # before anything is sent: code does not travel between versions of Python
            if version != identity()["python"]:
                raise _other_worker({"python": version}, at)
        for at, theirs in self._client.run(identity).items():
            if theirs != identity():
                raise _other_worker(theirs, at)

    def _count_rounds(self, key: str, played: int) -> None:
        """Count the rounds of a task. If it starts again after its worker was lost, they count only once."""
        self._played[key] = max(self._played.get(key, 0), played)

    def _rounds_played(self) -> int:
        return sum(list(self._played.values()))

    def _capacity(self) -> int:
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            self._slots, self._counted = self._threads(), time.monotonic()
            self._had_workers = self._counted if self._slots else self._had_workers
            if self._counted - self._had_workers > WORKER_SECONDS:
                raise self._lost(f"no worker for {WORKER_SECONDS:.0f} s")
        return 2 * max(1, self._slots)

    def _threads(self) -> int:
        with self._answering():
            return sum(self._client.nthreads().values())

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Wrap what only a lost scheduler can refuse."""
        try:
            yield
        except (OSError, TimeoutError, distributed.client.FuturesCancelledError):
            raise self._lost("no answer any more") from None

    def _submit(self, function: Play[Any], task: Slice, **options: Any) -> Future[Any]:
        def by_value(*arguments: Any) -> Any:  # Dask pickles a local function by value, a global one by its name
            return remote_task(*arguments)

        if id(task.world) not in self._worlds:
            self._worlds[id(task.world)] = (task.world, self._send_world(task.world))
        with self._answering():
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
        """Send it once, as it may be a large table; as a task, so that Dask can make it again if it is lost."""
        content = cloudpickle.dumps(world)
        with self._answering():
            return self._client.submit(bytes, content, key=f"halfseen-world-{hashlib.sha256(content).hexdigest()}")

    def _outcome(self, future: Future[Any], task: Slice) -> Any:
        remote = self._remote.pop(future)
        if remote.status in ("cancelled", "lost"):
            raise self._lost("no answer any more")
        try:
            with self._answering():
                theirs, outcome = remote.result()
        except distributed.KilledWorker:
            raise HalfseenError(
                "several workers of the cluster were lost on the same slice: killed, or out of memory"
            ) from None
        except HalfseenError:
            raise
        except Exception:
            self._check_workers()  # of one that came later, perhaps
            raise
        if theirs != identity():
            raise _other_worker(theirs)
        self._count_rounds(remote.key, task.size)
        return outcome


class RemoteDaskExecutor(DaskExecutor):
    """Uses a scheduler that is already running, and its workers."""

    def __init__(self, address: str) -> None:
        self.cluster = address

    def _start(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(_quiet())
        try:
            _check_answer(self.cluster)
            self._connect(stack, self.cluster)
        except (OSError, TimeoutError, ValueError):
            raise invalid(
                "cluster", "a scheduler that runs", f"no answer from '{self.cluster}' in {CONNECT_SECONDS:.0f} s"
            ) from None
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            wanted = f"at least one: dask worker {self.cluster} --nthreads 1"
            raise invalid("cluster", wanted, f"no workers at '{self.cluster}'") from None
        self._check_workers()
        self.workers = self._threads()

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Compile on one worker of every machine; the others find the result on disk."""
        by_host = {at.rpartition(":")[0]: at for at in self._client.nthreads()}
        options = [{"workers": [at], "allow_other_workers": True} for at in by_host.values()]
        for future in [self._submit(compile_kernels, sample, **one) for one in options for sample in samples]:
            future.result()
            del self._remote[future]

    def _lost(self, why: str) -> HalfseenError:
        return HalfseenError(f"The cluster at '{self.cluster}' failed: {why}")


class LocalDaskExecutor(DaskExecutor):
    """Starts a cluster on this machine, on the loopback interface, that ends with this process."""

    def __init__(self, workers: int) -> None:
        self.workers, self.cluster = workers, f"local:{workers}"

    def _start(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(_quiet())

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Compile here, then start the workers, which are not started at all where nothing is left to play."""
        super().prepare(samples)
        stack = self._exit_stack
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="halfseen-", ignore_cleanup_errors=True))
        settings = {"temporary-directory": scratch, "distributed.worker.profile.enabled": False}
        stack.enter_context(dask.config.set(settings))
        try:
            with starting_children():  # the threads that start workers, now and after a death, inherit the mask
                cluster = distributed.LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # Dask opens a port in any case: one that is free, with no
                    scheduler_kwargs={"dashboard": False},  # dashboard behind it
                    silence_logs=logging.CRITICAL,
                    memory_limit=0,
                    local_directory=scratch,
                    env=CHILD_ENVIRONMENT,
                )
        except (OSError, RuntimeError, TimeoutError) as error:
            raise HalfseenError(
                f"the workers of '{self.cluster}' did not start: out of memory, or they were {NO_GUARD}"
            ) from error
        stack.callback(_close, cluster)
        self._connect(stack, cluster)
        self._check_workers()

    def _lost(self, why: str) -> HalfseenError:
        return HalfseenError(f"The workers of '{self.cluster}' failed: {why}. Were they killed?")


def _other_worker(theirs: dict[str, str], at: str = "") -> HalfseenError:
    """Return the error of a worker that has something else than this process, and what."""
    mine = identity()
    name = next((name for name in ("halfseen", "python", *mine) if theirs.get(name, mine[name]) != mine[name]), "")
    got, expected = ("other code", "the same code") if name == "source" else (f"{name} {theirs[name]}", mine[name])
    return invalid("cluster", f"workers with {expected}", f"a worker{f' at {at}' if at else ''} with {got}")


def _check_answer(address: str) -> None:
    """Raise if nobody listens, or one that does not speak first, as a scheduler does: Dask would wait for long."""
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
    """Keep off the user's terminal what Dask logs of workers that come and go, and that a table is large."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            yield
    finally:
        logger.setLevel(before)
