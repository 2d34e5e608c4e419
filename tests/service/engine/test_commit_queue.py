"""The commit queue: which operations share a commit, how long they wait, and what happens if a commit stalls."""

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

SLOW = 0.5  # seconds that the first commit takes


class Store:
    """A store that accepts every operation. Its first commit is slow."""

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
            async with asyncio.timeout(60):  # in case the task has failed
                await submit(queue)
                await scenario(queue)
                await queue.close()
            running.cancel()
        return store.batches

    return asyncio.run(run())


def submit(queue: CommitQueue) -> asyncio.Future:
    return queue.submit(Operation("one", lambda transaction: [], asyncio.get_running_loop().create_future()))


def test_operations_submitted_in_successive_iterations_share_a_commit(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_WAIT", SLOW)

    async def scenario(queue):
        waiting = []
        for _ in range(30):
            waiting.append(submit(queue))
            await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == [["done"]] * 30

    assert run_scenario(scenario) == [1, 30]


def test_a_single_operation_does_not_wait_for_others(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_WAIT", SLOW)

    async def scenario(queue):
        began = time.monotonic()
        for _ in range(3):
            await submit(queue)
        assert time.monotonic() - began < SLOW

    assert run_scenario(scenario) == [1, 1, 1, 1]


def test_the_wait_for_more_operations_is_limited(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.05)

    async def scenario(queue):
        first, end = submit(queue), time.monotonic() + 20
        while not first.done():
            assert time.monotonic() < end
            submit(queue)
            await asyncio.sleep(0.0001 if queue.rows_waiting > 9_000 else 0)

    assert len(run_scenario(scenario)) > 1


def test_operations_are_refused_while_a_commit_stalls():
    class StallingStore(Store):
        def commit_batch(self, batch):
            if len(self.batches) == 1:
                assert resume.wait(60)
            return super().commit_batch(batch)

    resume = threading.Event()

    async def assert_unavailable(future) -> None:
        with pytest.raises(ServiceError) as raised:
            await future
        assert (raised.value.status, raised.value.code) == (503, "unavailable")

    async def run() -> None:
        store = StallingStore()
        with ThreadPoolExecutor(1) as thread:
            metrics = Metrics()
            queue = CommitQueue(store, thread, EngineSettings(stall_seconds=2 * SLOW), metrics)
            running = asyncio.create_task(queue.run())
            try:
                await submit(queue)
                stalled = submit(queue)
                await asyncio.sleep(SLOW / 2)
                queued = submit(queue)
                await asyncio.wait_for(assert_unavailable(stalled), 20)
                await assert_unavailable(queued)
                assert not queue.available
                with pytest.raises(ServiceError, match="did not answer within"):
                    submit(queue)
            finally:
                resume.set()
            end = time.monotonic() + 20
            while not queue.available:
                assert time.monotonic() < end
                await asyncio.sleep(0.01)
            assert await submit(queue) == ["done"]
            assert (queue.rows_waiting, metrics.registry.get_sample_value("halfseen_stalls_total")) == (0, 1)
            await queue.close()
            running.cancel()
        assert store.batches == [1, 1, 1]  # the stalled operation was run once, and the queued operation was not run

    asyncio.run(run())
