"""Writes logged decisions as the journal of a stream, which the service can import and continue."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm
from halfseen.errors import missing_extra
from halfseen.evaluation.log import Log, StepKind
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.files import write_atomically

_MICROSECONDS = 1_000_000
_LEAST_SECONDS, _MOST_SECONDS = 1e8, 253_402_214_400  # from 1973 to the last day of the year 9999
_LEAST_STEP, _MOST_STEP = 1e-6, 1e9  # shortest and longest time step of a stream, in seconds
_OTHER_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")

Models = Sequence[tuple[int, Mapping[str, Any]]]  # identified models, each with the number of decisions before it


def stream_name(text: str) -> str:
    """Turn a text into a valid name of a stream."""
    return _OTHER_CHARACTERS.sub("-", text).strip("-._")[:100] or "study"


def stream_arms(log: Log) -> list[str] | int:
    """Return the arms of the stream: their number if they are numbered from 0, otherwise their names."""
    return len(log.arms) if list(log.arms) == list(range(len(log.arms))) else log.names


def write_journal(path: Any, log: Log, agent: Agent, models: Models, *, name: str, options: Mapping[str, Any]) -> int:
    """Write the log as the stream `name`, and return the number of events.

    The agent of the stream is `agent`, which has replayed the log. The journal contains `models`, which the agent has
    identified, so that the service need not identify them again.
    """
    try:
        from halfseen.journal.events import Created, Decided, Event, ExportExtent, ModelAccepted, Rewarded, to_line
    except ImportError as error:
        raise missing_extra(error.name or "msgspec", "service", "the journal") from None
    from halfseen.agents import saving
    from halfseen.journal.decision_ids import next_ids

    spec = {
        "name": name,
        "observed": list(log.features),
        "arms": stream_arms(log),
        "agent": agent.name,
        "options": dict(options),
        "seed": agent.recipe["seed"],
    }
    microseconds = np.rint(event_times(log) * _MICROSECONDS).astype(np.int64)
    if (ticks := stream_ticks(log, microseconds)) is not None:
        spec["step"] = ticks.step
    probabilities = full_propensities(log)
    arms: list[Arm] = list(range(len(log.arms))) if isinstance(spec["arms"], int) else list(log.names)
    accepted = dict(models)

    def events() -> Iterator[Event]:
        now, last, seq = int(microseconds[0]), None, 1
        ids: list[str] = []
        yield Event(1, now, None, Created(spec))
        for step in log.steps:
            row = step.at
            if step.kind is StepKind.DECIDED:
                if (model := accepted.pop(row, None)) is not None:
                    seq += 1
                    yield Event(seq, now, None, ModelAccepted(seq - 1), saving.to_bytes({}, model))
                now = max(now, int(microseconds[row]))
                (last,) = next_ids(now // 1000, last, 1)
                ids.append(last)
                possible = log.possible[row]
                decided = Decided(
                    round=row + 1,
                    observation=[None if np.isnan(entry) else float(entry) for entry in log.observations[row]],
                    arm=arms[log.played[row]],
                    propensity=float(probabilities[row, log.played[row]]),
                    propensities=probabilities[row].tolist(),
                    expected=[None] * len(arms),
                    available=None if possible.all() else [arms[at] for at in np.flatnonzero(possible)],
                    elapsed=1 if log.elapsed is None else int(log.elapsed[row]),
                    tick=None if ticks is None else int(ticks.of_decisions[row]),
                    estimated="all" if log.estimated else "others" if log.propensities is None else None,
                )
                seq += 1
                yield Event(seq, now, last, decided)
            elif step.kind is StepKind.REWARDED and not step.provisional:
                seq += 1
                yield Event(seq, now, ids[row], Rewarded(ids[row], row + 1, step.value, "given", True))
        for model in accepted.values():
            seq += 1
            yield Event(seq, now, None, ModelAccepted(seq - 1), saving.to_bytes({}, model))

    rewarded = sum(step.kind is StepKind.REWARDED and not step.provisional for step in log.steps)
    total = 1 + log.rounds + rewarded + len(models)
    lines = (to_line(name, one, ExportExtent(total, 1) if one.seq == 1 else None) + b"\n" for one in events())
    write_atomically(path, lambda file: file.writelines(lines))
    return total


def event_times(log: Log) -> Floats:
    """Return the times (n,) of the decisions in seconds since 1970.

    If there are no times, or if they cannot be times since 1970, the decisions get times one second apart, up to now.
    """
    times = log.times
    if times is None or not _since_1970(times):
        return np.asarray(np.floor(time.time()) - np.arange(log.rounds, 0.0, -1.0))
    return times


def _since_1970(times: Floats) -> bool:
    """Return whether times can be seconds since 1970. Small numbers more likely count something else."""
    return bool(times[0] >= _LEAST_SECONDS and times[-1] <= min(time.time(), _MOST_SECONDS))


class StreamTicks(NamedTuple):
    """The time step of a stream with time stamps, and the ticks of its decisions: their times in steps since 1970."""

    step: float  # in seconds
    of_decisions: Ints  # (n,)


def stream_ticks(log: Log, microseconds: Ints) -> StreamTicks | None:
    """Return the step and the ticks.

    Return None if there are no usable times, or if the steps between the ticks differ from the logged steps.
    """
    from halfseen.journal.events import step_microseconds, tick_at

    if log.times is None or log.time_steps is None or not _since_1970(log.times):
        return None
    step = log.time_steps.step
    ticks = np.array([tick_at(int(one), step_microseconds(step)) for one in microseconds], dtype=np.int64)
    elapsed = np.ones(log.rounds, dtype=np.int64) if log.elapsed is None else log.elapsed
    exact = _LEAST_STEP <= step <= _MOST_STEP and np.array_equal(np.diff(ticks), elapsed[1:])
    return StreamTicks(step, ticks) if exact else None


def full_propensities(log: Log) -> Floats:
    """Return the propensities (n, K) of all arms.

    If only those of the arms played were logged, the remaining probability is divided equally among the other arms
    that could be played.
    """
    if log.propensities is not None:
        return log.propensities
    rows = np.arange(log.rounds)
    others = log.possible.copy()
    others[rows, log.played] = False
    count = others.sum(axis=1)
    share = np.divide(1.0 - log.propensity, count, out=np.zeros(log.rounds), where=count > 0)
    probabilities = others * share[:, None]
    probabilities[rows, log.played] = np.where(count > 0, log.propensity, 1.0)
    return np.asarray(probabilities)


def check_journal(log: Log) -> str | None:
    """Return why the log cannot be written as a journal for the service, or None if it can."""
    if find_spec("msgspec") is None:
        return str(missing_extra("msgspec", "service", "the journal"))
    if not log.is_table:
        return "the log is a journal already"
    if len(set(log.features)) < len(log.features):
        return "names of columns repeat"
    too_long = [text for text in (*log.features, *log.names) if not text.isprintable() or not 0 < len(text) <= 100]
    if too_long:
        return f"the name '{too_long[0][:40]}' is not 1 to 100 printable characters"
    return None
