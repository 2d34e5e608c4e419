"""Reading logs from journals and tables, and the messages for invalid logs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from evaluation.logs import agent_events, created, event, write
from pyarrow import parquet

import halfseen as hs
from halfseen.errors import HalfseenError
from halfseen.evaluation.log import StepKind
from halfseen.evaluation.policies import by_agent
from halfseen.evaluation.readers import read_log


def decided(seq, number, arm, propensities, index, **more):
    return event(
        seq,
        "decided",
        id=number,
        observation=more.pop("observation", [0.5, None]),
        arm=arm,
        propensity=propensities[index],
        propensities=propensities,
        **more,
    )


def rewarded(seq, number, value, how="given", folded=True):
    return event(seq, "rewarded", decision=number, value=value, how=how, folded=folded)


EVENTS = [
    created(["a", "b"]),
    decided(2, "x1", "b", [0.25, 0.75], 1),
    rewarded(3, "x1", 2.5),
    event(4, "arm_added", arm="c"),
    decided(5, "x2", "c", [0.5, 0.1, 0.4], 2),
    event(6, "arm_retired", arm="a"),
    decided(7, "x3", "b", [0.0, 1.0, 0.0], 1, available=["b"], observation=[None, 4]),
    rewarded(8, "x2", 0.0, how="default"),
    event(9, "expired", decision="x3"),
    event(10, "model_accepted", epochs=3, blob="aGk="),
    decided(11, "x4", "c", [0.0, 0.5, 0.5], 2),
    rewarded(12, "x3", 7, how="late", folded=False),
    rewarded(13, "x2", 1.5, how="late", folded=False),
    event(14, "retired"),
]


def test_a_journal_is_read_in_order(tmp_path):
    log = read_log(write(tmp_path / "j.ndjson", EVENTS))
    assert log.arms == ("a", "b", "c")
    assert log.first_arms == 2
    np.testing.assert_array_equal(log.played, [1, 2, 1, 2])
    np.testing.assert_array_equal(log.rewards, [2.5, 1.5, 7.0, np.nan])  # a late reward replaces the default
    np.testing.assert_array_equal(log.propensity, [0.75, 0.4, 1.0, 0.5])
    np.testing.assert_array_equal(log.propensities[0], [0.25, 0.75, 0.0])
    np.testing.assert_array_equal(log.possible, [[1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(log.observations, [[0.5, np.nan], [0.5, np.nan], [np.nan, 4], [0.5, np.nan]])
    assert log.defaults == 0
    kinds = [(step.kind, step.at) for step in log.steps]
    assert kinds == [
        (StepKind.DECIDED, 0),
        (StepKind.REWARDED, 0),
        (StepKind.ARM_ADDED, 2),
        (StepKind.DECIDED, 1),
        (StepKind.ARM_RETIRED, 0),
        (StepKind.DECIDED, 2),
        (StepKind.REWARDED, 1),
        (StepKind.DECIDED, 3),
    ]
    assert log.steps[6].value == 0.0  # an agent learns the default reward, because the late reward was not folded


def test_a_late_reward_that_was_learnt_makes_the_default_provisional(tmp_path):
    log = read_log(write(tmp_path / "j.ndjson", [*EVENTS[:-2], rewarded(13, "x2", 1.5, how="late"), EVENTS[-1]]))
    rewards = [(step.at, step.value, step.provisional) for step in log.steps if step.kind is StepKind.REWARDED]
    assert rewards == [(0, 2.5, False), (1, 0.0, True), (1, 1.5, False)]
    np.testing.assert_array_equal(log.rewards, [2.5, 1.5, 7.0, np.nan])


def test_default_rewards_are_used_and_counted(tmp_path):
    log = read_log(write(tmp_path / "j.jsonl", EVENTS[:8]))
    np.testing.assert_array_equal(log.rewards, [2.5, 0.0, np.nan])
    assert log.defaults == 1


def test_a_log_with_several_streams_needs_the_name_of_one(tmp_path):
    other = [one | {"stream": "other"} for one in EVENTS[:3]]
    path = write(tmp_path / "j.ndjson", [*EVENTS, *other])
    assert read_log(path, stream="other").rounds == 1
    assert read_log(path, stream="shop").rounds == 4
    with pytest.raises(HalfseenError, match=r"stream: expected one of the streams shop, other, got nothing"):
        read_log(path)
    with pytest.raises(HalfseenError, match=r"There is no stream 'shap'\. Did you mean 'shop'"):
        read_log(path, stream="shap")


def test_a_journal_without_its_beginning_needs_the_arms(tmp_path):
    path = write(tmp_path / "j.ndjson", EVENTS[1:3])
    with pytest.raises(HalfseenError, match=r"line 1: expected .*'created', or the arms .*, got 'decided' first"):
        read_log(path)
    assert read_log(path, arms=["a", "b"]).arms == ("a", "b")


GOOD = decided(2, "x1", "b", [0.25, 0.75], 1)
BAD_LINES = [
    ("{", ": expected an event as JSON, got '{' (Expecting property name"),
    ('{"kind": "decided", "value": NaN}', 'decided", "value": NaN}\' (NaN is not a JSON number)'),
    ("[1, 2]", ': expected a JSON object with a field "kind", got [1, 2]'),
    (b"\xff\xfe", ": expected an event as JSON, got "),
    (GOOD | {"kind": "dreamt"}, ": expected an event of one of the kinds created, decided, rewarded, "),
    (GOOD | {"kind": "dreamt"}, ", got 'dreamt'"),
    (GOOD | {"propensity": 0}, ", propensity: expected a probability above 0, got 0"),
    (GOOD | {"propensity": 1.2}, ", propensity: expected a probability from 0 to 1, got 1.2"),
    (GOOD | {"propensity": "much"}, ", propensity: expected a probability from 0 to 1, got 'much'"),
    (GOOD | {"propensity": None}, ": expected a decision with the field 'propensity', got none"),
    (GOOD | {"propensities": [0.4, 0.75]}, ": expected propensities that sum to 1, got the sum 1.15"),
    (GOOD | {"propensities": [0.75, 0.25]}, "the propensity 0.25, as in the list of propensities, got 0.75"),
    (GOOD | {"propensities": [0.25, 0.5, 0.25]}, ": expected 2 propensities, one per arm, got 3"),
    (GOOD | {"propensities": [-0.25, 1.25]}, ", propensities: expected a probability from 0 to 1, got -0.25"),
    (GOOD | {"arm": "z"}, ": expected one of the arms a, b, got arm 'z'"),
    (GOOD | {"arm": 1}, ": expected one of the arms a, b, got arm 1"),
    (GOOD | {"available": ["a"]}, ": expected an arm that is available and not retired, got arm 'b'"),
    (GOOD | {"available": []}, ": expected a list of available arms, got []"),
    (GOOD | {"observation": [1.0]}, ": expected an observation with 2 entries, got 1"),
    (GOOD | {"observation": [1.0, "x"]}, ": expected an observation with numbers within ±1e+100 or null, got 'x'"),
    (GOOD | {"observation": 3}, ": expected an observation that is a list of numbers or null, got 3"),
    (GOOD | {"seq": 1}, ": expected an event with seq above 1, got 1"),
    (rewarded(3, "x9", 1.0), ": expected the id of an earlier decision, got 'x9'"),
    (event(3, "arm_added", arm="a"), ": expected a new name or number of the same kind as the other arms, got arm 'a'"),
    (event(3, "arm_added", arm=2), ": expected a new name or number of the same kind as the other arms, got arm 2"),
    (event(3, "arm_retired", arm="q"), ": expected one of the arms a, b, got arm 'q'"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES, ids=[message[:40] for _, message in BAD_LINES])
def test_invalid_lines_are_named(line, message, tmp_path):
    path = tmp_path / "j.ndjson"
    raw = line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
    path.write_bytes(json.dumps(EVENTS[0]).encode() + b"\n" + raw + b"\n")
    with pytest.raises(HalfseenError) as refused:
        read_log(path)
    text = str(refused.value)
    assert text.startswith(f"{path}, line 2")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (rewarded(20, "x1", 2.5), "line 15: expected one reward per decision, or one after the default reward, got an"),
        (rewarded(20, "x4", float("1e300")), "line 15, reward: expected a number within ±1e+100, got 1e+300"),
        (decided(20, "x1", "b", [0.0, 1.0, 0.0], 1), "line 15: expected a decision with a new id, got 'x1' again"),
        (decided(20, "x5", "a", [1.0, 0.0, 0.0], 0), "an arm that is available and not retired, got arm 'a'"),
        (created(["a"]) | {"seq": 20}, "line 15: expected one event 'created' of stream 'shop', got another one"),
        (
            {k: v for k, v in decided(20, "x5", "b", [0.0, 1.0], 1).items() if k != "propensities"},
            "line 15: expected propensities in all decisions or in none, got a decision without propensities",
        ),
    ],
)
def test_lines_that_contradict_earlier_lines(extra, message, tmp_path):
    with pytest.raises(HalfseenError) as refused:
        read_log(write(tmp_path / "j.ndjson", [*EVENTS, extra]))
    assert message in str(refused.value)


def test_empty_and_missing_files(tmp_path):
    for name in ("empty.ndjson", "empty.csv", "empty.parquet"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(HalfseenError, match=rf"{name}: expected a .*, got an empty file"):
            read_log(tmp_path / name)
    with pytest.raises(HalfseenError, match=r"j.ndjson: expected a log with decisions and rewards, got no decisions"):
        read_log(write(tmp_path / "j.ndjson", EVENTS[:1]))
    with pytest.raises(HalfseenError, match=r"j.ndjson: expected rewards .*, got 1 decisions without a reward"):
        read_log(write(tmp_path / "j.ndjson", EVENTS[:2]))
    with pytest.raises(HalfseenError, match=r"log: expected an existing file, got '.*nowhere.csv'"):
        read_log(tmp_path / "nowhere.csv")
    with pytest.raises(HalfseenError, match=r"log: expected a file whose name ends in .ndjson, .*, got '.*log.txt'"):
        read_log(tmp_path / "log.txt")


def test_a_table_with_times_gives_the_same_log_as_the_journal(tmp_path):
    """Rewards arrive two decisions late, and some never arrive."""
    events = agent_events(80, delay=2, missing=0.2)
    whole = read_log(write(tmp_path / "j.ndjson", events))
    rows, rewards = [], {}
    clock = np.datetime64("2026-01-01T00:00:00", "us")
    for at, one in enumerate(events):
        now = clock + np.timedelta64(at, "s")
        if one["kind"] == "decided":
            rows.append(one | {"time": now})
        elif one["kind"] == "rewarded":
            rewards[one["decision"]] = (one["value"], now)
    table = pa.table(
        {
            "stream": ["shop"] * len(rows),
            "id": [row["id"] for row in rows],
            "time": np.array([row["time"] for row in rows]),
            "observation_0": [row["observation"][0] for row in rows],
            "observation_1": [row["observation"][1] for row in rows],
            "arm": [row["arm"] for row in rows],
            "propensity": [row["propensity"] for row in rows],
            "propensities": [row["propensities"] for row in rows],
            "reward": [rewards.get(row["id"], (None, None))[0] for row in rows],
            "reward_time": np.array([rewards.get(row["id"], (0, np.datetime64("NaT")))[1] for row in rows]),
            "how": ["given" if row["id"] in rewards else None for row in rows],
        }
    )
    parquet.write_table(table, tmp_path / "j.parquet")
    for given in (read_log(tmp_path / "j.parquet"), read_log(table, arms=["red", "green", "blue"])):
        assert given.arms == whole.arms
        assert [step[:2] for step in given.steps] == [step[:2] for step in whole.steps]
        for name in ("observations", "played", "propensity", "propensities", "possible", "rewards"):
            np.testing.assert_array_equal(getattr(given, name), getattr(whole, name), err_msg=name)


CSV = "temp,load,arm,propensity,propensities,reward\n"
ROWS = ['1.5,2,buy,0.4,"[0.6, 0.4]",3\n', ',3,sell,0.7,"[0.7, 0.3]",\n', '2,1,buy,0.1,"[0.9, 0.1]",1\n']


def test_a_csv_file_with_named_columns(tmp_path):
    (tmp_path / "log.csv").write_text(CSV + "".join(ROWS))
    log = read_log(tmp_path / "log.csv", observed=["temp", "load"])
    assert log.arms == ("sell", "buy")  # the order of the propensities
    np.testing.assert_array_equal(log.rewards, [3, np.nan, 1])
    np.testing.assert_array_equal(log.observations, [[1.5, 2], [np.nan, 3], [2, 1]])
    assert [step.kind for step in log.steps] == [
        StepKind.DECIDED,
        StepKind.REWARDED,
        StepKind.DECIDED,
        StepKind.DECIDED,
        StepKind.REWARDED,
    ]


@pytest.mark.parametrize("form", ["pandas", "nullable", "on Arrow", "polars", "arrow", "filtered series"])
def test_a_frame_gives_the_same_log_as_a_dictionary(form):
    columns = {
        "observation": [0.5, None, 2.0, 1.0],
        "observation of load": [1, 2, None, 4],
        "arm": ["buy", "sell", "buy", "buy"],
        "propensity": [0.4, 0.7, 0.1, 0.2],
        "propensities": [[0.6, 0.4], [0.7, 0.3], [0.9, 0.1], [0.8, 0.2]],
        "available": [["buy", "sell"], None, None, ["buy", "sell"]],
        "reward": [3.0, None, 1.0, 0.0],
        "how": ["given", None, "default", "given"],
        "folded": [True, None, True, False],
        "time": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"],
        "reward_time": ["2026-01-01T00:00:01Z", None, "2026-01-01T00:00:03Z", "2026-01-01T00:00:03Z"],
    }
    frame = {
        "pandas": pd.DataFrame,
        "nullable": lambda given: pd.DataFrame(given).convert_dtypes(),
        "on Arrow": lambda given: pd.DataFrame(given).convert_dtypes(dtype_backend="pyarrow"),
        "polars": pl.DataFrame,
        "arrow": pa.table,
        "filtered series": lambda given: dict(pd.DataFrame(given, index=[3, 2, 1, 0])),
    }[form](columns)
    log, plain = read_log(frame), read_log(columns)
    assert (log.arms, log.defaults, log.steps) == (plain.arms, plain.defaults, plain.steps)
    for name in ("observations", "played", "propensity", "propensities", "possible", "rewards"):
        np.testing.assert_array_equal(getattr(log, name), getattr(plain, name), err_msg=name)


def test_arms_can_be_numbers():
    table = {"observation": [[0.1], [0.2]], "arm": [2.0, 0.0], "propensity": [0.5, 0.5], "reward": [1.0, 2.0]}
    log = read_log(table)
    assert log.arms == (0, 1, 2)
    assert log.propensities is None
    assert read_log(table, arms=5).arms == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("empty", [True, False], ids=["empty column", "no column"])
@pytest.mark.parametrize("arms", [["b", "a", "b"], [1, 0, 1]], ids=repr)
def test_a_table_may_have_no_propensities(empty, arms):
    table = {"observation": [0.1, 0.2, 0.3], "arm": arms, "reward": [1.0, None, 2.0]}
    log = read_log(table | ({"propensity": [None] * 3} if empty else {}))
    assert not log.has_propensities
    assert np.isnan(log.propensity).all()
    assert log.propensities is None
    assert log.arms == (("a", "b") if arms[0] == "b" else (0, 1))
    np.testing.assert_array_equal(log.played, [1, 0, 1])
    assert read_log(table | {"propensity": [0.5] * 3}).has_propensities
    assert by_agent(log, "ts-pco", {})[0].shape == (3, 2)


def test_propensities_of_all_arms_need_those_of_the_arms_played():
    table = {"observation": [0.1], "arm": [0], "reward": [1.0], "propensities": [[0.4, 0.6]]}
    with pytest.raises(HalfseenError, match="a column 'propensity' beside the column 'propensities', got none"):
        read_log(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("arm,", "armed,"),
            "log.csv: expected the columns arm, reward and the observed columns, got no column 'arm'",
        ),
        (("reward", "paid"), "reward and the observed columns, got no column 'reward'"),
        (
            ("buy,0.4", "buy,0"),
            "log.csv, row 1, propensity: expected a probability above 0, got 0.0",
        ),
        (("sell,0.7", "sell,1.7"), "log.csv, row 2, propensity: expected a probability from 0 to 1, got 1.7"),
        (("buy,0.1", "buy,"), "log.csv, row 3, propensity: expected a probability above 0, got an empty cell"),
        (
            ("[0.7, 0.3]", "[0.7, 0.3"),
            "log.csv, column 'propensities', row 2: expected a list such as [0.2, 0.8], got '[0.7, 0.3'",
        ),
        (("2,1,buy", "2,1,hold"), "because the index of 'hold' in the 2 propensities is not unique"),
    ],
)
def test_messages_for_invalid_tables(change, message, tmp_path):
    (tmp_path / "log.csv").write_text((CSV + "".join(ROWS)).replace(*change))
    with pytest.raises(HalfseenError) as refused:
        read_log(tmp_path / "log.csv", observed=["temp", "load"])
    text = str(refused.value)
    assert message in text
    assert "\n" not in text


def test_the_observed_columns_must_be_named(tmp_path):
    (tmp_path / "log.csv").write_text(CSV + "".join(ROWS))
    line = (
        r"expected the names of the observed columns \(--observed a,b on the command line, observed=\['a', 'b'\] in "
        r"Python\), because no name begins with 'observation'. The columns that may be observed are: temp, load$"
    )
    with pytest.raises(HalfseenError, match=line):
        read_log(tmp_path / "log.csv")
    many = {f"c{number}": [0.0] for number in range(12)} | {"arm": [0], "reward": [1.0]}
    with pytest.raises(HalfseenError, match=r" are: c0, c1, .*, c9, …$"):
        read_log(many)
    with pytest.raises(HalfseenError, match=r".* has no column 'tmp'. Did you mean 'temp'"):
        read_log(tmp_path / "log.csv", observed=["tmp"])
    with pytest.raises(HalfseenError, match=r"observed: expected nothing, because a journal .*, got names of"):
        read_log(write(tmp_path / "j.ndjson", EVENTS), observed=["temp"])


def test_rows_are_sorted_by_time_and_that_is_said():
    rng = np.random.default_rng(0)
    table = {
        "observation": rng.normal(size=60),
        "arm": rng.integers(2, size=60),
        "propensity": np.full(60, 0.5),
        "reward": np.arange(60.0),
        "time": np.arange(60) // 2,  # every time twice: such rows keep their order
        "reward_time": np.arange(60) // 2 + 3,
    }
    ordered = read_log(table)
    (same,) = ordered.notes
    assert same.startswith("30 of 60 rows have the same time as the row before them")
    np.testing.assert_array_equal(ordered.times, table["time"])
    order = np.argsort(rng.normal(size=60))
    order = np.concatenate([order[order % 2 == 0], order[order % 2 == 1]])
    shuffled = read_log({name: column[order] for name, column in table.items()})
    assert shuffled.notes[0] == "the rows were not in order of 'time' and have been sorted"
    assert shuffled.steps == ordered.steps
    for name in ("observations", "played", "propensity", "rewards", "times"):
        np.testing.assert_array_equal(getattr(shuffled, name), getattr(ordered, name), err_msg=name)
    renamed = {"when" if name == "time" else name: column for name, column in table.items()}
    np.testing.assert_array_equal(read_log(renamed, time="when").times, ordered.times)
    assert read_log(renamed).times is None


def test_a_row_without_a_time_is_refused():
    table = {"observation": [0.1, 0.2], "arm": [1, 0], "propensity": [0.5, 0.5], "reward": [1.0, 2.0]}
    with pytest.raises(HalfseenError, match="column 'time', row 2: expected a time, got an empty cell"):
        read_log(table | {"time": ["2026-01-02T00:00:00Z", None]})
    with pytest.raises(HalfseenError, match="has no column 'when'"):
        read_log(table, time="when")


def test_marks_of_guardrails_are_read_from_a_table():
    marks = ["chooser", "control", None, "holdback", "chooser", "control"]
    table = {
        "observation": [0.1] * 6,
        "arm": [0, 1] * 3,
        "propensity": [0.5] * 6,
        "reward": [1.0, 0.0, 9.0, 0.5, 2.0, 1.0],
    }
    result = hs.evaluate(table | {"branch": marks}, "uniform")
    control, holdback = result.lifts
    assert (control.baseline, control.difference.value) == ("control", 1.0)
    assert (holdback.baseline, holdback.difference.value) == ("holdback", 1.0)
    assert result.summary()["lift"]["control"]["rewards"] == {"chooser": 2, "control": 2}
    assert "lift over control: 1 [" in str(result)
    assert hs.evaluate(table, "uniform").lifts == ()
    with pytest.raises(hs.HalfseenError, match="row 1, branch: expected one of chooser, floor, holdback, control"):
        hs.evaluate(table | {"branch": ["x"] * 6}, "uniform")


def test_marks_from_before_a_change_of_the_shares_are_not_compared(tmp_path):
    events = [{"kind": "created", "spec": {"observed": 1, "arms": 2, "guardrails": {"holdback": 0.5}}}]

    def play(branch, reward, key):
        events.append(
            {"kind": "decided", "id": key, "observation": [0.1], "arm": 0, "propensity": 0.5, "branch": branch}
        )
        events.append({"kind": "rewarded", "decision": key, "value": reward, "how": "given", "folded": True})

    def lifts():
        lines = [json.dumps({"stream": "s", "seq": seq} | event) for seq, event in enumerate(events)]
        (tmp_path / "log.ndjson").write_text("\n".join(lines))
        return hs.evaluate(tmp_path / "log.ndjson", "uniform").lifts

    play("chooser", 3.0, "a")
    play("holdback", 1.0, "b")
    events.append({"kind": "guardrails_set", "floor": 0.1, "holdback": 0.5, "control": None})
    play("chooser", 3.0, "c")
    assert lifts()[0].chooser.count == 2
    events.append({"kind": "guardrails_set", "floor": 0.1, "holdback": 0.4, "control": None})
    assert lifts() == ()
    play("chooser", 5.0, "d")
    play("holdback", 1.0, "e")
    assert lifts()[0].difference.value == 4.0


def test_the_only_column_of_dates_is_the_time():
    days = np.datetime64("2026-01-01") + np.array([3, 1, 2]) * np.timedelta64(1, "D")
    table = {"observation": [3.0, 1.0, 2.0], "when": days, "arm": [0, 1, 0], "reward": [3.0, 1.0, 2.0]}
    found = read_log(table)
    assert found.rewards.tolist() == [1.0, 2.0, 3.0]
    assert found.notes == (
        "'when' is the only column of dates and is taken as the time of the rows",
        "the rows were not in order of 'when' and have been sorted",
    )
    for others in ({"observed": ["observation", "when"]}, {}):  # observed, or one of two
        given = table if others else table | {"opened": days}
        unsorted = read_log(given, **others)
        assert unsorted.rewards.tolist() == [3.0, 1.0, 2.0]
        assert unsorted.times is None
    ragged = read_log(table | {"tags": [[1], [1, 2], []]})  # lists are no dates
    assert ragged.times is not None


PLAIN = {
    "y": [0.1, 0.2, 0.3, 0.4], "arm": ["a", "b", "a", "b"], "propensity": [0.5] * 4, "reward": [1.0, 0.0, 2.0, 1.0],
}  # fmt: skip


@pytest.mark.parametrize("name", ["branch", "stream", "available", "how", "folded", "propensities", "id", "costs"])
def test_an_observed_column_has_no_other_meaning(name):
    table = PLAIN | {name: [3.0, 1.0, 2.0, 3.0]}
    log = read_log(table, observed=["y", name])
    assert log.observations[:, 1].tolist() == [3.0, 1.0, 2.0, 3.0]
    assert log.possible.all()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"available": [2, 1, 2, 2]}, "column 'available', row 1: expected a list of arms, got 2"),
        ({"available": ["x", "[]", "", ""]}, "column 'available', row 1: expected a list of arms, got 'x'"),
        ({"propensities": [0.2, 1.0, 0.5, 0.1]}, "column 'propensities', row 1: expected a list such as .*, got 0.2"),
        ({"stream": ["web", "app"] * 2}, "one of the streams web, app, or 'stream' among the observed columns if"),
        ({"arm": [True, False] * 2}, "row 1, arm: expected a name or a whole number, got True"),
        ({"arm": [1, 0.5, 1, 1]}, "row 2, arm: expected a name or a whole number, got 0.5"),
        ({"arm": [0.0, np.inf, 1, 1]}, "row 2, arm: expected a name or a whole number, got inf"),
        ({"arm": np.arange(4).astype("M8[D]")}, "row 1, arm: expected a name or a whole number, got 1970-01-01"),
        ({"arm": ["a", 1, "a", 1]}, "row 2: expected names of arms in all rows or numbers in all rows, got 1"),
        ({"arm": ["a", 1, "a", 0.5], "time": [4, 3, 2, 1]}, "row 4, arm: expected a name or a whole number, got 0.5"),
    ],
)  # fmt: skip
def test_cells_that_are_no_arms_and_no_lists_are_named(columns, message):
    with pytest.raises(HalfseenError, match=message) as refused:
        read_log(PLAIN | columns, observed=["y"])
    assert "\n" not in str(refused.value)


def test_spaces_around_a_name_do_not_make_another_arm():
    table = PLAIN | {"arm": ["a", "b ", " a", "b"], "available": [["a", "b"], ["a ", "b"], ["a"], None]}
    log = read_log(table, observed=["y"])
    assert log.arms == ("a", "b")
    assert log.played.tolist() == [0, 1, 0, 1]
    assert log.possible.tolist() == [[True, True], [True, True], [True, False], [True, True]]


@pytest.mark.parametrize("form", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_lists_in_every_form_of_table(form):
    lists = {"propensities": [[0.5, 0.5]] * 4, "available": [["a", "b"]] * 4}
    log = read_log(form(PLAIN | lists), observed=["y"], arms=["a", "b"])
    assert log.propensities.tolist() == [[0.5, 0.5]] * 4


def test_a_table_without_rows_is_refused():
    with pytest.raises(HalfseenError, match="the table: expected at least one decision, but the table has no rows"):
        read_log({"observation": [], "arm": [], "reward": []})
