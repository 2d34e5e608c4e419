"""`hs.study`: its four answers, its files, the journal that the service imports, and bad input."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from engine_tools import decide, reward, with_engine
from evaluation.test_propensity_model import drifting
from pyarrow import parquet
from settings import assert_same_state

import halfseen as hs
from halfseen.cli.app import run_app
from halfseen.evaluation.readers import read_log
from halfseen.experiments import study as module
from halfseen.experiments import study_findings
from halfseen.experiments.logged_table import LoggedTable, read_table
from halfseen.experiments.study_journal import (
    check_journal,
    event_times,
    full_propensities,
    stream_arms,
    stream_name,
    write_journal,
)
from halfseen.journal.journal import open_journal
from halfseen.journal.transfer import import_streams, read_events
from halfseen.service.engine.imported_stream import Importer
from halfseen.service.engine.loaded_stream import fold_stream
from halfseen.service.schemas import DecisionRequest, Limits
from halfseen.statistics.distributions import student_quantile

ARMS = ["buy", "hold", "sell"]


def log(rounds: int = 260, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a log in which `demand` decides between "buy" and "sell", and is seen through a noisy sensor."""
    rng = np.random.default_rng(seed)
    demand = np.zeros(rounds)
    for t in range(1, rounds):
        demand[t] = 0.7 * demand[t - 1] + 2.0 * rng.normal()
    arm = rng.integers(3, size=rounds)
    reward = demand * np.array([1.0, 0.0, -1.0])[arm] + 0.3 * rng.normal(size=rounds)
    return {
        "when": np.datetime64("2026-01-01") + np.arange(rounds) * np.timedelta64(60, "s"),
        "sensor": 500.0 + 40.0 * (demand + rng.normal(size=rounds)),
        "weather": rng.choice(["rain", "sun"], size=rounds),
        "arm": np.array(ARMS)[arm],
        "propensity": np.full(rounds, 1 / 3),
        "reward": reward,
    }


def small(rounds: int = 60, **columns) -> dict[str, np.ndarray]:
    """Return a log of few rounds in which some columns are replaced."""
    rng = np.random.default_rng(2)
    plain = {
        "y": rng.normal(size=rounds),
        "arm": rng.integers(2, size=rounds),
        "propensity": np.full(rounds, 0.5),
        "reward": rng.normal(size=rounds),
        "time": np.arange(rounds),
    }
    return {name: column for name, column in (plain | columns).items() if column is not None}


def read(columns, **roles: str) -> LoggedTable:
    return read_table(columns, observed=None, roles=roles, arms=None, stream=None)


@pytest.fixture(scope="module")
def table():
    return log()


@pytest.fixture(scope="module")
def study(table):
    return hs.study(table, seed=3, name="shop")


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    path = tmp_path_factory.mktemp("study")
    study.save(path)
    return path


# ---------------------------------------------------------------------- answers


def test_the_four_answers(study):
    assert tuple(study.answers) == module.QUESTIONS
    hidden, earned, following, wrong = study.answers.values()
    assert hidden.split(":")[0] in ("Yes", "No") or hidden.startswith("It cannot be told")
    assert study.best in ("adaptive", "lag-ts", "ts-pco")
    assert earned.startswith(f"{study.best}: ")
    assert "more than what was logged" in earned
    assert following.startswith("If the next observation is that of the last row, play ")
    assert study.next_decision.arm in ARMS
    assert wrong == "Nothing was found."
    assert study.ok
    text = " ".join(str(study).split())
    assert text.startswith(
        "The log the table has 260 decisions, 3 arms and 2 observed features, in order of the column when. "
        f"{module.QUESTIONS[0]} "
    )
    assert study.answers[module.QUESTIONS[1]] in study._repr_html_().replace("&#x27;", "'")


def test_facts(study):
    worth, *about_the_log = study.facts
    assert re.match(r"worth of sensors: sensor \+\d+\.\d ± \d+\.\d %, weather=rain .* %$", worth)
    assert about_the_log == [
        "the log has no propensities of the arms that were not played, so every arm that was ever played counts as "
        "covered in every round",
        "the step of 'when' is 1 minute",
        "column 'weather' contains text and becomes 1 column of 0 and 1: 'weather=rain' ('sun' is the reference)",
    ]
    printed = " ".join(str(study).split())
    assert all(printed.count(fact) == 1 for fact in study.facts)
    assert "it can be more than all that is explained, because a fit without the sensor" in study.terms["worth"]


def test_the_first_answer_says_if_it_is_about_the_last_decisions_only(table, study, tmp_path):
    short = hs.study(table, policy=["uniform"], history=100)
    examined = short.examination.measured.subject.data.rounds
    said = f" This is about the last {examined} of 260 decisions only."
    assert 80 <= examined <= 100
    assert short.answers[module.QUESTIONS[0]].endswith(said)
    assert short.summary()["examination"]["answer"].endswith(said)
    assert "decisions only" not in study.answers[module.QUESTIONS[0]]
    short.save(tmp_path)
    assert (tmp_path / "study.html").read_text().count(said) == 2


def test_all_default_policies_are_compared(study):
    each = [f"always:{arm}" for arm in ARMS]
    assert list(study.evaluation.policies) == ["logged", "uniform", *each, "adaptive", "lag-ts", "ts-pco"]
    assert study.examination is not None
    assert study.examination.finding("worth of sensor") is not None
    frame = study.to_frame("pandas")
    assert frame["policy"].to_list() == list(study.evaluation.policies)


def test_the_estimates_are_those_of_evaluate(study, table):
    plain = {name: column for name, column in table.items() if name != "when"}
    found = hs.evaluate(plain, ["uniform", "ts-pco"], observed=["sensor", "weather"], seed=3)
    for label in ("uniform", "ts-pco"):
        assert found.policies[label].values == study.evaluation.policies[label].values


def test_the_next_decision_is_that_of_the_last_row_without_an_arm(table):
    short = {name: column[:100] for name, column in table.items() if name != "weather"}
    open_row = {"when": np.datetime64("2026-01-09"), "sensor": 900.0, "arm": "", "reward": np.nan}
    longer = {name: np.append(column.astype(object), open_row.get(name, np.nan)) for name, column in short.items()}
    study = hs.study(longer, policy=["ts-pco"])
    assert study.log.rounds == 100
    assert study.next_decision.is_open
    assert study.next_decision.arm == "buy"  # demand is high
    assert study.answers["What to do next?"].startswith("In the last row, which has no arm yet, play buy")


def test_a_single_arm_can_be_the_best():
    arm = np.tile([0, 1], 80)
    reward = arm + 0.1 * np.random.default_rng(0).normal(size=160)
    evaluation = hs.evaluate(small(160, arm=arm, reward=reward), ["always:0", "always:1"], observed=["y"])
    found = module._best(evaluation)
    best, sentence, is_better = found
    assert best == "always:1"
    assert is_better
    assert sentence.startswith("always:1: ")
    assert "more than what was logged (0.5" in sentence
    following = module._next_decision(read(small(160, arm=arm)), None, {}, best)
    assert (following.arm, following.probabilities) == (1, {"0": 0.0, "1": 1.0})
    told = module._next_sentence(following, evaluation.log, found)
    assert told.endswith("play 1, the arm with the highest estimate.")


def test_noise_is_not_called_better():
    evaluation = hs.evaluate(small(300), observed=["y"])
    best, sentence, is_better = module._best(evaluation)
    assert best is not None
    assert not is_better
    assert sentence.startswith("No policy is clearly better than what was logged, which earned ")
    assert sentence.endswith(" (widened, because it is the best of 3).")
    assert "widened" not in module._best(hs.evaluate(small(300), ["uniform"], observed=["y"]))[1]


def test_no_arm_is_named_without_a_reason():
    decided = module.NextDecision("adaptive", 0, {"0": 0.5, "1": 0.5}, {"0": 0.2, "1": 0.2}, False)
    log = read(small()).log
    best = module._Best("adaptive", "", True)
    told = module._next_sentence(decided, log, best)
    assert told == "It cannot be told yet: adaptive expects the same of every arm."
    better = replace(decided, expected={"0": 0.2, "1": 0.3})
    told = module._next_sentence(better, log, best)
    assert told == (
        "If the next observation is that of the last row, play 0, says adaptive. Expected rewards: 1 0.3, 0 0.2."
    )
    one_arm = read(small(arm=np.zeros(60, dtype=int))).log
    assert module._next_sentence(better, one_arm, best).startswith("It cannot be told yet: only one arm was")
    few = read(small(reward=np.where(np.arange(60) < 40, np.arange(60), np.nan))).log
    told = module._next_sentence(better, few, best._replace(policy=None))
    assert told == "It cannot be told yet: 40 rewards are too few, and no estimate is reliable."


@pytest.mark.parametrize(
    ("policy", "reason"),
    [("adaptive", "no policy is clearly better than what was logged"), (None, "no estimate is reliable")],
)
def test_a_guess_is_called_a_guess(policy, reason):
    decided = module.NextDecision("adaptive", 1, {"0": 0.5, "1": 0.5}, {"0": 0.2, "1": 0.3}, False)
    told = module._next_sentence(decided, read(small()).log, module._Best(policy, "", False))
    assert told.endswith(f"This is no more than a guess, because {reason}.")


def test_terms_are_explained(study):
    assert {"dr", "ess", "uncovered", "always:ARM", "adaptive", "lag-ts", "ts-pco"} <= set(study.terms)
    assert "  adaptive: an agent: model learnt from the stream" in str(study)
    assert str(study).count("terms:") == 1


def test_propensities_are_estimated_where_they_are_missing(table):
    columns = {name: column[:80] for name, column in table.items() if name not in ("weather", "propensity")}
    study = hs.study(columns, policy=["uniform"])
    assert study.evaluation.propensities == "estimated"
    finding = study.finding("propensities")
    assert (finding.shown, str(finding.verdict)) == ("estimated", "look")
    assert "estimates hold only if nothing else influenced the choice of arms" in finding.sentence
    assert "Propensities were estimated" in study.answers["What is wrong with the log?"]
    np.testing.assert_allclose(full_propensities(study.log).sum(axis=1), 1.0)


def test_no_policy_is_the_best_if_the_choice_of_arms_changed():
    table = drifting()
    study = hs.study(table, policy=["always:0", "always:1"])
    finding = study.finding("choice of arms")
    assert str(finding.verdict) == "bad"
    assert finding.sentence in study.evaluation.notes
    assert study.best is None
    assert study.answers["What would have earned most?"].startswith("It cannot be told: no estimate is reliable.")


def test_the_interval_of_the_best_is_widened(study):
    one = study.evaluation.policies["ts-pco"]
    gain = one.differences["dr"]
    assert module._simultaneous(one, 1).low == pytest.approx(gain.low)
    sevenfold = student_quantile(1 - 0.025 / 7, one.freedom) / student_quantile(0.975, one.freedom)
    assert gain.value - module._simultaneous(one, 7).low == pytest.approx(sevenfold * (gain.value - gain.low))
    wider = module._simultaneous(one, 7)
    assert wider.low < gain.low < gain.high < wider.high


# ---------------------------------------------------------------------- files


def test_files(folder, study):
    assert sorted(path.name for path in folder.iterdir()) == ["study.csv", "study.html", "study.json", "study.ndjson"]
    page = (folder / "study.html").read_text()
    assert all(question in page for question in study.answers)
    assert page.count("<img") == 3
    assert study.heading in page
    assert "mean propensity when played" in page
    assert "<script" not in page
    summary = json.loads((folder / "study.json").read_text())
    assert summary["answers"] == study.answers
    assert list(summary["features"]) == ["sensor", "weather=rain"]
    assert summary["features"]["sensor"]["centre"] == pytest.approx(study.log.observations[:52, 0].mean())
    assert summary["next"]["arm"] == study.next_decision.arm
    rows = pd.read_csv(folder / "study.csv")
    assert rows["dr"].to_list() == pytest.approx(study.to_frame("pandas")["dr"].to_list())


def test_the_service_goes_on_from_the_journal(folder, study, tmp_path):
    journal = open_journal(str(tmp_path / "halfseen.db"))
    try:
        importer = Importer(Limits(), 0)
        counts = import_streams(journal, read_events(folder / "study.ndjson"), importer.open_stream)
        stream = fold_stream(journal, journal.stream("shop"))
    finally:
        journal.close()
    assert counts == {"shop": 1 + 2 * 260 + len(study.models)}
    assert importer.skipped_models == {}
    assert (stream.decisions, stream.rewards) == (260, 260)
    assert stream.spec.features == ("sensor", "weather=rain")
    assert_same_state(stream.agent, study.agent)
    observation = study.log.observations[-1]
    np.testing.assert_array_equal(
        stream.agent.decide(observation).expected, module._copy(study.agent).decide(observation).expected
    )


def test_decisions_go_on_after_an_import(folder, tmp_path):
    database = str(tmp_path / "halfseen.db")
    assert run_app(["import", str(folder / "study.ndjson"), "--database", database]) == 0

    async def go_on(engine):
        decision = await decide(engine, [580.0, 0.0], name="shop")
        await reward(engine, decision, 1.5, name="shop")
        return decision, (await engine.stream("shop")).version

    decision, version = with_engine(database, go_on)
    assert decision.arm == "buy"
    assert version == len((folder / "study.ndjson").read_text().splitlines()) + 2


def dated(minutes, **columns) -> dict[str, np.ndarray]:
    """Return a log whose decisions were made at these numbers of minutes after the beginning of a day."""
    when = np.datetime64("2026-01-01T00:00:00") + np.asarray(minutes) * np.timedelta64(60, "s")
    return small(len(when), **({"time": when} | columns))


def with_gaps(rounds: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(4).choice([1, 1, 2, 30], size=rounds))


def imported(study, tmp_path):
    """Return the stream that the service has after the import of the study's journal."""
    write_journal(tmp_path / "s.ndjson", study.log, study.agent, study.models, name=study.name, options=study.options)
    journal = open_journal(str(tmp_path / "halfseen.db"))
    try:
        import_streams(journal, read_events(tmp_path / "s.ndjson"), Importer(Limits(), 0).open_stream)
        return fold_stream(journal, journal.stream(study.name))
    finally:
        journal.close()


@pytest.mark.parametrize(
    ("minutes", "step"),
    [
        (with_gaps(160), 60.0),
        (np.arange(160), 60.0),  # no gaps
        (with_gaps(160) + np.tile([0.45, 0.55, 0.5], 54)[:160], None),  # time stamps would give other steps
        (with_gaps(160) // 3, None),  # equal times, which are one step apart
    ],
)
def test_the_service_is_told_of_the_gaps_between_decisions(minutes, step, tmp_path):
    when = np.datetime64("2026-01-01") + (60 * np.asarray(minutes)).astype(int) * np.timedelta64(1, "s")
    study = hs.study(small(160, time=when, propensity=None), policy=["uniform"])
    stream = imported(study, tmp_path)
    assert_same_state(stream.agent, study.agent)
    assert stream.spec.step == step
    assert (stream.tick is None) == (step is None)
    if step is not None:
        assert stream.tick == (when[-1] - np.datetime64(0, "s")).astype(int) // 60
    lines = [json.loads(line) for line in (tmp_path / "s.ndjson").read_text().splitlines()]
    written = [line.get("elapsed", 1) for line in lines if line["kind"] == "decided"]
    assert written == (np.ones(160, dtype=int) if study.log.elapsed is None else study.log.elapsed).tolist()
    assert (study.log.elapsed is None) == (np.diff(minutes).max() == 1)


def test_a_stream_with_gaps_takes_time_stamps(tmp_path):
    study = hs.study(dated(with_gaps(100)), policy=["uniform"], name="shop")
    assert study.finding("gaps in time").sentence.endswith("as usual, and agents are told of them in steps of 1 minute")
    study.save(tmp_path)
    database = str(tmp_path / "halfseen.db")
    assert run_app(["import", str(tmp_path / "study.ndjson"), "--database", database]) == 0
    later = str(np.datetime64("2026-01-01T00:00:00") + (with_gaps(100)[-1] + 7) * np.timedelta64(60, "s")) + "Z"

    async def go_on(engine):
        return await engine.decide("shop", DecisionRequest([0.5], time=later))

    reply = with_engine(database, go_on)
    expected = module._copy(study.agent).decide([0.5], elapsed=7).expected
    np.testing.assert_array_equal(reply.expected, expected)
    assert np.abs(expected - module._copy(study.agent).decide([0.5]).expected).max() > 0.0


def test_the_next_decision_is_told_how_much_time_has_passed(monkeypatch):
    columns = dated([*with_gaps(99), with_gaps(99)[-1] + 40])
    columns |= {"arm": np.array([*columns["arm"][:-1], None], dtype=object)}
    told = []
    decide = module._decide
    monkeypatch.setattr(module, "_decide", lambda *given: told.append(given[-1]) or decide(*given))
    study = hs.study(columns, policy=["ts-pco"])
    assert study.next_decision.is_open
    assert told == [40]


@pytest.fixture(scope="module")
def without_propensities(tmp_path_factory):
    """Return a study of a log without propensities, its folder and a database with its journal."""
    folder = tmp_path_factory.mktemp("estimated")
    study = hs.study(small(120, propensity=None), policy=["uniform"], name="shop")
    study.save(folder)
    assert run_app(["import", str(folder / "study.ndjson"), "--database", str(folder / "halfseen.db")]) == 0
    return study, folder


@pytest.mark.parametrize("exported", [None, "again.ndjson", "again.parquet"])
def test_estimated_propensities_are_not_called_logged_by_a_journal(without_propensities, exported):
    study, folder = without_propensities
    path = folder / (exported or "study.ndjson")
    if exported is not None:
        assert run_app(["export", str(path), "--database", str(folder / "halfseen.db")]) == 0
    found = hs.evaluate(path, "uniform")
    assert found.propensities == "estimated"
    assert found.warnings[0].startswith("propensities were estimated by a logistic regression")
    assert found.policies["uniform"].values == study.evaluation.policies["uniform"].values
    with pytest.raises(hs.HalfseenError, match="expected the propensity of every decision, got decisions whose prop"):
        hs.evaluate(path, propensities="logged")
    again = hs.study(path, policy=["uniform"])
    assert again.finding("propensities").shown == "estimated"
    assert check_journal(again.log) == "the log is a journal already"


def test_decisions_of_the_service_after_those_of_a_study_have_their_propensities(without_propensities, tmp_path):
    _, folder = without_propensities
    database = str(tmp_path / "halfseen.db")
    assert run_app(["import", str(folder / "study.ndjson"), "--database", database]) == 0

    async def go_on(engine):
        decision = await decide(engine, [0.4], name="shop")
        await reward(engine, decision, 1.0, name="shop")
        return decision

    decision = with_engine(database, go_on)
    assert run_app(["export", str(tmp_path / "on.ndjson"), "--database", database]) == 0
    found = hs.evaluate(tmp_path / "on.ndjson", "uniform")
    np.testing.assert_array_equal(found.log.propensities[-1], decision.propensities)
    assert found.warnings[0].startswith("propensities of 120 of 121 decisions were estimated by a logistic regression")
    assert found.propensities == "estimated"


def test_propensities_of_the_arms_not_played_are_not_called_logged_by_a_journal(folder, study):
    assert study.log.propensities is None
    again = read_log(folder / "study.ndjson")
    assert again.propensities is None
    np.testing.assert_allclose(again.propensity, study.log.propensity)
    assert not hs.evaluate(again, "uniform").summary()["propensities_of_all_arms"]


def test_a_journal_can_be_studied_again(folder, study):
    again = module._read(folder / "study.ndjson", None, {}, None, None)
    assert again.log.rounds == 260
    np.testing.assert_allclose(again.log.observations, study.log.observations)
    np.testing.assert_allclose(again.log.propensity, study.log.propensity)
    assert check_journal(again.log) == "the log is a journal already"
    assert study_findings.about_log(again, hs.evaluate(folder / "study.ndjson"), "gaussian")
    with pytest.raises(hs.HalfseenError, match="reward: expected nothing, because a journal has no columns"):
        hs.study(folder / "study.ndjson", reward="r")


def test_times_and_propensities_of_the_journal(study):
    np.testing.assert_allclose(np.diff(event_times(study.log)), 60.0)
    whole = full_propensities(study.log)
    np.testing.assert_allclose(whole.sum(axis=1), 1.0)
    np.testing.assert_allclose(whole[np.arange(260), study.log.played], 1 / 3)
    for times in (np.linspace(-5e9, 5e9, 60), 1e15 + np.arange(60.0), None):
        np.testing.assert_allclose(np.diff(event_times(read(small(time=times)).log)), 1.0)
    assert stream_name("my log (2026)") == "my-log-2026"
    assert stream_name("…") == "study"


def test_without_the_extra_there_is_no_journal(monkeypatch):
    monkeypatch.setattr("halfseen.experiments.study_journal.find_spec", lambda _: None)
    assert "the journal needs the package 'msgspec', which is not installed" in check_journal(read(small()).log)


def test_a_journal_that_the_service_would_refuse():
    assert check_journal(read(small()).log) is None
    assert "is not 1 to 100 printable characters" in check_journal(read(small() | {"x" * 101: np.arange(60) % 7}).log)


# ---------------------------------------------------------------------- tables


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "pandas", "polars", "arrow"])
def test_forms_of_tables(form, table, tmp_path):
    short = {name: column[:60] for name, column in table.items()}
    frame = pd.DataFrame(short)
    path = tmp_path / f"log.{form}"
    if form == "parquet":
        parquet.write_table(pa.Table.from_pandas(frame), path)
    elif form.startswith("csv"):
        frame.to_csv(path, index=False)
    given = {"pandas": frame, "polars": pl.from_pandas(frame), "arrow": pa.Table.from_pandas(frame)}.get(form, path)
    found, expected = read(given), read(short)
    for name in ("observations", "played", "rewards", "propensity", "times"):
        np.testing.assert_allclose(getattr(found.log, name), getattr(expected.log, name), err_msg=name)
    assert (found.time, found.log.arms, found.log.features) == ("when", tuple(ARMS), expected.log.features)


def test_a_shuffled_log_is_sorted_and_that_is_said(table):
    order = np.random.default_rng(0).permutation(260)
    shuffled, plain = read({name: column[order] for name, column in table.items()}), read(table)
    np.testing.assert_array_equal(shuffled.log.observations, plain.log.observations)
    np.testing.assert_array_equal(shuffled.log.rewards, plain.log.rewards)
    said = "the rows were not in order of 'when' and have been sorted"
    assert said in findings(shuffled)["order of rows"].sentence
    assert "order of rows" not in findings(plain)


def test_the_time_keeps_the_name_that_the_user_knows(table):
    minutes = np.cumsum(np.where(np.arange(260) % 9, 1, 3))
    named = {name: column for name, column in table.items() if name != "when"}
    named["at"] = np.datetime64("2026-01-01") + minutes * np.timedelta64(1, "m")
    found = read(named | {"time": np.zeros(260)}, time="at")
    assert "the step of 'at' is 1 minute, and there are " in found.log.notes[-1]
    assert found.time == "at"
    assert findings(found)["time step"].sentence == "the step of 'at' is 1 minute"
    wrong = named | {"at": np.array([*named["at"].astype(str)[:-1], "later"])}
    with pytest.raises(hs.HalfseenError, match="column 'at', row 260: expected a time, got 'later'"):
        read(wrong, time="at")


def test_a_column_of_dates_with_a_mistake_is_named_with_its_row():
    days = (np.datetime64("2025-01-01") + np.arange(60)).astype(object)
    texts = [f"{day} 00:00:00" for day in days]
    texts[5] = "2025-13-45 00:00:00"
    found = findings(read(small(time=None, timestamp=texts)))
    assert found["columns left out"].sentence == (
        "column 'timestamp' is not used: 59 of 60 cells are dates, and row 6 is '2025-13-45 00:00:00'"
    )
    assert found["times"].sentence.endswith("; if 'timestamp' is the time: --time timestamp")
    line = "the table, column 'timestamp': 59 of 60 cells are dates, and row 6 is '2025-13-45 00:00:00'"
    with pytest.raises(hs.HalfseenError, match=line):
        hs.evaluate(small(time=None, timestamp=texts), observed=["timestamp"])
    few_dates = [*texts[:40], *["no date"] * 20]
    assert read(small(note=few_dates)).left_out == {}


def test_columns_can_have_other_names(table):
    names = {"arm": "action", "reward": "profit", "propensity": "p", "when": "moment"}
    renamed = {names.get(name, name): column for name, column in table.items()}
    renamed["time"] = np.zeros(260)  # another column has the usual name
    found = read(renamed, arm="action", reward="profit", propensity="p", time="moment").log
    np.testing.assert_array_equal(found.observations, read(table).log.observations)
    np.testing.assert_array_equal(found.times, read(table).log.times)


def test_numbered_arms_need_not_begin_with_0():
    found = read(small(arm=np.random.default_rng(0).choice([101, 205], size=60))).log
    assert found.arms == (101, 205)
    assert stream_arms(found) == ["101", "205"]
    assert stream_arms(read(small()).log) == 2


# ---------------------------------------------------------------------- what is wrong with the log


def findings(table: LoggedTable) -> dict[str, hs.Finding]:
    evaluation = hs.evaluate(table.log, ["uniform"])
    return {finding.name: finding for finding in study_findings.about_log(table, evaluation, "gaussian")}


@pytest.mark.parametrize(
    ("columns", "name", "verdict", "sentence"),
    [
        ({"time": np.arange(60) // 2}, "duplicated times", "look", "30 decisions of 60 have the time of the one"),
        ({"time": np.arange(60) + 500 * (np.arange(60) > 30)}, "gaps in time", "look", "1 gap between decisions is"),
        ({"time": None}, "times", "look", "the order of the rows is taken as the order in time"),
        ({"time": None, "TS": 1.7e9 + np.arange(60) ** 2}, "times", "look", "; if 'TS' is the time: --time TS"),
        ({"time": None, "timestamp": 1.7e9 + np.arange(60)}, "times", "look", "if 'timestamp' is the time: --time "),
        ({"reward": np.full(60, 0.5)}, "constant rewards", "bad", "every reward is 0.5, so nothing can be learnt"),
        (
            {"reward": np.append([np.nan] * 6, np.arange(54) % 7)}, "missing rewards", "look",
            "10.0 % of the decisions have no reward; they are left out; if they earned 0: --missing 0",
        ),
        ({"arm": np.zeros(60, dtype=int)}, "arms played", "bad", "only one arm was played"),
        ({"arm": np.where(np.arange(60) % 2, 0, 2)}, "arms never played", "look", "cannot say what they earn: 1"),
        ({"propensity": np.where(np.arange(60) == 3, 1e-4, 0.5)}, "least propensity", "look", "down to 0.0001"),
        ({"still": np.full(60, 3.0)}, "constant columns", "look", "the same value in all rows: still"),
        ({"gone": np.full(60, np.nan)}, "columns left out", "look", "column 'gone' is not used: it is empty"),
        ({"row": np.arange(60)}, "columns left out", "look", "column 'row' is not used: its values are row numbers"),
        ({"user": [f"u{i}" for i in range(60)]}, "columns left out", "look", "column 'user' is not used: expected"),
        ({"earned": 0.01 * small()["reward"] + 1.0}, "columns like the reward", "look", "(correlation 1.000): earned"),
        ({"town": np.array(["x", "y", "z"] * 20)}, "encoded columns", "fine", "becomes 2 columns of 0 and 1"),
        (
            {"arm": np.where(np.arange(60) == 7, 2, np.arange(60) % 2)}, "rarely played arms", "look",
            "arm '2' was played once (row 8): policies that may play it cannot be judged reliably. If it is no longer "
            "in use, leave this row out",
        ),
        (
            {"arm": np.where(np.arange(60) % 15 == 7, 2 + np.arange(60) // 30, np.arange(60) % 2)},
            "rarely played arms", "look",
            "these arms were played fewer than 10 times: '2' 2 times (first in row 8), '3' 2 times (first in row 38). ",
        ),
        (
            {"reward": np.where(np.arange(60) < 40, np.arange(60), np.nan)}, "rewards", "bad",
            "the log has only 40 rewards, too few for any reliable interval",
        ),
        (
            {"y": np.where(np.arange(60) % 10, 1.0 * np.arange(60) ** 2, np.nan),
             "town": np.array(["x", "y", "z", ""] * 15)},
            "empty cells", "fine", "these columns have empty cells: town (25.0 %), y (10.0 %)",
        ),
        (
            {"time": np.cumsum(np.where(np.arange(60) % 20, 1, 4))}, "gaps in time", "fine",
            "there are 2 gaps of up to 4 steps between decisions, of which agents are told",
        ),
        ({}, "time step", "fine", "the step of 'time' is 1"),
        (
            {"time": np.cumsum(np.random.default_rng(0).exponential(size=60))}, "time step", "fine",
            "the times in 'time' are too irregular for a step, so agents count rows and not time",
        ),
        ({}, "propensities of all arms", "fine", "the log has no propensities of the arms that were not played, so"),
        ({"propensities": [[0.5, 0.5]] * 60}, "propensities of all arms", "fine", "of all arms were logged"),
        ({"reward": np.arange(60) % 2}, "kind of rewards", "look", "with --reward-family binary, agents know"),
    ],
)  # fmt: skip
def test_findings(columns, name, verdict, sentence):
    found = findings(read(small(**columns)))
    assert found[name].verdict == verdict
    assert sentence in found[name].sentence
    assert (sentence[1:] in study_findings.answer(tuple(found.values()))) == (verdict != "fine")


@pytest.mark.parametrize(
    "name",
    ["id", "key", "costs", "clock", "expected", "round", "seq", "reward_seq", "folded", "how", "branch", "stream",
     "available", "propensities"],
)  # fmt: skip
def test_columns_of_a_table_that_have_names_of_journals_are_context(name):
    assert read(small() | {name: np.arange(60) % 7}).log.features == ("y", name)
    texts = np.array(["north", "south", "west"] * 20)
    if name != "stream":
        assert read(small() | {name: texts}).log.features == ("y", f"{name}=south", f"{name}=west")
        return
    with pytest.raises(hs.HalfseenError, match="or 'stream' among the observed columns if it is part of the context"):
        read(small(stream=texts))
    found = read_table(small(stream=texts), observed=["y", "stream"], roles={}, arms=None, stream=None)
    assert found.log.features == ("y", "stream=south", "stream=west")
    one = read_table(small(stream=texts), observed=None, roles={}, arms=None, stream="west")
    assert (one.log.rounds, one.log.features) == (20, ("y",))


def test_columns_with_the_data_of_journals_are_no_context():
    lists = [[0.5, 0.5]] * 60
    data = {"branch": ["chooser", "floor"] * 30, "how": ["given"] * 60, "folded": [True] * 60, "propensities": lists}
    log = read(small() | data).log
    assert log.features == ("y",)
    assert log.branches is not None
    assert log.propensities is not None


def test_a_column_that_only_tells_rows_apart_is_left_out_and_that_is_said():
    found = findings(read(small(id=np.random.default_rng(0).permutation(60))))
    assert found["columns left out"].sentence == (
        "column 'id' is not used: it has another value in every row; if it is part of the context, give it another name"
    )


def test_the_history_grows_with_the_number_of_columns():
    rng = np.random.default_rng(0)
    wide = small(30) | {f"c{number}": rng.normal(size=30) for number in range(130)}
    assert hs.study(wide, policy=["uniform"]).options == {"history": 24 * 131}
    assert hs.study(small(30), policy=["uniform"]).options == {"history": 3000}
    with pytest.raises(hs.HalfseenError, match="history: expected an integer of at least 3144, got 3000"):
        hs.study(wide, policy=["uniform"], history=3000)


def test_a_shuffled_file_with_row_numbers_is_the_sorted_file():
    order = np.random.default_rng(0).permutation(60)
    sorted_rows = small(number=np.arange(60))
    shuffled = read({name: column[order] for name, column in sorted_rows.items()})
    assert shuffled.left_out == read(sorted_rows).left_out == {"number": "its values are row numbers"}
    np.testing.assert_array_equal(shuffled.log.observations, read(sorted_rows).log.observations)


def test_arms_that_were_never_logged():
    given = small(arm=np.array(["a", "b"] * 30))
    table = read_table(given, observed=None, roles={}, arms=["a", "b", "c"], stream=None)
    evaluation = hs.evaluate(table.log)
    found = {one.name: one for one in study_findings.about_log(table, evaluation, "gaussian")}
    assert found["arms never played"].sentence.endswith("cannot say what they earn: c")
    assert "always:c" in found["policies without a reliable estimate"].sentence
    assert not evaluation.policies["always:c"].sure
    assert module._best(evaluation)[0] != "always:c"


def test_a_constant_reward_gives_no_winner():
    study = hs.study(small(50, reward=np.ones(50)), policy=["uniform"])
    assert study.best is None
    assert study.answers["What would have earned most?"] == (
        "It cannot be told: every reward is 1, so no policy can earn more than another."
    )
    assert study.answers["What to do next?"].startswith("It cannot be told yet: every reward is the same")
    assert study.finding("constant rewards").verdict == "bad"
    assert not study.ok


def test_a_reward_for_rows_without_one_reaches_everything():
    clicks = np.where(np.random.default_rng(3).uniform(size=120) < 0.4, 1.0, np.nan)
    study = hs.study(small(120, reward=clicks), policy=["ts-pco"], missing=0)
    written = hs.study(small(120, reward=np.nan_to_num(clicks)), policy=["ts-pco"])
    assert list(study.answers.values())[:3] == list(written.answers.values())[:3]
    assert_same_state(study.agent, written.agent)
    assert study.finding("constant rewards") is None
    assert study.finding("missing rewards").sentence.endswith("of the decisions have no reward; they count as 0")
    assert study.evaluation.missing == 0


def test_rows_in_findings_are_those_of_the_file():
    arm = np.where(np.arange(60) == 7, 2, np.arange(60) % 2)
    order = np.random.default_rng(0).permutation(60)
    shuffled = read({name: column[order] for name, column in small(arm=arm).items()})
    assert f"(row {int(np.flatnonzero(order == 7)[0]) + 1})" in findings(shuffled)["rarely played arms"].sentence


def test_ten_rows():
    study = hs.study(small(10))
    hidden, earned, following, wrong = study.answers.values()
    assert hidden.startswith("It cannot be told yet: no model could be identified from 10 decisions.")
    assert study.best is None
    assert earned.startswith("It cannot be told: no estimate is reliable.")
    assert following == "It cannot be told yet: 10 rewards are too few, and no estimate is reliable."
    assert wrong.startswith("The log has only 10 decisions")
    assert study.finding("decisions").verdict == "bad"
    assert study.finding("nothing") is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"arm": None}, r"the table: expected a column 'arm', or its name \(arm=, --arm\), got the columns y, "),
        ({"reward": None}, "the table: expected a column 'reward'"),
        ({"y": None}, "expected at least one observed column beside arm and reward, got none"),
        ({"propensity": np.where(np.arange(60) == 4, 0.0, 0.5)}, "row 5, propensity: expected a probability above 0"),
        ({"propensity": np.where(np.arange(60) == 4, 1.5, 0.5)}, "row 5, propensity: expected a probability from 0"),
        ({"propensity": np.where(np.arange(60) == 4, -0.1, 0.5)}, "row 5, propensity: expected a probability from 0"),
        ({"y": np.where(np.arange(60) == 4, np.inf, 0.5)}, "column 'y', row 5: expected a finite number"),
        ({"y": [1.0, "two"] + [3.0] * 58}, "column 'y', row 2: expected a number or an empty cell, got 'two'"),
        ({"reward": np.full(60, np.nan)}, "expected rewards for at least some decisions, got 60 decisions without"),
        ({"time": [None, *range(59)]}, "column 'time', row 1: expected a time, got an empty cell"),
        ({"arm": ["", *["a", "b"] * 29, "a"]}, "row 1: expected an arm, which only the last row may lack"),
        ({"y": np.zeros(59)}, "expected columns of the same length"),
        ({name: [] for name in small()}, "the table: expected at least one decision, but the table has no rows"),
        ({"propensity": np.where(np.arange(60) == 4, np.nan, 0.5)}, "row 5, propensity: .* got an empty cell"),
        ({"arm": np.where(np.arange(60) == 4, np.inf, 1.0)}, "row 5, arm: expected a name or a whole number, got inf"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(columns, message):
    with pytest.raises(hs.HalfseenError, match=message) as refused:
        hs.study(small(**columns))
    assert "\n" not in str(refused.value)


def test_bad_arguments(tmp_path):
    with pytest.raises(hs.HalfseenError, match=r"has no column 'tmie'. Did you mean 'time'"):
        hs.study(small(), time="tmie")
    with pytest.raises(hs.HalfseenError, match="log: expected an existing file"):
        hs.study(tmp_path / "missing.csv")
    with pytest.raises(hs.HalfseenError, match=r"rewards: expected .* got"):
        hs.study(small(), reward_family="binary")
    replayed: list[int] = []
    for call in (hs.study, hs.evaluate):
        with pytest.raises(hs.HalfseenError, match="There is no arm 'x'"):
            call(read(small()).log if call is hs.evaluate else small(), policy=["ts-pco", "always:x"],
                 progress=lambda done, _: replayed.append(done))  # fmt: skip
    assert not replayed
    with pytest.raises(hs.HalfseenError, match="policy: expected 'uniform', 'always:ARM', 'logged' or an agent"):
        hs.study(small(), policy=[3])


@pytest.mark.parametrize("name", ["observation 0", "unread 0"])
def test_the_column_of_times_may_have_any_name(name):
    rng = np.random.default_rng(0)
    columns = {"0": rng.normal(size=60), "arm": rng.integers(2, size=60), "reward": rng.normal(size=60)}
    times = 1.7e9 + 60.0 * np.repeat(np.arange(30), 2)
    expected, found = (
        read_table({label: times, **columns}, observed=["0"], roles={"time": label}, arms=None, stream=None).log
        for label in ("when", name)
    )
    np.testing.assert_array_equal(found.observations, expected.observations)
    np.testing.assert_array_equal(found.times, expected.times)
