"""The results of a leaderboard, computed from synthetic slices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from halfseen.experiments.leaderboard_summary import overall_ratio, summarise_worlds
from halfseen.experiments.plan import experiment
from halfseen.experiments.slice_summary import SliceSummary

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


def test_regret_relative_to_the_baseline(entries: dict[str, dict[str, object]]) -> None:
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


def test_p_values_and_their_correction(entries: dict[str, dict[str, object]]) -> None:
    rivals = ["ts-pco", "emkf-ts", "random"]
    raw = [stats.wilcoxon(REGRET[agent] - KF).pvalue for agent in rivals]
    assert [entries[agent]["p_value"] for agent in rivals] == pytest.approx(raw)
    assert entries["ts-pco"]["p_holm"] == pytest.approx(3 * min(raw))
    assert entries["emkf-ts"]["p_holm"] == pytest.approx(max(raw))
    assert entries["kf-ts"]["p_holm"] is None
    # One seed has nearly all of the difference, so the mean is uncertain but the ranks are not.
    assert entries["random"]["ratio"]["low"] < 1
    assert entries["random"]["p_holm"] < 0.001


def test_the_overall_ratio_is_a_geometric_mean() -> None:
    def world(ratio: float | None) -> dict[str, object]:
        return {"agents": {"a": {"ratio": None if ratio is None else {"value": ratio}}}}

    assert overall_ratio({"x": world(4.0), "y": world(0.25), "z": world(8.0)}, "a") == pytest.approx(2.0)
    assert overall_ratio({"x": world(4.0), "y": world(None)}, "a") is None


def test_a_baseline_without_regret_gives_no_ratio() -> None:
    plan = experiment(["kf-ts", "ts-pco"], "fog", 10, 2)
    results = {("fog", agent): [_summary(np.array(r))] for agent, r in (("kf-ts", [0.0, 1.0]), ("ts-pco", [1.0, 1.0]))}
    entry = summarise_worlds(plan, results)["fog"]["agents"]["ts-pco"]
    assert entry["ratio"] is entry["worst_seed"] is None
