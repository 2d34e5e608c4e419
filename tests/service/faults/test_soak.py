"""Two minutes of the soak: random faults under mixed load, checked against what was acknowledged."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from service.faults import soak

from halfseen.journal.events import Decided, Event, Rewarded


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_nothing_acknowledged_is_lost_under_random_faults(database, tmp_path):
    results = soak.run([database], seed=1, kills=1_000, seconds=60.0, output=tmp_path)
    assert results.failures == []
    assert results.kills.total() >= 5
    assert results.acknowledged["decisions"] > 50
    assert results.checked["decided"] >= results.acknowledged["decisions"]
    assert results.checked["streams compared"] == len(soak.STREAMS) * sum(results.rounds.values())
    assert json.loads((tmp_path / "soak.json").read_text())["lost"] == 0


def recorded_events() -> list[Event]:
    made = Decided(0, [0.5, None], "a", 0.25, [0.25, 0.75], [1.0, None], key="k")
    return [Event(1, 1, "id", made), Event(2, 2, "id", Rewarded("id", 0, 1.5, "given", True))]


def acknowledged() -> soak.Acknowledged:
    noted = soak.Acknowledged()
    reply = {"id": "id", "arm": "a", "propensity": 0.25, "propensities": [0.25, 0.75], "expected": [1.0, None]}
    noted.decided("ts-pco", {"observation": [0.5, None], "key": "k"}, reply)
    noted.rewards["ts-pco"]["id"] = 1.5
    return noted


def test_the_soak_finds_what_is_lost_changed_or_recorded_twice():
    good, noted = recorded_events(), acknowledged()
    assert soak._check_events("ts-pco", good, noted) == Counter(decided=1, rewarded=1)
    other_arm = Decided(0, [0.5, None], "b", 0.25, [0.25, 0.75], [1.0, None], key="k")
    other_value = Rewarded("id", 0, 1.25, "given", True)
    for wrong, message in (
        (good[:1], "the reward 1.5 of id is recorded as None"),
        ([Event(1, 1, "id", good[1].content)], "decision id is lost"),
        ([*good, Event(3, 3, "id", good[1].content)], "recorded twice"),
        ([*good, Event(3, 3, "other", good[0].content)], "recorded twice"),
        ([good[0], Event(3, 3, "id", good[1].content)], "have gaps"),
        ([Event(1, 1, "id", other_arm), good[1]], "was acknowledged as"),
        ([good[0], Event(2, 2, "id", other_value)], "is recorded as 1.25"),
    ):
        with pytest.raises(soak.SoakFailure, match=message):
            soak._check_events("ts-pco", wrong, noted)
    noted.arms_added.add(("ts-pco", "new"))
    with pytest.raises(soak.SoakFailure, match="arm_added"):
        soak._check_events("ts-pco", good, noted)


def test_runs_add_up_in_the_report(tmp_path):
    for _ in range(2):
        results = soak.Results.read(tmp_path / "soak.json")
        results.kills["worker"] += 3
        results.faults["kill worker"] += 3
        results.recovered("kill worker", 0.5)
        results.write(tmp_path)
    assert results.kills == {"worker": 6}
    assert results.recovery["kill worker"] == [2, 1.0, 0.5]
    report = (tmp_path / "soak.md").read_text()
    assert report.startswith("6 kills in 0 rounds and 0 minutes. Lost, duplicated or changed: 0.")
    assert "| kill worker | 6 | 0.50 s | 0.50 s |" in report
