"""How the queue is emptied: who shares a commit with whom, and who waits for whom."""

import asyncio
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest

from halfseen.service.engine import commit_queue as module
from halfseen.service.engine.commit_queue import CommitQueue
from halfseen.service.engine.transaction import Operation
from halfseen.service.errors import ServiceError
from halfseen.service.metrics import Metrics
from halfseen.service.schemas import EngineSettings

SLOW = 0.5  # seconds of the first commit


class Store:
    """Answers everything, slowly the first time."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.refit_due: OrderedDict[str, None] = OrderedDict()
        self.has_refitting_stream = False

    def commit_batch(self, batch):
        self.batches.append(len(batch))
        if len(self.batches) == 1:
            time.sleep(SLOW)
        return [["done"] for _ in batch]


def run_scenario(scenario):
    async def run() -> list[int]:
        store = Store()
        with ThreadPoolExecutor(1) as thread:
            queue = CommitQueue(store, thread, EngineSettings(), Metrics())
            running = asyncio.create_task(queue.run())
            async with asyncio.timeout(60):  # nobody is answered if that task has ended
                await submit(queue)
                await scenario(queue)
                await queue.close()
            running.cancel()
        return store.batches

    return asyncio.run(run())


def submit(queue: CommitQueue) -> asyncio.Future:
    return queue.submit(Operation("one", lambda transaction: [], asyncio.get_running_loop().create_future()))


def test_requests_that_come_turn_after_turn_share_a_commit(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_WAIT", SLOW)

    async def scenario(queue):
        waiting = []
        for _ in range(30):
            waiting.append(submit(queue))
            await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == [["done"]] * 30

    assert run_scenario(scenario) == [1, 30]


def test_one_that_comes_alone_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_WAIT", SLOW)

    async def scenario(queue):
        began = time.monotonic()
        for _ in range(3):
            await submit(queue)
        assert time.monotonic() - began < SLOW

    assert run_scenario(scenario) == [1, 1, 1, 1]


def test_nobody_is_waited_for_longer_than_the_last_commit_took(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.05)

    async def scenario(queue):
        first, end = submit(queue), time.monotonic() + 20
        while not first.done():
            assert time.monotonic() < end
            submit(queue)
            await asyncio.sleep(0.0001 if queue.rows_waiting > 9_000 else 0)

    assert len(run_scenario(scenario)) > 1


def test_nobody_waits_for_a_thread_that_does_not_come_back_until_it_does():
    class Stuck(Store):
        def commit_batch(self, batch):
            if len(self.batches) == 1:
                assert back.wait(60)
            return super().commit_batch(batch)

    back = threading.Event()

    async def refused(answer) -> None:
        with pytest.raises(ServiceError) as raised:
            await answer
        assert (raised.value.status, raised.value.code) == (503, "unavailable")

    async def run() -> None:
        store = Stuck()
        with ThreadPoolExecutor(1) as thread:
            metrics = Metrics()
            queue = CommitQueue(store, thread, EngineSettings(stall_seconds=2 * SLOW), metrics)
            running = asyncio.create_task(queue.run())
            try:
                await submit(queue)
                stuck = submit(queue)
                await asyncio.sleep(SLOW / 2)
                queued = submit(queue)
                await asyncio.wait_for(refused(stuck), 20)
                await refused(queued)
                assert not queue.available
                with pytest.raises(ServiceError, match="no answer"):
                    submit(queue)
            finally:
                back.set()
            end = time.monotonic() + 20
            while not queue.available:
                assert time.monotonic() < end
                await asyncio.sleep(0.01)
            assert await submit(queue) == ["done"]
            assert (queue.rows_waiting, metrics.registry.get_sample_value("halfseen_stalls_total")) == (0, 1)
            await queue.close()
            running.cancel()
        assert store.batches == [1, 1, 1]  # the one that was begun is done once, the one that waited is not

    asyncio.run(run())
