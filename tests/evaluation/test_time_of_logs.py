"""Logs whose decisions are unequal numbers of steps apart, and journals with observations and gaps."""

import json

import numpy as np
import pandas as pd
import pytest

import halfseen as hs
from halfseen.evaluation import policies
from halfseen.evaluation.readers import read_log
from halfseen.experiments.logged_table import read_table
from halfseen.worlds.gaps import kept_rounds

MODEL = hs.LinearGaussianModel(transition=[[0.8, 0.5], [-0.5, 0.8]], process_cov=0.1, observation_cov=[0.2])


def table(rows=120, share=0.4, **columns):
    rng = np.random.default_rng(1)
    plain = {
        "y": rng.normal(size=rows),
        "arm": rng.integers(2, size=rows),
        "propensity": np.full(rows, 0.5),
        "reward": rng.normal(size=rows),
        "time": 1.7e9 + 60.0 * kept_rounds(0, 4 * rows, share)[:rows],
    }
    return plain | columns


def test_the_steps_between_decisions_are_inferred_and_said():
    log = read_log(table(), observed=["y"])
    np.testing.assert_array_equal(log.elapsed[1:], np.diff(table()["time"]) // 60)
    assert log.step == "60"
    (note,) = log.notes
    assert note.startswith("the step of 'time' is 60, and there are ")
    dated = table(time=(table()["time"]).astype("datetime64[s]"))
    assert read_log(dated, observed=["y"]).step == "1 minute"
    assert hs.evaluate(dated, "uniform", observed=["y"]).summary()["step"] == "1 minute"
    regular = read_log(table(time=np.arange(120)), observed=["y"])
    assert regular.elapsed is None
    assert regular.notes == ()


def test_agents_that_replay_a_log_are_told_how_much_time_has_passed():
    log = read_log(table(), observed=["y"])
    found, _ = policies.by_agent(log, "kf-ts", {"model": MODEL}, seed=3)
    agent = hs.make("kf-ts", observed=1, arms=2, seed=3, model=MODEL)
    for t in range(log.rounds):
        decision = agent.replay(log.observations[t], int(log.played[t]), propensity=0.5, elapsed=int(log.elapsed[t]))
        np.testing.assert_array_equal(found[t], decision.propensities)
        agent.learn(decision, log.rewards[t])
    ignored, _ = policies.by_agent(read_log(table(time=np.arange(120)), observed=["y"]), "kf-ts", {"model": MODEL})
    assert np.abs(found - ignored).max() > 0.01


def test_a_study_takes_the_same_steps():
    found = read_table(table(), observed=None, roles={}, arms=None, stream=None)
    np.testing.assert_array_equal(found.log.elapsed, read_log(table(), observed=["y"]).elapsed)
    arms = [*table()["arm"][:-1].tolist(), None]
    open_row = read_table(table(arm=np.array(arms, dtype=object)), observed=None, roles={}, arms=None, stream=None)
    assert open_row.next_elapsed == int(np.diff(table()["time"])[-1] // 60)


def test_a_decision_that_is_in_the_log_twice_is_refused_with_its_rows():
    order = np.array([*range(60), 17, *range(60, 120)])
    twice = {name: column[order] for name, column in table().items()}
    line = (
        r"^the table, rows 18 and 61: expected different rows, got the same row twice, with '.*' in the column 'time'$"
    )
    with pytest.raises(hs.HalfseenError, match=line):
        hs.evaluate(twice, "uniform", observed=["y"])
    for more in ({"id": np.arange(121)}, {"visitor": [f"v{t}" for t in range(121)]}):
        assert hs.evaluate(twice | more, "uniform", observed=["y"]).log.rounds == 121
        assert read_table(twice | more, observed=["y"], roles={}, arms=None, stream=None).log.rounds == 121
    visitors = twice | {"visitor": [f"v{t}" for t in range(121)]}  # too many texts for a feature
    assert read_table(visitors, observed=None, roles={}, arms=None, stream=None).log.rounds == 121


def test_rows_that_are_equal_because_times_are_coarse_are_decisions_of_their_own():
    rng = np.random.default_rng(6)
    clicks = {
        "y": rng.integers(2, size=400), "arm": rng.integers(2, size=400), "propensity": np.full(400, 0.5),
        "reward": rng.integers(2, size=400), "time": np.repeat(np.datetime64("2026-01-01") + np.arange(20), 20),
    }  # fmt: skip
    found = hs.evaluate(clicks, "uniform", observed=["y"])
    assert found.log.rounds == 400
    (note,) = (line for line in found.notes if "same time" in line)
    assert note.startswith("380 of 400 rows have the same time as the row before them (first in row 2), so their order")
    read = read_table(clicks, observed=None, roles={}, arms=None, stream=None)
    assert read.log.rounds == 400


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"opened": "days", "closed": "days"}, "; if 'opened' or 'closed' is the time: --time opened"),
        ({"timestamp": "numbers"}, "; if 'timestamp' is the time: --time timestamp"),
        ({}, ""),
    ],
)
def test_a_log_without_a_time_says_that_the_order_of_the_rows_counts(columns, note):
    days, numbers = np.datetime64("2026-01-01") + np.arange(120), 1.7e9 + np.arange(120.0)
    given = {name: days if kind == "days" else numbers for name, kind in columns.items()}
    plain = {name: column for name, column in table().items() if name != "time"} | given
    line = f"no column is known to be the time, so the order of the rows is taken as the order in time{note}"
    assert hs.evaluate(plain, "uniform", observed=["y"]).notes[-1] == line
    read = read_table(plain, observed=None, roles={}, arms=None, stream=None)
    assert read.log.order_note == line
    assert not any("order" in line for line in hs.evaluate(table(), "uniform", observed=["y"]).notes)


def test_dates_in_the_index_of_a_frame_are_not_a_column():
    times = pd.DatetimeIndex(np.datetime64("2026-01-01") + np.arange(120))
    frame = pd.DataFrame({name: column for name, column in table().items() if name != "time"}, index=times)
    hint = "; if the index of the DataFrame is the time: reset_index() makes it a column"
    assert hs.evaluate(frame, "uniform", observed=["y"]).notes[-1].endswith(hint)
    assert read_table(frame, observed=None, roles={}, arms=None, stream=None).log.order_note.endswith(hint)
    assert read_log(frame.reset_index(), observed=["y"]).order_note is None
    assert "reset_index" not in read_log(frame.reset_index(drop=True), observed=["y"]).order_note


# ---------------------------------------------------------------------- journals


def journal(path, *, elapsed=True):
    """Write the journal of a stream with observations and gaps, and return the agent that made the decisions."""
    agent, rng, seq = hs.make("kf-ts", observed=1, arms=2, seed=3, model=MODEL), np.random.default_rng(5), 1
    lines = [{"stream": "s", "seq": 1, "kind": "created", "spec": {"observed": 1, "arms": 2}}]
    propensities = []
    for t in range(60):
        steps = [1, 3, 0, 130][t % 4]
        for _ in range(t % 3):
            seq, y = seq + 1, float(rng.normal())
            agent.observe([y], elapsed=2)
            lines.append({"stream": "s", "seq": seq, "kind": "observed", "observation": [y], "elapsed": 2})
        y, seq = float(rng.normal()), seq + 2
        decision = agent.decide([y], elapsed=steps)
        propensities.append(decision.propensities)
        lines.append({
            "stream": "s", "seq": seq - 1, "kind": "decided", "id": str(t), "observation": [y], "arm": decision.arm,
            "propensity": decision.propensity, "propensities": decision.propensities.tolist(),
            **({"elapsed": steps} if steps != 1 else {}),
        })  # fmt: skip
        agent.learn(decision, y)
        lines.append({"stream": "s", "seq": seq, "kind": "rewarded", "decision": str(t), "value": y, "how": "given"})
    path.write_text("\n".join(map(json.dumps, lines)))
    return np.array(propensities)


def test_a_journal_is_replayed_with_its_observations_and_gaps(tmp_path):
    made = journal(tmp_path / "log.ndjson")
    log = read_log(tmp_path / "log.ndjson")
    assert log.rounds == 60
    assert len(log.observed_before) == 40
    found, _ = policies.by_agent(log, "kf-ts", {"model": MODEL}, seed=3)
    np.testing.assert_array_equal(found, made)
    result = hs.evaluate(tmp_path / "log.ndjson", ["uniform", "ts-pco", "hmm-ts:states=2"], scale=True)
    assert list(result.policies) == ["logged", "uniform", "ts-pco", "hmm-ts:states=2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"elapsed": -1}, "line 3, elapsed: expected an integer of at least 0, got -1"),
        ({"elapsed": 1.5}, "line 3, elapsed: expected"),
        ({"observation": [1.0, 2.0]}, "line 3: expected an observation with 1 entries, got 2"),
        ({"observation": None}, "line 3: expected an observation that is a list"),
    ],
)
def test_impossible_observations_of_a_journal_are_refused(tmp_path, change, message):
    journal(tmp_path / "log.ndjson")
    lines = [json.loads(line) for line in (tmp_path / "log.ndjson").read_text().splitlines()]
    at = next(i for i, line in enumerate(lines) if line["kind"] == "observed")
    lines.insert(2, lines.pop(at) | change | {"seq": lines[1]["seq"] + 0.5})
    (tmp_path / "log.ndjson").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(hs.HalfseenError, match=message):
        read_log(tmp_path / "log.ndjson")
