"""HTTP clients of the decision service: `Client` for blocking calls and `AsyncClient` for asyncio.

Besides the core of the package, both clients need only httpx. A request is sent again if the service does not answer or
is busy. This is safe: a decision has an idempotency key, and sending a reward, a stream or a named arm twice changes
nothing. Two kinds of requests are not repeatable: adding an arm without a name, and sending an observation without a
decision. They are sent again only if the rate limit has refused them (status 429) or no connection could be made.
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
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from numpy.typing import ArrayLike

from halfseen.errors import HalfseenError, invalid, missing_extra
from halfseen.service.errors import ServiceError
from halfseen.validation import as_list, elapsed_steps, is_missing, without_frame

try:
    import httpx
except ImportError as error:
    raise missing_extra(error.name or "httpx", "service", "halfseen.Client") from None

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")
Arm = int | str
Observation = Sequence[float | None] | Mapping[str, float | None] | ArrayLike
Costs = Sequence[float] | Mapping[Arm, float] | ArrayLike
Observations = Iterable[Observation] | ArrayLike
_Outcome = httpx.Response | Exception
_RETRY_STATUSES = {429, 502, 503, 504}
_LONGEST_PAUSE = 5.0  # seconds
# The maximum number of connections that httpx opens by default. Further requests wait outside of its connection pool.
# The work of the pool grows with the square of the number of requests that wait in it, so many of them would time out.
_MAX_CONCURRENT = 100


class ServiceUnreachable(HalfseenError):
    """The service did not answer any attempt. The service may have carried out the request nevertheless."""


@dataclass(frozen=True)
class ServedDecision:
    """A decision of the service.

    Attributes
    ----------
    id : str
        The id of the decision, with which its reward is sent.
    arm : int or str
        The chosen arm.
    propensity : float
        The probability of choosing `arm`.
    propensities : list of float
        The probability of choosing each arm of the stream.
    expected : list of float or None
        The predicted reward of each arm, or None if the prediction is not finite.
    repeated : bool
        Whether an earlier request with the same key had already made this decision.
    branch : str or None
        What made the decision: ``"chooser"``, ``"floor"``, ``"holdback"`` or ``"control"``. None without guardrails.
    """

    id: str
    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]
    repeated: bool
    branch: str | None = None


@dataclass(frozen=True)
class ServedPreview:
    """The decision that the service would make.

    Attributes
    ----------
    arm : int or str
        The arm that would be chosen.
    propensity : float
        The probability of choosing `arm`.
    propensities : list of float
        The probability of choosing each arm of the stream.
    expected : list of float or None
        The predicted reward of each arm, or None if the prediction is not finite.
    """

    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]


@dataclass(frozen=True)
class ServedReward:
    """A reward that the service has recorded.

    Attributes
    ----------
    decision : str
        The id of the decision.
    value : float
        The reward.
    how : str
        ``"given"`` if the reward arrived in time, ``"late"`` if it arrived after the stream's `reward_wait`, or
        ``"default"`` if it is the default reward of the stream.
    folded : bool
        Whether the agent learns from the reward.
    repeated : bool
        Whether the same reward had been recorded before.
    """

    decision: str
    value: float
    how: str
    folded: bool
    repeated: bool


# ---------------------------------------------------------------------- requests


@dataclass(frozen=True)
class _Call(Generic[T]):
    """A request, and a function that converts the JSON of its reply into a result."""

    method: str
    path: str
    result: Callable[[Any], T]
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    repeatable: bool = True  # whether to send it again even if the service may have carried it out

    @property
    def content(self) -> bytes | None:
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise invalid(
                "body", "only values that JSON can represent, such as finite numbers and strings", error
            ) from None


def _stream_path(name: str, suffix: str = "") -> str:
    if not isinstance(name, str):
        raise invalid("stream", "the name of a stream", repr(name))
    return f"/v1/streams/{quote(name, safe='')}{suffix}"


def _create_stream(name: str, observed: Any, arms: Any, settings: dict[str, Any]) -> _Call[dict[str, Any]]:
    body = {"name": name, "observed": _count_or_names("observed", observed), "arms": _count_or_names("arms", arms)}
    return _Call("POST", "/v1/streams", dict, body | settings)


def _streams(after: str, limit: int) -> _Call[list[dict[str, Any]]]:
    return _Call("GET", "/v1/streams", lambda reply: list(reply["streams"]), query={"after": after, "limit": limit})


def _add_arm(stream: str, arm: str | None) -> _Call[dict[str, Any]]:
    return _Call("POST", _stream_path(stream, "/arms"), dict, {"arm": arm}, repeatable=arm is not None)


def _retire_arm(stream: str, arm: Arm) -> _Call[dict[str, Any]]:
    return _Call("DELETE", _stream_path(stream, f"/arms/{quote(str(arm), safe='')}"), dict)


def _guardrails(stream: str) -> _Call[dict[str, Any]]:
    return _Call("GET", _stream_path(stream, "/guardrails"), dict)


def _set_guardrails(
    stream: str, floor: float, holdback: float, control: tuple[Arm, float] | None
) -> _Call[dict[str, Any]]:
    body = {"floor": floor, "holdback": holdback, "control": None if control is None else list(control)}
    return _Call("PUT", _stream_path(stream, "/guardrails"), dict, body)


def _decide(
    stream: str,
    observation: Observation,
    available: Iterable[Arm] | None,
    key: str | None,
    costs: Costs | None = None,
    elapsed: int | None = None,
    time: datetime | str | None = None,
) -> _Call[ServedDecision]:
    body = _decision_request(observation, available, key, costs) | _passed(elapsed, time)
    return _Call("POST", _stream_path(stream, "/decisions"), lambda reply: ServedDecision(**reply), body)


def _preview(
    stream: str,
    observation: Observation,
    available: Iterable[Arm] | None,
    costs: Costs | None,
    elapsed: int | None,
    time: datetime | str | None,
) -> _Call[ServedPreview]:
    body = _decision_request(observation, available, None, costs) | _passed(elapsed, time)
    del body["key"]
    return _Call("POST", _stream_path(stream, "/preview"), lambda reply: ServedPreview(**reply), body)


def _observe(stream: str, observation: Observation, elapsed: int | None, time: datetime | str | None) -> _Call[int]:
    body = {"observation": _decision_request(observation)["observation"]} | _passed(elapsed, time)
    path = _stream_path(stream, "/observations")
    return _Call("POST", path, lambda reply: int(reply["elapsed"]), body, repeatable=False)


def _forecast(stream: str, horizon: int) -> _Call[dict[str, Any]]:
    return _Call("GET", _stream_path(stream, "/forecast"), dict, query={"horizon": horizon})


def _passed(elapsed: int | None, time: datetime | str | None) -> dict[str, Any]:
    """Return the fields of a request that say how much time has passed."""
    fields: dict[str, Any] = {}
    if elapsed is not None:
        fields["elapsed"] = elapsed_steps("elapsed", elapsed)
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise invalid("time", "a time with a time zone", repr(time))
        time = time.isoformat()
    if time is not None and not isinstance(time, str):
        raise invalid("time", "a datetime with a time zone, or a string in ISO 8601", repr(time))
    return fields if time is None else fields | {"time": time}


def _reward(stream: str, decision: str | ServedDecision, value: float) -> _Call[ServedReward]:
    body = _reward_request(decision, value)
    return _Call("POST", _stream_path(stream, "/rewards"), lambda reply: ServedReward(**reply), body)


def _decide_many(
    stream: str, observations: Observations, elapsed: Iterable[int] | None, time: Iterable[datetime | str] | None
) -> _Call[list[ServedDecision | ServiceError]]:
    given = as_list("observations", without_frame("observations", observations), "a list of observations")
    steps, times = (
        _one_each(argument, values, len(given)) for argument, values in (("elapsed", elapsed), ("time", time))
    )
    rows = [_decision_request(y) | _passed(n, at) for y, n, at in zip(given, steps, times, strict=True)]
    return _Call("POST", _stream_path(stream, "/decisions/batch"), _results(ServedDecision), {"decisions": rows})


def _one_each(argument: str, values: Iterable[Any] | None, count: int) -> list[Any]:
    """Return the values as a list with one entry per observation. If `values` is None, all entries are None."""
    listed = (
        [None] * count if values is None else list(as_list(argument, values, "a list with one value per observation"))
    )
    if len(listed) != count:
        raise invalid(argument, f"{count} values, one per observation", f"{len(listed)} values")
    return listed


def _reward_many(
    stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
) -> _Call[list[ServedReward | ServiceError]]:
    expected = "pairs of a decision and its reward"
    pairs = as_list("rewards", rewards, expected)
    for pair in pairs:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise invalid("rewards", expected, repr(pair))
    rows = [_reward_request(decision, value) for decision, value in pairs]
    return _Call("POST", _stream_path(stream, "/rewards/batch"), _results(ServedReward), {"rewards": rows})


def _decision_request(
    observation: Observation,
    available: Iterable[Arm] | None = None,
    key: str | None = None,
    costs: Costs | None = None,
) -> dict[str, Any]:
    if key is not None and (not isinstance(key, str) or not key):
        raise invalid("key", "a string that is not empty, or None", repr(key))
    body: dict[str, Any] = {"key": uuid.uuid4().hex if key is None else key}
    if isinstance(observation, Mapping):
        body["observation"] = {
            str(name): _entry(f"observation['{name}']", value) for name, value in observation.items()
        }
    else:
        entries = as_list(
            "observation",
            without_frame("observation", observation),
            "a list of numbers, or a mapping from features to numbers",
        )
        body["observation"] = [_entry(f"observation[{i}]", value) for i, value in enumerate(entries)]
    if available is not None:
        body["available"] = [_arm(arm) for arm in as_list("available", available, "a list of arms")]
    if isinstance(costs, Mapping):
        body["costs"] = {str(arm): _number(f"costs['{arm}']", value, "a finite number") for arm, value in costs.items()}
    elif costs is not None:
        listed = as_list("costs", without_frame("costs", costs), "a list of numbers, or a mapping from arms to numbers")
        body["costs"] = [_number(f"costs[{i}]", value, "a finite number") for i, value in enumerate(listed)]
    return body


def _reward_request(decision: str | ServedDecision, value: float) -> dict[str, Any]:
    decision_id = decision.id if isinstance(decision, ServedDecision) else decision
    if not isinstance(decision_id, str):
        raise invalid("decision", "a decision of the service or its id", repr(decision))
    number = _number("value", value, "a finite number")
    if math.isnan(number):
        raise invalid("value", "a finite number", value)
    return {"decision": decision_id, "value": number}


def _entry(argument: str, value: Any) -> float | None:
    """Convert an entry of an observation to a JSON value. NaN becomes None."""
    if is_missing(value):
        return None
    number = _number(argument, value, "a finite number, or None or NaN if it is missing")
    return None if math.isnan(number) else number


def _number(argument: str, value: Any, expected: str) -> float:
    try:
        number = math.inf if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isinf(number):
        raise invalid(argument, expected, repr(value))
    return number


def _arm(value: Any) -> Arm:
    try:
        return value if isinstance(value, str) else operator.index(value)
    except TypeError:
        raise invalid("available", "names or numbers of arms", repr(value)) from None


def _count_or_names(argument: str, given: Any) -> int | list[str]:
    try:
        return operator.index(given)
    except TypeError:
        return as_list(argument, given, "a count or a list of names")


# ---------------------------------------------------------------------- replies


def _results(kind: Callable[..., T]) -> Callable[[Any], list[T | ServiceError]]:
    """Return a function that converts the reply to a batch into one result or error per row."""
    return lambda reply: [_error(row["error"], 422) if "error" in row else kind(**row) for row in reply["results"]]


def _error(detail: Mapping[str, Any], status: int) -> ServiceError:
    return ServiceError(status, str(detail.get("code", "unknown")), str(detail.get("message", "")))


# ---------------------------------------------------------------------- clients


class _BaseClient:
    """The settings, the retries and the handling of replies, which both clients share."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        if not url.startswith(("http://", "https://")):
            raise invalid("url", "http://… or https://…", f"'{url}'")
        if retries < 0:
            raise invalid("retries", "an integer of at least 0", retries)
        self.url = url.rstrip("/")
        self._retries = retries
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._settings: dict[str, Any] = {"base_url": self.url, "headers": headers, "timeout": timeout}

    def __repr__(self) -> str:  # does not contain the token
        return f"{type(self).__name__}('{self.url}')"

    def _pause_before_retry(self, call: _Call[Any], attempt: int, outcome: _Outcome) -> float | None:
        """Return the seconds to wait before the request is sent again, or None if it is not sent again.

        The pause is random, so that many clients do not retry at the same moment. The longest possible pause doubles
        with every attempt.
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
            raise ServiceUnreachable(f"{self.url} did not answer, tried {times}: {why}")
        reply: Any = None
        with contextlib.suppress(ValueError):
            reply = outcome.json()
        if outcome.is_success and reply is not None:
            return call.result(reply)
        detail = reply.get("error") if isinstance(reply, dict) else None
        if not isinstance(detail, dict):
            status = outcome.status_code
            message = f"{self.url} answered with status {status}, but not in the format of a halfseen service."
            detail = {"code": "unknown", "message": message}
        raise _error(detail, outcome.status_code)


class Client(_BaseClient):
    """A client of the decision service whose calls block until the answer is received.

    Close the client with `close` or use it in a ``with`` statement. Several threads may share one client.

    Parameters
    ----------
    url : str
        The address of the service.
    token : str, optional
        A bearer token, if the service requires one.
    timeout : float, default 10.0
        Seconds to wait for an answer.
    retries : int, default 4
        How often a request is sent again if the service does not answer or is busy.

    Raises
    ------
    HalfseenError
        If an argument is invalid.

    Notes
    -----
    Every method raises a `ServiceError` if the service refuses the request, a `ServiceUnreachable` error if it does not
    answer, and a `HalfseenError` if an argument cannot be sent.

    Examples
    --------
    With a service that `halfseen serve` has started:

    .. code-block:: python

        with hs.Client("http://127.0.0.1:8400") as client:
            client.create_stream("prices", observed=["demand", "stock"], arms=["low", "high"])
            decision = client.decide("prices", {"demand": 0.5, "stock": -1.0})
            client.reward("prices", decision, 1.0)
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8400",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 4,
    ) -> None:
        super().__init__(url, token, timeout, retries)
        self._http = httpx.Client(**self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
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
        self, name: str, *, observed: int | Sequence[str], arms: int | Sequence[str], **settings: Any
    ) -> dict[str, Any]:
        """Create a stream. If the same stream exists already, nothing changes.

        Parameters
        ----------
        name : str
            The name of the stream: letters, digits, ``.``, ``_`` and ``-``.
        observed : int or sequence of str
            The number of observed features, or their names.
        arms : int or sequence of str
            The number of arms, or their names.
        **settings
            ``agent`` (by default ``"adaptive"``), ``options`` of the agent, ``seed``, ``reward_wait`` in seconds,
            ``default_reward``, ``late_rewards``, ``step`` in seconds and ``guardrails``, such as ``{"floor": 0.05}``.

        Returns
        -------
        dict
            The stream: its specification, arms and counts.

        Examples
        --------
        .. code-block:: python

            client.create_stream("prices", observed=2, arms=["low", "high"], agent="ts-pco", reward_wait=3600.0)
        """
        return self._send(_create_stream(name, observed, arms, settings))

    def streams(self, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        """List streams, ordered by name.

        Parameters
        ----------
        after : str, optional
            List only streams whose names come after this name.
        limit : int, default 100
            The maximum number of streams.

        Returns
        -------
        list of dict
            One dictionary per stream, as `stream` returns it.
        """
        return self._send(_streams(after, limit))

    def stream(self, name: str) -> dict[str, Any]:
        """Describe a stream.

        Parameters
        ----------
        name : str
            The name of the stream.

        Returns
        -------
        dict
            The specification, arms and counts of the stream.
        """
        return self._send(_Call("GET", _stream_path(name), dict))

    def retire_stream(self, name: str) -> dict[str, Any]:
        """Retire a stream, which then makes no more decisions.

        Parameters
        ----------
        name : str
            The name of the stream.

        Returns
        -------
        dict
            The stream, as `stream` returns it.
        """
        return self._send(_Call("DELETE", _stream_path(name), dict))

    def add_arm(self, stream: str, arm: str | None = None) -> dict[str, Any]:
        """Add an arm to a stream.

        Parameters
        ----------
        stream : str
            The name of the stream.
        arm : str, optional
            The name of the arm. If arms are numbered, the new arm gets the next number.

        Returns
        -------
        dict
            The stream, as `stream` returns it.

        Notes
        -----
        A request without a name is not sent again if the service may have received it, because two requests could add
        two arms.
        """
        return self._send(_add_arm(stream, arm))

    def retire_arm(self, stream: str, arm: Arm) -> dict[str, Any]:
        """Retire an arm, which is then never chosen again.

        Parameters
        ----------
        stream : str
            The name of the stream.
        arm : int or str
            The number or name of the arm.

        Returns
        -------
        dict
            The stream, as `stream` returns it.
        """
        return self._send(_retire_arm(stream, arm))

    def guardrails(self, stream: str) -> dict[str, Any]:
        """Return the guardrails of a stream that are in force.

        Parameters
        ----------
        stream : str
            The name of the stream.

        Returns
        -------
        dict
            ``floor``, ``holdback`` and ``control``.
        """
        return self._send(_guardrails(stream))

    def set_guardrails(
        self,
        stream: str,
        *,
        floor: float = 0.0,
        holdback: float = 0.0,
        control: tuple[Arm, float] | None = None,
    ) -> dict[str, Any]:
        """Replace the guardrails of a stream, from its next decision on.

        Parameters
        ----------
        stream : str
            The name of the stream.
        floor, holdback, control
            As for `Agent.set_guardrails`.

        Returns
        -------
        dict
            ``floor``, ``holdback`` and ``control``.

        Examples
        --------
        .. code-block:: python

            client.set_guardrails("prices", floor=0.02, control=("low", 0.05))
        """
        return self._send(_set_guardrails(stream, floor, holdback, control))

    def health(self, stream: str) -> dict[str, Any]:
        """Return the health report of the agent of a stream.

        Parameters
        ----------
        stream : str
            The name of the stream.

        Returns
        -------
        dict
            Notes, facts and findings, as in `Agent.health`.
        """
        return self._send(_Call("GET", _stream_path(stream, "/health"), dict))

    def decide(
        self,
        stream: str,
        observation: Observation,
        *,
        available: Iterable[Arm] | None = None,
        key: str | None = None,
        costs: Costs | None = None,
        elapsed: int | None = None,
        time: datetime | str | None = None,
    ) -> ServedDecision:
        """Ask for a decision.

        Parameters
        ----------
        stream : str
            The name of the stream.
        observation : sequence of float, or mapping from features to float
            The observed features. An entry is missing if it is None or NaN, or if the mapping does not contain its
            feature.
        available : iterable of arms, optional
            The arms to choose from. All active arms by default.
        key : str, optional
            An idempotency key. Repeating a request with the same key returns the same decision. The service refuses a
            used key if the observation, the time, the costs or the available arms are different. By default every call
            has a new key.
        costs : sequence of float, or mapping from arms to float, optional
            The cost of each arm. A stream whose agent has a budget requires the costs.
        elapsed : int, optional
            The number of steps since the last observation or decision, 1 by default.
        time : datetime or str, optional
            The time of the observation, with a time zone, if the stream was created with a `step`. The service then
            computes `elapsed` from this time.

        Returns
        -------
        ServedDecision
            The decision.

        Examples
        --------
        .. code-block:: python

            decision = client.decide("prices", {"demand": 0.5}, key="order-1234")
        """
        return self._send(_decide(stream, observation, available, key, costs, elapsed, time))

    def observe(
        self,
        stream: str,
        observation: Observation,
        *,
        elapsed: int | None = None,
        time: datetime | str | None = None,
    ) -> int:
        """Send an observation without asking for a decision.

        The request is not sent again if the service may have received it, because it could count as a second
        observation.

        Parameters
        ----------
        stream : str
            The name of the stream.
        observation : sequence of float, or mapping from features to float
            The observed features, as for `decide`.
        elapsed : int, optional
            The number of steps since the last observation or decision, 1 by default.
        time : datetime or str, optional
            The time of the observation, with a time zone, if the stream was created with a `step`. The service then
            computes `elapsed` from this time.

        Returns
        -------
        int
            The number of steps since the last observation or decision.

        Examples
        --------
        .. code-block:: python

            client.observe("prices", {"demand": 0.5}, time=datetime.now(UTC))
        """
        return self._send(_observe(stream, observation, elapsed, time))

    def preview(
        self,
        stream: str,
        observation: Observation,
        *,
        available: Iterable[Arm] | None = None,
        costs: Costs | None = None,
        elapsed: int | None = None,
        time: datetime | str | None = None,
    ) -> ServedPreview:
        """Ask for the decision that the service would make now. Nothing changes.

        Parameters
        ----------
        stream, observation, available, costs, elapsed, time
            As for `decide`.

        Returns
        -------
        ServedPreview
            The arm and the propensities.
        """
        return self._send(_preview(stream, observation, available, costs, elapsed, time))

    def forecast(self, stream: str, horizon: int = 10) -> dict[str, Any]:
        """Ask for a forecast of contexts and arm values.

        Parameters
        ----------
        stream : str
            The name of the stream.
        horizon : int, default 10
            Number of rounds ahead, from 1 to 1,000.

        Returns
        -------
        dict
            ``"arms"`` and ``"context_names"``, and these entries with one list per round ahead: ``"context"``,
            ``"context_lower"`` and ``"context_upper"`` (a 90 % interval), ``"expected"``, ``"std"``, ``"lower"`` and
            ``"upper"`` (a 90 % interval), and ``"best_arm_probability"``.
        """
        return self._send(_forecast(stream, horizon))

    def reward(self, stream: str, decision: str | ServedDecision, value: float) -> ServedReward:
        """Send the reward of a decision. Sending the same reward again changes nothing.

        Parameters
        ----------
        stream : str
            The name of the stream.
        decision : ServedDecision or str
            The decision, or its id.
        value : float
            The reward.

        Returns
        -------
        ServedReward
            The recorded reward.
        """
        return self._send(_reward(stream, decision, value))

    def decide_many(
        self,
        stream: str,
        observations: Observations,
        *,
        elapsed: Iterable[int] | None = None,
        time: Iterable[datetime | str] | None = None,
    ) -> list[ServedDecision | ServiceError]:
        """Ask for several decisions in one request.

        Parameters
        ----------
        stream : str
            The name of the stream.
        observations : iterable of observations
            One observation per decision, as for `decide`.
        elapsed : iterable of int, optional
            For each observation, the number of steps since the observation or decision before it.
        time : iterable of datetime or str, optional
            When the observations were made, one time per observation, for streams that were created with a `step`.

        Returns
        -------
        list of ServedDecision or ServiceError
            For each observation, the decision, or the error with which the observation was refused.
        """
        return self._send(_decide_many(stream, observations, elapsed, time))

    def reward_many(
        self, stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
    ) -> list[ServedReward | ServiceError]:
        """Send several rewards in one request.

        Parameters
        ----------
        stream : str
            The name of the stream.
        rewards : iterable of pairs
            Pairs: first a decision or its id, then the reward of the decision.

        Returns
        -------
        list of ServedReward or ServiceError
            For each pair, the recorded reward, or the error with which the reward was refused.
        """
        return self._send(_reward_many(stream, rewards))


class AsyncClient(_BaseClient):
    """A client of the decision service for asyncio.

    Close the client with `aclose` or use it in an ``async with`` statement. At most 100 requests are sent at the same
    time, and further requests wait.

    Parameters
    ----------
    url : str
        The address of the service.
    token : str, optional
        A bearer token, if the service requires one.
    timeout : float, default 10.0
        Seconds to wait for an answer.
    retries : int, default 4
        How often a request is sent again if the service does not answer or is busy.

    Raises
    ------
    HalfseenError
        If an argument is invalid.

    Notes
    -----
    Every method raises a `ServiceError` if the service refuses the request, a `ServiceUnreachable` error if it does not
    answer, and a `HalfseenError` if an argument cannot be sent.

    Examples
    --------
    With a service that `halfseen serve` has started:

    .. code-block:: python

        async with hs.AsyncClient("http://127.0.0.1:8400") as client:
            decision = await client.decide("prices", {"demand": 0.5, "stock": -1.0})
            await client.reward("prices", decision, 1.0)
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8400",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 4,
    ) -> None:
        super().__init__(url, token, timeout, retries)
        self._http = httpx.AsyncClient(**self._settings)
        self._concurrency = asyncio.Semaphore(_MAX_CONCURRENT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, call: _Call[T]) -> T:
        content, attempt = call.content, 0
        while True:
            attempt += 1
            outcome: _Outcome
            try:
                async with self._concurrency:
                    outcome = await self._http.request(call.method, call.path, content=content, params=call.query)
            except httpx.TransportError as error:
                outcome = error
            if (pause := self._pause_before_retry(call, attempt, outcome)) is None:
                return self._result(call, attempt, outcome)
            await asyncio.sleep(pause)

    async def create_stream(
        self, name: str, *, observed: int | Sequence[str], arms: int | Sequence[str], **settings: Any
    ) -> dict[str, Any]:
        """Create a stream, as `Client.create_stream` does."""
        return await self._send(_create_stream(name, observed, arms, settings))

    async def streams(self, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
        """List streams, as `Client.streams` does."""
        return await self._send(_streams(after, limit))

    async def stream(self, name: str) -> dict[str, Any]:
        """Describe a stream, as `Client.stream` does."""
        return await self._send(_Call("GET", _stream_path(name), dict))

    async def retire_stream(self, name: str) -> dict[str, Any]:
        """Retire a stream, as `Client.retire_stream` does."""
        return await self._send(_Call("DELETE", _stream_path(name), dict))

    async def add_arm(self, stream: str, arm: str | None = None) -> dict[str, Any]:
        """Add an arm to a stream, as `Client.add_arm` does."""
        return await self._send(_add_arm(stream, arm))

    async def retire_arm(self, stream: str, arm: Arm) -> dict[str, Any]:
        """Retire an arm, as `Client.retire_arm` does."""
        return await self._send(_retire_arm(stream, arm))

    async def guardrails(self, stream: str) -> dict[str, Any]:
        """Return the guardrails in force, as `Client.guardrails` does."""
        return await self._send(_guardrails(stream))

    async def set_guardrails(
        self,
        stream: str,
        *,
        floor: float = 0.0,
        holdback: float = 0.0,
        control: tuple[Arm, float] | None = None,
    ) -> dict[str, Any]:
        """Replace the guardrails, as `Client.set_guardrails` does."""
        return await self._send(_set_guardrails(stream, floor, holdback, control))

    async def health(self, stream: str) -> dict[str, Any]:
        """Return the health report of the agent of a stream, as `Client.health` does."""
        return await self._send(_Call("GET", _stream_path(stream, "/health"), dict))

    async def decide(
        self,
        stream: str,
        observation: Observation,
        *,
        available: Iterable[Arm] | None = None,
        key: str | None = None,
        costs: Costs | None = None,
        elapsed: int | None = None,
        time: datetime | str | None = None,
    ) -> ServedDecision:
        """Ask for a decision, as `Client.decide` does."""
        return await self._send(_decide(stream, observation, available, key, costs, elapsed, time))

    async def observe(
        self,
        stream: str,
        observation: Observation,
        *,
        elapsed: int | None = None,
        time: datetime | str | None = None,
    ) -> int:
        """Send an observation without asking for a decision, as `Client.observe` does."""
        return await self._send(_observe(stream, observation, elapsed, time))

    async def preview(
        self,
        stream: str,
        observation: Observation,
        *,
        available: Iterable[Arm] | None = None,
        costs: Costs | None = None,
        elapsed: int | None = None,
        time: datetime | str | None = None,
    ) -> ServedPreview:
        """Ask for the decision that the service would make now, as `Client.preview` does."""
        return await self._send(_preview(stream, observation, available, costs, elapsed, time))

    async def forecast(self, stream: str, horizon: int = 10) -> dict[str, Any]:
        """Ask for a forecast of contexts and arm values, as `Client.forecast` does."""
        return await self._send(_forecast(stream, horizon))

    async def reward(self, stream: str, decision: str | ServedDecision, value: float) -> ServedReward:
        """Send the reward of a decision, as `Client.reward` does."""
        return await self._send(_reward(stream, decision, value))

    async def decide_many(
        self,
        stream: str,
        observations: Observations,
        *,
        elapsed: Iterable[int] | None = None,
        time: Iterable[datetime | str] | None = None,
    ) -> list[ServedDecision | ServiceError]:
        """Ask for several decisions in one request, as `Client.decide_many` does."""
        return await self._send(_decide_many(stream, observations, elapsed, time))

    async def reward_many(
        self, stream: str, rewards: Iterable[tuple[str | ServedDecision, float]]
    ) -> list[ServedReward | ServiceError]:
        """Send several rewards in one request, as `Client.reward_many` does."""
        return await self._send(_reward_many(stream, rewards))
