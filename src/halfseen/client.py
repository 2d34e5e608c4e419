"""HTTP client of the decision service: `Client` blocks, `AsyncClient` is awaited.

Besides httpx it needs nothing but the core of the package. A request is sent again when the service does not answer or
is busy. That is safe: a decision carries an idempotency key, and repeating a reward, a stream or a named arm changes
nothing. Only adding an arm without a name, which takes the next number, is never repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import operator
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from numpy.typing import ArrayLike

from halfseen.errors import HalfseenError, invalid, missing_extra
from halfseen.service.errors import ServiceError
from halfseen.validation import as_list, is_missing, without_frame

try:
    import httpx
except ImportError as error:
    raise missing_extra(error.name or "httpx", "service", "halfseen.Client") from None

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")
Arm = int | str
Observation = Sequence[float | None] | Mapping[str, float | None] | ArrayLike
Observations = Iterable[Observation] | ArrayLike
_Outcome = httpx.Response | Exception
_RETRY_STATUSES = {429, 502, 503, 504}
_LONGEST_PAUSE = 5.0  # seconds
# The number of connections httpx opens. Its pool searches all waiting requests again with every request, which takes
# time that grows with their square, and in the end fails those that waited too long.
_MAX_CONCURRENT = 100


class ServiceUnreachable(HalfseenError):
    """The service did not answer, after all retries. What was requested may have been done all the same."""


@dataclass(frozen=True)
class ServedDecision:
    """A decision of the service. `repeated` means that it had been made before, under the same key."""

    id: str
    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]
    repeated: bool


@dataclass(frozen=True)
class ServedReward:
    """A recorded reward. `how` is "given", "default" or "late"; `folded` says whether the agent learns from it."""

    decision: str
    value: float
    how: str
    folded: bool
    repeated: bool


# ---------------------------------------------------------------------- requests


@dataclass(frozen=True)
class _Call(Generic[T]):
    """One request, and how the JSON of its reply is turned into a result."""

    method: str
    path: str
    result: Callable[[Any], T]
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    repeatable: bool = True  # may be sent again although the service may have done it

    @property
    def content(self) -> bytes | None:
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise invalid("body", "what JSON can hold: finite numbers, text, lists, mappings", error) from None


def _stream_path(name: str, rest: str = "") -> str:
    if not isinstance(name, str):
        raise invalid("stream", "the name of a stream", repr(name))
    return f"/v1/streams/{quote(name, safe='')}{rest}"


def _create_stream(name: str, observed: Any, arms: Any, options: dict[str, Any]) -> _Call[dict[str, Any]]:
    body = {"name": name, "observed": _count_or_names("observed", observed), "arms": _count_or_names("arms", arms)}
    return _Call("POST", "/v1/streams", dict, body | options)


def _streams(after: str, limit: int) -> _Call[list[dict[str, Any]]]:
    return _Call("GET", "/v1/streams", lambda reply: list(reply["streams"]), query={"after": after, "limit": limit})


def _add_arm(stream: str, arm: str | None) -> _Call[dict[str, Any]]:
    return _Call("POST", _stream_path(stream, "/arms"), dict, {"arm": arm}, repeatable=arm is not None)


def _retire_arm(stream: str, arm: Arm) -> _Call[dict[str, Any]]:
    return _Call("DELETE", _stream_path(stream, f"/arms/{quote(str(arm), safe='')}"), dict)


def _decide(
    stream: str, observation: Observation, available: Iterable[Arm] | None, key: str | None
) -> _Call[ServedDecision]:
    body = _decision_request(observation, available, key)
    return _Call("POST", _stream_path(stream, "/decisions"), lambda reply: ServedDecision(**reply), body)


def _reward(stream: str, decision: str | ServedDecision, value: float) -> _Call[ServedReward]:
    body = _reward_request(decision, value)
    return _Call("POST", _stream_path(stream, "/rewards"), lambda reply: ServedReward(**reply), body)


def _decide_many(stream: str, observations: Observations) -> _Call[list[ServedDecision | ServiceError]]:
    given = as_list("observations", without_frame("observations", observations), "a list of observations")
    rows = [_decision_request(row) for row in given]
    return _Call("POST", _stream_path(stream, "/decisions/batch"), _results(ServedDecision), {"decisions": rows})


def _reward_many(
    stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
) -> _Call[list[ServedReward | ServiceError]]:
    wanted = "pairs of a decision and its reward"
    pairs = as_list("rewards", rewards, wanted)
    for pair in pairs:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise invalid("rewards", wanted, repr(pair))
    rows = [_reward_request(decision, value) for decision, value in pairs]
    return _Call("POST", _stream_path(stream, "/rewards/batch"), _results(ServedReward), {"rewards": rows})


def _decision_request(
    observation: Observation, available: Iterable[Arm] | None = None, key: str | None = None
) -> dict[str, Any]:
    if key is not None and (not isinstance(key, str) or not key):
        raise invalid("key", "a text that is not empty, or None for a key made for this call", repr(key))
    body: dict[str, Any] = {"key": uuid.uuid4().hex if key is None else key}
    if isinstance(observation, Mapping):
        body["observation"] = {
            str(name): _entry(f"observation['{name}']", value) for name, value in observation.items()
        }
    else:
        wanted = "numbers in a list, or by feature in a mapping"
        entries = as_list("observation", without_frame("observation", observation), wanted)
        body["observation"] = [_entry(f"observation[{i}]", value) for i, value in enumerate(entries)]
    if available is not None:
        body["available"] = [_arm(arm) for arm in as_list("available", available, "a list of arms")]
    return body


def _reward_request(decision: str | ServedDecision, value: float) -> dict[str, Any]:
    decision_id = decision.id if isinstance(decision, ServedDecision) else decision
    if not isinstance(decision_id, str):
        raise invalid("decision", "a decision of the service, or its id", repr(decision))
    number = _number("value", value, "a finite number")
    if math.isnan(number):
        raise invalid("value", "a finite number", value)
    return {"decision": decision_id, "value": number}


def _entry(argument: str, value: Any) -> float | None:
    """An entry of an observation as JSON has it: NaN becomes None."""
    if is_missing(value):
        return None
    number = _number(argument, value, "a finite number, or None or NaN where it is not seen")
    return None if math.isnan(number) else number


def _number(argument: str, value: Any, wanted: str) -> float:
    try:
        number = math.inf if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isinf(number):
        raise invalid(argument, wanted, repr(value))
    return number


def _arm(value: Any) -> Arm:
    try:
        return value if isinstance(value, str) else operator.index(value)
    except TypeError:
        raise invalid("available", "arms: names, or numbers where arms are numbers", repr(value)) from None


def _count_or_names(argument: str, given: Any) -> int | list[str]:
    try:
        return operator.index(given)
    except TypeError:
        return as_list(argument, given, "a count, or a list of names")


# ---------------------------------------------------------------------- replies


def _results(kind: Callable[..., T]) -> Callable[[Any], list[T | ServiceError]]:
    """A reader for replies to a batch: a result or an error per row."""
    return lambda reply: [_error(row["error"], 422) if "error" in row else kind(**row) for row in reply["results"]]


def _error(detail: Mapping[str, Any], status: int) -> ServiceError:
    return ServiceError(status, str(detail.get("code", "unknown")), str(detail.get("message", "")))


# ---------------------------------------------------------------------- clients


class _BaseClient:
    """Settings, retries and the reading of replies, which both clients share."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8400",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 4,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise invalid("url", "http://… or https://…", f"'{url}'")
        if retries < 0:
            raise invalid("retries", "0 or more", retries)
        self.url = url.rstrip("/")
        self._retries = retries
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._settings: dict[str, Any] = {"base_url": self.url, "headers": headers, "timeout": timeout}

    def __repr__(self) -> str:  # never the token
        return f"{type(self).__name__}('{self.url}')"

    def _pause_before_retry(self, call: _Call[Any], attempt: int, outcome: _Outcome) -> float | None:
        """Seconds to wait before the request is sent again, or None if it is not.

        The pause doubles with every attempt, and it is random so that refused clients do not come back together.
        """
        least = 0.0
        if attempt > self._retries:
            return None
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in _RETRY_STATUSES or not (call.repeatable or outcome.status_code == 429):
                return None
            if outcome.headers.get("retry-after", "").isdigit():
                least = min(float(outcome.headers["retry-after"]), _LONGEST_PAUSE)
        elif not (call.repeatable or isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout)):
            return None
        return least + random.uniform(0, min(_LONGEST_PAUSE, 0.1 * 2 ** (attempt - 1)))

    def _result(self, call: _Call[T], attempts: int, outcome: _Outcome) -> T:
        if not isinstance(outcome, httpx.Response):
            times = "once" if attempts == 1 else f"{attempts} times"
            why = f"{type(outcome).__name__}: {outcome}".rstrip(": ")
            raise ServiceUnreachable(f"No answer from {self.url}, asked {times}: {why}")
        reply: Any = None
        with contextlib.suppress(ValueError):
            reply = outcome.json()
        if outcome.is_success and reply is not None:
            return call.result(reply)
        detail = reply.get("error") if isinstance(reply, dict) else None
        if not isinstance(detail, dict):
            got = f"{outcome.status_code} from {self.url} that is not halfseen's"
            detail = {"code": "unknown", "message": f"answer: expected the answer of a halfseen service, got {got}"}
        raise _error(detail, outcome.status_code)


class Client(_BaseClient):
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

    def _send(self, call: _Call[T]) -> T:
        content, attempt = call.content, 0
        while True:
            attempt += 1
            outcome: _Outcome
            try:
                outcome = self._http.request(call.method, call.path, content=content, params=call.query)
            except httpx.TransportError as error:
                outcome = error
            if (pause := self._pause_before_retry(call, attempt, outcome)) is None:
                return self._result(call, attempt, outcome)
            time.sleep(pause)

    def create_stream(
        self, name: str, *, observed: int | Sequence[str], arms: int | Sequence[str], **rest: Any
    ) -> dict[str, Any]:
        """Further: agent, options, seed, reward_wait, default_reward, late_rewards."""
        return self._send(_create_stream(name, observed, arms, rest))

    def streams(self, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        return self._send(_streams(after, limit))

    def stream(self, name: str) -> dict[str, Any]:
        return self._send(_Call("GET", _stream_path(name), dict))

    def retire_stream(self, name: str) -> dict[str, Any]:
        return self._send(_Call("DELETE", _stream_path(name), dict))

    def add_arm(self, stream: str, arm: str | None = None) -> dict[str, Any]:
        return self._send(_add_arm(stream, arm))

    def retire_arm(self, stream: str, arm: Arm) -> dict[str, Any]:
        return self._send(_retire_arm(stream, arm))

    def health(self, stream: str) -> dict[str, Any]:
        """What the agent says of itself: notes, facts, findings."""
        return self._send(_Call("GET", _stream_path(stream, "/health"), dict))

    def decide(
        self, stream: str, observation: Observation, *, available: Iterable[Arm] | None = None, key: str | None = None
    ) -> ServedDecision:
        """An arm for what is seen now; NaN or None: not seen. Without a `key` of yours one is made for this call."""
        return self._send(_decide(stream, observation, available, key))

    def reward(self, stream: str, decision: str | ServedDecision, value: float) -> ServedReward:
        """What a decision brought: now, late, or twice by mistake."""
        return self._send(_reward(stream, decision, value))

    def decide_many(self, stream: str, observations: Observations) -> list[ServedDecision | ServiceError]:
        """A decision for each, or the error of that one alone."""
        return self._send(_decide_many(stream, observations))

    def reward_many(
        self, stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
    ) -> list[ServedReward | ServiceError]:
        """What became of each, or the error of that one alone."""
        return self._send(_reward_many(stream, rewards))


class AsyncClient(_BaseClient):
    """The same calls, awaited; of more than 100 at once the others wait. Close it with `aclose`, or use it in an
    `async with`."""

    def __init__(self, url: str = "http://127.0.0.1:8400", **options: Any) -> None:
        super().__init__(url, **options)
        self._http = httpx.AsyncClient(**self._settings)
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _send(self, call: _Call[T]) -> T:
        content, attempt = call.content, 0
        while True:
            attempt += 1
            outcome: _Outcome
            try:
                async with self._slots:
                    outcome = await self._http.request(call.method, call.path, content=content, params=call.query)
            except httpx.TransportError as error:
                outcome = error
            if (pause := self._pause_before_retry(call, attempt, outcome)) is None:
                return self._result(call, attempt, outcome)
            await asyncio.sleep(pause)

    async def create_stream(
        self, name: str, *, observed: int | Sequence[str], arms: int | Sequence[str], **rest: Any
    ) -> dict[str, Any]:
        return await self._send(_create_stream(name, observed, arms, rest))

    async def streams(self, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        return await self._send(_streams(after, limit))

    async def stream(self, name: str) -> dict[str, Any]:
        return await self._send(_Call("GET", _stream_path(name), dict))

    async def retire_stream(self, name: str) -> dict[str, Any]:
        return await self._send(_Call("DELETE", _stream_path(name), dict))

    async def add_arm(self, stream: str, arm: str | None = None) -> dict[str, Any]:
        return await self._send(_add_arm(stream, arm))

    async def retire_arm(self, stream: str, arm: Arm) -> dict[str, Any]:
        return await self._send(_retire_arm(stream, arm))

    async def health(self, stream: str) -> dict[str, Any]:
        return await self._send(_Call("GET", _stream_path(stream, "/health"), dict))

    async def decide(
        self, stream: str, observation: Observation, *, available: Iterable[Arm] | None = None, key: str | None = None
    ) -> ServedDecision:
        return await self._send(_decide(stream, observation, available, key))

    async def reward(self, stream: str, decision: str | ServedDecision, value: float) -> ServedReward:
        return await self._send(_reward(stream, decision, value))

    async def decide_many(self, stream: str, observations: Observations) -> list[ServedDecision | ServiceError]:
        return await self._send(_decide_many(stream, observations))

    async def reward_many(
        self, stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
    ) -> list[ServedReward | ServiceError]:
        return await self._send(_reward_many(stream, rewards))
