"""What is said of slices made up by hand, the order in which they are played, and what their numbers depend on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import halfseen
from halfseen.experiments.cache import reachable, source_hash
from halfseen.experiments.leaderboard import Schedule
from halfseen.experiments.leaderboard_summary import (
    SliceSummary,
    one_agent_slices,
    overall_ratio,
    summarise_worlds,
    world_and_agent,
)
from halfseen.experiments.plan import Slice, experiment

RNG = np.random.default_rng(3)
KF = RNG.uniform(50, 150, size=20)
REGRET = {
    "kf-ts": KF,
    "ts-pco": 1.5 * KF + RNG.normal(size=20),
    "emkf-ts": KF + RNG.normal(size=20),
    "random": np.where(np.arange(20) == 7, 40.0, 1.02) * KF,
}


@pytest.fixture(scope="module")
def entries() -> dict[str, dict[str, object]]:
    plan = experiment(list(REGRET), "fog", 10, range(100, 120))
    results = {("fog", agent): [_summary(regret[:10]), _summary(regret[10:])] for agent, regret in REGRET.items()}
    return summarise_worlds(plan, results)["fog"]["agents"]


def _summary(regret: np.ndarray) -> SliceSummary:
    return SliceSummary(2.0, None, regret.tolist(), np.outer(regret, np.linspace(0.1, 1, 10)).tolist(), seconds=[0.5])


def test_regret_beside_the_yardstick(entries: dict[str, dict[str, object]]) -> None:
    for agent, regret in REGRET.items():
        entry = entries[agent]
        assert entry["regret_mean"] == pytest.approx(regret.mean())
        assert entry["ratio"]["value"] == pytest.approx(regret.mean() / KF.mean())
        assert entry["median_ratio"] == pytest.approx(np.median(regret) / np.median(KF))
        assert entry["worst_seed"]["ratio"] == pytest.approx((regret / KF).max())
        assert entry["worst_seed"]["seed"] == 100 + (regret / KF).argmax()
        assert entry["microseconds_per_round"] == pytest.approx(1e6 * 1.0 / (20 * 10))
        assert entry["wall_seconds"] == 4.0
    assert entries["ts-pco"]["ratio"]["low"] > 1.4
    assert entries["emkf-ts"]["ratio"]["low"] < 1 < entries["emkf-ts"]["ratio"]["high"]


def test_the_paired_test_and_its_correction(entries: dict[str, dict[str, object]]) -> None:
    rivals = ["ts-pco", "emkf-ts", "random"]
    raw = [stats.wilcoxon(REGRET[agent] - KF).pvalue for agent in rivals]
    assert [entries[agent]["p_value"] for agent in rivals] == pytest.approx(raw)
    assert entries["ts-pco"]["p_holm"] == pytest.approx(3 * min(raw))
    assert entries["emkf-ts"]["p_holm"] == pytest.approx(max(raw))
    assert entries["kf-ts"]["p_holm"] is None
    # One seed carries nearly all of the difference: the mean is uncertain, the ranks are not.
    assert entries["random"]["ratio"]["low"] < 1
    assert entries["random"]["p_holm"] < 0.001


def test_all_worlds_is_a_geometric_mean() -> None:
    def world(ratio: float | None) -> dict[str, object]:
        return {"agents": {"a": {"ratio": None if ratio is None else {"value": ratio}}}}

    assert overall_ratio({"x": world(4.0), "y": world(0.25), "z": world(8.0)}, "a") == pytest.approx(2.0)
    assert overall_ratio({"x": world(4.0), "y": world(None)}, "a") is None


def test_a_yardstick_without_regret_is_none() -> None:
    plan = experiment(["kf-ts", "ts-pco"], "fog", 10, 2)
    results = {("fog", agent): [_summary(np.array(r))] for agent, r in (("kf-ts", [0.0, 1.0]), ("ts-pco", [1.0, 1.0]))}
    entry = summarise_worlds(plan, results)["fog"]["agents"]["ts-pco"]
    assert entry["ratio"] is entry["worst_seed"] is None


def _slices() -> list[Slice]:
    return one_agent_slices(experiment(["kf-ts", "ts-pco", "random"], ["fog", "orbit"], 10, 20))


def test_unknown_agents_first_then_the_slowest() -> None:
    schedule, cost = Schedule(_slices()), {"kf-ts": 1.0, "ts-pco": 5.0, "random": 3.0}
    assert schedule.seconds_left() is None
    order = []
    for task in schedule:
        order.append(world_and_agent(task))
        schedule.finished(task, cost[task.agents[0].label] * (1 if task.world.name == "fog" else 0.1))
    assert [agent for _, agent in order[:3]] == ["kf-ts", "ts-pco", "random"]
    assert order[3] == ("fog", "ts-pco")
    assert order.index(("fog", "random"), 3) < order.index(("fog", "kf-ts"), 3)
    assert len(order) == len(_slices())
    assert schedule.seconds_left() == 0


def test_time_left_from_what_was_done_before() -> None:
    slices = _slices()
    schedule = Schedule(slices[1:])
    schedule.finished(slices[0], 2.0)  # kf-ts in fog, from an earlier run
    assert schedule.seconds_left() is None
    for task in (one for one in slices if one.agents[0].label != "kf-ts"):
        schedule.finished(task, 1.0)
    assert schedule.seconds_left() == pytest.approx(3 * 2.0 + 8 * 1.0)  # none of them was taken from the schedule
    assert next(iter(schedule)).agents[0].label == "kf-ts"


def test_every_module_that_plays_is_in_the_hash() -> None:
    """Whatever is loaded when a slice is played is among what a changed file of would change the hash."""
    code = """
import sys
from halfseen.experiments.leaderboard_summary import one_agent_slices, play_and_summarise
from halfseen.agents.catalogue import CATALOG
from halfseen.experiments.plan import experiment
for task in one_agent_slices(experiment(list(CATALOG), ["keyhole", "switch:at=3"], 5, 1)):
    assert play_and_summarise(task, lambda _: None).error is None, task.agents
print(*[name for name in sys.modules if name.startswith("halfseen.")])
"""
    source = str(Path(halfseen.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source, "PATH": ""}, capture_output=True, text=True, check=True
    )
    reached = reachable("halfseen.experiments.leaderboard_summary")
    assert set(done.stdout.split()) <= set(reached)
    assert {"halfseen.worlds.named", "halfseen.kernels.kalman", "halfseen.estimators.emkf"} <= set(reached)
    assert not set(reached) & {"halfseen.cli.app", "halfseen.cli.terminal", "halfseen.reports.pages"}
    assert len(source_hash()) == 64
