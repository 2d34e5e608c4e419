"""Estimated propensities, and the findings about logs that are not reliable."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.evaluation import World, rule
from scipy.optimize import check_grad

import halfseen as hs
from halfseen.errors import HalfseenError
from halfseen.evaluation import propensity_model
from halfseen.evaluation.propensity_model import PROPENSITY_FLOOR, estimated_propensities, with_estimated_propensities
from halfseen.evaluation.readers import read_log


def without_propensities(table):
    return {name: values for name, values in table.items() if not name.startswith("propensit")}


def as_log(n=400, seed=1):
    return read_log(without_propensities(World().log(n, seed)))


def test_estimates_are_close_to_the_propensities_of_a_softmax_policy():
    log = as_log(2000)
    found = estimated_propensities(log.observations, log.played, log.possible)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.abs(found - World.logging(log.observations)).mean() < 0.02


def test_a_choice_does_not_affect_its_own_estimate():
    log = as_log(60)
    before = estimated_propensities(log.observations, log.played, log.possible)
    changed = log.played.copy()
    changed[7] = (changed[7] + 1) % 3
    after = estimated_propensities(log.observations, changed, log.possible)
    np.testing.assert_allclose(after[7], before[7], atol=1e-3)  # the optimum is found up to the tolerance of L-BFGS
    assert np.abs(after[30] - before[30]).max() > 1e-2


def test_arms_that_were_not_possible_have_probability_zero():
    log = as_log(60)
    possible = log.possible.copy()
    possible[::2, 2] = log.played[::2] == 2
    found = estimated_propensities(log.observations, log.played, possible)
    assert (found[~possible] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_the_fit_maximises_the_penalised_likelihood():
    """The gradient of the penalised likelihood, from differences, is 0 at the coefficients."""
    log = as_log(80)
    features = np.column_stack([np.ones(80), log.observations])
    fit = propensity_model._fit(features, log.played, log.possible, np.arange(80), np.zeros((3, 3)))

    def loss(flat):
        scores = features @ flat.reshape(3, 3).T
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return -logs[np.arange(80), log.played].sum() + 0.5 * (flat**2).sum()

    assert check_grad(loss, np.zeros_like, fit.ravel()) < 0.02


def test_small_estimates_are_raised_to_the_floor_and_count_as_not_covered():
    rng = np.random.default_rng(2)
    y = rng.normal(size=1000)
    arms = (y > 0).astype(int)
    arms[5] = 1 - arms[5]
    log, note = with_estimated_propensities(read_log({"observation": y, "arm": arms, "reward": y}))
    assert log.propensity.min() == PROPENSITY_FLOOR
    np.testing.assert_allclose(log.propensities.sum(axis=1), 1.0)
    assert 0.3 < (log.propensities == 0).mean() < 0.5
    assert "0.1 % of the arms played had an estimate below 0.01, which was used" in note
    found = hs.evaluate({"observation": y, "arm": arms, "reward": y}, "always:1").policies["always:1"]
    assert "had an estimated propensity below 0.01" in found.notes[0]


def test_a_log_without_propensities_is_evaluated_with_estimates_and_says_so():
    table = World().log(400, seed=1)
    known = hs.evaluate(table, rule)
    found = hs.evaluate(without_propensities(table), rule)
    assert (known.propensities, found.propensities) == ("logged", "estimated")
    assert found.summary()["propensities"] == "estimated"
    assert found.warnings[0].startswith("propensities were estimated by a logistic regression on the observed columns")
    assert not any("were estimated" in line for line in known.warnings)
    one = found.policies["rule"].values["dr"]
    assert one.low < World().truth() < one.high
    assert one.value == pytest.approx(known.policies["rule"].values["dr"].value, abs=0.05)
    forced = hs.evaluate(table, rule, propensities="estimated")
    assert forced.policies["rule"].values == found.policies["rule"].values
    with pytest.raises(HalfseenError, match="the table: expected a column 'propensity', got none, or an empty one"):
        hs.evaluate(without_propensities(table), rule, propensities="logged")
    with pytest.raises(HalfseenError, match="propensities: expected 'logged' or 'estimated', got 'guessed'"):
        hs.evaluate(table, rule, propensities="guessed")


def drifting(rounds: int = 1000, arms: int = 2, seed: int = 0):
    """Return a log in which arm 1 is played less and less often while all rewards fall, and no arm is better."""
    rng = np.random.default_rng(seed)
    share = np.where(np.arange(rounds) < rounds // 2, 0.9, 0.1)
    arm = np.where(rng.uniform(size=rounds) < share, 1, rng.integers(2, arms + 1, size=rounds) % arms)
    level = np.linspace(2.0, 0.0, rounds)
    return {"observation": rng.normal(size=rounds), "arm": arm, "reward": level + rng.normal(size=rounds)}


@pytest.mark.parametrize("arms", [2, 30])
def test_a_choice_of_arms_that_changed_over_time_makes_estimates_unsure(arms):
    found = hs.evaluate(drifting(arms=arms), ["uniform", "always:1"])
    (note,) = (line for line in found.notes if "changed over time" in line)
    assert note.startswith("estimated propensities do not hold, because the choice of arms changed over time")
    assert "'1' was played in " in note
    assert found.policies["logged"].sure
    for label in ("uniform", "always:1"):
        assert not found.policies[label].sure
        assert found.policies[label].notes[0].startswith("the choice of arms changed over time")
    table = drifting(arms=arms)
    share = np.where(np.arange(1000) < 500, 0.9, 0.1)
    if arms == 2:
        known = table | {"propensity": np.where(table["arm"] == 1, share, 1.0 - share)}
        assert hs.evaluate(known, "always:1").policies["always:1"].sure
    explained = hs.evaluate(table | {"observation": share}, "always:1")  # the column says why
    assert not any("changed over time" in line for line in explained.notes)


def test_a_choice_of_arms_that_did_not_change_is_not_called_changed():
    rng, called = np.random.default_rng(8), 0
    for _ in range(60):
        y = np.cumsum(rng.normal(size=300)) * 0.1
        arm = (rng.uniform(size=300) < 1 / (1 + np.exp(-y))).astype(int) + (rng.uniform(size=300) < 0.02)
        log = read_log({"observation": y, "arm": arm, "reward": y})
        called += propensity_model.changed_shares(log, np.ones(300, dtype=bool)) is not None
    assert called == 0
    few = read_log({"observation": [0.1] * 30, "arm": [0] * 15 + [1] * 15, "reward": range(30)})
    assert propensity_model.changed_shares(few, np.ones(30, dtype=bool)) is None


def test_an_agent_replays_a_log_without_propensities():
    table = without_propensities(World().log(40, seed=1))
    assert list(hs.evaluate(table, ["uniform", "meb"]).policies) == ["logged", "uniform", "meb"]


TINY = {"observation": [0.1 * t for t in range(10)], "arm": [0, 1] * 5, "propensity": [0.5] * 10}


def test_a_log_of_ten_rows_and_a_constant_reward_are_findings():
    found = hs.evaluate(TINY | {"reward": [1.0] * 10}, "uniform", arms=3).warnings
    assert "the log has 10 rewards, which are too few for any reliable interval" in found
    assert "every reward is 1, so the log cannot tell one policy from another" in found
    assert "1 arm was never played in the log, so nothing is known of the rewards: '2'" in found
    many = hs.evaluate(World().log(60, seed=1), "uniform").notes
    assert many == ("no column is known to be the time, so the order of the rows is taken as the order in time",)
    without = {name: values for name, values in TINY.items() if name != "propensity"}
    assert hs.evaluate(without | {"reward": range(10)}, "uniform").propensities == "estimated"


@pytest.mark.parametrize(
    ("times", "note"),
    [
        ([3, 1, 2, *range(4, 11)], "the rows were not in order of 'time' and have been sorted"),
        ([1, 1, 1, *range(4, 11)], "2 of 10 rows have the same time as the row before them (first in row 2), so"),
        (
            ["2026-01-02", *(["2026-01-01"] * 9)],
            "8 of 10 rows have the same time as the row before them (first in row 3)",
        ),
        (list(range(10)), None),
    ],
)
def test_times_out_of_order_and_duplicated_times_are_findings(times, note):
    found = hs.evaluate(TINY | {"reward": range(10), "time": times}, "uniform").notes
    assert any(line.startswith(note) for line in found) if note else not any("row before" in line for line in found)


def test_strongly_autocorrelated_rewards_are_a_finding():
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=400))
    arms = rng.integers(2, size=400)
    table = {"observation": rng.normal(size=400), "arm": arms, "propensity": [0.5] * 400, "reward": walk}
    notes = hs.evaluate(table, "logged").policies["logged"].notes
    assert any(
        note.startswith("neighbouring rounds are so much alike that 400 rounds count as about") for note in notes
    )


def test_estimators_of_the_table_are_those_that_are_named(tmp_path):
    table = World().log(80, seed=1)
    found = hs.evaluate(table, "uniform", estimators=["dm", "mrdr"])
    columns = found.table().columns
    assert list(columns)[:4] == ["policy", "dm", "mrdr", "dm − logged"]
    assert list(found.table(["switch_dr"]).columns)[:3] == ["policy", "switch_dr", "switch_dr − logged"]
    assert {"clipped_dr", "clipped_dr_low", "dm_minus_logged"} <= set(found.to_frame().columns)
    assert found.summary()["policies"]["uniform"]["thresholds"].keys() == {"switch_dr", "clipped_dr"}
    found.save(tmp_path)
    page = (tmp_path / "evaluation.html").read_text()
    assert "Reward per round by dm, mrdr" in page
    assert "dm (direct method) is the mean of the predictions alone" in page
    for wrong, message in ((["d"], "There is no estimator 'd'"), ([], "at least one"), (["dr", "dr"], "at least one")):
        with pytest.raises(HalfseenError, match=message):
            hs.evaluate(table, "uniform", estimators=wrong)
