"""How time and memory grow with the context, the arms, the streams and the rounds.

    python -m benchmarks.scaling             # about a quarter of an hour, on one core
    python -m benchmarks.scaling d K         # some of the axes; the others stay as they were

Writes scaling.json and scaling.png to results/bench; with all four axes there, also tables and picture into docs/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.document import ROOT, between_markers
from benchmarks.scaling_report import document, draw
from benchmarks.single_thread import ENVIRONMENT

FOLDER = Path("results/bench")
AGENTS = ("ts-pco", "kf-ts", "emkf-ts", "adaptive")
WARM = 200  # rounds: gains have settled, and the first window of EMKF is over
BLOCKS = 15  # of as many rounds each; the quickest counts
SIZE = {"latent": 20, "observed": 10, "arms": 15, "streams": 1}
AXES: dict[str, tuple[int, ...]] = {
    "d": (5, 10, 20, 50, 100, 200),
    "K": (2, 5, 15, 50, 200, 1000),
    "B": (1, 10, 100, 1000, 10_000),
    "t": (100, 1000, 10_000, 100_000, 1_000_000),
}
TURNS = {"ts-pco": 4, "kf-ts": 4, "emkf-ts": 4, "adaptive": 1}
MOST_STREAMS = {"adaptive": 100}  # of a thousand the first identifications alone take a quarter of an hour


def points(axis: str, agent: str) -> list[dict[str, Any]]:
    """The runs that make up one curve."""
    if axis == "t":
        return [SIZE | {"agent": agent, "marks": list(AXES["t"])}]
    made = []
    for value in AXES[axis]:
        size = dict(SIZE)
        if axis == "d":
            size |= {"latent": value, "observed": value // 2}
        else:
            size["arms" if axis == "K" else "streams"] = value
        if size["streams"] <= MOST_STREAMS.get(agent, value):
            made.append(size | {"agent": agent, "marks": marks(agent, size["streams"])})
    return made


def marks(agent: str, streams: int) -> list[int]:
    """The rounds at which the clock is looked at.

    What adaptive costs is nearly all identification, which comes at rounds ever further apart: so from the start.
    """
    if agent == "adaptive":
        return [1000]
    blocks = min(BLOCKS, max(1, 2 * 1000 // streams))
    return [WARM * block for block in range(1, blocks + 2)]


def measured(point: dict[str, Any]) -> list[dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling_point", json.dumps(point)],
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


def curve(axis: str, agent: str) -> list[dict[str, float]]:
    """Value on the axis, microseconds a round and stream, bytes."""
    if axis == "t":
        blocks = measured(points(axis, agent)[0])
        found = [
            {"at": block["round"], "microseconds": block["microseconds"], "bytes": block["bytes"]} for block in blocks
        ]
    else:
        found = [quickest(axis, agent, point) for point in points(axis, agent)]
        for _ in range(TURNS[agent] - 1):  # not one after the other: what slows a machine down lasts for seconds
            again = [quickest(axis, agent, point) for point in points(axis, agent)]
            found = [min(pair, key=lambda one: one["microseconds"]) for pair in zip(found, again, strict=True)]
    for one in found:
        taken, carried = one["microseconds"], one["bytes"] / 1e6
        print(f"{axis} = {one['at']:>9,}  {agent:9} {taken:10.1f} µs {carried:10.2f} MB", flush=True)
    return found


def quickest(axis: str, agent: str, point: dict[str, Any]) -> dict[str, float]:
    blocks = measured(point)
    timed = blocks[1:] or blocks  # the first is the warm-up, where there are more
    value = point[{"d": "latent", "K": "arms", "B": "streams"}[axis]]
    best = min(block["microseconds"] for block in timed)
    return {"at": value, "microseconds": best, "bytes": blocks[-1]["bytes"]}


def exponent(points: list[dict[str, float]], what: str) -> float:
    """The slope of log `what` over log size, over the larger sizes: at the smaller ones fixed costs hide it."""
    upper = points[-3:]
    at, values = (np.log([max(point[name], 1e-9) for point in upper]) for name in ("at", what))
    return float(np.polyfit(at, values, 1)[0])


def main(axes: list[str]) -> None:
    kept = FOLDER / "scaling.json"
    curves: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
    for axis in axes:
        if axis not in AXES:
            sys.exit(f"error: axis: got '{axis}'; want one of {', '.join(AXES)}")
    for axis in axes or AXES:
        curves[axis] = {}
        for agent in AGENTS:
            found = curve(axis, agent)
            slopes = {what: exponent(found, what) for what in ("microseconds", "bytes")}
            curves[axis][agent] = {"points": found, "exponents": slopes}
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(curves, indent=1))
    draw(curves, FOLDER / "scaling.png")
    if set(AXES) <= curves.keys():
        page = ROOT / "docs/performance.md"
        page.write_text(between_markers(page.read_text(), document(curves), page.name, subject="scaling"))
        (ROOT / "docs/figures/scaling.png").write_bytes((FOLDER / "scaling.png").read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
