"""Agents that replay a table receive scaled columns, so the units of columns and rewards do not matter."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation.logs import agent_events, write

import halfseen as hs
from halfseen.evaluation.readers import read_log
from halfseen.evaluation.scaled_log import ScaledLog
from halfseen.worlds.preparation import Scaling

AGENTS = ["ts-pco", "lag-ts:lags=2", "pco-greedy", "blup-ts", "adaptive:latent=3,history=150"]


def table(rounds: int = 300, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a log whose arm "b" is better on average, and whose context moves slowly."""
    rng = np.random.default_rng(seed)
    y = np.zeros((rounds, 2))
    for t in range(1, rounds):
        y[t] = 0.8 * y[t - 1] + rng.normal(size=2)
    arm = rng.integers(3, size=rounds)
    slopes = np.array([[1.0, 0.0], [0.0, 0.5], [-1.0, 0.3]])
    reward = np.array([0.0, 2.0, 0.5])[arm] + (slopes[arm] * y).sum(axis=1) + 0.3 * rng.normal(size=rounds)
    columns = {"heat": y[:, 0], "load": y[:, 1], "arm": np.array(["a", "b", "c"])[arm], "reward": reward}
    return columns | {"propensity": np.full(rounds, 1 / 3)}


@pytest.fixture(scope="module")
def values():
    """Return the estimates of all agents by units: scaled, as recorded, and in other units."""
    plain = table()
    units = {
        "scaled": {"heat": (1.0, 0.0), "load": (1.0, 0.0), "reward": (1.0, 0.0)},
        "columns": {"heat": (5000.0, 3e5), "load": (0.002, -7.0), "reward": (1.0, 0.0)},
        "rewards": {"heat": (1.0, 0.0), "load": (1.0, 0.0), "reward": (40.0, 0.0)},
    }
    found = {}
    for name, changes in units.items():
        changed = plain | {column: a * plain[column] + b for column, (a, b) in changes.items()}
        result = hs.evaluate(changed, AGENTS, observed=["heat", "load"])
        found[name] = {label: one.differences["dr"].value for label, one in result.policies.items()}
    return found


@pytest.mark.parametrize("label", AGENTS)
def test_units_do_not_decide_who_wins(values, label):
    tolerance = 0.05 if label.startswith("adaptive") else 1e-6  # of differences between arms of about 2
    assert values["columns"][label] == pytest.approx(values["scaled"][label], abs=tolerance)
    assert values["rewards"][label] / 40.0 == pytest.approx(values["scaled"][label], abs=tolerance)


def test_without_scaling_units_decide(values):
    plain = table()
    far = plain | {"heat": 5000.0 * plain["heat"] + 3e5}
    unscaled = hs.evaluate(far, "ts-pco", observed=["heat", "load"], scale=False)
    scaled = hs.evaluate(far, "ts-pco", observed=["heat", "load"])
    assert abs(unscaled.policies["ts-pco"].values["dr"].value - scaled.policies["ts-pco"].values["dr"].value) > 0.1


def test_agents_of_a_journal_receive_what_was_sent(tmp_path):
    journal = write(tmp_path / "j.ndjson", agent_events(80))
    plain, raw, scaled = (hs.evaluate(journal, "ts-pco", scale=scale) for scale in (None, False, True))
    value = {
        name: one.policies["ts-pco"].values["dr"].value for name, one in zip("prs", (plain, raw, scaled), strict=True)
    }
    assert value["p"] == value["r"] != value["s"]
    with pytest.raises(hs.HalfseenError, match="scale: expected True or False, got 1"):
        hs.evaluate(journal, "ts-pco", scale=1)


def test_a_log_is_scaled_by_its_first_fifth():
    log = read_log(table(), observed=["heat", "load"])
    scaled = ScaledLog.of(log)
    first = scaled.observations[:60, :2]
    np.testing.assert_allclose(first.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(first.std(axis=0), 1.0)
    np.testing.assert_array_equal(scaled.observations[:, 2], 1.0)
    assert 0.5 < scaled.reward_unit < 3.0
    assert ScaledLog.of(log, "count").reward_unit == 1.0


def test_columns_that_do_not_vary_at_first_are_scaled_by_all_rows():
    late = np.concatenate([np.zeros(60), 1e6 * np.arange(240.0)])
    columns = table() | {"late": late, "still": np.full(300, 7.0), "empty": np.full(300, np.nan)}
    scaled = ScaledLog.of(read_log(columns, observed=["late", "still", "empty"])).observations
    np.testing.assert_allclose(scaled[:, 0], (late - late.mean()) / late.std())
    np.testing.assert_array_equal(scaled[:, 1], 0.0)
    assert np.isnan(scaled[:, 2]).all()


def test_scaling_ignores_missing_entries():
    scaling = Scaling.of(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, 5.0]]))
    np.testing.assert_array_equal(scaling.centre, [2.0, 5.0])
    np.testing.assert_array_equal(scaling.scale, [1.0, 1.0])
    assert scaling.varies == (True, False)


def test_a_shuffled_log_gives_the_same_estimates():
    """A shuffled log used to be accepted as it was. Its intervals were too narrow, as if rounds were independent."""
    plain = table() | {"time": np.arange(300.0)}
    order = np.random.default_rng(1).permutation(300)
    shuffled = {name: column[order] for name, column in plain.items()}
    expected = hs.evaluate(plain, ["always:b", "lag-ts"], observed=["heat", "load"])
    found = hs.evaluate(shuffled, ["always:b", "lag-ts"], observed=["heat", "load"])
    assert found.summary()["policies"] == expected.summary()["policies"]
    assert "the rows were not in order of 'time' and have been sorted" in found.notes
