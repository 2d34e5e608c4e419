"""Contenders of one job take turns; each is judged by its best of several short runs, after agreeing on the result.

Times are those of the processor, spent by this process in all its threads: a neighbour on the machine is not counted,
and a second thread gains nothing. No run is shorter than SHORTEST, for anybody: a shorter one is mostly the change
from the caches of the contender before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from halfseen.errors import HalfseenError

REPEATS, QUICK_REPEATS = 7, 2
SHORTEST = 0.03  # seconds of a run: work that takes less is done several times

Told = Callable[[str, float], None]  # what is being done, and the share of the job that is done by then


@dataclass
class Contender:
    """`work`, which is timed, does `units` units of the job; `result` is what is compared with ours."""

    name: str
    work: Callable[[], Any]
    units: int
    note: str = ""
    result: Callable[[], Any] | None = None  # None: what `work` returns
    seconds: Callable[[Any], float] | None = None  # of what `work` returned; None: of the processor
    differs: str = ""  # what it computes instead of ours, for all the checks can tell
    check: Callable[[Any], None] | None = None  # of its result, instead of the comparison with ours
    at_least: float | None = None  # the aim: how many times longer than ours it takes
    at_most: float | None = None  # ... or at most
    at_most_seconds: float | None = None  # ... or a time, where the aim is one


@dataclass
class Job:
    """One thing to be done, by several contenders; the first is ours."""

    title: str
    unit: str
    flops: float  # of one unit, in the form that needs fewest: the formula is in the job's file
    contenders: list[Contender]
    agree: Callable[[Any, Any], None]
    absent: list[str] = field(default_factory=list)  # a line for every peer that does not take part, and why
    repeats: int = REPEATS
    rehearsed: bool = True  # False: what it takes the first time is what is asked for, and the only run
    flop_limit: float | None = None  # the aim: within how many times the time its flops would take in dgemm


def measure(job: Job, told: Told = lambda _, __: None, *, quick: bool = False) -> list[dict[str, Any]]:
    """A row a contender: microseconds a unit and the ratio to ours.

    A contender that does not agree stops the run; a peer that fails is named in `job.absent` and left out.
    """
    ours = job.contenders[0]
    repeats = min(job.repeats, QUICK_REPEATS) if quick else job.repeats
    steps, done = len(job.contenders) * (repeats + 1), 0
    ours_result, running, first = None, [], {}
    for contender in job.contenders:
        told(f"{contender.name}: checking", done / steps)
        try:
            result = (contender.result or contender.work)()
            if not job.rehearsed and contender.seconds is not None:
                first[contender.name] = contender.seconds(result) / contender.units
            elif contender.result is not None:
                contender.work()  # compiles whatever is still to compile
        except Exception as error:
            if contender is ours:
                raise
            job.absent.append(f"{contender.name}: failed: {_one_line(error)}")
            steps -= repeats + 1
            continue
        done += 1
        if contender is ours:
            ours_result = result
        else:
            _compare(job, contender, ours_result, result)
        running.append(contender)
    samples: dict[str, list[float]] = {contender.name: [] for contender in running}
    times = {contender.name: 1 for contender in running}  # the work is done in one run
    for _ in range(repeats if job.rehearsed else 0):
        for contender in list(running):
            told(contender.name, done / steps)
            try:
                taken = _timed(contender, times)
            except Exception as error:
                if contender is ours:
                    raise
                job.absent.append(f"{contender.name}: failed: {_one_line(error)}")
                running.remove(contender)
                continue
            samples[contender.name].append(taken / contender.units)
            done += 1
    best = {contender.name: min(samples[contender.name] or [first[contender.name]]) for contender in running}
    return [
        {
            "contender": contender.name,
            "microseconds": 1e6 * best[contender.name],
            "times_ours": best[contender.name] / best[ours.name],
            "samples": [1e6 * one for one in samples[contender.name] or [first[contender.name]]],
            "at_least": contender.at_least,
            "at_most": contender.at_most,
            "at_most_seconds": contender.at_most_seconds,
            "note": contender.note,
            "differs": contender.differs,
        }
        for contender in running
    ]


def _timed(contender: Contender, times: dict[str, int]) -> float:
    """Seconds of the work, done as often as it takes to fill the shortest run; how often is found out at the first."""
    if contender.seconds is not None:
        return contender.seconds(contender.work())
    while True:
        often = times[contender.name]
        began = time.process_time()
        for _ in range(often):
            contender.work()
        taken = time.process_time() - began
        if taken >= SHORTEST:
            return taken / often
        times[contender.name] = often * 2


def _compare(job: Job, contender: Contender, ours: Any, result: Any) -> None:
    try:
        if contender.check is not None:
            contender.check(result)
        else:
            job.agree(ours, result)
    except AssertionError as error:
        raise HalfseenError(
            f"bench: got another result from '{contender.name}' than from '{job.contenders[0].name}' in '{job.title}'; "
            f"want agreement before anything is timed ({_one_line(error)})"
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
