"""A process that can be killed. It loads everything once, and for each line on its standard input forks a worker.

A worker plays on the streams "one" and "two" and appends a line to a file for everything that was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine_tools import observation, open_engine, reward_from_id, spec

from halfseen.service.errors import ServiceError
from halfseen.service.schemas import DecisionRequest, RewardRequest

CALLERS = 6
STREAMS = {
    "one": {"arms": 4},
    "two": {"agent": "adaptive", "arms": 3, "options": {"history": 200}},
}


async def play(order: dict) -> None:
    acknowledged = os.open(order["acknowledged"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(*what) -> None:
        os.write(acknowledged, (json.dumps(what) + "\n").encode())

    async with open_engine(order["url"], snapshot_every=60, max_loaded_bytes=1, lock_seconds=30.0) as engine:
        for name, changes in STREAMS.items():
            await engine.create_stream(spec(name, **changes))
        note("ready", os.getpid())
        if order.get("most_bytes"):
            await run_out(engine, order["most_bytes"], note)
        await asyncio.gather(
            *[call(engine, f"{order['run']}.{place}", order["each"], note) for place in range(CALLERS)]
        )
    note("done", os.getpid())


async def call(engine, caller: str, each: int, note) -> None:
    for number in range(each):
        name = "two" if number % 4 == 3 else "one"
        key = f"{caller}.{number}"
        available = [0, 1] if number % 7 == 0 else None
        decision = await engine.decide(name, DecisionRequest(observation(number), available, key))
        note("decided", name, decision.id, decision.arm, key)
        if number % 5:
            rewarded = await engine.reward(name, RewardRequest(decision.id, reward_from_id(decision.id)))
            note("rewarded", name, decision.id, rewarded.value)


async def run_out(engine, most_bytes: int, note) -> None:
    """Have no room on the disk for a while."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    refused = 0
    for number in range(5000):
        try:
            decision = await engine.decide("one", DecisionRequest(observation(number)))
        except ServiceError as error:
            if error.code != "unavailable":
                raise
            refused += 1
            if refused == 20:
                break
        else:
            note("decided", "one", decision.id, decision.arm, None)
    note("full", refused, engine.ready())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def main() -> None:
    async def load() -> None:  # compiled code, before the first fork; no thread is left when it ends
        from halfseen.service.engine.transaction import StreamCreation

        for name, changes in STREAMS.items():
            StreamCreation.prepare(spec(name, **changes))

    asyncio.run(load())
    print("loaded", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(play(json.loads(line)))
                code = 0
            finally:
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
