"""What the charts show, against slow and obvious computations."""

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

SECOND = 1_000_000


class Record:
    """Events of a stream, one after the other, a second apart, and the view of the stream at their end."""

    def __init__(self, arms=3, observed=2):
        self.spec = StreamSpec(name="s", observed=observed, arms=arms, agent="ts-pco", seed=1)
        self.arms = list(range(arms)) if isinstance(arms, int) else list(arms)
        self.active, self.events, self.rounds = list(self.arms), [], 0
        self.happens(events.Created({}))

    def happens(self, content, identity=None, *, after=1.0):
        then = self.events[-1].time if self.events else 0
        self.events.append(Event(len(self.events) + 1, then + int(after * SECOND), identity, content))

    def decides(self, arm, propensities, *, expected=None, available=None, y=(0.5, None)):
        self.rounds += 1
        identity = f"d{self.rounds}"
        p = propensities[self.arms.index(arm)]
        expected = [0.0] * len(self.arms) if expected is None else expected
        self.happens(events.Decided(self.rounds, list(y), arm, p, list(propensities), expected, available), identity)
        return identity

    def pays(self, identity, value, how="given", *, after=1.0):
        content = events.Rewarded(identity, int(identity[1:]), value, how, True)
        self.happens(content, identity, after=after)

    def retires(self, arm):
        self.active.remove(arm)
        self.happens(events.ArmRetired(arm))

    def adds(self, arm):
        self.arms.append(arm)
        self.active.append(arm)
        self.happens(events.ArmAdded(arm))

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


def paid_rows(n, *, arms=3, seed=0, policy=(0.6, 0.3, 0.1), values=(1.0, 0.0, -2.0)):
    """Decisions drawn from `policy`, which pays `values` and noise."""
    rng, record = np.random.default_rng(seed), Record(arms)
    for _ in range(n):
        arm = int(rng.choice(arms, p=policy))
        identity = record.decides(arm, list(policy), expected=list(values))
        record.pays(identity, values[arm] + rng.normal())
    return list(record.window().decisions.values())


# ---------------------------------------------------------------------- the window


def test_a_window_read_in_parts_is_the_window_read_at_once():
    record = Record(["a", "b"])
    first = record.decides("a", [0.5, 0.5])
    record.adds("c")
    record.decides("c", [0.2, 0.3, 0.5])
    record.retires("a")
    record.pays(first, 2.0)
    whole = record.window()
    early = Record(["a", "b"])
    parts = DecisionWindow(early.view, early.events)
    parts.fold(record.events[1:3])
    parts.fold(record.events[3:])
    rows = [list(one.decisions.values()) for one in (whole, parts)]
    assert [(r.id, r.arm, r.possible.tolist(), r.reward) for r in rows[0]] == [
        (r.id, r.arm, r.possible.tolist(), r.reward) for r in rows[1]
    ]
    assert whole.arms == parts.arms == ["a", "b", "c"]
    assert whole.version == parts.version == len(record.events)
    assert whole.is_whole_stream


def test_arms_active_before_the_window_follow_from_those_active_now():
    record = Record(["a", "b", "c"])
    record.decides("a", [0.4, 0.3, 0.3])
    record.retires("b")
    record.decides("a", [0.6, 0.0, 0.4])
    record.adds("d")
    record.decides("d", [0.2, 0.0, 0.4, 0.4])
    choices = [row.possible.sum() for row in record.window(last=5).decisions.values()]
    assert choices == [3, 2, 3]
    assert not record.window(last=5).is_whole_stream
    assert record.window(last=5).arms == ["a", "b", "c", "d"]


def test_only_arms_that_were_available_count():
    record = Record(4)
    record.decides(1, [0.0, 0.5, 0.5, 0.0], available=[1, 2])
    record.decides(1, [0.0, 0.5, 0.5, 0.0])
    rows = list(record.window().decisions.values())
    assert [np.flatnonzero(row.possible).tolist() for row in rows] == [[1, 2], [0, 1, 2, 3]]


def test_a_late_reward_takes_the_place_of_the_default_and_a_stranger_is_passed_over():
    record = Record()
    one, two = record.decides(0, [1.0, 0.0, 0.0]), record.decides(0, [1.0, 0.0, 0.0])
    record.pays(one, 0.0, "default")
    record.happens(events.Expired(two), two)
    record.pays(one, 3.0, "late")
    record.pays("d99", 7.0)
    rows = record.window().decisions
    assert (rows[one].reward, rows[one].how) == (3.0, "late")
    assert rows[two].expired
    assert rows[two].reward is None
    assert set(rows) == {one, two}


def test_a_window_is_bounded_in_decisions_and_in_numbers():
    record = Record(2)
    for _ in range(window.MAX_DECISIONS + 10):
        record.decides(0, [1.0, 0.0])
    whole = record.window()
    assert len(whole.decisions) == window.MAX_DECISIONS
    assert not whole.is_whole_stream
    assert window.max_events(record.view) == 2 * window.MAX_DECISIONS
    assert window.max_events(Record(1000, observed=1000).view) < 400


# ---------------------------------------------------------------------- rewards


def rewards_of(rows, *, arms=3, points=100):
    return series.reward_series(rows, list(range(arms)), points)


@pytest.mark.parametrize("count", [1, 2, 7, 299, 300, 301, 4999, 5000])
@pytest.mark.parametrize("points", [1, 10, 300])
def test_blocks_cover_everything_in_no_more_points_than_asked_for(count, points):
    ends = series.block_ends(count, points, min_length=round(count ** (1 / 3)))
    assert len(ends) <= points
    assert ends[-1] == count
    assert (np.diff(np.concatenate([[0], ends])) > 0).all()


def test_the_numbers_are_those_of_evaluate():
    """The window as a table: the same estimates, intervals and notes, with the agent's expectations as the model."""
    rows = paid_rows(400, seed=4)
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


def test_the_uniform_policy_is_estimated_from_propensities():
    """(1 + 0 − 2)/3, whatever the policy that was logged; all three estimators, within their intervals."""
    found = rewards_of(paid_rows(4000))
    truth = -1 / 3
    for line in (found.uniform.ips, found.uniform.snips, found.uniform.dr):
        assert line.low[-1] < truth < line.high[-1]
        assert line.high[-1] - line.low[-1] < 0.4
    assert found.mean.value[-1] == pytest.approx(0.4, abs=0.1)
    assert found.uniform.told
    assert found.uniform.note is None
    assert 1000 < found.uniform.effective < 4000


def test_weights_are_by_the_arms_that_could_be_played():
    record = Record(4)
    for arm, p, value, available in ((0, 0.25, 2.0, None), (1, 0.5, 4.0, [0, 1])):
        propensities = [0.25] * 4 if available is None else [0.5, 0.5, 0.0, 0.0]
        assert propensities[arm] == p
        record.pays(record.decides(arm, propensities, available=available), value)
    found = rewards_of(list(record.window().decisions.values()), arms=4)
    assert found.uniform.ips.value[-1] == pytest.approx(3.0)  # both weights are 1


def test_what_propensities_do_not_cover_is_said():
    found = rewards_of(paid_rows(500, policy=(0.7, 0.3, 0.0)))
    assert not found.uniform.told
    assert "33.3 % of its choices had no chance" in found.uniform.note
    assert found.uniform.uncovered == pytest.approx(1 / 3)
    assert found.uniform.dr.value[-1] == pytest.approx(-1 / 3, abs=0.1)  # what is expected is right here
    assert found.uniform.snips.value[-1] > 0.3  # and without it, far off: hence not told


def test_arms_that_had_hardly_a_chance_are_said():
    """Propensities above the smallest that counts, and still too small ever to be drawn."""
    found = rewards_of(paid_rows(3000, policy=(0.7 - 1e-5, 0.3, 1e-5)))
    assert found.uniform.uncovered == 0.0
    assert not found.uniform.told
    assert "average 0.6" in found.uniform.note


def test_few_effective_rewards_are_said():
    found = rewards_of(paid_rows(200, policy=(0.98, 0.01, 0.01)))
    assert found.uniform.effective < ENOUGH
    assert "effective" in found.uniform.note
    assert not found.uniform.told


def test_the_recent_mean_is_of_the_last_ones():
    rows = paid_rows(300)
    found = rewards_of(rows)
    assert found.span == 30
    assert found.recent[-1] == pytest.approx(np.mean([row.reward for row in rows[-30:]]))


# ---------------------------------------------------------------------- arms, delays, what waits


def test_shares_add_up_to_one_and_many_arms_become_others():
    rng, record = np.random.default_rng(0), Record(30)
    for _ in range(500):
        record.decides(int(rng.integers(30)) if rng.random() < 0.5 else 7, [1 / 30] * 30)
    found = series.arm_shares(list(record.window().decisions.values()), record.arms, 300)
    assert found.arms[-1] == "18 others"
    assert len(found.arms) == series.MAX_ARMS + 1
    assert np.sum(found.share, axis=0) == pytest.approx(1.0)
    assert sum(found.total) == pytest.approx(1.0)
    assert found.total[found.arms.index("arm 7")] > 0.4
    assert len(found.round) <= 60
    assert found.round[-1] == 500


def test_delays_are_those_of_rewards_that_were_given():
    record = Record()
    for took in (2.0, 4.0, 6.0):
        record.pays(record.decides(0, [1.0, 0.0, 0.0]), 1.0, after=took)
    record.pays(record.decides(0, [1.0, 0.0, 0.0]), 0.0, "default", after=100.0)
    found = series.reward_delays(list(record.window().decisions.values()), 300)
    assert (found.round, found.p50) == ([3], [4.0])
    assert found.p90 == pytest.approx([5.6])


def test_waiting_decisions_by_age():
    record = Record()
    ids = [record.decides(0, [1.0, 0.0, 0.0]) for _ in range(30)]
    record.pays(ids[3], 1.0)
    record.happens(events.Expired(ids[4]), ids[4])
    last = record.events[-1].time
    found = series.waiting_decisions(list(record.window().decisions.values()), record.arms, last + 3 * SECOND)
    assert found.count == 28
    assert found.counts == [0, 5, 23, 0, 0, 0, 0]  # ages 5 … 9 s, and 10 … 34 s but for two
    assert sum(found.counts) == found.count
    assert found.oldest == 34.0
    assert [one.id for one in found.decisions[:4]] == ["d1", "d2", "d3", "d6"]
    assert len(found.decisions) == series.MAX_LISTED
    before = series.waiting_decisions(
        list(record.window().decisions.values()), record.arms, 0
    )  # a clock that went backwards
    assert before.oldest == 0.0


# ---------------------------------------------------------------------- context


def lived(name, n=200, **options):
    agent, rng, x = hs.make(name, observed=2, arms=2, seed=1, **options), np.random.default_rng(0), 0.0
    ys = []
    for _ in range(n):
        x = 0.95 * x + rng.normal()
        y = [10 + 3 * x + rng.normal(), None if rng.random() < 0.2 else rng.normal()]
        decision = agent.decide(y)
        agent.learn(decision.id, (1 if decision.arm else -1) * x + rng.normal())
        ys.append(y)
    return agent, np.array(ys, dtype=np.float64)


def test_the_context_is_what_the_model_in_force_filters():
    agent, ys = lived("emkf-ts", latent=3, observation_cov=0.5, window=50)
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


def test_the_last_value_is_the_belief_of_the_agent_itself():
    """Once its filter has forgotten where it started from; `kf-ts` never changes its model."""
    model = hs.LinearGaussianModel(
        transition=[[0.9, 0.2, 0.0], [0.0, 0.8, 0.1], [0.0, 0.0, 0.7]],
        process_cov=np.eye(3) * 0.3,
        observation_cov=np.eye(2) * 0.2,
    )
    agent, ys = lived("kf-ts", model=model)
    found = context_filter(agent, None)
    state = agent.state()
    for at in range(3):
        mean, std = found.filter(ys[-150:], at)
        assert mean[-1] == pytest.approx(state["estimator.mean"][0, at], abs=1e-6)
        assert std[-1] ** 2 == pytest.approx(state["estimator.cov"][0, at, at], abs=1e-6)


def test_observed_coordinates_of_adaptive_are_in_the_units_of_the_observations():
    agent, ys = lived("adaptive", n=400, latent=3)
    estimator = agent.policy.estimator
    if estimator.plain[0]:  # what it decides on is for its rewards to say; here is what is shown if it filters
        estimator.plain[0] = False
    found = context_filter(agent, None)
    mean, std = found.filter(ys, 0)
    assert np.mean(mean) == pytest.approx(np.nanmean(ys[:, 0]), abs=1.0)
    assert np.corrcoef(mean, ys[:, 0])[0, 1] > 0.9
    assert std.max() < np.std(ys[:, 0])


@pytest.mark.parametrize(("name", "rounds", "said"), [
    ("ts-pco", 20, "keeps no belief"),
    ("hmm-ts", 20, "keeps no belief"),
    ("adaptive", 0, "No model yet"),
    ("adaptive", 20, "No model yet"),
])  # fmt: skip
def test_an_agent_without_a_belief_says_so(name, rounds, said):
    options = {"refit": "manual"} if name == "adaptive" else {}
    agent, _ = lived(name, rounds, **options)
    found = context_filter(agent, None)
    assert found.filter is None
    assert said in found.why


def test_adaptive_that_uses_the_observation_says_so():
    agent, _ = lived("adaptive", 300)
    agent.policy.estimator.plain[0] = True
    assert "as it is" in context_filter(agent, None).why


def test_the_context_of_a_large_model_is_shortened_not_refused():
    record = Record()
    for _ in range(300):
        record.decides(0, [1.0, 0.0, 0.0])
    seen = []

    def filtered(ys, at):
        seen.append(len(ys))
        return np.zeros(len(ys)), np.ones(len(ys))

    context = ContextFilter(tuple(f"x{i}" for i in range(200)), filtered)
    found = series.context_series(list(record.window().decisions.values()), context, 300, 999)
    assert seen == [100]
    assert len(found.round) == 100
    assert found.coordinate == 199
    assert found.seen == [None] * 100


# ---------------------------------------------------------------------- all of it


@pytest.mark.parametrize("paid", [0, 1, 2, 5])
def test_everything_goes_out_as_json_however_little_there_is(paid):
    record = Record()
    for at in range(paid + (paid > 0)):
        identity = record.decides(0, [1.0, 0.0, 0.0])
        if at < paid:
            record.pays(identity, 1.0)
    found = series.stream_series(
        "s", record.window(), ContextFilter(), points=300, coordinate=0, now=record.events[-1].time, service={}
    )
    again = msgspec.json.decode(msgspec.json.encode(found), type=series.StreamSeries)
    assert again == found
    assert found.rewards.count[-1:] == ([paid] if paid else [])
    assert found.shown.all
    assert found.waiting.count == (1 if paid else 0)


def test_answers_are_bounded_however_long_the_stream():
    rows = paid_rows(4000)
    record = Record()
    whole = record.window()
    whole.decisions.update({row.id: row for row in rows})
    context = ContextFilter(("a", "b"), lambda ys, at: (np.zeros(len(ys)), np.ones(len(ys))))
    found = series.stream_series("s", whole, context, points=300, coordinate=0, now=0, service={})
    assert max(len(found.rewards.round), len(found.context.round), len(found.arms.round)) <= 300
    assert len(msgspec.json.encode(found)) < 200_000
