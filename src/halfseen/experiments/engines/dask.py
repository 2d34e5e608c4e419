"""The engine for a cluster: Dask, here or elsewhere."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import pickle
import queue
import socket
import tempfile
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from halfseen.errors import HalfseenError, invalid, missing_extra
from halfseen.experiments.engines.engine import Done, Engine, Tick, Work, compile_for
from halfseen.experiments.engines.local import CHILD_ENVIRONMENT, NO_GUARD, starting_children
from halfseen.experiments.engines.remote_task import by_value, errand, identity
from halfseen.experiments.plan import Slice

try:
    import cloudpickle
    import dask
    import distributed
except ImportError as error:
    raise missing_extra(error.name or "distributed", "cluster", "running on a cluster") from None

CONNECT_SECONDS = 5.0
WORKER_SECONDS = 30.0  # without any worker, then we give up
_POLL_SECONDS, _TELL_SECONDS, _COUNT_SECONDS = 0.1, 0.25, 2.0


class Dask(Engine):
    """Work on the workers of a Dask scheduler. Dask gives the work of a worker that was lost to another."""

    where: str  # for messages
    _client: Any = None

    def __enter__(self) -> Self:
        super().__enter__()
        self._ends.enter_context(_quiet())
        return self

    @abstractmethod
    def _lost(self, why: str) -> HalfseenError: ...

    def _connect(self, scheduler: Any) -> None:
        self._client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        self._ends.callback(_close, self._client)

    def _check_workers(self) -> None:
        """Refuse workers that would not compute the same numbers."""
        python = {at: about["host"]["python"] for at, about in self._client.get_versions()["workers"].items()}
        mine = identity()
        for at, version in python.items():  # before anything is sent: code does not travel between versions of Python
            if version.split(".")[:3] != mine["python"].split("."):
                raise self._stranger({"python": ".".join(version.split(".")[:3])}, at)
        for at, theirs in self._client.run(by_value(identity)).items():
            if theirs != mine:
                raise self._stranger(theirs, at)

    def _stranger(self, theirs: dict[str, str], at: str = "") -> HalfseenError:
        mine = identity()
        name = next((name for name in ("halfseen", "python", *mine) if theirs.get(name, mine[name]) != mine[name]), "")
        got, want = ("other code", "the same code") if name == "source" else (f"{name} {theirs[name]}", mine[name])
        return invalid("cluster", f"a worker{f' at {at}' if at else ''} with {got}", f"{want}, as here")

    def _slots(self) -> int:
        with self._answering():
            return sum(self._client.nthreads().values())

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Around what only the scheduler can refuse."""
        try:
            yield
        except (OSError, TimeoutError, distributed.client.FuturesCancelledError):
            raise self._lost("no answer any more") from None

    def work_through(
        self,
        work: Callable[[Work, Tick], Done],
        pieces: Iterable[Work],
        tick: Tick,
        heard: Callable[[int, Done], None],
    ) -> None:
        finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        running: dict[str, tuple[int, Work, Any]] = {}  # by key: the piece, numbered, and its future
        todo, again, keys = enumerate(pieces), list[tuple[int, Work]](), itertools.count()
        worlds: dict[int, tuple[Any, Any]] = {}  # by identity: the world, kept alive, and its future
        played, sizes = _Played(), dict[int, int]()
        topic = f"halfseen-{uuid.uuid4().hex}"
        common = {"topic": topic, "every": _TELL_SECONDS, "wanted": identity(), "whoami": by_value(identity)}
        send = by_value(errand)
        self._client.subscribe_topic(topic, lambda event: played.tell(event[1]["number"], event[1]["played"]))
        workers, counted, seen = self.workers, time.monotonic(), time.monotonic()
        told = 0
        try:
            while True:
                room = max(0, 2 * max(1, workers) - len(running))  # some wait there, so that nobody waits for us
                taken, again = [*again, *itertools.islice(todo, max(0, room - len(again)))], []
                for number, piece in taken:
                    sizes[number] = piece.size
                    if id(piece.world) not in worlds:
                        worlds[id(piece.world)] = (piece.world, self._send_world(piece.world))
                    payload = cloudpickle.dumps((work, replace(piece, world=None)))  # type: ignore[type-var]
                    with self._answering():
                        future = self._client.submit(
                            send,
                            **common,
                            payload=payload,
                            world=worlds[id(piece.world)][1],
                            number=number,
                            key=f"{topic}-{next(keys)}",
                            pure=False,
                        )
                    running[future.key] = number, piece, future
                    future.add_done_callback(finished.put)
                if not running:
                    return
                with contextlib.suppress(queue.Empty):
                    future = finished.get(timeout=_POLL_SECONDS)
                    number, piece, _ = running.pop(future.key)
                    kind, outcome = self._outcome(future)
                    if kind == "stopped":  # Dask took it back, and then did not
                        again.append((number, piece))
                    else:
                        played.tell(number, sizes[number])
                        heard(number, outcome)
                now = played.total()
                tick(now - told)
                told = now
                if time.monotonic() - counted > _COUNT_SECONDS:
                    workers, counted = self._slots(), time.monotonic()
                    seen = counted if workers else seen
                    if counted - seen > WORKER_SECONDS:
                        raise self._lost(f"no worker for {WORKER_SECONDS:.0f} s")
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel([future for *_, future in running.values()])
                self._client.unsubscribe_topic(topic)

    def _send_world(self, world: Any) -> Any:
        """Once for all pieces, as it may be a large table; as a task, so that Dask can make it again if it is lost."""
        content = cloudpickle.dumps(world)
        with self._answering():
            return self._client.submit(bytes, content, key=f"halfseen-world-{hashlib.sha256(content).hexdigest()}")

    def _outcome(self, future: Any) -> tuple[str, Any]:
        if future.status in ("cancelled", "lost"):
            raise self._lost("no answer any more")
        try:
            with self._answering():
                kind, content = future.result()
        except HalfseenError:
            raise
        except distributed.KilledWorker:
            raise HalfseenError(
                "several workers of the cluster were lost on the same slice: killed, or out of memory"
            ) from None
        except Exception:
            self._check_workers()  # one that came later, perhaps
            raise
        if kind == "other":
            raise self._stranger(content)
        if kind == "raised":
            raise pickle.loads(content)
        return kind, None if content is None else pickle.loads(content)


class RemoteDask(Dask):
    """Workers of a scheduler that is already there."""

    def __init__(self, address: str) -> None:
        self.where = address

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            try:
                _check_answer(self.where)
                self._connect(self.where)
            except (OSError, TimeoutError, ValueError):
                raise invalid(
                    "cluster", f"no answer from '{self.where}' in {CONNECT_SECONDS:.0f} s", "a scheduler that runs"
                ) from None
            try:
                self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            except TimeoutError:
                wanted = f"at least one: dask worker {self.where} --nthreads 1"
                raise invalid("cluster", f"no workers at '{self.where}'", wanted) from None
            self._check_workers()
            self.workers = self._slots()
        except BaseException:
            self._ends.close()
            raise
        return self

    def prepare(self, samples: Sequence[Slice]) -> None:
        """One worker of every machine compiles; the others will find what it has left on disk."""
        by_host = {at.rpartition(":")[0]: at for at in self._client.nthreads()}
        payload = cloudpickle.dumps((compile_for, list(samples)))
        futures = [
            self._client.submit(by_value(_call), payload, workers=[at], allow_other_workers=True, pure=False)
            for at in by_host.values()
        ]
        self._client.gather(futures, errors="skip")

    def _lost(self, why: str) -> HalfseenError:
        return HalfseenError(f"cluster: got {why} at '{self.where}'; want a scheduler and workers that stay")


class LocalDask(Dask):
    """A cluster of our own on this machine, on the loopback interface, that ends with this process."""

    def __init__(self, workers: int) -> None:
        self.workers, self.where = workers, f"local:{workers}"

    def prepare(self, samples: Sequence[Slice]) -> None:
        compile_for(samples)
        scratch = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="halfseen-", ignore_cleanup_errors=True))
        settings = {"temporary-directory": scratch, "distributed.worker.profile.enabled": False}
        self._ends.enter_context(dask.config.set(settings))
        try:
            with starting_children():  # the threads that start workers, now and after a death, inherit the deafness
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
                f"the workers of '{self.where}' did not start: out of memory, or they were {NO_GUARD}"
            ) from error
        self._ends.callback(_close, cluster)
        self._connect(cluster)
        self._check_workers()

    def _lost(self, why: str) -> HalfseenError:
        return HalfseenError(f"cluster: got {why} from the workers of '{self.where}'; were they killed?")


class _Played:
    """Stream-rounds of every piece. One that is begun again after its worker was lost counts from where it was."""

    def __init__(self) -> None:
        self._by_piece: dict[int, int] = {}

    def tell(self, number: int, rounds: int) -> None:
        self._by_piece[number] = max(self._by_piece.get(number, 0), rounds)

    def total(self) -> int:
        return sum(list(self._by_piece.values()))


def _check_answer(address: str) -> None:
    """Raise where nobody listens, or one who does not speak first, as a scheduler does: Dask would wait for long."""
    protocol, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS) as connection:
        if protocol in ("", "tcp") and not connection.recv(1):
            raise ConnectionError


def _call(payload: bytes) -> None:
    import pickle

    function, argument = pickle.loads(payload)
    function(argument)


def _close(ending: Any) -> None:
    with contextlib.suppress(Exception):
        ending.close(timeout=CONNECT_SECONDS)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What Dask logs of workers that come and go is not for the user's terminal; nor that a table is large."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    settings = {"distributed.admin.large-graph-warning-threshold": "1TB"}
    try:
        with dask.config.set(settings):
            yield
    finally:
        logger.setLevel(before)
