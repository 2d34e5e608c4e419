"""What every catalogued agent does on a live stream: arms come and go, rewards are late, little is seen."""

import numpy as np
import pytest
from settings import (
    ARMS,
    LATENT,
    OBSERVED,
    arm_params,
    assert_same_state,
    context_argument,
    make_small,
    simulate_rounds,
    small_options,
    state_bytes,
    state_rewards,
)

import halfseen as hs

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
ROUNDS = 2 * 5 * LATENT + 11  # past two windows of the estimators that refit
TABLE, STATE_TABLE = arm_params(arms=ARMS + 1), state_rewards(arms=ARMS + 1)


def new_arm(agent):
    """Add an arm, told what it pays if the agent must be."""
    tables = {"arm_params": TABLE, "state_rewards": STATE_TABLE}
    for option in tables.keys() & hs.catalog()[agent.name].required:
        return agent.add_arm(params=tables[option][len(agent.arms)])
    return agent.add_arm()


def step(agent, x, y, noise, available=None):
    decision = agent.decide(y, available=available, **context_argument(agent, x))
    agent.learn(decision.id, TABLE[decision.index] @ x + noise)
    return decision


def test_an_added_arm_is_one_that_was_there_and_could_not_be_played(name):
    options = small_options(name)
    if "horizon" in hs.catalog()[name].options:
        options["width"] = 1.7  # LinUCB's own width grows with the number of arms, so it would tell them apart
    tables = {"arm_params": TABLE, "state_rewards": STATE_TABLE}
    whole_options = options | {option: tables[option] for option in tables.keys() & options}
    grown = hs.make(name, observed=OBSERVED, arms=ARMS, seed=3, **options)
    whole = hs.make(name, observed=OBSERVED, arms=ARMS + 1, seed=3, **whole_options)
    played = set()
    for t, (x, y, noise) in enumerate(zip(*simulate_rounds(ROUNDS, missing=0.1), strict=True)):
        if t == 20:
            before = step(grown, x, y, noise), step(whole, x, y, noise, available=range(ARMS))
            assert new_arm(grown) == ARMS
        tried = [ARMS] if t == 25 else None  # for those that never explore
        now = range(ARMS) if t < 20 else tried
        one, other = step(grown, x, y, noise, available=tried), step(whole, x, y, noise, available=now)
        played.add(one.arm)
        assert one.arm == other.arm
        np.testing.assert_array_equal(one.expected, other.expected[: len(one.expected)])
        np.testing.assert_array_equal(one.propensities, other.propensities[: len(one.propensities)])
    assert_same_state(grown, whole)
    assert ARMS in played
    assert grown.arms == grown.active_arms == tuple(range(ARMS + 1))
    assert [len(decision.propensities) for decision in before] == [ARMS, ARMS + 1]
    assert [decision.propensities.sum() for decision in before] == pytest.approx([1, 1])


def test_a_retired_arm_is_never_chosen_again(name):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(ROUNDS)
    early = agent.decide(ys[0], available=[1], **context_argument(agent, xs[0]))
    free = agent.decide(ys[0], **context_argument(agent, xs[0]))
    agent.retire_arm(1)
    for t in range(1, 40):
        decision = step(agent, xs[t], ys[t], noise[t])
        assert decision.arm != 1
        assert decision.propensities[1] == 0
        assert decision.propensities.sum() == pytest.approx(1, abs=1e-9)
    assert early.propensities == pytest.approx([0, 1, 0, 0], abs=1e-9)  # worked out now, as things were then
    assert free.propensities.sum() == pytest.approx(1, abs=1e-9)
    assert agent.arms == (0, 1, 2, 3)
    assert agent.active_arms == (0, 2, 3)
    before = {key: value.copy() for key, value in agent.policy.learner.state().items()}
    agent.learn(early, 3.0)
    assert agent.pending == (free.id,)
    changed = [not np.array_equal(value, before[key]) for key, value in agent.policy.learner.state().items()]
    assert any(changed) == bool(before)


def test_refusals_about_arms_change_nothing(name):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(10)
    for t in range(10):
        step(agent, xs[t], ys[t], noise[t])
    for arm in (1, np.int64(2)):
        agent.retire_arm(arm)
    before = state_bytes(agent)
    for refused, line in [
        (
            lambda: agent.decide(ys[0], available=[0, 1], **context_argument(agent, xs[0])),
            "available: expected arms of agent.active_arms, got 1, which is retired",
        ),
        (lambda: agent.retire_arm(1), "arm: expected one of agent.active_arms, got 1, which is retired"),
        (lambda: agent.retire_arm(4), "arm: expected arm numbers from 0 to 3, got 4"),
        (lambda: agent.add_arm("x"), "name: expected nothing: arms are numbers here, and the next is 4, got 'x'"),
        (lambda: agent.add_arm(params=[1.0, "x"]), "params: expected n, got [1.0, 'x']"),
    ]:
        with pytest.raises(hs.HalfseenError) as caught:
            refused()
        assert str(caught.value).startswith(line)
        assert state_bytes(agent) == before
    agent.retire_arm(0)
    with pytest.raises(hs.HalfseenError, match=r"^arm: expected one that leaves another, got 3, the last active arm"):
        agent.retire_arm(3)
    assert agent.decide(ys[0], **context_argument(agent, xs[0])).arm == 3
    assert agent.arms == (0, 1, 2, 3)


def lively(agent, first=0, last=ROUNDS):
    """A life with arms that come and go, and rewards that now and then do not; what was played, paid and how likely."""
    arms, rewards, propensities = [], [], []
    for t, (x, y, noise) in enumerate(zip(*simulate_rounds(ROUNDS, missing=0.2), strict=True)):
        if not first <= t < last:
            continue
        if t == 15:
            new_arm(agent)
        if t == 30:
            agent.retire_arm(2)
        decision = agent.decide(y, **context_argument(agent, x))
        arms.append(decision.arm)
        propensities.append(decision.propensity)
        rewards.append(float(TABLE[decision.index] @ x + noise) if t % 4 else np.nan)
        if t % 4:
            agent.learn(decision, rewards[-1])
    return arms, rewards, propensities


@pytest.mark.parametrize("cut", [10, 20, 40])
def test_save_load_continue_with_arms_that_come_and_go(name, cut, tmp_path):
    agent = make_small(name)
    lively(agent, last=cut)
    agent.save(tmp_path / "agent.hs")
    twin = hs.load(tmp_path / "agent.hs")
    assert_same_state(agent, twin)
    assert (twin.arms, twin.active_arms) == (agent.arms, agent.active_arms)
    assert lively(agent, first=cut) == lively(twin, first=cut)
    assert_same_state(agent, twin)
    twin.save(tmp_path / "again.hs")
    assert_same_state(agent, hs.load(tmp_path / "again.hs"))
    assert repr(hs.load(tmp_path / "again.hs").health()) == repr(agent.health())


def test_fold_with_arms_that_come_and_go(name):
    """The history is folded into an agent that knows all its arms; a retired one may be in it."""
    agent, twin = make_small(name), make_small(name)
    arms, rewards, propensities = lively(agent)
    new_arm(twin)
    twin.retire_arm(2)
    xs, ys, _ = simulate_rounds(ROUNDS, missing=0.2)
    twin.fold(ys, arms, rewards, contexts=xs, propensities=propensities)
    assert_same_state(agent, twin)


def test_a_state_of_before_an_arm_was_added_is_refused(name):
    agent = make_small(name)
    lively(agent, last=10)
    taken = agent.state()
    new_arm(agent)
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match=r"^state: expected one of 5 arms$, got one of 4 arms"):
        agent.restore(taken)
    assert state_bytes(agent) == before


def test_rewards_may_come_in_any_order(name):
    """The same decisions and the same rewards, delivered in different ways: the same state, up to rounding."""
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.1)
    rng = np.random.default_rng(8)
    ids = 1 + np.sort(rng.permutation(ROUNDS)[: ROUNDS - 9])  # nine never come

    def one_by_one(agent, order):
        for number in order:
            agent.learn(int(number), noise[number - 1])

    def in_bulk(agent, order):
        for part in np.array_split(order, 3):
            agent.learn_many(part, noise[part - 1])

    deliveries = [
        (one_by_one, ids),
        (one_by_one, ids[::-1]),
        (one_by_one, rng.permutation(ids)),
        (in_bulk, ids),
        (in_bulk, rng.permutation(ids)),
    ]
    agents = []
    for deliver, order in deliveries:
        agent = make_small(name)
        for t in range(ROUNDS):
            agent.decide(ys[t], available=[t % ARMS], **context_argument(agent, xs[t]))
        deliver(agent, order)
        agents.append(agent)
    first = agents[0]
    ahead = first.decide(ys[0], **context_argument(first, xs[0]))
    for agent in agents[1:]:
        decision = agent.decide(ys[0], **context_argument(agent, xs[0]))
        np.testing.assert_allclose(decision.expected, ahead.expected, rtol=1e-9, atol=1e-12)
        for key, value in first.state().items():
            np.testing.assert_allclose(agent.state()[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


def test_many_rewards_are_one_after_the_other(name):
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
        ([6, 7, 999], [1.0, 2.0, 3.0], "decision_id: got 999, which was never decided"),
        ([6, 1, 7], [1.0, 2.0, 3.0], "decision_id: got 1, which was rewarded before"),
        ([6, [7]], [1.0, 2.0], "decision_id: expected the id of a decision, got [7]"),
        ([6, 7, 6], [1.0, 2.0, 3.0], "ids: expected every decision once, got 6 more than once"),
        ([6, 7], [1.0], "rewards: expected 2 numbers, one per decision, got shape (1,)"),
        ([6, 7], [1.0, np.nan], "rewards: expected numbers within ±1e+100, got nan"),
        ([6, 7], [1.0, "x"], "rewards: expected numbers, one per decision, got [1.0, 'x']"),
        (6, [1.0], "ids: expected a list of decisions or their ids, got 6"),
        ("67", [1.0, 2.0], "ids: expected a list of decisions or their ids, got '67'"),
    ],
)
def test_many_rewards_all_or_none(name, ids, rewards, line):
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


@pytest.mark.parametrize("seen", [0.0, 0.1, 0.7])
def test_little_or_nothing_seen(name, seen):
    """From the first round on; also whole rounds, and one entry for ever."""
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(ROUNDS, missing=1 - seen)
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


def test_health_is_told_at_every_stage(name, tmp_path):
    agent = make_small(name)

    def look():
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

    assert look().ok
    lively(agent, last=40)
    health = look()
    assert health.ok
    assert health.facts["rounds"] == 40
    assert health.facts["rewards"] == 30
    assert health.facts["decisions waiting"] == 10
    assert (health.facts["arms"], health.facts["arms retired"]) == (5, 1)
    lively(agent, first=40)
    look()
