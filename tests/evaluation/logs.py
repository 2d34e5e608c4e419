"""Logs for tests: journals as the service exports them, and a world in which what a policy earns is known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import halfseen as hs

OBSERVED, ARMS = 2, 3
SLOPES = np.array([[1.0, -0.5], [-0.8, 0.4], [0.1, 0.9]])
OFFSETS = np.array([3.0, 3.4, 2.5])


def created(arms: int | list[str] = ARMS, observed: int = OBSERVED, stream: str = "shop") -> dict[str, Any]:
    spec = {"name": stream, "observed": observed, "arms": arms, "agent": "ts-pco", "options": {}, "seed": 1}
    return {"stream": stream, "seq": 1, "time": "2026-01-01T00:00:00Z", "kind": "created", "spec": spec}


def event(seq: int, kind: str, stream: str = "shop", **payload: Any) -> dict[str, Any]:
    return {"stream": stream, "seq": seq, "time": "2026-01-01T00:00:01Z", "kind": kind, **payload}


def write(path: Path, events: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in events))
    return path


def seen(y: Sequence[float]) -> list[float | None]:
    return [None if np.isnan(entry) else float(entry) for entry in y]


def agent_events(
    rounds: int, *, agent: str = "ts-pco", seed: int = 0, delay: int = 0, missing: float = 0.0, names: bool = True
) -> list[dict[str, Any]]:
    """A stream decided by a catalogued agent; rewards come `delay` rounds late, a share of them never."""
    rng = np.random.default_rng(seed)
    arms = ["red", "green", "blue"] if names else ARMS
    logger = hs.make(agent, observed=OBSERVED, arms=arms, seed=seed)
    events, seq, waiting = [created(arms)], 1, []
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
                observation=seen(y),
                arm=decision.arm,
                propensity=decision.propensity,
                propensities=decision.propensities.tolist(),
                expected=decision.expected.tolist(),
            )
        )
        if rng.uniform() >= missing:
            waiting.append((t, decision.id, value))
        while waiting and waiting[0][0] + delay <= t:
            at, number, paid = waiting.pop(0)
            logger.learn(number, paid)
            seq += 1
            events.append(event(seq, "rewarded", decision=f"d{at}", value=paid, how="given", folded=True))
    return events


class World:
    """Contexts with memory, a softmax logging policy and a softmax target: what the target earns is known exactly."""

    def __init__(self, rho: float = 0.0, noise: float = 0.5, curved: bool = False) -> None:
        self.rho, self.noise, self.curved = rho, noise, curved

    def pay(self, y: np.ndarray) -> np.ndarray:
        """Mean rewards (n, K)."""
        return (
            OFFSETS + y @ SLOPES.T + (2.0 * np.sin(3.0 * y[:, :1]) * np.array([1.0, -1.0, 0.5]) if self.curved else 0)
        )

    @staticmethod
    def logging(y: np.ndarray) -> np.ndarray:
        return _softmax(y @ np.array([[0.5, -0.2, 0.1], [0.3, 0.4, -0.6]]))

    @staticmethod
    def target(y: np.ndarray) -> np.ndarray:
        return _softmax(y @ np.array([[1.0, -0.8, 0.1], [-0.5, 0.4, 0.9]]) + np.array([0.2, 0.5, 0.0]))

    def contexts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        y = rng.normal(size=(n, OBSERVED))
        for t in range(1, n):
            y[t] = self.rho * y[t - 1] + np.sqrt(1 - self.rho**2) * y[t]
        return y

    def log(self, n: int, seed: int) -> dict[str, Any]:
        """A table of n rounds."""
        rng = np.random.default_rng([seed, 9])
        y = self.contexts(n, rng)
        chances = self.logging(y)
        arms = (rng.uniform(size=(n, 1)) > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
        rows = np.arange(n)
        return {
            "observation_0": y[:, 0],
            "observation_1": y[:, 1],
            "arm": arms,
            "propensity": chances[rows, arms],
            "propensities": list(chances),
            "reward": self.pay(y)[rows, arms] + self.noise * rng.normal(size=n),
        }

    def truth(self) -> float:
        """What the target earns a round, by Gauss and Hermite's rule over the standard normal contexts."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        grid = np.array([[a, b] for a in nodes for b in nodes])
        mass = np.outer(weights, weights).ravel() / (2.0 * np.pi)
        return float(mass @ (self.target(grid) * self.pay(grid)).sum(axis=1))


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def rule(y: np.ndarray) -> np.ndarray:
    """The world's target as a policy."""
    return World.target(y[None])[0]
