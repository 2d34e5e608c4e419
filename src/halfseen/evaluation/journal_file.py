"""A log out of an exported journal: NDJSON, one event a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from halfseen.errors import HalfseenError, InvalidInput, invalid, unknown
from halfseen.evaluation.log import Log, LogBuilder
from halfseen.validation import at_least

FILE_ENDINGS = (".ndjson", ".jsonl")
_SILENT = ("retired", "model_accepted", "expired")  # events that change nothing here


def read_journal(path: Path, *, stream: str | None = None, arms: Any = None) -> Log:
    """The log of one stream; which one must be said if the file holds several.

    `arms`, a count or names, is for exports that begin after the stream was created.
    """
    try:
        with path.open("rb") as file:
            return read_events(str(path), _lines(path, file), stream=stream, arms=arms)
    except OSError as error:
        raise invalid("log", f"'{path}'", f"a file that can be read ({error.strerror})") from None


def _lines(path: Path, file: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, event_of(where, line)


def read_events(source: str, events: Iterator[tuple[str, dict[str, Any]]], *, stream: str | None, arms: Any) -> Log:
    """The log of one stream from all events, in order, each with what messages call its place."""
    found: dict[str, None] = {}
    reader: _Reader | None = None
    for where, event in events:
        name = str(event.get("stream"))
        found[name] = None
        if reader is None and stream in (None, name):
            reader = _Reader(source, name, arms)
        if reader is not None and reader.stream == name:
            reader.take(where, event)
    if not found:
        raise invalid(source, "an empty file", "a journal, one event a line")
    if stream is None and len(found) > 1:
        raise invalid("stream", f"nothing, with {len(found)} streams in '{source}'", f"one of: {', '.join(found)}")
    if reader is None:
        raise unknown("stream", stream, found)
    return reader.finish()


def event_of(where: str, line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # broken JSON, broken UTF-8, NaN
        got = line.decode("utf-8", "replace").strip()
        why = " ".join(str(error).split())
        raise invalid(where, f"'{got[:40]}…'" if len(got) > 40 else f"'{got}'", f"an event as JSON ({why})") from None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        raise invalid(where, "no event", 'a JSON object with "stream", "kind" and what belongs to it')
    return event


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


class _Reader:
    """The events of one stream, in their order."""

    def __init__(self, source: str, stream: str, arms: Any) -> None:
        self.source, self.stream = source, stream
        self._builder = None if arms is None else LogBuilder(source, arm_names("arms", arms))
        self._rows: dict[str, int] = {}
        self._last = -1

    def take(self, where: str, event: dict[str, Any]) -> None:
        seq = event.get("seq")
        if isinstance(seq, int):
            if seq <= self._last:
                raise invalid(where, f"seq {seq} after {self._last}", "events in the order in which they happened")
            self._last = seq
        kind = event["kind"]
        if kind == "created":
            self._create(where, event.get("spec"))
        elif kind in _SILENT:
            pass
        elif kind not in ("decided", "rewarded", "arm_added", "arm_retired"):
            known = "created, decided, rewarded, expired, arm_added, arm_retired, model_accepted, retired"
            raise invalid(where, f"kind '{kind}'", f"one of: {known}")
        elif self._builder is None:
            raise InvalidInput(
                f"{where}: got '{kind}' before the stream was created; want an export from the beginning, or the arms "
                "(arms=, --arms)"
            )
        elif kind == "decided":
            self._decide(where, event, self._builder)
        elif kind == "rewarded":
            self._reward(where, event, self._builder)
        elif kind == "arm_added":
            self._builder.arm_added(where, event.get("arm"))
        else:
            self._builder.arm_retired(where, event.get("arm"))

    def finish(self) -> Log:
        if self._builder is None:
            raise invalid(self.source, "no decisions", "a log of decisions and their rewards")
        return self._builder.finish()

    def _create(self, where: str, spec: Any) -> None:
        if self._builder is not None and self._rows:
            raise invalid(where, f"stream '{self.stream}' created again", "one stream")
        if not isinstance(spec, dict):
            raise invalid(where, f"spec {spec!r}", "the spec of a stream")
        observed = spec.get("observed")
        try:
            count = len(observed) if isinstance(observed, list) else at_least("observed", observed, 1)
            self._builder = LogBuilder(self.source, arm_names("arms", spec.get("arms")), count)
        except HalfseenError as error:
            raise InvalidInput(f"{where}: {error}") from None

    def _decide(self, where: str, event: dict[str, Any], builder: LogBuilder) -> None:
        for field in ("id", "observation", "arm", "propensity"):
            if event.get(field) is None:
                raise invalid(where, f"a decision without '{field}'", "one with id, observation, arm and propensity")
        number = str(event["id"])
        if number in self._rows:
            raise invalid(where, f"decision '{number}' a second time", "ids that differ")
        self._rows[number] = builder.decided(
            where,
            observation=event["observation"],
            arm=event["arm"],
            propensity=event["propensity"],
            propensities=event.get("propensities"),
            available=event.get("available"),
        )

    def _reward(self, where: str, event: dict[str, Any], builder: LogBuilder) -> None:
        number = str(event.get("decision"))
        if number not in self._rows:
            raise invalid(where, f"a reward of '{number}'", "the id of a decision on a line before")
        builder.rewarded(
            where,
            self._rows[number],
            event.get("value"),
            default=event.get("how") == "default",
            learnt=event.get("folded") is not False,
        )


def arm_names(argument: str, arms: Any) -> list[int | str]:
    """Arms as a stream's spec has them: a count, or names."""
    if isinstance(arms, list | tuple):
        if not arms or not all(isinstance(arm, str) and arm for arm in arms) or len(set(arms)) < len(arms):
            raise invalid(argument, repr(arms), "names that differ from each other")
        return list(arms)
    return list(range(at_least(argument, arms, 1)))
