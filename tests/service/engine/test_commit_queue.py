"""How the queue is emptied: who shares a commit with whom, and who waits for whom."""

import asyncio
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest

from halfseen.service.engine import commit_queue as module
from halfseen.service.engine.commit_queue import Drain
from halfseen.service.engine.work import Work
from halfseen.service.errors import ServiceError
from halfseen.service.specs import Settings

SLOW = 0.5  # seconds of the first commit


class Store:
    """Answers everything, slowly the first time."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.due: OrderedDict[str, None] = OrderedDict()
        self.identifies = False

    def step(self, batch):
        self.batches.append(len(batch))
        if len(self.batches) == 1:
            time.sleep(SLOW)
        return [["done"] for _ in batch]


def drained(scenario):
    async def run() -> list[int]:
        store = Store()
        with ThreadPoolExecutor(1) as thread:
            drain = Drain(store, thread, Settings())
            running = asyncio.create_task(drain.run())
            async with asyncio.timeout(60):  # nobody is answered if that task has ended
                await asked(drain)
                await scenario(drain)
                await drain.close()
            running.cancel()
        return store.batches

    return asyncio.run(run())


def asked(drain: Drain) -> asyncio.Future:
    return drain.submit(Work("one", lambda desk: [], asyncio.get_running_loop().create_future()))


def test_requests_that_come_turn_after_turn_share_a_commit(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", SLOW)

    async def scenario(drain):
        waiting = []
        for _ in range(30):
            waiting.append(asked(drain))
            await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == [["done"]] * 30

    assert drained(scenario) == [1, 30]


def test_one_that_comes_alone_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", SLOW)

    async def scenario(drain):
        began = time.monotonic()
        for _ in range(3):
            await asked(drain)
        assert time.monotonic() - began < SLOW

    assert drained(scenario) == [1, 1, 1, 1]


def test_nobody_is_waited_for_longer_than_the_last_commit_took(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", 0.05)

    async def scenario(drain):
        first, end = asked(drain), time.monotonic() + 20
        while not first.done():
            assert time.monotonic() < end
            asked(drain)
            await asyncio.sleep(0.0001 if drain.rows_waiting > 9_000 else 0)

    assert len(drained(scenario)) > 1


def test_nobody_waits_for_a_thread_that_does_not_come_back_until_it_does():
    class Stuck(Store):
        def step(self, batch):
            if len(self.batches) == 1:
                assert back.wait(60)
            return super().step(batch)

    back = threading.Event()

    async def refused(answer) -> None:
        with pytest.raises(ServiceError) as raised:
            await answer
        assert (raised.value.status, raised.value.code) == (503, "unavailable")

    async def run() -> None:
        store = Stuck()
        with ThreadPoolExecutor(1) as thread:
            drain = Drain(store, thread, Settings(stall_seconds=2 * SLOW))
            running = asyncio.create_task(drain.run())
            try:
                await asked(drain)
                stuck = asked(drain)
                await asyncio.sleep(SLOW / 2)
                queued = asked(drain)
                await asyncio.wait_for(refused(stuck), 20)
                await refused(queued)
                assert not drain.available
                with pytest.raises(ServiceError, match="no answer"):
                    asked(drain)
            finally:
                back.set()
            end = time.monotonic() + 20
            while not drain.available:
                assert time.monotonic() < end
                await asyncio.sleep(0.01)
            assert await asked(drain) == ["done"]
            assert (drain.rows_waiting, drain.counts["stalls"]) == (0, 1)
            await drain.close()
            running.cancel()
        assert store.batches == [1, 1, 1]  # the one that was begun is done once, the one that waited is not

    asyncio.run(run())
