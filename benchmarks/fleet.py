"""Thousands of streams: decide + learn of a `Fleet`, of single agents in a loop, and of NumPy on the whole batch.

`python -m benchmarks.fleet` also prints rounds per second and, for every agent, the memory of one stream.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import halfseen as hs
from benchmarks import linear_thompson, monte_carlo
from benchmarks.harness import Contender, Job, measure
from benchmarks.problem import ARMS, LATENT, OBSERVED, orbit
from halfseen.kernels.random import Purpose, normals, stream_keys
from halfseen.reports.tables import Table

STREAMS, SINGLE = 10_000, 200  # streams of the fleet and of NumPy, and agents in the loop
COMPARED, COMPARED_ROUNDS = 20, 60
WARM = 150  # rounds after which the gain of `orbit` is constant
AGENTS = ("kf-ts", "ts-pco")
AIM = 300_000  # the fewest rounds per second that a fleet should play


def required_options(agent: str) -> dict[str, Any]:
    """Return values for the options that an agent requires, for d = 20, k = 10 and K = 15."""
    rng = np.random.default_rng(0)
    facts = {
        "model": orbit(1)[0],
        "latent": LATENT,
        "arm_params": rng.normal(size=(ARMS, LATENT)),
        "state_transition": 0.8 * np.eye(5) + 0.04,
        "state_rewards": rng.normal(size=(ARMS, 5)),
    }
    return {name: facts[name] for name in hs.catalog()[agent].required}


def observed_features(agent: str) -> int:
    return LATENT if agent == "ts-pco" else OBSERVED  # so that every context has 20 dimensions


class InFleet:
    def __init__(self, agent: str, streams: int) -> None:
        self.fleet = hs.Fleet(agent, observed=observed_features(agent), arms=ARMS, **required_options(agent))
        self.fleet.add(streams)

    def round(self, ys: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        decisions = self.fleet.decide(ys)
        self.fleet.learn(decisions.ids, rewards)
        return decisions.indices


class InALoop:
    def __init__(self, agent: str, streams: int) -> None:
        options = required_options(agent)
        self.agents = [
            hs.make(agent, observed=observed_features(agent), arms=ARMS, seed=seed, **options)
            for seed in range(streams)
        ]

    def round(self, ys: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        arms = np.empty(len(ys), dtype=np.int64)
        for i, agent in enumerate(self.agents):
            decision = agent.decide(ys[i])
            agent.learn(decision.id, rewards[i])
            arms[i] = decision.index
        return arms


class InNumpy:
    """Thompson sampling for all streams with NumPy operations on whole arrays. Inverse matrices are stored in full."""

    def __init__(self, agent: str, streams: int) -> None:
        self.model = required_options(agent).get("model")
        self.x, self.P = np.zeros((streams, LATENT)), np.eye(LATENT)
        self.inverse = np.tile(np.eye(LATENT), (streams, ARMS, 1, 1))
        self.f = np.zeros((streams, ARMS, LATENT))
        self.keys, self.t, self.rows = stream_keys(np.arange(streams)), 0, np.arange(streams)

    def _context(self, ys: np.ndarray) -> np.ndarray:
        if self.model is None:
            return ys
        D, A = self.model.transition, self.model.observation
        P = D @ self.P @ D.T + self.model.process_cov
        gain = np.linalg.solve(A @ P @ A.T + self.model.observation_cov, A @ P).T
        predicted = self.x @ D.T
        self.x, self.P = predicted + (ys - predicted @ A.T) @ gain.T, P - gain @ A @ P
        return self.x

    def round(self, ys: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        self.t += 1
        c = self._context(ys)
        image = np.matmul(self.inverse, c[:, None, :, None])[..., 0]
        means, stds = np.einsum("bad,bad->ba", image, self.f), np.sqrt(np.einsum("bad,bd->ba", image, c))
        z = normals(self.keys, np.full(len(ys), self.t), Purpose.CHOICE, ARMS)
        arms = np.argmax(means + stds * z, axis=1)
        played = image[self.rows, arms]
        shrink = 1.0 / (1.0 + np.einsum("bd,bd->b", played, c))
        self.inverse[self.rows, arms] -= played[:, :, None] * (shrink[:, None] * played)[:, None, :]
        self.f[self.rows, arms] += rewards[:, None] * c
        return arms


def _contender(name: str, kind: Callable[[str, int], Any], agent: str, streams: int, note: str = "") -> Contender:
    """Return a contender whose `work` is one round of all streams after a warm-up, in processor time.

    Contenders are compared by the arms that a few streams play from the first round on.
    """
    rng, k = np.random.default_rng(1), observed_features(agent)
    rounds = [(rng.normal(size=(streams, k)), rng.normal(size=streams)) for _ in range(2)]
    ready: list[Any] = []

    def work() -> float:
        if not ready:
            ready.append(kind(agent, streams))
            for t in range(WARM if agent == "kf-ts" and kind is not InNumpy else 2):
                ready[0].round(*rounds[t % 2])
        began = time.process_time()
        ready[0].round(*rounds[0])
        return time.process_time() - began

    def arms() -> np.ndarray:
        rng, few = np.random.default_rng(2), kind(agent, COMPARED)
        return np.stack(
            [few.round(rng.normal(size=(COMPARED, k)), rng.normal(size=COMPARED)) for _ in range(COMPARED_ROUNDS)]
        )

    return Contender(name, work, streams, note, arms, seconds=float)


def job(agent: str, quick: bool = False) -> Job:
    ours = _contender("halfseen Fleet", InFleet, agent, STREAMS, f"{STREAMS:,} streams")
    ours.at_most_seconds = 1.0 / AIM
    return Job(
        f"Fleet of {agent}, one core",
        "round",
        linear_thompson.flops(LATENT, ARMS) if agent == "ts-pco" else monte_carlo.agent_flops(LATENT, OBSERVED, ARMS),
        [
            ours,
            _contender("halfseen agents in a Python loop", InALoop, agent, SINGLE, f"{SINGLE} agents"),
            _contender("NumPy over the batch", InNumpy, agent, STREAMS, f"{STREAMS:,} streams"),
        ],
        np.testing.assert_array_equal,
        repeats=5 if quick else 20,
    )


def bytes_of_streams() -> Table:
    """Return the bytes of a stream by component, with one row per agent."""
    rows = []
    for agent in hs.catalog():
        taken = hs.Fleet(agent, observed=OBSERVED, arms=ARMS, **required_options(agent)).memory()
        parts = {part: taken[part] for part in ("estimator", "learner", "bookkeeping")}
        rows.append(
            {
                "agent": agent,
                **{part: f"{value:,.0f}" for part, value in parts.items()},
                "total": f"{sum(parts.values()):,.0f}",
            }
        )
    return Table(rows)


def rounds_of_agents(rounds: int = 60) -> Table:
    """Return the mean time of the first rounds of every agent, including identification.

    `adaptive` has a history of 500 rounds.
    """
    rows = []
    for agent in hs.catalog():
        streams, options = (16, {"history": 500}) if agent.startswith("adaptive") else (1024, {})
        fleet = hs.Fleet(agent, observed=OBSERVED, arms=ARMS, **required_options(agent), **options)
        fleet.add(streams)
        rng, seconds = np.random.default_rng(0), 0.0
        for _ in range(rounds):
            ys, rewards = rng.normal(size=(streams, OBSERVED)), rng.normal(size=streams)
            xs = {"contexts": rng.normal(size=(streams, LATENT))} if hs.catalog()[agent].reveals_context else {}
            began = time.process_time()
            fleet.learn(fleet.decide(ys, **xs), rewards)
            seconds += time.process_time() - began
        rows.append({"agent": agent, "µs per round": f"{1e6 * seconds / rounds / streams:.3g}"})
    return Table(rows)


def bytes_of_covariances(streams: int = 2000, rounds: int = 30) -> Table:
    """Return the bytes per stream of the covariances that `kf-ts` streams share, with and without missing features."""
    rows = []
    for share_missing in (0.0, 0.05):
        fleet = hs.Fleet("kf-ts", observed=OBSERVED, arms=ARMS, **required_options("kf-ts"))
        fleet.add(streams)
        rng = np.random.default_rng(0)
        for _ in range(rounds):
            ys = rng.normal(size=(streams, OBSERVED))
            ys[rng.uniform(size=ys.shape) < share_missing] = np.nan
            fleet.learn(fleet.decide(ys), np.zeros(streams))
        shared = f"{fleet.memory()['shared']:,.0f}"
        rows.append({"entries missing": f"{share_missing:.0%}", "bytes of shared covariances per stream": shared})
    return Table(rows)


def rounds_of_subsets(agent: str = "kf-ts") -> Table:
    """Return the time of decide + learn for random subsets of the streams."""
    fleet, rng, rows = InFleet(agent, STREAMS).fleet, np.random.default_rng(0), []
    for _ in range(WARM):
        fleet.decide(rng.normal(size=(STREAMS, OBSERVED)))
    for count in (1, 10, 100, 1000):
        best = float("inf")
        for _ in range(30):
            streams, ys = rng.permutation(STREAMS)[:count], rng.normal(size=(count, OBSERVED))
            began = time.process_time()
            fleet.learn(fleet.decide(ys, streams=streams).ids, np.zeros(count))
            best = min(best, time.process_time() - began)
        rows.append(
            {
                "streams per call": str(count),
                "µs per call": f"{1e6 * best:.0f}",
                "µs per round": f"{1e6 * best / count:.3g}",
            }
        )
    return Table(rows)


def moving_streams(agent: str = "kf-ts", rounds: int = 100) -> Table:
    """Return the milliseconds to copy a stream out of a fleet, to save, load and add it, and to call `Agent.fold`."""
    source, target, rng = InFleet(agent, 10), InFleet(agent, 10).fleet, np.random.default_rng(0)
    for _ in range(rounds):
        source.round(rng.normal(size=(10, OBSERVED)), rng.normal(size=10))
    ys, arms, rewards = rng.normal(size=(1000, OBSERVED)), rng.integers(ARMS, size=1000), rng.normal(size=1000)
    best: dict[str, float] = {}
    path = "results/bench/stream.hs"

    def clock(name: str, act: Callable[..., Any], *given: Any) -> Any:
        began = time.perf_counter()
        done = act(*given)
        best[name] = min(best.get(name, float("inf")), 1e3 * (time.perf_counter() - began))
        return done

    for _ in range(10):
        single = clock("fleet.agent", source.fleet.agent, 0)
        clock("agent.save", single.save, path)
        single = clock("hs.load", hs.load, path)
        name = clock("fleet.adopt", target.adopt, single)
        target.remove([name])
        clock("agent.fold, 1000 rounds", single.fold, ys, arms, rewards)
    file = f"{os.path.getsize(path):,} bytes"
    return Table([{"agent": agent, **{name: f"{ms:.2f} ms" for name, ms in best.items()}, "file": file}])


def saving_a_fleet(agent: str = "kf-ts") -> Table:
    fleet, path = InFleet(agent, STREAMS), "results/bench/fleet.hs"
    fleet.round(np.zeros((STREAMS, OBSERVED)), np.zeros(STREAMS))
    marks = [time.perf_counter()]
    fleet.fleet.save(path)
    marks.append(time.perf_counter())
    hs.load(path)
    marks.append(time.perf_counter())
    saved, loaded = np.diff(marks)
    size = os.path.getsize(path)
    os.remove(path)
    return Table(
        [{"streams": f"{STREAMS:,}", "file": f"{size:,} bytes", "save": f"{saved:.2f} s", "load": f"{loaded:.2f} s"}]
    )


def main() -> None:
    os.makedirs("results/bench", exist_ok=True)
    for agent in AGENTS:
        fleet_job = job(agent)
        rows = measure(fleet_job)
        cells = [
            {
                "job": fleet_job.title,
                "contender": row["contender"],
                "rounds/s": f"{1e6 / row['microseconds']:,.0f}",
                "µs per round": f"{row['microseconds']:.3g}",
                "ratio": f"{row['times_ours']:.1f}",
                "note": row["note"],
            }
            for row in rows
        ]
        print(Table(cells).markdown(), "\n", flush=True)
    print(bytes_of_streams().markdown(), "\n", flush=True)
    print(rounds_of_agents().markdown(), "\n", flush=True)
    for table in (bytes_of_covariances(), rounds_of_subsets(), moving_streams(), saving_a_fleet()):
        print(table.markdown(), "\n", flush=True)


if __name__ == "__main__":
    main()
