"""The client of the service, as calls that wait and as calls that are awaited. It needs httpx and nothing else.

A call is sent again when the service does not answer or is busy, which does no harm: a decision carries a key of its
own, the same reward again is no second reward, the same stream or arm again is the same. Only an arm without a name,
the next number, is asked for once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from halfseen.errors import HalfseenError, invalid, missing_extra
from halfseen.service.calls import (
    Call,
    Observation,
    ServedDecision,
    ServedReward,
    all_asked,
    all_told,
    asked,
    new_stream,
    stream_path,
    told,
)
from halfseen.service.errors import ServiceError

try:
    import httpx
except ImportError as error:
    raise missing_extra(error.name or "httpx", "service", "halfseen.Client") from None

if TYPE_CHECKING:
    from typing import Self

_AGAIN = {429, 502, 503, 504}
_LONGEST_PAUSE = 5.0  # seconds
# As many as httpx opens connections for. What waits for one of these inside its pool is looked through again with every
# request, a time that grows with the square, and in the end is told that the service does not answer.
_AT_ONCE = 100


class ServiceUnreachable(HalfseenError):
    """No answer from the service, however often it was asked. What was asked may have been done all the same."""


def _refused(error: Mapping[str, Any], status: int) -> ServiceError:
    return ServiceError(status, str(error.get("code", "unknown")), str(error.get("message", "")))


def _results(answer: Any, kind: type) -> list[Any]:
    return [_refused(row["error"], 422) if "error" in row else kind(**row) for row in answer["results"]]


class _Shared:
    """What both clients know: how to ask, how long to wait, what an answer means."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8400",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 4,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise invalid("url", f"'{url}'", "http://… or https://…")
        if retries < 0:
            raise invalid("retries", retries, "0 or more")
        self.url = url.rstrip("/")
        self._retries = retries
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._settings: dict[str, Any] = {"base_url": self.url, "headers": headers, "timeout": timeout}

    def __repr__(self) -> str:  # never the token
        return f"{type(self).__name__}('{self.url}')"

    def _pause(self, turn: int, answer: httpx.Response | None) -> float:
        """Twice as long each turn, and by lot, lest all who were refused come back together."""
        least = 0.0
        if answer is not None and answer.headers.get("retry-after", "").isdigit():
            least = min(float(answer.headers["retry-after"]), _LONGEST_PAUSE)
        return least + random.uniform(0, min(_LONGEST_PAUSE, 0.1 * 2**turn))

    def _again(self, call: Call, turn: int, answer: httpx.Response | None, error: httpx.HTTPError | None) -> bool:
        if turn >= self._retries:
            return False
        if answer is not None:
            return answer.status_code in _AGAIN and (call.safe or answer.status_code == 429)
        return call.safe or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)

    def _meaning(self, answer: httpx.Response | None, error: httpx.HTTPError | None, turns: int) -> Any:
        if answer is None:
            times = "once" if turns == 1 else f"{turns} times"
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            raise ServiceUnreachable(f"url: got no answer from {self.url}, asked {times} ({why}); want a service there")
        said: Any = None
        with contextlib.suppress(ValueError):
            said = answer.json()
        if answer.is_success and said is not None:
            return said
        detail = said.get("error") if isinstance(said, dict) else None
        if not isinstance(detail, dict):
            got = f"{answer.status_code} from {self.url} that is not halfseen's"
            detail = {"code": "unknown", "message": f"answer: got {got}; want a halfseen service there"}
        raise _refused(detail, answer.status_code)


class Client(_Shared):
    """Calls that wait. Close it, or use it in a `with`; it may be shared by threads."""

    def __init__(self, url: str = "http://127.0.0.1:8400", **options: Any) -> None:
        super().__init__(url, **options)
        self._http = httpx.Client(**self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _do(self, call: Call) -> Any:
        content, turn = call.content, 0
        while True:
            answer, error = None, None
            try:
                answer = self._http.request(call.method, call.path, content=content, params=call.query)
            except httpx.TransportError as problem:
                error = problem
            if not self._again(call, turn, answer, error):
                return self._meaning(answer, error, turn + 1)
            time.sleep(self._pause(turn, answer))
            turn += 1

    def create_stream(
        self, name: str, *, observed: int | Sequence[str], arms: int | Sequence[str], **rest: Any
    ) -> dict[str, Any]:
        """Further: agent, options, seed, reward_wait, default_reward, late_rewards."""
        return dict(self._do(new_stream(name, observed, arms, rest)))

    def streams(self, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        return list(self._do(Call("GET", "/v1/streams", query={"after": after, "limit": limit}))["streams"])

    def stream(self, name: str) -> dict[str, Any]:
        return dict(self._do(Call("GET", stream_path(name))))

    def retire_stream(self, name: str) -> dict[str, Any]:
        return dict(self._do(Call("DELETE", stream_path(name))))

    def add_arm(self, stream: str, arm: str | None = None) -> dict[str, Any]:
        return dict(self._do(Call("POST", stream_path(stream, "/arms"), {"arm": arm}, safe=arm is not None)))

    def retire_arm(self, stream: str, arm: int | str) -> dict[str, Any]:
        return dict(self._do(Call("DELETE", stream_path(stream, f"/arms/{quote(str(arm), safe='')}"))))

    def health(self, stream: str) -> dict[str, Any]:
        """What the agent says of itself: notes, facts, findings."""
        return dict(self._do(Call("GET", stream_path(stream, "/health"))))

    def decide(
        self,
        stream: str,
        observation: Observation,
        *,
        available: Iterable[int | str] | None = None,
        key: str | None = None,
    ) -> ServedDecision:
        """An arm for what is seen now; NaN or None: not seen. Without a `key` of yours one is made for this call."""
        body = asked(observation, available, key)
        return ServedDecision(**self._do(Call("POST", stream_path(stream, "/decisions"), body)))

    def reward(self, stream: str, decision: str | ServedDecision, value: float) -> ServedReward:
        """What a decision brought: now, late, or twice by mistake."""
        body = told(decision, value)
        return ServedReward(**self._do(Call("POST", stream_path(stream, "/rewards"), body)))

    def decide_many(self, stream: str, observations: Iterable[Observation]) -> list[ServedDecision | ServiceError]:
        """A decision for each, or the error of that one alone."""
        body = all_asked(observations)
        return _results(self._do(Call("POST", stream_path(stream, "/decisions/batch"), body)), ServedDecision)

    def reward_many(
        self, stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
    ) -> list[ServedReward | ServiceError]:
        """What became of each, or the error of that one alone."""
        body = all_told(rewards)
        return _results(self._do(Call("POST", stream_path(stream, "/rewards/batch"), body)), ServedReward)


class AsyncClient(_Shared):
    """The same calls, awaited; of more than 100 at once the others wait. Close it with `aclose`, or use it in an
    `async with`."""

    def __init__(self, url: str = "http://127.0.0.1:8400", **options: Any) -> None:
        super().__init__(url, **options)
        self._http = httpx.AsyncClient(**self._settings)
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _do(self, call: Call) -> Any:
        content, turn = call.content, 0
        while True:
            answer, error = None, None
            try:
                async with self._free:
                    answer = await self._http.request(call.method, call.path, content=content, params=call.query)
            except httpx.TransportError as problem:
                error = problem
            if not self._again(call, turn, answer, error):
                return self._meaning(answer, error, turn + 1)
            await asyncio.sleep(self._pause(turn, answer))
            turn += 1

    async def create_stream(
        self, name: str, *, observed: int | Sequence[str], arms: int | Sequence[str], **rest: Any
    ) -> dict[str, Any]:
        return dict(await self._do(new_stream(name, observed, arms, rest)))

    async def streams(self, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        return list((await self._do(Call("GET", "/v1/streams", query={"after": after, "limit": limit})))["streams"])

    async def stream(self, name: str) -> dict[str, Any]:
        return dict(await self._do(Call("GET", stream_path(name))))

    async def retire_stream(self, name: str) -> dict[str, Any]:
        return dict(await self._do(Call("DELETE", stream_path(name))))

    async def add_arm(self, stream: str, arm: str | None = None) -> dict[str, Any]:
        return dict(await self._do(Call("POST", stream_path(stream, "/arms"), {"arm": arm}, safe=arm is not None)))

    async def retire_arm(self, stream: str, arm: int | str) -> dict[str, Any]:
        return dict(await self._do(Call("DELETE", stream_path(stream, f"/arms/{quote(str(arm), safe='')}"))))

    async def health(self, stream: str) -> dict[str, Any]:
        return dict(await self._do(Call("GET", stream_path(stream, "/health"))))

    async def decide(
        self,
        stream: str,
        observation: Observation,
        *,
        available: Iterable[int | str] | None = None,
        key: str | None = None,
    ) -> ServedDecision:
        body = asked(observation, available, key)
        return ServedDecision(**await self._do(Call("POST", stream_path(stream, "/decisions"), body)))

    async def reward(self, stream: str, decision: str | ServedDecision, value: float) -> ServedReward:
        body = told(decision, value)
        return ServedReward(**await self._do(Call("POST", stream_path(stream, "/rewards"), body)))

    async def decide_many(
        self, stream: str, observations: Iterable[Observation]
    ) -> list[ServedDecision | ServiceError]:
        body = all_asked(observations)
        return _results(await self._do(Call("POST", stream_path(stream, "/decisions/batch"), body)), ServedDecision)

    async def reward_many(
        self, stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
    ) -> list[ServedReward | ServiceError]:
        body = all_told(rewards)
        return _results(await self._do(Call("POST", stream_path(stream, "/rewards/batch"), body)), ServedReward)
