"""Guardrails of agents and fleets: what is refused, what is counted, and the lift."""

import numpy as np
import pytest
from scipy import stats
from settings import assert_same_state, state_bytes

import halfseen as hs
from halfseen.agents import saving
from halfseen.agents.catalogue import agent_spec
from halfseen.agents.guardrails import Guardrails
from halfseen.statistics.lift import Lift, RewardMoments

ARMS = ["low", "mid", "high"]


def make(**options):
    return hs.make("ts-pco", observed=2, arms=ARMS, seed=1, **options)


INVALID = [
    ({"floor": 0.34}, "floor: expected at most 1/3, because 3 arms can be chosen, got 0.34"),
    ({"floor": -0.1}, "floor: expected a number from 0 to 1, got -0.1"),
    ({"floor": float("nan")}, "floor: expected a number from 0 to 1, got nan"),
    ({"floor": "decaying"}, "floor: expected a number from 0 to 1, got 'decaying'"),
    ({"floor": True}, "floor: expected a number from 0 to 1, got True"),
    ({"floor": np.complex128(0.1)}, "floor: expected a number from 0 to 1, got np.complex128(0.1+0j)"),
    ({"control": np.array(0.1)}, "control: expected an arm and its share, such as ('low', 0.05), got 0.1"),
    ({"holdback": 1.01}, "holdback: expected a number from 0 to 1, got 1.01"),
    ({"holdback": None}, "holdback: expected a number from 0 to 1, got None"),
    ({"control": "low"}, "control: expected an arm and its share, such as ('low', 0.05), got 'low'"),
    ({"control": ("low",)}, "control: expected an arm and its share, such as ('low', 0.05), got ('low',)"),
    ({"control": ("low", -0.1)}, "control: expected a number from 0 to 1, got -0.1"),
    ({"control": ("lwo", 0.1)}, "There is no arm 'lwo'. Did you mean 'low'? The arms are: high, low, mid"),
    (
        {"holdback": 0.6, "control": ("low", 0.5)},
        "holdback and control: expected shares that sum to at most 1, got 0.6 and 0.5",
    ),
]


@pytest.mark.parametrize(("options", "message"), INVALID)
def test_bad_guardrails_are_refused_in_one_line(options, message):
    agent, fleet = make(floor=0.1), hs.Fleet("ts-pco", observed=2, arms=ARMS)
    fleet.add(2)
    agent.decide([0.1, 0.2])
    before = state_bytes(agent)
    for act in (
        lambda: make(**options),
        lambda: hs.Fleet("ts-pco", observed=2, arms=ARMS, **options),
        lambda: agent.set_guardrails(**options),
        lambda: fleet.set_guardrails(**options),
    ):
        with pytest.raises(hs.HalfseenError) as caught:
            act()
        assert str(caught.value) == message
    assert state_bytes(agent) == before
    assert agent.guardrails == Guardrails(floor=0.1)
    assert fleet.guardrails == Guardrails()


def test_a_share_that_no_float_can_hold_is_refused():
    with pytest.raises(hs.HalfseenError, match="floor: expected a number from 0 to 1"):
        make(floor=10**400)


def test_an_arm_that_would_make_the_floor_too_high_is_refused():
    agent = make(floor=0.3)
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match="floor: expected at most 1/4, because 4 arms can be chosen"):
        agent.add_arm("new")
    assert state_bytes(agent) == before
    agent.set_guardrails(floor=0.25)
    agent.add_arm("new")
    assert agent.decide([0.1, 0.2]).propensities.tolist() == [0.25] * 4


def test_the_control_arm_cannot_be_retired_or_left_out():
    agent, fleet = make(control=("mid", 0.2)), hs.Fleet("ts-pco", observed=2, arms=ARMS, control=("mid", 0.2))
    fleet.add(2)
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match="arm: expected an arm that is not the control arm of the guardrails"):
        agent.retire_arm("mid")
    message = "available: expected arms with the control arm 'mid' among them, got arms without it"
    with pytest.raises(hs.HalfseenError, match=message):
        agent.decide([0.1, 0.2], available=["low", "high"])
    with pytest.raises(hs.HalfseenError, match=message):
        agent.replay([0.1, 0.2], "low", available=["low", "high"])
    with pytest.raises(hs.HalfseenError, match=message):
        fleet.decide(np.zeros((2, 2)), available=np.array([[True, True, True], [True, False, True]]))
    assert state_bytes(agent) == before
    assert fleet.rounds.tolist() == [0, 0]
    agent.retire_arm("low")
    with pytest.raises(hs.HalfseenError, match="control: expected an arm that can be chosen"):
        agent.set_guardrails(control=("low", 0.1))
    agent.set_guardrails()
    agent.retire_arm("mid")


def test_a_file_opens_whose_guardrails_were_changed_together_with_the_arms(tmp_path):
    """The guardrails with which the agent was made do not fit the arms it has now, and the other way round."""
    agent = make(floor=1 / 3)
    agent.set_guardrails(floor=0.2)
    agent.add_arm("new")
    agent.save(tmp_path / "more.hs")
    assert hs.load(tmp_path / "more.hs").guardrails == Guardrails(floor=0.2)
    agent.retire_arm("low")
    agent.retire_arm("mid")
    agent.set_guardrails(floor=0.5, control=("new", 0.1))
    agent.save(tmp_path / "fewer.hs")
    loaded = hs.load(tmp_path / "fewer.hs")
    assert_same_state(loaded, agent)
    assert loaded.guardrails == Guardrails(0.5, 0.0, ("new", 0.1))


def test_the_mark_is_none_without_guardrails_and_after_they_are_switched_off():
    agent = make()
    assert agent.decide([0.1, 0.2]).branch is None
    agent.set_guardrails(holdback=1.0)
    assert agent.decide([0.1, 0.2]).branch == "holdback"
    agent.set_guardrails()
    decision = agent.decide([0.1, 0.2])
    assert decision.branch is None
    assert "pending.branches" not in agent.state()


def test_propensities_are_those_of_the_guardrails_at_the_time_of_the_decision():
    agent = make(control=("low", 1.0))
    decision = agent.decide([0.1, 0.2])
    agent.set_guardrails(holdback=1.0)
    assert decision.propensities.tolist() == [1.0, 0.0, 0.0]
    assert agent.decide([0.1, 0.2]).propensities.tolist() == pytest.approx([1 / 3] * 3)


def play(agent, rounds, seed=0):
    """Return the branches and rewards of rounds with immediate rewards."""
    rng, played = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = agent.decide(rng.normal(size=2))
        played.append((decision.branch, float(decision.index + rng.normal())))
        agent.learn(decision, played[-1][1])
    return played


def test_lift_is_the_difference_of_means_with_welchs_interval():
    agent = make(floor=0.05, holdback=0.2, control=("low", 0.2))
    played = play(agent, 400)
    health = agent.health()
    groups = {branch: np.array([reward for mark, reward in played if mark == branch]) for branch, _ in played}
    for baseline in ("control", "holdback"):
        test = stats.ttest_ind(groups["chooser"], groups[baseline], equal_var=False)
        low, high = test.confidence_interval(0.95)
        expected = [groups["chooser"].mean() - groups[baseline].mean(), low, high]
        np.testing.assert_allclose(health.facts[f"lift over {baseline}, low, high"], expected, rtol=1e-9)
        finding = health.finding(f"lift over {baseline}")
        assert finding.value == pytest.approx(expected[0], rel=1e-9)
    assert health.finding("lift over control").sentence.startswith("the chooser's decisions earn more than the control")
    assert health.facts["rewards of chooser, floor, holdback, control"] == [
        len(groups[branch]) for branch in ("chooser", "floor", "holdback", "control")
    ]


def test_a_chooser_that_earns_less_than_control_is_a_bad_finding():
    agent, rng = make(control=("low", 0.5)), np.random.default_rng(0)
    for _ in range(200):
        decision = agent.decide(rng.normal(size=2))
        agent.learn(decision, (5.0 if decision.branch == "control" else 0.0) + rng.normal())
    health = agent.health()
    assert health.finding("lift over control").verdict is hs.Verdict.BAD
    assert any("earn less than the control arm" in note for note in health.notes)


def test_lift_counts_from_the_last_change_of_the_shares():
    """Decisions from before a change that are rewarded later are not counted. A change of the floor changes nothing."""
    agent = make(holdback=0.5)
    late = agent.decide([0.1, 0.2])
    play(agent, 10)
    agent.set_guardrails(holdback=0.5, floor=0.1)
    assert agent.policy.guardrails.reward_counts.sum() == 10
    agent.learn(late, 1.0)
    assert agent.policy.guardrails.reward_counts.sum() == 11
    late = agent.decide([0.1, 0.2])
    agent.set_guardrails(holdback=0.4, floor=0.1)
    agent.learn(late, 1.0)
    assert agent.policy.guardrails.reward_counts.sum() == 0


def test_a_provisional_reward_is_counted_and_replaced():
    replaced, plain = make(holdback=0.5), make(holdback=0.5)
    rng = np.random.default_rng(3)
    for _ in range(50):
        y, reward = rng.normal(size=2), rng.normal() + 1e3
        one, other = replaced.decide(y, available=["mid"]), plain.decide(y, available=["mid"])
        replaced.learn(one, 0.0, provisional=True)
        replaced.learn(one, reward, provisional=True)
        replaced.learn(one, reward + 1.0)
        plain.learn(other, reward + 1.0)
    mine, theirs = (agent.policy.guardrails for agent in (replaced, plain))
    np.testing.assert_array_equal(mine.reward_counts, theirs.reward_counts)
    np.testing.assert_allclose(mine.reward_means, theirs.reward_means, rtol=1e-12)  # rounding
    # Rewards of 0 among rewards of 1,000 leave rounding errors of 1e6·1e-16 per reward.
    np.testing.assert_allclose(mine.reward_squares, theirs.reward_squares, rtol=1e-6)
    given_up = make(holdback=0.5)
    given_up.give_up(given_up.decide([0.1, 0.2]))
    assert "pending.branches" not in given_up.state()


def test_learning_many_rewards_counts_them_in_order():
    one, many = make(holdback=0.5), make(holdback=0.5)
    decisions = [[agent.decide([0.1 * t, 0.2]) for t in range(20)] for agent in (one, many)]
    rewards = np.random.default_rng(0).normal(size=20)
    for decision, reward in zip(decisions[0], rewards, strict=True):
        one.learn(decision, float(reward))
    many.learn_many(decisions[1], rewards)
    assert_same_state(one, many)


def test_a_replayed_decision_is_counted_only_with_its_branch():
    agent = make(holdback=0.5)
    agent.learn(agent.replay([0.1, 0.2], "low"), 1.0)
    assert agent.policy.guardrails.reward_counts.sum() == 0
    agent.learn(agent.replay([0.1, 0.2], "low", branch="holdback"), 1.0)
    assert agent.policy.guardrails.reward_counts.tolist() == [[0, 0, 1, 0]]
    with pytest.raises(hs.HalfseenError, match="branch: expected one of: chooser, floor, holdback, control, or None"):
        agent.replay([0.1, 0.2], "low", branch="hold")
    with pytest.raises(hs.HalfseenError, match="branch: expected None, because no guardrails are in force"):
        make().replay([0.1, 0.2], "low", branch="holdback")
    with pytest.raises(hs.HalfseenError, match="branches: expected 2 branches, one per round, got 1 branches"):
        agent.fold(np.zeros((2, 2)), ["low", "low"], [1.0, 1.0], branches=["floor"])
    assert agent.rounds == 2


def test_restoring_a_state_restores_its_guardrails():
    agent = make(floor=0.1)
    before = agent.state()
    agent.set_guardrails(holdback=0.3, control=("high", 0.1))
    later = agent.state()
    agent.restore(before)
    assert agent.guardrails == Guardrails(floor=0.1)
    agent.restore(later)
    assert agent.guardrails == Guardrails(0.0, 0.3, ("high", 0.1))
    agent.restore(make().state())
    assert agent.guardrails == Guardrails()
    assert agent.decide([0.1, 0.2]).branch is None


@pytest.mark.parametrize(
    "change",
    [
        {"guardrails.shares": np.array([[0.5, 0.0, 0.0]])},
        {"guardrails.shares": np.array([[0.0, 0.6, 0.6]])},
        {"guardrails.shares": np.array([[np.nan, 0.0, 0.0]])},
        {"guardrails.control": np.array([3])},
        {"guardrails.reward_squares": np.array([[0.0, -1.0, 0.0, 0.0]])},
        {"guardrails.reward_means": np.array([[np.inf, 0.0, 0.0, 0.0]])},
        {"pending.branches": np.array([4])},
        {"pending.branches": np.array([0, 0])},
        {"pending.branches": np.array([0.0])},
    ],
)
def test_states_that_contradict_themselves_are_refused(change):
    agent = make(holdback=0.2, control=("low", 0.1))
    agent.decide([0.1, 0.2])
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError):
        agent.restore(agent.state() | change)
    assert state_bytes(agent) == before
    assert agent.policy.guarded
    with pytest.raises(hs.HalfseenError, match="all arrays of guardrails or none"):
        agent.restore({name: array for name, array in agent.state().items() if name != "guardrails.control"})


def test_a_state_without_guardrails_is_saved_without_guardrails(tmp_path):
    """In a file of version 0.2.0, which has no guardrails, `floor` is an option of `meb`."""
    guarded, plain = (hs.make("meb", observed=2, arms=ARMS, observation_cov=0.1, **one) for one in ({"floor": 0.1}, {}))
    guarded.restore(plain.state())
    fleets = [hs.Fleet("meb", observed=2, arms=ARMS, observation_cov=0.1, **one) for one in ({"floor": 0.1}, {})]
    fleets[0].restore(fleets[1].state())
    for one in (guarded, fleets[0]):
        one.save(tmp_path / "saved.hs")
        loaded = hs.load(tmp_path / "saved.hs")
        assert loaded.guardrails == Guardrails()
        assert not {"floor", "minimum_probability"} & loaded._recipe.keys()


def test_the_lift_of_extreme_rewards_is_reported():
    agent = make(holdback=0.5)
    for t in range(80):
        decision = agent.decide([0.1, 0.2])
        agent.learn(decision, (1e100 if decision.branch == "chooser" else 1e-300) * (1 - 0.5 * (t % 2)))
    assert all(np.isfinite(agent.health().facts["lift over holdback, low, high"]))


def test_a_fleet_saves_its_guardrails_and_pools_its_rewards(tmp_path):
    fleet, rng = hs.Fleet("ts-pco", observed=2, arms=ARMS), np.random.default_rng(0)
    fleet.set_guardrails(floor=0.05, holdback=0.3, control=("low", 0.3))
    fleet.add(40)
    rewards, marks = [], []
    for _ in range(8):
        decisions = fleet.decide(rng.normal(size=(40, 2)))
        rewards.append(decisions.indices + rng.normal(size=40))
        marks.append(decisions.branches)
        fleet.learn(decisions.ids[::-1], rewards[-1][::-1])
    waiting = fleet.decide(rng.normal(size=(40, 2)))
    values, marks = np.concatenate(rewards), np.concatenate(marks)
    test = stats.ttest_ind(values[marks == "chooser"], values[marks == "control"], equal_var=False)
    low, high = test.confidence_interval(0.95)
    facts = fleet.health().facts
    np.testing.assert_allclose(facts["lift over control, low, high"][1:], [low, high], rtol=1e-9)
    assert fleet.health().finding("lift over control") is not None
    fleet.save(tmp_path / "fleet.hs")
    twin = hs.load(tmp_path / "fleet.hs")
    assert twin.guardrails == fleet.guardrails
    for one in (fleet, twin):
        one.learn(waiting.ids, np.ones(40))
        one.add(1)
    for name, array in fleet.state().items():
        np.testing.assert_array_equal(array, twin.state()[name], err_msg=name)
    assert twin.agent(40).guardrails == fleet.guardrails


def test_a_fleet_adopts_agents_with_its_own_guardrails():
    fleet, agent = hs.Fleet("ts-pco", observed=2, arms=ARMS), make()
    play(agent, 3)
    agent.set_guardrails(holdback=0.5)
    with pytest.raises(hs.HalfseenError, match="agent: expected an agent with the guardrails of this fleet"):
        fleet.adopt(agent)
    agent.set_guardrails()
    number = fleet.adopt(agent)
    fleet.set_guardrails(holdback=0.5)
    agent.set_guardrails(holdback=0.5)
    pending = agent.decide([0.1, 0.2])
    number = fleet.adopt(agent)
    fleet.learn(fleet.pending(number), [2.0])
    agent.learn(pending, 2.0)
    assert_same_state(fleet.agent(number), agent)
    fresh = make()
    fleet.set_guardrails()
    assert_same_state(fleet.agent(fleet.adopt(fresh)), hs.Fleet.agent(fleet, fleet.add(1, seeds=[1])[0]))


def test_a_file_of_meb_from_before_guardrails_keeps_its_minimum_probability(tmp_path):
    """Until 0.2.0 the option was called `floor`, which now is a guardrail."""
    agent = hs.make("meb", observed=2, arms=3, observation_cov=0.1, minimum_probability=0.2)
    recipe = agent.recipe
    recipe["floor"] = recipe.pop("minimum_probability")
    saving.write(tmp_path / "old.hs", recipe, agent.state())
    loaded = hs.load(tmp_path / "old.hs")
    assert loaded.recipe["minimum_probability"] == 0.2
    assert loaded.guardrails == Guardrails()
    assert loaded.policy.chooser._fixed == 0.2
    guarded = hs.make("meb", observed=2, arms=3, observation_cov=0.1, floor=0.2)
    guarded.save(tmp_path / "new.hs")
    assert hs.load(tmp_path / "new.hs").guardrails == Guardrails(floor=0.2)


def test_a_specification_may_have_guardrails():
    assert agent_spec("ts-pco:floor=0.05,control=[2,0.1],width=0.5").options == {
        "floor": 0.05,
        "control": [2, 0.1],
        "width": 0.5,
    }
    with pytest.raises(hs.HalfseenError, match="has no option 'flor'"):
        agent_spec("ts-pco:flor=0.05")


def test_lift_with_few_or_constant_rewards():
    none, one, two = (RewardMoments.of(np.full(count, 2.0)) for count in (0, 1, 2))
    assert np.isnan(Lift("control", two, none).difference.value)
    assert Lift("control", two, one).difference.value == 0.0
    assert np.isnan(Lift("control", two, one).difference.low)
    assert Lift("control", two, two).difference.low == 0.0
    assert np.isnan(Lift("control", two, one).relative.value)
    losses = RewardMoments.of(np.array([-1.0, -1.2, -0.8]))
    assert np.isnan(Lift("control", two, losses).relative.value)  # a share of a negative mean means nothing
