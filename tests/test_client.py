"""The clients, with the real service and with one that loses answers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from service.served import Served

import halfseen as hs
from halfseen.errors import InvalidInput


def test_the_blocking_client_makes_all_calls(service: Served) -> None:
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
        guardrails = {"floor": 0.1, "holdback": 0.0, "control": ["a", 1.0]}
        assert client.set_guardrails("sync", floor=0.1, control=("a", 1.0)) == guardrails
        assert client.guardrails("sync") == guardrails
        assert client.decide("sync", [0.1, 0.2]).branch in ("floor", "control")
        assert client.set_guardrails("sync")["control"] is None
        assert client.stream("sync")["decisions"] == 2
        assert client.health("sync")["facts"]["rewards"] == 1
        assert client.observe("sync", {"x": 0.5}, elapsed=3) == 3
        preview = client.preview("sync", [0.1, 0.2], available=["a"], elapsed=2)
        assert (preview.arm, preview.propensity) == ("a", 1.0)
        assert client.decide("sync", [0.1, 0.2], available=["a"], elapsed=2).expected == preview.expected
        client.create_stream("clocked", observed=2, arms=2, agent="adaptive", seed=1, step=60.0)
        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        assert client.observe("clocked", [0.1, 0.2], time=noon) == 1
        assert client.observe("clocked", [0.1, 0.2], time=(noon + timedelta(minutes=7)).isoformat()) == 7
        assert len(client.forecast("clocked", 4)["best_arm_probability"]) == 4
        for wrong in ({"time": noon.replace(tzinfo=None)}, {"time": 5}, {"elapsed": -1}, {"elapsed": 1.5}):
            with pytest.raises(InvalidInput):
                client.decide("clocked", [0.1, 0.2], **wrong)
        assert "sync" in [view["name"] for view in client.streams()]
        assert client.retire_stream("sync")["retired"]


def test_the_async_client_makes_all_calls(service: Served) -> None:
    async def main() -> None:
        async with hs.AsyncClient(service.url) as client:
            await client.create_stream("async", observed=2, arms=3, agent="ts-pco", seed=1)
            decisions = await asyncio.gather(*(client.decide("async", [1.0, None]) for _ in range(20)))
            assert len({decision.id for decision in decisions}) == 20
            rewards = await client.reward_many("async", [(decision, 1.0) for decision in decisions])
            assert all(not isinstance(reward, hs.ServiceError) and reward.folded for reward in rewards)
            assert await client.observe("async", [1.0, None], elapsed=2) == 2
            assert (await client.preview("async", [1.0, None], available=[2])).arm == 2
            with pytest.raises(hs.ServiceError, match="no linear-Gaussian model"):
                await client.forecast("async")
            assert (await client.add_arm("async"))["arms"] == [0, 1, 2, 3]
            assert (await client.retire_arm("async", 3))["active"] == [0, 1, 2]
            guardrails = {"floor": 0.0, "holdback": 1.0, "control": None}
            assert await client.set_guardrails("async", holdback=1.0) == guardrails
            assert await client.guardrails("async") == guardrails
            await client.set_guardrails("async")
            both = await client.decide_many("async", [[1, 2], [1]])
            assert isinstance(both[1], hs.ServiceError)
            assert len(await client.decide_many("async", [[1, 2], [2, 1]], elapsed=[3, 0])) == 2
            assert (await client.stream("async"))["rewards"] == 20
            assert [view["name"] for view in await client.streams(after="asyn", limit=1)] == ["async"]
            assert (await client.retire_stream("async"))["retired"]
            with pytest.raises(hs.ServiceError, match="nobody"):
                await client.decide("nobody", [1])

    asyncio.run(main())


def test_the_async_client_sends_at_most_a_hundred_requests_at_the_same_time() -> None:
    """All of a thousand calls are answered. Calls that pause before a retry are not counted."""
    in_flight = most = answered = 0
    refused_once: set[bytes] = set()

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal in_flight, most, answered
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.001)
        in_flight -= 1
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


def test_observations_may_be_arrays_with_nan(service: Served) -> None:
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
        ("decide", ("s", ["a", 2]), r"observation\[0\]: expected a finite number, .*, got 'a'"),
        ("decide", ("s", [1, "2"]), r"observation\[1\]: expected a finite number, .*, got '2'"),
        ("decide", ("s", [1, float("inf")]), r"observation\[1\]: expected a finite number, .*, got inf"),
        ("decide", ("s", [1, 10**400]), r"observation\[1\]: expected a finite number, .*, got 1000"),
        ("decide", ("s", [[1, 2]]), r"observation\[0\]: expected a finite number, .*, got \[1, 2\]"),
        ("decide", ("s", {"x": "a"}), r"observation\['x'\]: expected a finite number, .*, got 'a'"),
        ("decide", ("s", None), "observation: expected a list of numbers, .*, got None"),
        ("decide", ("s", 3.0), "observation: expected a list of numbers, .*, got 3.0"),
        ("decide", ("s", "ab"), "observation: expected a list of numbers, .*, got 'ab'"),
        ("decide", (None, [1]), "stream: expected the name of a stream, got None"),
        ("decide_many", ("s", None), "observations: expected a list of observations, got None"),
        ("decide_many", ("s", [[1], ["x"]]), r"observation\[0\]: expected a finite number, .*, got 'x'"),
        ("reward", ("s", "id", "much"), "value: expected a finite number, got 'much'"),
        ("reward", ("s", "id", None), "value: expected a finite number, got None"),
        ("reward", ("s", "id", float("nan")), "value: expected a finite number, got nan"),
        ("reward", ("s", 7, 1.0), "decision: expected a decision of the service or its id, got 7"),
        ("reward_many", ("s", ["ab"]), "rewards: expected pairs of a decision and its reward, got 'ab'"),
        (
            "reward_many",
            ("s", [("id", 1, 2)]),
            "rewards: expected pairs of a decision and its reward, got .*'id', 1, 2",
        ),
    ],
)
def test_arguments_that_cannot_be_sent_are_refused_in_one_line(
    call: str, arguments: tuple[object, ...], message: str
) -> None:
    no_service = "http://127.0.0.1:1"
    with hs.Client(no_service) as client, pytest.raises(InvalidInput, match=message) as refused:
        getattr(client, call)(*arguments)
    assert "\n" not in str(refused.value)

    async def call_async() -> None:
        async with hs.AsyncClient(no_service) as client:
            await getattr(client, call)(*arguments)

    with pytest.raises(InvalidInput, match=message):
        asyncio.run(call_async())


def test_options_that_cannot_be_sent_are_refused() -> None:
    with hs.Client("http://127.0.0.1:1") as client:
        with pytest.raises(hs.HalfseenError, match="elapsed: expected 2 values, one per observation, got 1 values"):
            client.decide_many("s", [[1], [2]], elapsed=[3])
        for options in ({"available": 3}, {"available": [1.5]}, {"available": "ab"}, {"key": 7}, {"key": ""}):
            with pytest.raises(InvalidInput, match=f"{next(iter(options))}: expected"):
                client.decide("s", [1.0], **options)
        with pytest.raises(InvalidInput, match="observed: expected a count or a list of names, got None"):
            client.create_stream("s", observed=None, arms=2)
        with pytest.raises(InvalidInput, match=r"body: expected only values that JSON can represent, .*, got .*set.*"):
            client.create_stream("s", observed=2, arms=2, options={"latent": {1, 2}})


def test_numbers_may_be_numpy_scalars(service: Served) -> None:
    with hs.Client(service.url) as client:
        client.create_stream("numpy", observed=np.int64(2), arms=np.int64(3), agent="ts-pco", seed=5)
        decision = client.decide("numpy", np.array([1, 2], dtype=np.float32), available=np.array([2]))
        assert decision.arm == 2
        assert client.reward("numpy", decision, np.float32(0.5)).value == 0.5


def receive_message(connection: socket.socket) -> bytes:
    """Receive a complete request or reply. Returns nothing if the other side has closed the connection."""
    received = b""
    while True:
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if end and len(body) >= (int(length[1]) if length else 0):
            return received
        part = connection.recv(65_536)
        if not part:
            return b""
        received += part


@contextmanager
def losing_answers(target: str, lose: int) -> Iterator[tuple[str, list[int]]]:
    """A proxy that forwards requests to the service and drops the first `lose` answers."""
    address = urlsplit(target)
    listening = socket.create_server(("127.0.0.1", 0))
    forwarded = [0]

    def run() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, socket.create_connection((address.hostname, address.port)) as service:
                while request := receive_message(connection):
                    service.sendall(request)
                    answer = receive_message(service)
                    forwarded[0] += 1
                    if forwarded[0] <= lose:
                        break
                    connection.sendall(answer)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", forwarded
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_a_request_whose_answer_is_lost_is_repeated_and_decided_once(service: Served) -> None:
    with hs.Client(service.url) as direct:
        direct.create_stream("lossy", observed=1, arms=2, agent="ts-pco")
        with losing_answers(service.url, lose=2) as (url, forwarded), hs.Client(url) as client:
            decision = client.decide("lossy", [1.0])
            assert decision.repeated  # the first request made it
            assert forwarded[0] == 3
        with losing_answers(service.url, lose=1) as (url, _), hs.Client(url) as client:
            assert client.reward("lossy", decision, 2.0).repeated
        view = direct.stream("lossy")
        assert (view["decisions"], view["rewards"]) == (1, 1)


def test_adding_an_arm_without_a_name_is_not_repeated(service: Served) -> None:
    with hs.Client(service.url) as direct:
        direct.create_stream("counted", observed=1, arms=2, agent="ts-pco")
        with losing_answers(service.url, lose=1) as (url, forwarded), hs.Client(url) as client:
            with pytest.raises(hs.ServiceUnreachable, match="tried once"):
                client.add_arm("counted")
            assert forwarded[0] == 1
        assert direct.stream("counted")["arms"] == [0, 1, 2]


@contextmanager
def answering(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, one after the other, and collects the requests."""
    listening = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def run() -> None:
        for status, body in answers:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                requests.append(receive_message(connection))
                head = (
                    f"HTTP/1.1 {status} x\r\ncontent-length: {len(body)}\r\nretry-after: 0\r\nconnection: close\r\n\r\n"
                )
                connection.sendall(head.encode() + body)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
    finally:
        listening.close()


BUSY = json.dumps({"error": {"code": "busy", "message": "Too many requests are waiting. Try again later."}}).encode()
DECIDED = json.dumps(
    {"id": "i", "arm": 1, "propensity": 1.0, "propensities": [0, 1], "expected": [0, 0], "repeated": False}
).encode()


def test_a_request_to_a_busy_service_is_repeated_with_the_same_key() -> None:
    with answering((503, BUSY), (429, BUSY), (200, DECIDED)) as (url, requests), hs.Client(url) as client:
        assert client.decide("s", [1.0]).arm == 1
        keys = {json.loads(request.partition(b"\r\n\r\n")[2])["key"] for request in requests}
        assert len(requests) == 3
        assert len(keys) == 1
        assert uuid.UUID(hex=keys.pop()).version == 4


def test_after_the_last_retry_the_error_of_the_service_is_raised() -> None:
    with answering((503, BUSY), (503, BUSY)) as (url, requests), hs.Client(url, retries=1) as client:
        with pytest.raises(hs.ServiceError, match="Too many requests are waiting") as refused:
            client.decide("s", [1.0])
        assert (refused.value.code, len(requests)) == ("busy", 2)


def test_an_invalid_request_is_not_repeated() -> None:
    error = json.dumps({"error": {"code": "invalid", "message": "observation: expected 2 numbers, got 1"}}).encode()
    with answering((422, error), (200, DECIDED)) as (url, requests), hs.Client(url) as client:
        with pytest.raises(hs.ServiceError, match="expected 2 numbers, got 1"):
            client.decide("s", [1.0])
        assert len(requests) == 1


def test_an_answer_from_another_server_is_an_error() -> None:
    for body in (b"<html>the page of a proxy</html>", b"[]", b'{"error": "x"}'):
        with (
            answering((500, body)) as (url, _),
            hs.Client(url) as client,
            pytest.raises(
                hs.ServiceError, match="answered with status 500, but not in the format of a halfseen service"
            ),
        ):
            client.decide("s", [1.0])


def test_no_service_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = hs.Client(f"http://127.0.0.1:{port}", retries=1)
    with client, pytest.raises(hs.ServiceUnreachable, match="did not answer, tried 2 times"):
        client.decide("s", [1.0])


def test_a_service_that_does_not_answer_causes_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with hs.Client(url, timeout=0.2, retries=0) as client, pytest.raises(hs.ServiceUnreachable, match="Timeout"):
            client.decide("s", [1.0])


def test_the_repr_of_a_client_does_not_contain_the_token() -> None:
    with hs.Client("http://127.0.0.1:1", token="halfseen_x_secret") as client:
        assert "secret" not in repr(client)
    for invalid in ({"url": "ftp://x"}, {"retries": -1}):
        with pytest.raises(hs.HalfseenError):
            hs.Client(**invalid)


def test_the_code_in_the_documents_runs(service: Served) -> None:
    page = (Path(hs.__file__).parents[2] / "docs/how-to/serve.md").read_text()
    blocks = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block.replace("http://127.0.0.1:8400", service.url), "serve.md", "exec"), {})
    with hs.Client(service.url) as client:
        assert client.stream("prices")["rewards"] == 1
