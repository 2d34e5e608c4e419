"""A process that loads all modules and kernels once, and forks a worker for each line on its standard input.

A worker makes decisions on the streams "one" and "two", and appends a line to a file for each acknowledged request.
Tests kill the workers.
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
from halfseen.service.schemas import DecisionRequest, Limits, RewardRequest

CALLERS = 6
STREAMS = {
    "one": {"arms": 4},
    "two": {"agent": "adaptive", "arms": 3, "options": {"history": 200}},
}


async def play(task: dict) -> None:
    acknowledged = os.open(task["acknowledged"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(*line) -> None:
        os.write(acknowledged, (json.dumps(line) + "\n").encode())

    async with open_engine(task["url"], snapshot_every=60, max_loaded_bytes=1, lock_seconds=30.0) as engine:
        for name, changes in STREAMS.items():
            await engine.create_stream(spec(name, **changes))
        note("ready", os.getpid())
        if task.get("max_file_bytes"):
            await fill_disk(engine, task["max_file_bytes"], note)
        await asyncio.gather(
            *[call(engine, f"{task['run']}.{caller}", task["rounds"], note) for caller in range(CALLERS)]
        )
    note("done", os.getpid())


async def call(engine, caller: str, rounds: int, note) -> None:
    for number in range(rounds):
        name = "two" if number % 4 == 3 else "one"
        key = f"{caller}.{number}"
        available = [0, 1] if number % 7 == 0 else None
        decision = await engine.decide(name, DecisionRequest(observation(number), available, key))
        note("decided", name, decision.id, decision.arm, key)
        if number % 5:
            rewarded = await engine.reward(name, RewardRequest(decision.id, reward_from_id(decision.id)))
            note("rewarded", name, decision.id, rewarded.value)


async def fill_disk(engine, max_file_bytes: int, note) -> None:
    """Make decisions until 20 are refused because files may not grow any more."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, hard))
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
    async def load() -> None:  # loads compiled kernels before the first fork and leaves no thread running
        from halfseen.service.engine.transaction import StreamCreation

        for name, changes in STREAMS.items():
            StreamCreation.prepare(spec(name, **changes), Limits())

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
