"""What waits in the engine's queue."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from halfseen.errors import HalfseenError
from halfseen.service.engine.loaded_stream import Resident, make_agent
from halfseen.service.engine.transaction import Desk, answered
from halfseen.service.errors import refusal
from halfseen.service.specs import StreamSpec


@dataclass(eq=False, slots=True)
class Work:
    """Something to do to one stream, and who waits for it. `act` gives an answer or a refusal for each row."""

    name: str
    act: Callable[[Desk], list[Any]]
    future: asyncio.Future[list[Any]]
    size: int = 1
    keys: Sequence[str | None] = ()
    decisions: Sequence[str] = ()
    creates: Create | None = None
    what: str | None = None  # "decide" or "reward": those are counted and timed
    began: float = 0.0

    @classmethod
    def alone(cls, name: str, act: Callable[[Desk], Any], future: asyncio.Future[list[Any]], *, size: int = 1) -> Work:
        """One thing to do."""
        return cls(name, lambda desk: [answered(act, desk)], future, size)

    @classmethod
    def of(cls, what: str, name: str, rows: Sequence[Any], future: asyncio.Future[list[Any]]) -> Work:
        """Decisions or rewards."""
        began = time.perf_counter()
        if what == "decide":
            keys = [ask.key for ask in rows if ask.key is not None]
            act = lambda desk: [answered(desk.decide, ask) for ask in rows]  # noqa: E731
            return cls(name, act, future, len(rows), keys, (), None, what, began)
        act = lambda desk: [answered(desk.reward, told) for told in rows]  # noqa: E731
        return cls(name, act, future, len(rows), (), [told.decision for told in rows], None, what, began)


@dataclass(eq=False)
class Create:
    """A stream to be made, and its state at the beginning."""

    spec: StreamSpec  # with its seed
    resident: Resident
    seed_given: bool

    @classmethod
    def checked(cls, spec: StreamSpec) -> Create:
        """Make the agent, and another that decides once: to know that they can, and to have their kernels loaded."""
        try:
            spec.check()
            seed_given = spec.seed is not None
            if not seed_given:
                spec = msgspec.structs.replace(spec, seed=secrets.randbits(53))  # exact in every JSON reader
            msgspec.json.encode(spec)
            trial = make_agent(spec)
            decision = trial.decide(np.zeros(trial.policy.streams.observed))
            decision.propensities.sum()
            trial.learn(decision.id, 0.0)
            return cls(spec, Resident(spec), seed_given)
        except HalfseenError as error:
            raise refusal("invalid", str(error)) from None
        except (TypeError, ValueError, OverflowError, MemoryError, np.linalg.LinAlgError) as error:
            raise refusal("invalid", f"stream: got a specification that cannot be used ({error})") from None

    def act(self, desk: Desk) -> list[Any]:
        """Whether the stream there is now is the one asked for."""
        there = desk.resident.spec
        if desk.resident.retired:
            return [refusal("conflict", f"name: got '{there.name}', a stream that is retired; want another name")]
        mine = self.spec if self.seed_given else msgspec.structs.replace(self.spec, seed=there.seed)
        if msgspec.json.encode(mine, order="deterministic") == msgspec.json.encode(there, order="deterministic"):
            return [None]
        return [refusal("conflict", f"name: got '{there.name}', a stream of another specification; want a new name")]
