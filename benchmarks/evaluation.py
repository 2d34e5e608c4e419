"""Checks the bias and the coverage of `hs.evaluate` in a simulation with known policy values.

    python -m benchmarks.evaluation --logs 400

Contexts are standard normal with autocorrelation `rho`. The logging policy and the target policy are softmax policies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import halfseen as hs
from halfseen.evaluation.estimators import ESTIMATORS
from halfseen.kernels.random import Floats
from halfseen.reports.tables import Table

SLOPES = np.array([[1.0, -0.5], [-0.8, 0.4], [0.1, 0.9]])
OFFSETS = np.array([3.0, 3.4, 2.5])
CURVES = np.array([1.0, -1.0, 0.5])
NOISE = 0.5
DIFFERENCE = "dr − logged"


@dataclass(frozen=True)
class World:
    """A world with two observed features and three arms. Rewards are linear in the features unless `curved` is set."""

    rho: float = 0.0
    curved: bool = False

    def mean_rewards(self, y: Floats) -> Floats:
        """Return the mean rewards (n, K)."""
        nonlinear = 2.0 * np.sin(3.0 * y[:, :1]) * CURVES if self.curved else 0.0
        return np.asarray(OFFSETS + y @ SLOPES.T + nonlinear)

    @staticmethod
    def logging(y: Floats) -> Floats:
        return _softmax(y @ np.array([[0.5, -0.2, 0.1], [0.3, 0.4, -0.6]]))

    @staticmethod
    def target(y: Floats) -> Floats:
        return _softmax(y @ np.array([[1.0, -0.8, 0.1], [-0.5, 0.4, 0.9]]) + np.array([0.2, 0.5, 0.0]))

    def log(self, rounds: int, seed: int) -> dict[str, Any]:
        """Return a table of simulated decisions."""
        rng = np.random.default_rng([seed, 9])
        y = rng.normal(size=(rounds, 2))
        for t in range(1, rounds):
            y[t] = self.rho * y[t - 1] + np.sqrt(1 - self.rho**2) * y[t]
        propensities = self.logging(y)
        arms = (rng.uniform(size=(rounds, 1)) > np.cumsum(propensities, axis=1)[:, :-1]).sum(axis=1)
        rows = np.arange(rounds)
        return {
            "observation_0": y[:, 0],
            "observation_1": y[:, 1],
            "arm": arms,
            "propensity": propensities[rows, arms],
            "propensities": list(propensities),
            "reward": self.mean_rewards(y)[rows, arms] + NOISE * rng.normal(size=rounds),
        }

    def truth(self, policy: Callable[[Floats], Floats] | None = None) -> float:
        """Return the mean reward per round of a policy (by default, the target policy) by Gauss-Hermite quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        grid = np.array([[a, b] for a in nodes for b in nodes])
        mass = np.outer(weights, weights).ravel() / (2.0 * np.pi)
        return float(mass @ ((policy or self.target)(grid) * self.mean_rewards(grid)).sum(axis=1))


def rule(y: Floats) -> Floats:
    """Return the arm probabilities of the target policy for one observation."""
    return World.target(y[None])[0]


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def simulated(world: World, rounds: int, logs: int, intervals: str = "hac") -> dict[str, Floats]:
    """Return (value, low, high) for every log, by estimator. "dr − logged" is the paired difference."""
    estimates: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(logs):
        policy = hs.evaluate(world.log(rounds, seed), rule, intervals=intervals).policies["rule"]
        for name, one in {**policy.values, DIFFERENCE: policy.differences["dr"]}.items():
            estimates.setdefault(name, []).append((one.value, one.low, one.high))
    return {name: np.array(values) for name, values in estimates.items()}


def coverage(estimates: Floats, truth: float) -> float:
    return float(((estimates[:, 1] <= truth) & (truth <= estimates[:, 2])).mean())


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--logs", type=int, default=400)
    parser.add_argument("--intervals", default="hac")
    options = parser.parse_args(arguments)
    rows = []
    settings = [(0.0, False, 400), (0.0, True, 400), (0.8, False, 400), (0.8, False, 2000)]
    for rho, curved, rounds in settings:
        world = World(rho, curved)
        print(f"{world}, {rounds} rounds …", file=sys.stderr, flush=True)
        estimates = simulated(world, rounds, options.logs, options.intervals)
        for name in (*ESTIMATORS, DIFFERENCE):
            truth = world.truth() - (world.truth(World.logging) if name == DIFFERENCE else 0.0)
            values = estimates[name][:, 0]
            rows.append(
                {
                    "reward model": "wrong" if curved else "right",
                    "autocorrelation of contexts": f"{rho:g}",
                    "rounds": f"{rounds:,}",
                    "estimator": name,
                    "bias ± s.e.": f"{values.mean() - truth:+.4f} ± {values.std() / np.sqrt(options.logs):.4f}",
                    "standard deviation": f"{values.std():.3f}",
                    "coverage of 95 % intervals": f"{100 * coverage(estimates[name], truth):.1f} %",
                }
            )
    print(Table(rows).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
