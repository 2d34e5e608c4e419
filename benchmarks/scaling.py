"""Measures how time and memory grow with the dimension of the context and the numbers of arms, streams and rounds.

    python -m benchmarks.scaling             # about half an hour on one core
    python -m benchmarks.scaling d K         # measures only some of the axes again

Writes scaling.json and scaling.png to results/bench. If all four axes have been measured, the tables and the figure are
also written to docs/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import halfseen as hs
from benchmarks.harness import ENVIRONMENT
from benchmarks.report import ROOT, amount, between_markers
from halfseen.reports.tables import Table
from halfseen.worlds.linear_gaussian import RandomWorld
from halfseen.worlds.world import Episodes

FOLDER = Path("results/bench")
# The argument for a process that measures one point. Each point has a new process, so that all start with equal caches
# and memory.
POINT = "point"
CHUNK = 100  # rounds that are simulated at once, outside the measured time
AGENTS = ("ts-pco", "kf-ts", "emkf-ts", "adaptive")
WARM = 200  # rounds after which gains have converged and the first window of EMKF has ended
BLOCKS = 15  # blocks of WARM rounds, of which the fastest counts
SIZE = {"latent": 20, "observed": 10, "arms": 15, "streams": 1}
AXES: dict[str, tuple[int, ...]] = {
    "d": (5, 10, 20, 50, 100, 200),
    "K": (2, 5, 15, 50, 200, 1000),
    "B": (1, 10, 100, 1000, 10_000),
    "t": (100, 1000, 10_000, 100_000, 1_000_000),
}
TURNS = {"ts-pco": 4, "kf-ts": 4, "emkf-ts": 4, "adaptive": 1}
MOST_STREAMS = {"adaptive": 100}  # with 1,000 streams, the first identifications alone take a quarter of an hour
HELD = {
    "d": "k = d/2, K = 15, one stream",
    "K": "d = 20, k = 10, one stream",
    "B": "d = 20, k = 10, K = 15, streams of a fleet",
    "t": "d = 20, k = 10, K = 15, one stream; mean since the previous column",
}
NAMES = {"d": "context", "K": "arms", "B": "streams", "t": "rounds"}
COLOURS = {"ts-pco": "#64748b", "kf-ts": "#0f766e", "emkf-ts": "#7c3aed", "adaptive": "#c2410c"}
Curves = Mapping[str, Mapping[str, Mapping[str, Any]]]


def points(axis: str, agent: str) -> list[dict[str, Any]]:
    """Return the problem size of every point of one curve."""
    if axis == "t":
        return [SIZE | {"agent": agent, "marks": list(AXES["t"])}]
    sizes = []
    for value in AXES[axis]:
        size = dict(SIZE)
        if axis == "d":
            size |= {"latent": value, "observed": value // 2}
        else:
            size["arms" if axis == "K" else "streams"] = value
        if size["streams"] <= MOST_STREAMS.get(agent, value):
            sizes.append(size | {"agent": agent, "marks": marks(agent, size["streams"])})
    return sizes


def marks(agent: str, streams: int) -> list[int]:
    """Return the rounds at which the time is measured.

    `adaptive` is measured from its first round, because it spends nearly all its time on identifications, which become
    rarer.
    """
    if agent == "adaptive":
        return [1000]
    blocks = min(BLOCKS, max(1, 2 * 1000 // streams))
    return [WARM * block for block in range(1, blocks + 2)]


def measured(point: dict[str, Any]) -> list[dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", POINT, json.dumps(point)],
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


def curve(axis: str, agent: str) -> list[dict[str, float]]:
    """Return the points of a curve: the value on the axis, microseconds per round and stream, and bytes."""
    if axis == "t":
        blocks = measured(points(axis, agent)[0])
        found = [
            {"at": block["round"], "microseconds": block["microseconds"], "bytes": block["bytes"]} for block in blocks
        ]
    else:
        found = [quickest(axis, agent, point) for point in points(axis, agent)]
        # The points are repeated in turn, because a slow phase of the machine lasts for seconds.
        for _ in range(TURNS[agent] - 1):
            again = [quickest(axis, agent, point) for point in points(axis, agent)]
            found = [min(pair, key=lambda one: one["microseconds"]) for pair in zip(found, again, strict=True)]
    for one in found:
        time_taken, memory = one["microseconds"], one["bytes"] / 1e6
        print(f"{axis} = {one['at']:>9,}  {agent:9} {time_taken:10.1f} µs {memory:10.2f} MB", flush=True)
    return found


def quickest(axis: str, agent: str, point: dict[str, Any]) -> dict[str, float]:
    blocks = measured(point)
    timed = blocks[1:] or blocks  # the first of several blocks is the warm-up
    value = point[{"d": "latent", "K": "arms", "B": "streams"}[axis]]
    best = min(block["microseconds"] for block in timed)
    return {"at": value, "microseconds": best, "bytes": blocks[-1]["bytes"]}


def exponent(points: list[dict[str, float]], what: str) -> float:
    """Return the slope of log `what` over log size at the three largest sizes, where fixed costs matter least."""
    upper = points[-3:]
    at, values = (np.log([max(point[name], 1e-9) for point in upper]) for name in ("at", what))
    return float(np.polyfit(at, values, 1)[0])


def world(latent: int, observed: int, arms: int) -> RandomWorld:
    """Return a world like `orbit` of any size."""
    return RandomWorld(
        name="orbit", latent=latent, observed=observed, arms=arms, dynamics="orthogonal", process_var=0.01,
        reward_std=0.1,
    )  # fmt: skip


def required_facts(agent: str, episodes: Episodes) -> dict[str, Any]:
    facts = episodes.facts()
    return {name: facts[name]() if callable(facts[name]) else facts[name] for name in hs.catalog()[agent].required}


class _Single:
    """One stream, played with `hs.Agent`."""

    def __init__(self, agent: str, size: RandomWorld, episodes: Episodes) -> None:
        self._agent = hs.make(agent, observed=size.observed, arms=size.arms, seed=0, **required_facts(agent, episodes))

    def memory(self) -> int:
        return sum(array.nbytes for array in self._agent.policy.state().values())

    def round(self, y: np.ndarray, expected: np.ndarray, noise: np.ndarray) -> None:
        decision = self._agent.decide(y[0])
        self._agent.learn(decision.id, expected[0, decision.index] + noise[0])


class _Many:
    """Many streams of one world, played with `hs.Fleet`."""

    def __init__(self, agent: str, size: RandomWorld, episodes: Episodes, streams: int) -> None:
        self._fleet = hs.Fleet(agent, observed=size.observed, arms=size.arms, **required_facts(agent, episodes))
        self._fleet.add(streams)
        self._streams = streams

    def memory(self) -> int:
        return self._fleet.nbytes

    def round(self, y: np.ndarray, expected: np.ndarray, noise: np.ndarray) -> None:
        decisions = self._fleet.decide(np.repeat(y, self._streams, axis=0))
        self._fleet.learn(decisions.ids, expected[0, decisions.indices] + noise)


class Player:
    """An agent of a given size with its world."""

    def __init__(self, agent: str, latent: int, observed: int, arms: int, streams: int) -> None:
        size = world(latent, observed, arms)
        self._episodes = size.begin([0])
        self._streams, self._t = streams, 0
        self._player = (
            _Single(agent, size, self._episodes) if streams == 1 else _Many(agent, size, self._episodes, streams)
        )

    def up_to(self, mark: int) -> dict[str, float]:
        """Play up to round `mark`. Return the microseconds per round and stream since the last call, and the bytes."""
        spent, since = 0.0, self._t
        while self._t < mark:
            rounds = self._episodes.advance(min(CHUNK, mark - self._t))
            began = time.process_time()
            for y, expected, noise in zip(rounds.observations, rounds.expected, rounds.reward_noise, strict=True):
                self._player.round(y, expected, noise)
            spent += time.process_time() - began
            self._t += len(rounds.observations)
        taken = 1e6 * spent / ((mark - since) * self._streams)
        return {"round": mark, "microseconds": taken, "bytes": self._player.memory()}


def measure_point(point: dict[str, Any]) -> list[dict[str, float]]:
    """Measure one point of a curve in this process."""
    marks = point.pop("marks")
    Player(point["agent"], 4, 2, 2, min(2, point["streams"])).up_to(250)  # loads the compiled kernels
    player = Player(**point)
    return [player.up_to(mark) for mark in marks]


def size(count: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{max(count, 0) / 1e3:.0f} kB"


def exponent_text(found: Mapping[str, Any], what: str, digits: int) -> str:
    return f"{round(found['exponents'][what], digits) + 0.0:.{digits}f}"  # adding 0.0 turns -0.0 into 0.0


def table(curves: Curves, axis: str, what: str) -> Table:
    """Return times or bytes with one row per agent and one column per size, and the exponents."""
    formatted = amount if what == "microseconds" else size
    values = [point["at"] for point in curves[axis]["kf-ts"]["points"]]
    rows = []
    for agent, found in curves[axis].items():
        cells = {point["at"]: formatted(point[what]) for point in found["points"]}
        row = {"agent": agent} | {f"{axis} = {value:,}": cells.get(value, "not run") for value in values}
        rows.append(row | {"exponent": exponent_text(found, what, 2)})
    return Table(rows)


def document(curves: Curves) -> str:
    parts = []
    for axis, held in HELD.items():
        unit = "round and stream" if axis == "B" else "round"
        parts += [
            f"**{NAMES[axis].capitalize()}**: time per {unit} ({held})",
            table(curves, axis, "microseconds").markdown(),
        ]
        parts += ["Memory", table(curves, axis, "bytes").markdown()]
    return "\n\n".join(parts)


def draw(curves: Curves, path: Path) -> None:
    """Draw one column per axis, with time at the top and memory at the bottom."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, len(curves), figsize=(3.6 * len(curves), 6.4), squeeze=False, layout="constrained")
    for column, axis in zip(grid.T, [axis for axis in HELD if axis in curves], strict=True):
        agents = curves[axis]
        for axes, what in zip(column, ("microseconds", "bytes"), strict=True):
            for agent, found in agents.items():
                points = found["points"]
                label = f"{agent} ({exponent_text(found, what, 1)})"
                axes.plot(
                    [p["at"] for p in points],
                    [p[what] for p in points],
                    "o-",
                    ms=3.5,
                    lw=1.4,
                    color=COLOURS[agent],
                    label=label,
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.grid(True, which="major", alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=7)
            axes.legend(fontsize=7, frameon=False, title="agent (exponent)", title_fontsize=7)
        column[0].set_title(f"{NAMES[axis]}, {axis}", fontsize=10)
        column[1].set_xlabel(axis)
    grid[0, 0].set_ylabel("µs per round and stream")
    grid[1, 0].set_ylabel("bytes")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(axes: list[str]) -> None:
    if axes[:1] == [POINT]:
        print(json.dumps(measure_point(json.loads(axes[1]))))
        return
    path = FOLDER / "scaling.json"
    curves: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    for axis in axes:
        if axis not in AXES:
            sys.exit(f"error: axis: expected one of {', '.join(AXES)}, got '{axis}'")
    for axis in axes or AXES:
        curves[axis] = {}
        for agent in AGENTS:
            found = curve(axis, agent)
            slopes = {what: exponent(found, what) for what in ("microseconds", "bytes")}
            curves[axis][agent] = {"points": found, "exponents": slopes}
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(curves, indent=1))
    draw(curves, FOLDER / "scaling.png")
    if set(AXES) <= curves.keys():
        page = ROOT / "docs/performance.md"
        page.write_text(between_markers(page.read_text(), document(curves), page.name, subject="scaling"))
        (ROOT / "docs/figures/scaling.png").write_bytes((FOLDER / "scaling.png").read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
