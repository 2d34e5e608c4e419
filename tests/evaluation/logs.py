"""Journals for tests, in the format in which the service exports them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.evaluation import OFFSETS, SLOPES

import halfseen as hs

OBSERVED, ARMS = 2, 3


def created(arms: int | list[str] = ARMS, observed: int = OBSERVED, stream: str = "shop") -> dict[str, Any]:
    spec = {"name": stream, "observed": observed, "arms": arms, "agent": "ts-pco", "options": {}, "seed": 1}
    return {"stream": stream, "seq": 1, "time": "2026-01-01T00:00:00Z", "kind": "created", "spec": spec}


def event(seq: int, kind: str, stream: str = "shop", **payload: Any) -> dict[str, Any]:
    return {"stream": stream, "seq": seq, "time": "2026-01-01T00:00:01Z", "kind": kind, **payload}


def write(path: Path, events: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in events))
    return path


def nan_to_none(y: Sequence[float]) -> list[float | None]:
    return [None if np.isnan(entry) else float(entry) for entry in y]


def agent_events(
    rounds: int, *, agent: str = "ts-pco", seed: int = 0, delay: int = 0, missing: float = 0.0, names: bool = True
) -> list[dict[str, Any]]:
    """Return the events of a stream with decisions by an agent.

    Rewards arrive `delay` rounds late, and a share `missing` of them never arrives.
    """
    rng = np.random.default_rng(seed)
    arms = ["red", "green", "blue"] if names else ARMS
    logger = hs.make(agent, observed=OBSERVED, arms=arms, seed=seed)
    events, seq, pending = [created(arms)], 1, []
    for t in range(rounds):
        y = rng.normal(size=OBSERVED)
        if rng.uniform() < 0.1:
            y[1] = np.nan
        decision = logger.decide(y)
        value = float(OFFSETS[decision.index] + SLOPES[decision.index] @ np.nan_to_num(y) + 0.5 * rng.normal())
        seq += 1
        events.append(
            event(
                seq,
                "decided",
                id=f"d{t}",
                round=t + 1,
                observation=nan_to_none(y),
                arm=decision.arm,
                propensity=decision.propensity,
                propensities=decision.propensities.tolist(),
                expected=decision.expected.tolist(),
            )
        )
        if rng.uniform() >= missing:
            pending.append((t, decision.id, value))
        while pending and pending[0][0] + delay <= t:
            at, number, reward = pending.pop(0)
            logger.learn(number, reward)
            seq += 1
            events.append(event(seq, "rewarded", decision=f"d{at}", value=reward, how="given", folded=True))
    return events
