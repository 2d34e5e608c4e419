"""What a client sends: checked before it is sent, and made what JSON can hold."""

from __future__ import annotations

import json
import math
import operator
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from halfseen.errors import invalid
from halfseen.validation import listed

Observation = Sequence[float | None] | Mapping[str, float | None]


@dataclass(frozen=True)
class ServedDecision:
    """What the service decided. `repeated`: it had already been decided under this key."""

    id: str
    arm: int | str
    propensity: float
    propensities: list[float]
    expected: list[float | None]
    repeated: bool


@dataclass(frozen=True)
class ServedReward:
    """What became of a reward: `how` is "given", "default" or "late"; `folded`, whether the agent learns from it."""

    decision: str
    value: float
    how: str
    folded: bool
    repeated: bool


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    safe: bool = True  # may be sent again although the first may have been done

    @property
    def content(self) -> bytes | None:
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise invalid("body", error, "what JSON can hold: finite numbers, text, lists, mappings") from None


def stream_path(name: str, rest: str = "") -> str:
    if not isinstance(name, str):
        raise invalid("stream", repr(name), "the name of a stream")
    return f"/v1/streams/{quote(name, safe='')}{rest}"


def _seen(observation: Observation) -> Any:
    """As JSON has it: lists and None, so that arrays and NaN may be given as to an agent."""
    if isinstance(observation, Mapping):
        return {str(name): _entry(f"observation['{name}']", value) for name, value in observation.items()}
    rows = listed("observation", observation, "numbers in a list, or by feature in a mapping")
    return [_entry(f"observation[{place}]", value) for place, value in enumerate(rows)]


def _entry(argument: str, value: Any) -> float | None:
    if value is None:
        return None
    found = _number(argument, value, "a finite number, or None or NaN where it is not seen")
    return None if math.isnan(found) else found


def _number(argument: str, value: Any, wanted: str) -> float:
    try:
        found = math.inf if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.inf
    if math.isinf(found):
        raise invalid(argument, repr(value), wanted)
    return found


def _arm(value: Any) -> int | str:
    try:
        return value if isinstance(value, str) else operator.index(value)
    except TypeError:
        raise invalid("available", repr(value), "arms: names, or numbers where arms are numbers") from None


def asked(observation: Observation, available: Iterable[int | str] | None, key: str | None) -> dict[str, Any]:
    if key is not None and (not isinstance(key, str) or not key):
        raise invalid("key", repr(key), "a text that is not empty, or None for a key made for this call")
    body: dict[str, Any] = {"observation": _seen(observation), "key": uuid.uuid4().hex if key is None else key}
    if available is not None:
        body["available"] = [_arm(arm) for arm in listed("available", available, "a list of arms")]
    return body


def all_asked(observations: Iterable[Observation]) -> dict[str, Any]:
    rows = listed("observations", observations, "a list of observations")
    return {"decisions": [asked(observation, None, None) for observation in rows]}


def told(decision: str | ServedDecision, value: float) -> dict[str, Any]:
    identity = decision.id if isinstance(decision, ServedDecision) else decision
    if not isinstance(identity, str):
        raise invalid("decision", repr(decision), "a decision of the service, or its id")
    paid = _number("value", value, "a finite number")
    if math.isnan(paid):
        raise invalid("value", value, "a finite number")
    return {"decision": identity, "value": paid}


def all_told(rewards: Iterable[tuple[str | ServedDecision, float]]) -> dict[str, Any]:
    wanted = "pairs of a decision and its reward"
    rows = listed("rewards", rewards, wanted)
    for row in rows:
        if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 2:
            raise invalid("rewards", repr(row), wanted)
    return {"rewards": [told(decision, value) for decision, value in rows]}


def new_stream(name: str, observed: int | Sequence[str], arms: int | Sequence[str], rest: dict[str, Any]) -> Call:
    counted = {
        "observed": _counted("observed", observed),
        "arms": _counted("arms", arms),
    }
    return Call("POST", "/v1/streams", {"name": name, **counted, **rest})


def _counted(argument: str, given: int | Sequence[str]) -> int | list[str]:
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        return listed(argument, given, "a count, or a list of names")  # type: ignore[arg-type]
