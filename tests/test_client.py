"""The client against the service, and against one that loses answers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from service.served import Served

import halfseen as hs
from halfseen.errors import InvalidInput


def test_a_stream_by_calls_that_wait(service: Served) -> None:
    with hs.Client(service.url) as client:
        made = client.create_stream("sync", observed=["x", "y"], arms=["a", "b"], agent="ts-pco", seed=1)
        assert client.create_stream("sync", observed=["x", "y"], arms=["a", "b"], agent="ts-pco", seed=1) == made
        decision = client.decide("sync", {"x": 1.0}, available=["b"])
        assert (decision.arm, decision.propensity, decision.repeated) == ("b", 1.0, False)
        assert client.reward("sync", decision, 0.5).how == "given"
        assert client.reward("sync", decision.id, 0.5).repeated
        with pytest.raises(hs.ServiceError) as refused:
            client.reward("sync", decision, 0.6)
        assert (refused.value.status, refused.value.code) == (409, "conflict")
        assert client.add_arm("sync", "c/d")["active"] == ["a", "b", "c/d"]
        assert client.retire_arm("sync", "c/d")["active"] == ["a", "b"]
        assert client.stream("sync")["decisions"] == 1
        assert client.health("sync")["facts"]["rewards"] == 1
        assert "sync" in [view["name"] for view in client.streams()]
        assert client.retire_stream("sync")["retired"]


def test_the_same_by_calls_that_are_awaited(service: Served) -> None:
    async def main() -> None:
        async with hs.AsyncClient(service.url) as client:
            await client.create_stream("async", observed=2, arms=3, agent="ts-pco", seed=1)
            decisions = await asyncio.gather(*(client.decide("async", [1.0, None]) for _ in range(20)))
            assert len({decision.id for decision in decisions}) == 20
            rewards = await client.reward_many("async", [(decision, 1.0) for decision in decisions])
            assert all(not isinstance(reward, hs.ServiceError) and reward.folded for reward in rewards)
            assert (await client.add_arm("async"))["arms"] == [0, 1, 2, 3]
            assert (await client.retire_arm("async", 3))["active"] == [0, 1, 2]
            both = await client.decide_many("async", [[1, 2], [1]])
            assert isinstance(both[1], hs.ServiceError)
            assert (await client.stream("async"))["rewards"] == 20
            assert [view["name"] for view in await client.streams(after="asyn", limit=1)] == ["async"]
            assert (await client.retire_stream("async"))["retired"]
            with pytest.raises(hs.ServiceError, match="nobody"):
                await client.decide("nobody", [1])

    asyncio.run(main())


def test_calls_beyond_a_hundred_wait_outside_of_the_pool() -> None:
    """A thousand at once: never more than a hundred on their way, all answered, and those that pause hold no place."""
    on_their_way = most = answered = 0
    refused_once: set[bytes] = set()

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal on_their_way, most, answered
        on_their_way += 1
        most = max(most, on_their_way)
        await asyncio.sleep(0.001)
        on_their_way -= 1
        if len(refused_once) < 150 and request.content not in refused_once:
            refused_once.add(request.content)
            return httpx.Response(503, content=BUSY)
        answered += 1
        return httpx.Response(200, content=DECIDED)

    async def main() -> None:
        async with hs.AsyncClient("http://127.0.0.1:1") as client:
            await client._http.aclose()
            client._http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url=client.url)
            assert len(await asyncio.gather(*(client.decide("s", [1.0]) for _ in range(1000)))) == 1000

    asyncio.run(main())
    assert (most, answered, len(refused_once)) == (100, 1000, 150)


def test_arrays_and_nan_are_taken_as_an_agent_takes_them(service: Served) -> None:
    with hs.Client(service.url) as client:
        for name in ("arrays", "lists"):
            client.create_stream(name, observed=2, arms=2, agent="ts-pco", seed=5)
        one = client.decide("arrays", np.array([np.nan, 0.25]))
        other = client.decide("lists", [None, 0.25])
        assert one.propensities == other.propensities
        with pytest.raises(hs.HalfseenError, match="finite"):
            client.decide("lists", [float("inf"), 0])


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        ("decide", ("s", ["a", 2]), r"observation\[0\]: expected a finite number, got 'a'"),
        ("decide", ("s", [1, "2"]), r"observation\[1\]: expected a finite number, got '2'"),
        ("decide", ("s", [1, float("inf")]), r"observation\[1\]: expected a finite number, got inf"),
        ("decide", ("s", [1, 10**400]), r"observation\[1\]: got 1000"),
        ("decide", ("s", [[1, 2]]), r"observation\[0\]: got \[1, 2\]; want"),
        ("decide", ("s", {"x": "a"}), r"observation\['x'\]: got 'a'; want"),
        ("decide", ("s", None), "observation: expected numbers in a list, got None"),
        ("decide", ("s", 3.0), "observation: expected numbers in a list, got 3.0"),
        ("decide", ("s", "ab"), "observation: expected numbers in a list, got 'ab'"),
        ("decide", (None, [1]), "stream: expected the name, got None"),
        ("decide_many", ("s", None), "observations: got None; want"),
        ("decide_many", ("s", [[1], ["x"]]), r"observation\[0\]: got 'x'; want"),
        ("reward", ("s", "id", "much"), "value: expected a finite number, got 'much'"),
        ("reward", ("s", "id", None), "value: expected a finite number, got None"),
        ("reward", ("s", "id", float("nan")), "value: expected a finite number, got nan"),
        ("reward", ("s", 7, 1.0), "decision: expected a decision, got 7"),
        ("reward_many", ("s", ["ab"]), "rewards: expected pairs, got 'ab'"),
        ("reward_many", ("s", [("id", 1, 2)]), "rewards: expected pairs, got .*"),
    ],
)
def test_what_cannot_be_sent_is_one_line(call: str, arguments: tuple[object, ...], message: str) -> None:
    nobody = "http://127.0.0.1:1"
    with hs.Client(nobody) as client, pytest.raises(InvalidInput, match=message) as refused:
        getattr(client, call)(*arguments)
    assert "\n" not in str(refused.value)

    async def awaited() -> None:
        async with hs.AsyncClient(nobody) as client:
            await getattr(client, call)(*arguments)

    with pytest.raises(InvalidInput, match=message):
        asyncio.run(awaited())


def test_the_rest_of_what_cannot_be_sent() -> None:
    with hs.Client("http://127.0.0.1:1") as client:
        for options in ({"available": 3}, {"available": [1.5]}, {"available": "ab"}, {"key": 7}, {"key": ""}):
            with pytest.raises(InvalidInput, match=f"{next(iter(options))}: got"):
                client.decide("s", [1.0], **options)
        with pytest.raises(InvalidInput, match="observed: expected a count, got None"):
            client.create_stream("s", observed=None, arms=2)
        with pytest.raises(InvalidInput, match=r"body: expected what JSON can hold, got .*set.*"):
            client.create_stream("s", observed=2, arms=2, options={"latent": {1, 2}})


def test_numbers_of_numpy_are_numbers(service: Served) -> None:
    with hs.Client(service.url) as client:
        client.create_stream("numpy", observed=np.int64(2), arms=np.int64(3), agent="ts-pco", seed=5)
        decision = client.decide("numpy", np.array([1, 2], dtype=np.float32), available=np.array([2]))
        assert decision.arm == 2
        assert client.reward("numpy", decision, np.float32(0.5)).value == 0.5


def _message(plug: socket.socket) -> bytes:
    """A whole request or reply, head and body; nothing if the other end has gone."""
    heard = b""
    while True:
        head, end, body = heard.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if end and len(body) >= (int(length[1]) if length else 0):
            return heard
        part = plug.recv(65_536)
        if not part:
            return b""
        heard += part


@contextmanager
def losing_answers(target: str, lose: int) -> Iterator[tuple[str, list[int]]]:
    """A way to the service that passes requests on and drops the first answers: done, but nobody was told."""
    where = urlsplit(target)
    listening = socket.create_server(("127.0.0.1", 0))
    passed = [0]

    def run() -> None:
        while True:
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            with caller, socket.create_connection((where.hostname, where.port)) as service:
                while asked := _message(caller):
                    service.sendall(asked)
                    answer = _message(service)
                    passed[0] += 1
                    if passed[0] <= lose:
                        break
                    caller.sendall(answer)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", passed
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_an_answer_that_is_lost_is_asked_for_again_and_decided_once(service: Served) -> None:
    with hs.Client(service.url) as direct:
        direct.create_stream("lossy", observed=1, arms=2, agent="ts-pco")
        with losing_answers(service.url, lose=2) as (url, passed), hs.Client(url) as client:
            decision = client.decide("lossy", [1.0])
            assert decision.repeated  # it was made the first time
            assert passed[0] == 3
        with losing_answers(service.url, lose=1) as (url, _), hs.Client(url) as client:
            assert client.reward("lossy", decision, 2.0).repeated
        view = direct.stream("lossy")
        assert (view["decisions"], view["rewards"]) == (1, 1)


def test_an_arm_without_a_name_is_asked_for_once(service: Served) -> None:
    with hs.Client(service.url) as direct:
        direct.create_stream("counted", observed=1, arms=2, agent="ts-pco")
        with losing_answers(service.url, lose=1) as (url, passed), hs.Client(url) as client:
            with pytest.raises(hs.ServiceUnreachable, match="once"):
                client.add_arm("counted")
            assert passed[0] == 1
        assert direct.stream("counted")["arms"] == [0, 1, 2]


@contextmanager
def answering(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A service that gives these answers, one after the other."""
    listening = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def run() -> None:
        for status, body in answers:
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            with caller:
                heard.append(_message(caller))
                head = (
                    f"HTTP/1.1 {status} x\r\ncontent-length: {len(body)}\r\nretry-after: 0\r\nconnection: close\r\n\r\n"
                )
                caller.sendall(head.encode() + body)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
    finally:
        listening.close()


BUSY = json.dumps({"error": {"code": "busy", "message": "service: 9 rows are waiting; try again later"}}).encode()
DECIDED = json.dumps(
    {"id": "i", "arm": 1, "propensity": 1.0, "propensities": [0, 1], "expected": [0, 0], "repeated": False}
).encode()


def test_a_busy_service_is_asked_again_under_the_same_key() -> None:
    with answering((503, BUSY), (429, BUSY), (200, DECIDED)) as (url, heard), hs.Client(url) as client:
        assert client.decide("s", [1.0]).arm == 1
        keys = {json.loads(asked.partition(b"\r\n\r\n")[2])["key"] for asked in heard}
        assert len(heard) == 3
        assert len(keys) == 1
        assert uuid.UUID(hex=keys.pop()).version == 4


def test_it_gives_up_in_the_end_with_the_service_s_own_words() -> None:
    with answering((503, BUSY), (503, BUSY)) as (url, heard), hs.Client(url, retries=1) as client:
        with pytest.raises(hs.ServiceError, match="rows are waiting") as refused:
            client.decide("s", [1.0])
        assert (refused.value.code, len(heard)) == ("busy", 2)


def test_what_is_wrong_is_not_asked_again() -> None:
    wrong = json.dumps({"error": {"code": "invalid", "message": "observation: expected 2, got 1 number"}}).encode()
    with answering((422, wrong), (200, DECIDED)) as (url, heard), hs.Client(url) as client:
        with pytest.raises(hs.ServiceError, match="got 1 number"):
            client.decide("s", [1.0])
        assert len(heard) == 1


def test_an_answer_that_is_not_the_service_s_is_said_to_be_so() -> None:
    for body in (b"<html>a proxy's page</html>", b"[]", b'{"error": "x"}'):
        with (
            answering((500, body)) as (url, _),
            hs.Client(url) as client,
            pytest.raises(hs.ServiceError, match="that is not halfseen's"),
        ):
            client.decide("s", [1.0])


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = hs.Client(f"http://127.0.0.1:{port}", retries=1)
    with client, pytest.raises(hs.ServiceUnreachable, match="asked 2 times"):
        client.decide("s", [1.0])


def test_a_service_that_hangs_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with hs.Client(url, timeout=0.2, retries=0) as client, pytest.raises(hs.ServiceUnreachable, match="Timeout"):
            client.decide("s", [1.0])


def test_a_client_shows_no_token() -> None:
    with hs.Client("http://127.0.0.1:1", token="halfseen_x_secret") as client:
        assert "secret" not in repr(client)
    for bad in ({"url": "ftp://x"}, {"retries": -1}):
        with pytest.raises(hs.HalfseenError):
            hs.Client(**bad)


def test_the_code_in_the_documents_runs(service: Served) -> None:
    page = (Path(hs.__file__).parents[2] / "docs/how-to/serve.md").read_text()
    blocks = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block.replace("http://127.0.0.1:8400", service.url), "serve.md", "exec"), {})
    with hs.Client(service.url) as client:
        assert client.stream("prices")["rewards"] == 1
