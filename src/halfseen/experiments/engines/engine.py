"""Who does the work: this process, several, or a cluster. The numbers do not depend on it."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, Self, TypeVar

from halfseen.errors import HalfseenError, invalid
from halfseen.experiments.plan import CHUNK, Slice
from halfseen.experiments.play import play
from halfseen.experiments.source import source_hash
from halfseen.validation import at_least
from halfseen.worlds.world import World


class Piece(Protocol):
    """A piece of work that nothing else depends on: a slice, or a cell of the leaderboard."""

    @property
    def world(self) -> World: ...

    @property
    def size(self) -> int:
        """Stream-rounds to play."""
        ...


Tick = Callable[[int], None]
Work = TypeVar("Work", bound=Piece)
Done = TypeVar("Done")
_LOCAL = re.compile(r"local:([0-9]+)")
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss)://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")


class Engine(ABC):
    """Does pieces of work. Entered before use; left, nothing it started is running any more."""

    workers: int  # how many pieces are worked on at the same time
    _ends: contextlib.ExitStack

    def __enter__(self) -> Self:
        self._ends = contextlib.ExitStack()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Get ready for work such as `samples`: kernels are compiled once and not by all workers at the same time."""
        if self.workers > 1:
            compile_for(samples)

    @abstractmethod
    def work_through(
        self,
        work: Callable[[Work, Tick], Done],
        pieces: Iterable[Work],
        tick: Tick,
        heard: Callable[[int, Done], None],
    ) -> None:
        """`work` on every piece; `heard` is given each outcome once, numbered, as it comes.

        Pieces are taken only when somebody is about to be free, so that what is known by then may decide which is
        next. `work` is given a `tick` to call now and then; it raises when the run has been given up. What is told to
        it anywhere is told to `tick` here, in sum: no round twice, and none that is lost with its worker.
        """


class ThisProcess(Engine):
    """One piece after the other, here."""

    workers = 1

    def work_through(
        self,
        work: Callable[[Work, Tick], Done],
        pieces: Iterable[Work],
        tick: Tick,
        heard: Callable[[int, Done], None],
    ) -> None:
        for number, piece in enumerate(pieces):
            heard(number, work(piece, tick))


def choose_engine(jobs: int, cluster: str | None, most: int) -> Engine:
    """The engine asked for, of no more processes than there is work for."""
    from halfseen.experiments.engines.local import Processes

    jobs = at_least("jobs", jobs, 1)
    if cluster is None:
        return Processes(min(jobs, most)) if min(jobs, most) > 1 else ThisProcess()
    if jobs != 1:
        raise invalid("jobs", f"{jobs}, with a cluster", "only one of them")
    from halfseen.experiments.engines.dask import LocalDask, RemoteDask

    local, address = _LOCAL.fullmatch(str(cluster)), _ADDRESS.fullmatch(str(cluster))
    if local is not None and int(local[1]) > 0:
        return LocalDask(min(int(local[1]), most))
    if local is None and address is not None and 0 < int(address[1]) < 65536:
        return RemoteDask(str(cluster))
    raise invalid("cluster", repr(cluster), "'local:N', or the address of a scheduler such as tcp://host:8786")


def compile_for(samples: Iterable[Slice]) -> None:
    """A first taste of the work. What raises will do so again in its place."""
    for piece in samples:
        with contextlib.suppress(Exception):
            play(replace(piece, seeds=piece.seeds[:1], rounds=min(piece.rounds, CHUNK + 1)), lambda _: None)


def check_source(wanted: str) -> None:
    """Raise in a worker that has loaded other code than the process it works for: the files may have changed since."""
    if source_hash() != wanted:
        raise HalfseenError("the code was changed while it was being played; start again to play the new one")
