"""Tables with a column of times: the step between rows, gaps, rows of the same time, and worlds made of such tables."""

import datetime

import numpy as np
import pandas as pd
import pytest

import halfseen as hs
from halfseen.worlds.gaps import kept_rounds
from halfseen.worlds.preparation import infer_steps

HOUR = 3600.0


def steps(seconds, *, dates=True):
    found, note = infer_steps(np.asarray(seconds, dtype=float), "when", dates=dates)
    return found, note


@pytest.mark.parametrize(
    ("seconds", "shown", "elapsed"),
    [
        (HOUR * np.array([0, 1, 2, 3, 6, 7, 8, 30]), "1 hour", [1, 1, 1, 1, 3, 1, 1, 22]),
        (86_400.0 * np.array([0, 1, 4, 5, 6, 7, 8, 11, 12]), "1 day", [1, 1, 3, 1, 1, 1, 1, 3, 1]),  # weekends
        (0.5 * np.array([0, 1, 2, 3, 4, 6, 7]), "0.5 seconds", [1, 1, 1, 1, 1, 2, 1]),
        (np.array([0, 2, 3, 4, 6, 9, 10, 11, 13, 15, 16.0]) * 60, "1 minute", [1, 2, 1, 1, 2, 3, 1, 1, 2, 2, 1]),
        (60 * np.array([0, 1, 1, 2, 3, 4, 5, 5, 9]), "1 minute", [1, 1, 1, 1, 1, 1, 1, 1, 4]),  # equal times
    ],
)
def test_the_step_is_the_usual_difference_and_gaps_are_multiples_of_it(seconds, shown, elapsed):
    found, note = steps(seconds)
    assert found.shown == shown
    np.testing.assert_array_equal(found.elapsed, elapsed)
    gaps = int((np.array(elapsed) > 1).sum())
    assert note.startswith(f"the step of 'when' is {shown}, and there ")
    assert f"{gaps} gap" in note


def test_months_and_clocks_that_are_not_exact_have_a_step():
    months = pd.date_range("2020-01-01", periods=48, freq="MS")
    assert not steps(months.astype("datetime64[s]").astype(np.int64))[0].has_gaps
    rng = np.random.default_rng(0)
    times = np.cumsum(np.where(np.arange(200) == 120, 600.0, 60.0) + rng.uniform(-4, 4, size=200))
    found, _ = steps(times)
    assert found.elapsed[120] == 10
    assert np.delete(found.elapsed, 120).max() == 1


def test_two_of_five_rows_left_out_at_random_have_the_right_steps():
    kept = kept_rounds(0, 2000, 0.4)
    found, _ = steps(300.0 * kept)
    np.testing.assert_array_equal(found.elapsed[1:], np.diff(kept))


def test_irregular_times_have_no_step_and_that_is_said():
    found, note = steps(np.cumsum(np.random.default_rng(1).exponential(100.0, size=300)))
    assert found is None
    assert note == "the times in 'when' are too irregular for a step, so agents count rows and not time"
    assert steps([0.0, 1.0, 5.0]) == (None, None)  # too few to tell
    assert steps(np.zeros(50)) == (None, None)


@pytest.fixture
def table():
    """Hourly rows of which some are missing, in a random order."""
    rng, n = np.random.default_rng(0), 500
    x = np.zeros(n)
    for t in range(1, n):
        x[t] = 0.97 * x[t - 1] + 0.3 * rng.normal()
    frame = pd.DataFrame({
        "when": pd.date_range("2026-01-01", periods=n, freq="h"),
        "y": x + rng.normal(size=n), "hidden": x, "a": x, "b": -x,
    })  # fmt: skip
    return frame.iloc[kept_rounds(0, n, 0.4)].sample(frac=1, random_state=2)


def world_of(table, **options):
    return hs.worlds.recorded(
        table, observed=["y"], hidden=["hidden"], rewards=["a", "b"], **({"time": "when"} | options)
    )


def test_a_recorded_world_tells_agents_how_much_time_has_passed(table):
    with pytest.warns(hs.HalfseenWarning) as caught:
        world = world_of(table, name="plant")
    texts = [str(one.message) for one in caught]
    assert texts[0].endswith("the rows were not in order of 'when' and have been sorted")
    assert "the step of 'when' is 1 hour, and there are " in texts[1]
    assert world.settings()["step between rows"] == "1 hour"
    at = np.sort(table["when"].to_numpy())[world.scaling :]
    hours = np.diff(at) // np.timedelta64(1, "h")
    np.testing.assert_array_equal(world.elapsed, [1, *hours])
    parts = world.begin([1, 2])
    rounds = [parts.advance(n) for n in (7, 100)]
    np.testing.assert_array_equal(np.concatenate([part.elapsed for part in rounds]), world.elapsed[:107])
    result = hs.run(["emkf-ts", "ts-pco"], world=world, seeds=[5])
    agent = hs.make("emkf-ts", observed=2, arms=["a", "b"], latent=3, seed=5, noise_std=1.0)
    for t in range(world.length):
        decision = agent.decide(world.observations[t], elapsed=int(world.elapsed[t]))
        agent.learn(decision, float(world.rewards[t, decision.index]) / world.reward_unit)
        assert result.tracks["plant", "emkf-ts"].arm[0, t] == decision.index, t


@pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
def test_gaps_change_the_settings_of_a_world_and_no_gaps_change_nothing(table):
    ordered = table.sort_values("when")
    with_gaps, without = world_of(ordered), world_of(ordered, time=None)
    assert with_gaps.settings()["sha256"] != without.settings()["sha256"]
    assert without.elapsed is None
    regular = ordered.assign(when=pd.date_range("2026-01-01", periods=len(ordered), freq="h"))
    assert world_of(regular).elapsed is None
    assert world_of(regular).notes == ()
    assert world_of(regular).settings()["sha256"] == without.settings()["sha256"]
    assert world_of(regular).begin([1]).advance(5).elapsed is None


@pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
def test_a_share_of_the_rows_of_a_table_with_gaps_can_be_left_out(table):
    world = world_of(table)
    episodes = hs.worlds.named("gaps", world="keyhole")  # loads the class
    gaps = type(episodes)(world, 0.3, told=True, base_name="plant")
    rounds, kept = gaps.begin([1]).advance(100), kept_rounds(1, world.length, 0.3)[:100]
    np.testing.assert_array_equal(np.cumsum(rounds.elapsed), np.cumsum(world.elapsed)[kept - 1])


def test_rows_of_the_same_time_are_refused_with_their_numbers(table):
    twice = table.copy()
    twice.iloc[7, 0] = twice.iloc[3, 0]
    line = r"the table, column 'when', rows 4 and 8: expected different times, got '.*' in both$"
    with pytest.raises(hs.HalfseenError, match=line):
        world_of(twice)
    twice.iloc[9, 0] = twice.iloc[20, 0]
    with pytest.raises(hs.HalfseenError, match=r" in both, and 1 more pair of rows$"):
        world_of(twice)


@pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
def test_dates_of_python_and_numbers_are_times_too(table):
    ordered = table.sort_values("when")
    expected = world_of(ordered).elapsed
    seconds = ordered["when"].astype("datetime64[s]").astype(np.int64).to_numpy()
    python = [datetime.datetime.fromtimestamp(int(one), datetime.UTC) for one in seconds]
    texts = [one.isoformat() for one in python]
    for when in (seconds, python, texts):
        columns = {name: ordered[name].to_numpy() for name in ("y", "hidden", "a", "b")}
        np.testing.assert_array_equal(world_of(columns | {"when": when}).elapsed, expected)
    assert world_of(columns | {"when": seconds}).step == "3600"
