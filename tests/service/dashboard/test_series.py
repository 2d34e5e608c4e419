"""The data of the charts, compared with slow and simple computations."""

import msgspec
import numpy as np
import pytest

import halfseen as hs
from halfseen.evaluation.estimators import ENOUGH
from halfseen.journal import events
from halfseen.journal.events import Event
from halfseen.service.dashboard import series, window
from halfseen.service.dashboard.context import ContextFilter, context_filter
from halfseen.service.dashboard.window import DecisionWindow
from halfseen.service.schemas import StreamSpec, StreamView

SECOND = 1_000_000  # microseconds


class RecordedStream:
    """A stream made of given events, which are one second apart by default."""

    def __init__(self, arms=3, observed=2):
        self.spec = StreamSpec(name="s", observed=observed, arms=arms, agent="ts-pco", seed=1)
        self.arms = list(range(arms)) if isinstance(arms, int) else list(arms)
        self.active, self.events, self.rounds = list(self.arms), [], 0
        self.append(events.Created({}))

    def append(self, content, decision_id=None, *, after=1.0):
        last = self.events[-1].time if self.events else 0
        self.events.append(Event(len(self.events) + 1, last + int(after * SECOND), decision_id, content))

    def decide(self, arm, propensities, *, expected=None, available=None, y=(0.5, None), elapsed=1, estimated=None):
        self.rounds += 1
        decision_id = f"d{self.rounds}"
        p = propensities[self.arms.index(arm)]
        expected = [0.0] * len(self.arms) if expected is None else expected
        content = events.Decided(
            self.rounds, list(y), arm, p, list(propensities), expected, available, elapsed=elapsed, estimated=estimated
        )  # fmt: skip
        self.append(content, decision_id)
        return decision_id

    def reward(self, decision_id, value, how="given", *, after=1.0):
        content = events.Rewarded(decision_id, int(decision_id[1:]), value, how, True)
        self.append(content, decision_id, after=after)

    def retire_arm(self, arm):
        self.active.remove(arm)
        self.append(events.ArmRetired(arm))

    def add_arm(self, arm):
        self.arms.append(arm)
        self.active.append(arm)
        self.append(events.ArmAdded(arm))

    @property
    def view(self):
        return StreamView(
            name="s",
            spec=self.spec,
            arms=self.arms,
            active=self.active,
            version=len(self.events),
            decisions=self.rounds,
            rewards=0,
            created=0,
            updated=0,
            retired=False,
        )

    def window(self, last=None):
        return DecisionWindow(self.view, self.events if last is None else self.events[-last:])


def rewarded_rows(n, *, arms=3, seed=0, policy=(0.6, 0.3, 0.1), values=(1.0, 0.0, -2.0)):
    """Return decisions drawn from `policy`. The rewards of the arms are `values` plus noise."""
    rng, stream = np.random.default_rng(seed), RecordedStream(arms)
    for _ in range(n):
        arm = int(rng.choice(arms, p=policy))
        decision_id = stream.decide(arm, list(policy), expected=list(values))
        stream.reward(decision_id, values[arm] + rng.normal())
    return list(stream.window().decisions.values())


# ---------------------------------------------------------------------- the window


def test_a_window_folded_in_parts_equals_a_window_folded_at_once():
    stream = RecordedStream(["a", "b"])
    first = stream.decide("a", [0.5, 0.5])
    stream.add_arm("c")
    stream.decide("c", [0.2, 0.3, 0.5])
    stream.retire_arm("a")
    stream.reward(first, 2.0)
    whole = stream.window()
    early = RecordedStream(["a", "b"])
    parts = DecisionWindow(early.view, early.events)
    parts.fold(stream.events[1:3])
    parts.fold(stream.events[3:])
    rows = [list(one.decisions.values()) for one in (whole, parts)]
    assert [(r.id, r.arm, r.possible.tolist(), r.reward) for r in rows[0]] == [
        (r.id, r.arm, r.possible.tolist(), r.reward) for r in rows[1]
    ]
    assert whole.arms == parts.arms == ["a", "b", "c"]
    assert whole.version == parts.version == len(stream.events)
    assert whole.is_whole_stream


def test_the_arms_active_before_the_window_are_reconstructed():
    stream = RecordedStream(["a", "b", "c"])
    stream.decide("a", [0.4, 0.3, 0.3])
    stream.retire_arm("b")
    stream.decide("a", [0.6, 0.0, 0.4])
    stream.add_arm("d")
    stream.decide("d", [0.2, 0.0, 0.4, 0.4])
    choices = [row.possible.sum() for row in stream.window(last=5).decisions.values()]
    assert choices == [3, 2, 3]
    assert not stream.window(last=5).is_whole_stream
    assert stream.window(last=5).arms == ["a", "b", "c", "d"]


def test_only_available_arms_are_possible():
    stream = RecordedStream(4)
    stream.decide(1, [0.0, 0.5, 0.5, 0.0], available=[1, 2])
    stream.decide(1, [0.0, 0.5, 0.5, 0.0])
    rows = list(stream.window().decisions.values())
    assert [np.flatnonzero(row.possible).tolist() for row in rows] == [[1, 2], [0, 1, 2, 3]]


def test_a_late_reward_replaces_the_default_and_unknown_decisions_are_ignored():
    stream = RecordedStream()
    one, two = stream.decide(0, [1.0, 0.0, 0.0]), stream.decide(0, [1.0, 0.0, 0.0])
    stream.reward(one, 0.0, "default")
    stream.append(events.Expired(two), two)
    stream.reward(one, 3.0, "late")
    stream.reward("d99", 7.0)
    rows = stream.window().decisions
    assert (rows[one].reward, rows[one].how) == (3.0, "late")
    assert rows[two].expired
    assert rows[two].reward is None
    assert set(rows) == {one, two}


def test_the_size_of_a_window_is_limited():
    stream = RecordedStream(2)
    for _ in range(window.MAX_DECISIONS + 10):
        stream.decide(0, [1.0, 0.0])
    whole = stream.window()
    assert len(whole.decisions) == window.MAX_DECISIONS
    assert not whole.is_whole_stream
    assert window.max_events(stream.view) == 2 * window.MAX_DECISIONS
    assert window.max_events(RecordedStream(1000, observed=1000).view) < 400


# ---------------------------------------------------------------------- rewards


def rewards_of(rows, *, arms=3, points=100):
    return series.reward_series(rows, list(range(arms)), points)


@pytest.mark.parametrize("count", [1, 2, 7, 299, 300, 301, 4999, 5000])
@pytest.mark.parametrize("points", [1, 10, 300])
def test_blocks_cover_all_items_with_the_requested_number_of_points(count, points):
    ends = series.block_ends(count, points, min_length=round(count ** (1 / 3)))
    assert len(ends) <= points
    assert ends[-1] == count
    assert (np.diff(np.concatenate([[0], ends])) > 0).all()


def test_the_estimates_equal_those_of_evaluate():
    """`hs.evaluate` gives the same estimates and intervals for a table with the decisions of the window."""
    rows = rewarded_rows(400, seed=4)
    table = {
        "observation": [row.observation.tolist() for row in rows],
        "arm": [row.arm for row in rows],
        "propensity": [row.propensity for row in rows],
        "propensities": [row.propensities for row in rows],
        "reward": [row.reward for row in rows],
    }
    whole = hs.evaluate(table, "uniform")
    found, uniform = rewards_of(rows), whole.policies["uniform"]
    for line, estimate in [
        (found.mean, whole.policies["logged"].values["ips"]),
        (found.uniform.ips, uniform.values["ips"]),
        (found.uniform.snips, uniform.values["snips"]),
    ]:
        assert (line.value[-1], line.low[-1], line.high[-1]) == pytest.approx(
            (estimate.value, estimate.low, estimate.high), rel=1e-9
        )
    assert found.uniform.effective == pytest.approx(uniform.effective_size)
    assert found.uniform.told == uniform.sure


def test_the_value_of_the_uniform_policy_is_estimated_from_propensities():
    """The intervals of all three estimators contain the true mean reward, (1 + 0 − 2)/3."""
    found = rewards_of(rewarded_rows(4000))
    truth = -1 / 3
    for line in (found.uniform.ips, found.uniform.snips, found.uniform.dr):
        assert line.low[-1] < truth < line.high[-1]
        assert line.high[-1] - line.low[-1] < 0.4
    assert found.mean.value[-1] == pytest.approx(0.4, abs=0.1)
    assert found.uniform.told
    assert found.uniform.note is None
    assert 1000 < found.uniform.effective < 4000


def test_weights_depend_on_the_possible_arms():
    stream = RecordedStream(4)
    for arm, p, value, available in ((0, 0.25, 2.0, None), (1, 0.5, 4.0, [0, 1])):
        propensities = [0.25] * 4 if available is None else [0.5, 0.5, 0.0, 0.0]
        assert propensities[arm] == p
        stream.reward(stream.decide(arm, propensities, available=available), value)
    found = rewards_of(list(stream.window().decisions.values()), arms=4)
    assert found.uniform.ips.value[-1] == pytest.approx(3.0)  # both weights are 1


def test_a_note_says_that_some_arms_had_no_logged_probability():
    found = rewards_of(rewarded_rows(500, policy=(0.7, 0.3, 0.0)))
    assert not found.uniform.told
    assert "33.3 % of its choices had propensity 0" in found.uniform.note
    assert found.uniform.uncovered == pytest.approx(1 / 3)
    assert found.uniform.dr.value[-1] == pytest.approx(-1 / 3, abs=0.1)  # the expected rewards are correct in this test
    assert found.uniform.snips.value[-1] > 0.3  # far from the truth, so the estimate is not reliable


def test_a_note_says_that_some_arms_had_a_very_small_probability():
    """The propensity of one arm is not small enough to count as 0, but the arm is hardly ever drawn."""
    found = rewards_of(rewarded_rows(3000, policy=(0.7 - 1e-5, 0.3, 1e-5)))
    assert found.uniform.uncovered == 0.0
    assert not found.uniform.told
    assert "should be 1 and is 0.6" in found.uniform.note


def test_a_note_says_that_the_effective_sample_size_is_too_small():
    found = rewards_of(rewarded_rows(200, policy=(0.98, 0.01, 0.01)))
    assert found.uniform.effective < ENOUGH
    assert "effective" in found.uniform.note
    assert not found.uniform.told


def test_the_recent_mean_is_the_mean_of_the_last_rewards():
    rows = rewarded_rows(300)
    found = rewards_of(rows)
    assert found.span == 30
    assert found.recent[-1] == pytest.approx(np.mean([row.reward for row in rows[-30:]]))


# ---------------------------------------------------------------------- arms, delays, decisions without a reward


def test_shares_sum_to_one_and_rare_arms_are_combined():
    rng, stream = np.random.default_rng(0), RecordedStream(30)
    for _ in range(500):
        stream.decide(int(rng.integers(30)) if rng.random() < 0.5 else 7, [1 / 30] * 30)
    found = series.arm_shares(list(stream.window().decisions.values()), stream.arms, 300)
    assert found.arms[-1] == "18 others"
    assert len(found.arms) == series.MAX_ARMS + 1
    assert np.sum(found.share, axis=0) == pytest.approx(1.0)
    assert sum(found.total) == pytest.approx(1.0)
    assert found.total[found.arms.index("arm 7")] > 0.4
    assert len(found.round) <= 60
    assert found.round[-1] == 500


def test_delays_ignore_default_rewards():
    stream = RecordedStream()
    for delay in (2.0, 4.0, 6.0):
        stream.reward(stream.decide(0, [1.0, 0.0, 0.0]), 1.0, after=delay)
    stream.reward(stream.decide(0, [1.0, 0.0, 0.0]), 0.0, "default", after=100.0)
    found = series.reward_delays(list(stream.window().decisions.values()), 300)
    assert (found.round, found.p50) == ([3], [4.0])
    assert found.p90 == pytest.approx([5.6])


def test_decisions_without_a_reward_are_counted_by_age():
    stream = RecordedStream()
    ids = [stream.decide(0, [1.0, 0.0, 0.0]) for _ in range(30)]
    stream.reward(ids[3], 1.0)
    stream.append(events.Expired(ids[4]), ids[4])
    last = stream.events[-1].time
    found = series.waiting_decisions(list(stream.window().decisions.values()), stream.arms, last + 3 * SECOND)
    assert found.count == 28
    assert found.counts == [0, 5, 23, 0, 0, 0, 0]  # ages 5 … 9 s, and 10 … 34 s without two decisions
    assert sum(found.counts) == found.count
    assert found.oldest == 34.0
    assert [one.id for one in found.decisions[:4]] == ["d1", "d2", "d3", "d6"]
    assert len(found.decisions) == series.MAX_LISTED
    set_back = series.waiting_decisions(list(stream.window().decisions.values()), stream.arms, 0)  # the clock
    assert set_back.oldest == 0.0


# ---------------------------------------------------------------------- context


def trained_agent(name, n=200, **options):
    agent, rng, x = hs.make(name, observed=2, arms=2, seed=1, **options), np.random.default_rng(0), 0.0
    ys = []
    for _ in range(n):
        x = 0.95 * x + rng.normal()
        y = [10 + 3 * x + rng.normal(), None if rng.random() < 0.2 else rng.normal()]
        decision = agent.decide(y)
        agent.learn(decision.id, (1 if decision.arm else -1) * x + rng.normal())
        ys.append(y)
    return agent, np.array(ys, dtype=np.float64)


def test_the_context_is_estimated_with_the_current_model():
    agent, ys = trained_agent("emkf-ts", latent=3, observation_cov=0.5, window=50)
    found = context_filter(agent, ["price", "rain"])
    assert found.coordinates == ("price", "rain", "hidden 1")
    state = agent.state()
    model = hs.LinearGaussianModel(
        transition=state["estimator.transition"][0],
        process_cov=state["estimator.process_cov"][0],
        observation_cov=state["estimator.observation_cov"][0],
    )
    whole = model.filter(ys)
    for at in range(3):
        mean, std = found.filter(ys, at)
        assert mean == pytest.approx(whole.means[:, at])
        assert std == pytest.approx(np.sqrt(whole.covs[:, at, at]))


def test_the_last_estimate_equals_the_belief_of_the_agent():
    """The initial state has no influence after many rounds, and `kf-ts` never changes its model."""
    model = hs.LinearGaussianModel(
        transition=[[0.9, 0.2, 0.0], [0.0, 0.8, 0.1], [0.0, 0.0, 0.7]],
        process_cov=np.eye(3) * 0.3,
        observation_cov=np.eye(2) * 0.2,
    )
    agent, ys = trained_agent("kf-ts", model=model)
    found = context_filter(agent, None)
    state = agent.state()
    for at in range(3):
        mean, std = found.filter(ys[-150:], at)
        assert mean[-1] == pytest.approx(state["estimator.mean"][0, at], abs=1e-6)
        assert std[-1] ** 2 == pytest.approx(state["estimator.cov"][0, at, at], abs=1e-6)


def test_observed_coordinates_of_adaptive_have_the_units_of_the_observations():
    agent, ys = trained_agent("adaptive", n=400, latent=3)
    estimator = agent.policy.estimator
    if estimator.uses_raw_observation[0]:  # this test is about agents that filter
        estimator.uses_raw_observation[0] = False
    found = context_filter(agent, None)
    mean, std = found.filter(ys, 0)
    assert np.mean(mean) == pytest.approx(np.nanmean(ys[:, 0]), abs=1.0)
    assert np.corrcoef(mean, ys[:, 0])[0, 1] > 0.9
    assert std.max() < np.std(ys[:, 0])


@pytest.mark.parametrize(("name", "rounds", "reason"), [
    ("ts-pco", 20, "has no belief"),
    ("hmm-ts", 20, "has no belief"),
    ("adaptive", 0, "There is no model yet"),
    ("adaptive", 20, "There is no model yet"),
])  # fmt: skip
def test_the_reason_is_given_if_there_is_no_belief(name, rounds, reason):
    options = {"refit": "manual"} if name == "adaptive" else {}
    agent, _ = trained_agent(name, rounds, **options)
    found = context_filter(agent, None)
    assert found.filter is None
    assert reason in found.why


def test_the_reason_is_given_if_adaptive_uses_the_raw_observation():
    agent, _ = trained_agent("adaptive", 300)
    agent.policy.estimator.uses_raw_observation[0] = True
    assert "uses the raw observation" in context_filter(agent, None).why


def test_fewer_rounds_are_filtered_with_a_large_context():
    stream = RecordedStream()
    for _ in range(300):
        stream.decide(0, [1.0, 0.0, 0.0])
    lengths = []

    def filtered(ys, at):
        lengths.append(len(ys))
        return np.zeros(len(ys)), np.ones(len(ys))

    context = ContextFilter(tuple(f"x{i}" for i in range(200)), filtered)
    found = series.context_series(list(stream.window().decisions.values()), context, 300, 999)
    assert lengths == [100]
    assert len(found.round) == 100
    assert found.coordinate == 199
    assert found.seen == [None] * 100


# ---------------------------------------------------------------------- all series


@pytest.mark.parametrize("rewarded", [0, 1, 2, 5])
def test_series_of_short_streams_can_be_encoded_as_json(rewarded):
    stream = RecordedStream()
    for number in range(rewarded + (rewarded > 0)):
        decision_id = stream.decide(0, [1.0, 0.0, 0.0])
        if number < rewarded:
            stream.reward(decision_id, 1.0)
    found = series.stream_series(
        "s", stream.window(), ContextFilter(), points=300, coordinate=0, now=stream.events[-1].time, service={}
    )
    again = msgspec.json.decode(msgspec.json.encode(found), type=series.StreamSeries)
    assert again == found
    assert found.rewards.count[-1:] == ([rewarded] if rewarded else [])
    assert found.shown.all
    assert found.waiting.count == (1 if rewarded else 0)


def test_the_size_of_replies_is_limited():
    rows = rewarded_rows(4000)
    stream = RecordedStream()
    whole = stream.window()
    whole.decisions.update({row.id: row for row in rows})
    context = ContextFilter(("a", "b"), lambda ys, at: (np.zeros(len(ys)), np.ones(len(ys))))
    found = series.stream_series("s", whole, context, points=300, coordinate=0, now=0, service={})
    assert max(len(found.rewards.round), len(found.context.round), len(found.arms.round)) <= 300
    assert len(msgspec.json.encode(found)) < 200_000


# ---------------------------------------------------------------------- time


def test_the_context_takes_observations_and_gaps_into_account():
    """The last estimate equals the belief of an agent that has processed the same events."""
    model = hs.LinearGaussianModel(
        transition=[[0.9, 0.3], [-0.3, 0.9]], process_cov=np.eye(2) * 0.3, observation_cov=np.eye(1) * 0.2
    )
    agent, rng = hs.make("kf-ts", observed=1, arms=2, seed=1, model=model), np.random.default_rng(4)
    stream = RecordedStream(2, 1)
    for t in range(150):
        elapsed = 1 + 7 * (t % 5 == 0)
        for _ in range(t % 3):
            y = float(rng.normal())
            agent.observe([y], elapsed=elapsed)
            stream.append(events.Observed([y], elapsed))
        y = float(rng.normal())
        agent.decide([y], elapsed=2)
        stream.decide(0, [0.5, 0.5], y=(y,), elapsed=2)
    decisions = list(stream.window().decisions.values())
    state, found = agent.state(), context_filter(agent, None)
    for at in range(2):
        line = series.context_series(decisions, found, 60, at).line
        assert line.value[-1] == pytest.approx(state["estimator.mean"][0, at], abs=1e-6)
        assert (line.high[-1] - line.value[-1]) / 1.96 == pytest.approx(
            np.sqrt(state["estimator.cov"][0, at, at]), rel=1e-3
        )
    most = series.context_series(decisions, found, 10, 0)
    assert len(most.round) == len(most.line.value) == len(most.seen) == 10


def test_a_forecast_has_the_most_likely_arms_and_a_coordinate_in_its_unit():
    agent, ys = trained_agent("adaptive", n=400)
    ahead = agent.forecast(series.AHEAD)
    found = series.forecast_series(ahead, ["price", "rain"], 0)
    assert found.ahead == list(range(1, 21))
    assert sorted(found.arms) == ["arm 0", "arm 1"]
    assert found.best[0][0] == pytest.approx(ahead.best_arm_probability[0].max())
    first = int(found.arms[0].removeprefix("arm "))
    assert found.value[0].value == pytest.approx(ahead.expected[:, first])
    assert found.coordinate == "price"
    assert np.nanmin(ys[:, 0]) < found.context.value[-1] < np.nanmax(ys[:, 0])
    assert all(low < value < high for value, low, high in zip(*_lines(found.context), strict=True))
    assert series.forecast_series(ahead, None, 99).coordinate == ahead.context_names[-1]
    with_hidden = trained_agent("emkf-ts", latent=3, observation_cov=0.5, window=50)[0].forecast(3)
    assert series.forecast_series(with_hidden, ["price", "rain"], 2).coordinate == "hidden 1"
    many = hs.make("adaptive", observed=2, arms=9, seed=1).forecast(3)
    assert (len(series.forecast_series(many, None, 0).arms), series.forecast_series(many, None, 0).others) == (6, 3)
    assert series.forecast_series("no model", None, 0).why == "no model"


def _lines(line):
    return line.value, line.low, line.high


@pytest.mark.parametrize("estimated", ["all", "others"])
def test_imported_decisions_have_no_expected_rewards_and_may_have_estimated_propensities(estimated):
    rng, stream, policy = np.random.default_rng(3), RecordedStream(3), [0.6, 0.3, 0.1]
    for t in range(2000):
        arm = int(rng.choice(3, p=policy))
        decision_id = stream.decide(arm, policy, expected=[None] * 3, estimated=estimated if t < 1500 else None)
        stream.reward(decision_id, (1.0, 0.0, -2.0)[arm] + rng.normal())
    found = rewards_of(list(stream.window().decisions.values()))
    for line in (found.uniform.ips, found.uniform.snips, found.uniform.dr):
        assert line.low[-1] < -1 / 3 < line.high[-1]
    assert found.uniform.told
    if estimated == "all":
        assert "The propensities of 1500 of the 2000 decisions were estimated" in found.uniform.note
    else:
        assert found.uniform.note is None
