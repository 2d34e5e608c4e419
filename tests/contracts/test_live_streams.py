"""What every catalogued agent does when arms are added and retired, rewards are late and observations are missing."""

import numpy as np
import pytest
from settings import (
    ARMS,
    LATENT,
    OBSERVED,
    arm_params,
    assert_same_state,
    context_argument,
    contexts_argument,
    make_small,
    simulate_rounds,
    small_options,
    state_bytes,
    state_rewards,
)

import halfseen as hs

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
ROUNDS = 2 * 5 * LATENT + 11  # more than two windows of the estimators that refit
PARAMS, STATE_REWARDS = arm_params(arms=ARMS + 1), state_rewards(arms=ARMS + 1)


def add_arm(agent):
    """Add an arm, with its parameters if the agent requires them."""
    tables = {"arm_params": PARAMS, "state_rewards": STATE_REWARDS}
    for option in tables.keys() & hs.catalog()[agent.name].required:
        return agent.add_arm(params=tables[option][len(agent.arms)])
    return agent.add_arm()


def play_round(agent, x, y, noise, available=None):
    decision = agent.decide(y, available=available, **context_argument(agent, x))
    agent.learn(decision.id, PARAMS[decision.index] @ x + noise)
    return decision


def test_adding_an_arm_equals_making_an_arm_available_that_existed_before(name):
    options = small_options(name)
    if "horizon" in hs.catalog()[name].options:
        options["width"] = 1.7  # the default width of LinUCB depends on the number of arms
    tables = {"arm_params": PARAMS, "state_rewards": STATE_REWARDS}
    larger_options = options | {option: tables[option] for option in tables.keys() & options}
    grown = hs.make(name, observed=OBSERVED, arms=ARMS, seed=3, **options)
    larger = hs.make(name, observed=OBSERVED, arms=ARMS + 1, seed=3, **larger_options)
    played = set()
    for t, (x, y, noise) in enumerate(zip(*simulate_rounds(ROUNDS, missing=0.1), strict=True)):
        if t == 20:
            before = play_round(grown, x, y, noise), play_round(larger, x, y, noise, available=range(ARMS))
            assert add_arm(grown) == ARMS
        forced = [ARMS] if t == 25 else None  # some agents never explore
        available = range(ARMS) if t < 20 else forced
        one, other = (
            play_round(grown, x, y, noise, available=forced),
            play_round(larger, x, y, noise, available=available),
        )
        played.add(one.arm)
        assert one.arm == other.arm
        np.testing.assert_array_equal(one.expected, other.expected[: len(one.expected)])
        np.testing.assert_array_equal(one.propensities, other.propensities[: len(one.propensities)])
    assert_same_state(grown, larger)
    assert ARMS in played
    assert grown.arms == grown.active_arms == tuple(range(ARMS + 1))
    assert [len(decision.propensities) for decision in before] == [ARMS, ARMS + 1]
    assert [decision.propensities.sum() for decision in before] == pytest.approx([1, 1])


def test_a_retired_arm_is_never_chosen_again(name):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(ROUNDS)
    forced = agent.decide(ys[0], available=[1], **context_argument(agent, xs[0]))
    free = agent.decide(ys[0], **context_argument(agent, xs[0]))
    agent.retire_arm(1)
    for t in range(1, 40):
        decision = play_round(agent, xs[t], ys[t], noise[t])
        assert decision.arm != 1
        assert decision.propensities[1] == 0
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)
    assert forced.propensities == pytest.approx([0, 1, 0, 0], abs=1e-9)  # computed now, for the arms available then
    assert free.propensities.sum() == pytest.approx(1, abs=1e-9)
    assert agent.arms == (0, 1, 2, 3)
    assert agent.active_arms == (0, 2, 3)
    before = {key: value.copy() for key, value in agent.policy.learner.state().items()}
    agent.learn(forced, 3.0)
    assert agent.pending == (free.id,)
    changed = [not np.array_equal(value, before[key]) for key, value in agent.policy.learner.state().items()]
    assert any(changed) == bool(before)


def test_invalid_arms_change_nothing(name):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(10)
    for t in range(10):
        play_round(agent, xs[t], ys[t], noise[t])
    for arm in (1, np.int64(2)):
        agent.retire_arm(arm)
    before = state_bytes(agent)
    for call, line in [
        (
            lambda: agent.decide(ys[0], available=[0, 1], **context_argument(agent, xs[0])),
            "available: expected arms of agent.active_arms, got 1, which is retired",
        ),
        (lambda: agent.retire_arm(1), "arm: expected an arm of agent.active_arms, got 1, which is retired"),
        (lambda: agent.retire_arm(4), "arm: expected arm numbers from 0 to 3, got 4"),
        (lambda: agent.add_arm("x"), "name: expected None, because arms are numbered and the next is 4, got 'x'"),
    ]:
        with pytest.raises(hs.HalfseenError) as caught:
            call()
        assert str(caught.value).startswith(line)
        assert state_bytes(agent) == before
    with pytest.raises(hs.HalfseenError, match=r"^params: expected .*, got \[1\.0, 'x'\]$"):
        agent.add_arm(params=[1.0, "x"])
    assert state_bytes(agent) == before
    agent.retire_arm(0)
    with pytest.raises(
        hs.HalfseenError, match=r"^arm: expected an arm that is not the only active one, got 3, the last active arm"
    ):
        agent.retire_arm(3)
    assert agent.decide(ys[0], **context_argument(agent, xs[0])).arm == 3
    assert agent.arms == (0, 1, 2, 3)


def play_with_changing_arms(agent, first=0, last=ROUNDS):
    """Play rounds in which an arm is added, an arm is retired and every fourth reward is missing.

    Returns the arms, the rewards and the propensities.
    """
    arms, rewards, propensities = [], [], []
    for t, (x, y, noise) in enumerate(zip(*simulate_rounds(ROUNDS, missing=0.2), strict=True)):
        if not first <= t < last:
            continue
        if t == 15:
            add_arm(agent)
        if t == 30:
            agent.retire_arm(2)
        decision = agent.decide(y, **context_argument(agent, x))
        arms.append(decision.arm)
        propensities.append(decision.propensity)
        rewards.append(float(PARAMS[decision.index] @ x + noise) if t % 4 else np.nan)
        if t % 4:
            agent.learn(decision, rewards[-1])
    return arms, rewards, propensities


@pytest.mark.parametrize("cut", [10, 20, 40])
def test_a_loaded_agent_continues_with_changed_arms(name, cut, tmp_path):
    agent = make_small(name)
    play_with_changing_arms(agent, last=cut)
    agent.save(tmp_path / "agent.hs")
    twin = hs.load(tmp_path / "agent.hs")
    assert_same_state(agent, twin)
    assert (twin.arms, twin.active_arms) == (agent.arms, agent.active_arms)
    assert play_with_changing_arms(agent, first=cut) == play_with_changing_arms(twin, first=cut)
    assert_same_state(agent, twin)
    twin.save(tmp_path / "again.hs")
    assert_same_state(agent, hs.load(tmp_path / "again.hs"))
    assert repr(hs.load(tmp_path / "again.hs").health()) == repr(agent.health())


def test_a_history_with_changing_arms_can_be_folded(name):
    """The agent must have all arms of the history. Arms that are retired now may occur in the history."""
    agent, twin = make_small(name), make_small(name)
    arms, rewards, propensities = play_with_changing_arms(agent)
    add_arm(twin)
    twin.retire_arm(2)
    xs, ys, _ = simulate_rounds(ROUNDS, missing=0.2)
    twin.fold(ys, arms, rewards, propensities=propensities, **contexts_argument(name, xs))
    assert_same_state(agent, twin)


def test_a_state_with_fewer_arms_is_refused(name):
    agent = make_small(name)
    play_with_changing_arms(agent, last=10)
    state = agent.state()
    add_arm(agent)
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match=r"^state: expected a state of 5 arms, got a state of 4 arms$"):
        agent.restore(state)
    assert state_bytes(agent) == before


def test_rewards_may_arrive_in_any_order(name):
    """The order of the rewards changes the state by rounding errors only."""
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    rng = np.random.default_rng(8)
    ids = 1 + np.sort(rng.permutation(ROUNDS)[: ROUNDS - 9])  # nine rewards are never received

    def one_by_one(agent, order):
        for number in order:
            agent.learn(int(number), noise[number - 1])

    def in_batches(agent, order):
        for part in np.array_split(order, 3):
            agent.learn_many(part, noise[part - 1])

    deliveries = [
        (one_by_one, ids),
        (one_by_one, ids[::-1]),
        (one_by_one, rng.permutation(ids)),
        (in_batches, ids),
        (in_batches, rng.permutation(ids)),
    ]
    agents = []
    for deliver, order in deliveries:
        agent = make_small(name)
        for t in range(ROUNDS):
            agent.decide(ys[t], available=[t % ARMS], **context_argument(agent, xs[t]))
        deliver(agent, order)
        agents.append(agent)
    first = agents[0]
    expected = first.decide(ys[0], **context_argument(first, xs[0]))
    for agent in agents[1:]:
        decision = agent.decide(ys[0], **context_argument(agent, xs[0]))
        np.testing.assert_allclose(decision.expected, expected.expected, rtol=1e-9, atol=1e-12)
        for key, value in first.state().items():
            np.testing.assert_allclose(agent.state()[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


def test_learn_many_equals_learn_one_by_one(name):
    agent, twin = make_small(name), make_small(name)
    xs, ys, noise = simulate_rounds(30)
    for one in (agent, twin):
        decisions = [one.decide(y, **context_argument(one, x)) for x, y in zip(xs, ys, strict=True)]
        if one is agent:
            one.learn_many(decisions[4:20], noise[4:20])
        else:
            for decision, reward in zip(decisions[4:20], noise[4:20], strict=True):
                one.learn(decision, reward)
    assert_same_state(agent, twin)


@pytest.mark.parametrize(
    ("ids", "rewards", "line"),
    [
        (
            [6, 7, 999],
            [1.0, 2.0, 3.0],
            "decision_id: expected a decision of agent.pending, got 999, which was never made",
        ),
        (
            [6, 1, 7],
            [1.0, 2.0, 3.0],
            "decision_id: expected a decision of agent.pending, got 1, which already has its reward",
        ),
        ([6, [7]], [1.0, 2.0], "decision_id: expected the id of a decision, got [7]"),
        ([6, 7, 6], [1.0, 2.0, 3.0], "ids: expected distinct decisions, got 6 more than once"),
        ([6, 7], [1.0], "rewards: expected 2 numbers, one per decision, got shape (1,)"),
        ([6, 7], [1.0, np.nan], "rewards: expected numbers within ±1e+100, got nan"),
        ([6, 7], [1.0, "x"], "rewards: expected 2 numbers, one per decision, got [1.0, 'x']"),
        (6, [1.0], "ids: expected a list of decisions or their ids, got 6"),
        ("67", [1.0, 2.0], "ids: expected a list of decisions or their ids, got '67'"),
    ],
)
def test_learn_many_learns_all_rewards_or_none(name, ids, rewards, line):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(10)
    for t in range(10):
        decision = agent.decide(ys[t], **context_argument(agent, xs[t]))
        if t < 5:
            agent.learn(decision, noise[t])
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError) as caught:
        agent.learn_many(ids, rewards)
    assert str(caught.value).startswith(line)
    assert state_bytes(agent) == before
    agent.learn_many([], [])
    assert state_bytes(agent) == before


@pytest.mark.parametrize("observed_share", [0.0, 0.1, 0.7])
def test_most_entries_may_be_missing(name, observed_share):
    """In some rounds, including the first ones, all entries are missing, and one entry is missing in all rounds."""
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(ROUNDS, missing=1 - observed_share)
    ys[:5], ys[30:35], ys[:, 1] = np.nan, np.nan, np.nan
    for x, y, omega in zip(xs, ys, noise, strict=True):
        decision = agent.decide(y, **context_argument(agent, x))
        assert np.isfinite(decision.expected).all()
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)
        agent.learn(decision, omega)
    for key, value in agent.policy.learner.state().items():
        assert np.isfinite(value).all(), key
    facts = agent.health().facts
    assert facts["share of entries not seen"] == pytest.approx(np.isnan(ys).mean())
    assert facts["rounds since each entry was seen"][1] == ROUNDS


def test_health_can_be_called_at_any_time_and_changes_nothing(name, tmp_path):
    agent = make_small(name)

    def check_health():
        agent.save(tmp_path / "agent.hs")
        before = state_bytes(agent)
        for one in (agent, hs.load(tmp_path / "agent.hs")):
            health = one.health()
            assert isinstance(health, hs.Health)
            assert health.ok == (not health.notes)
            assert all(isinstance(note, str) and note for note in health.notes)
            assert {"rounds", "rewards", "decisions waiting", "decisions dropped", "arms"} <= health.facts.keys()
            for fact in [*health.facts, *health.notes]:
                assert fact in str(health)
        assert state_bytes(agent) == before
        return agent.health()

    assert check_health().ok
    play_with_changing_arms(agent, last=40)
    health = check_health()
    assert health.ok
    assert health.facts["rounds"] == 40
    assert health.facts["rewards"] == 30
    assert health.facts["decisions waiting"] == 10
    assert (health.facts["arms"], health.facts["arms retired"]) == (5, 1)
    play_with_changing_arms(agent, first=40)
    check_health()
