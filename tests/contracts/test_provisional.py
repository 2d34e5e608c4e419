"""Provisional rewards, of every catalogued agent: another one put in their place is as if it had come at once."""

import numpy as np
import pytest
from settings import (
    ARMS,
    OBSERVED,
    assert_same_state,
    context_argument,
    make_small,
    play_rounds,
    simulate_rounds,
    small_options,
    state_bytes,
)

import halfseen as hs
from halfseen.agents.catalogue import CATALOG, CatalogueEntry
from halfseen.agents.pending import PROVISIONAL
from halfseen.choosers.thompson import Thompson
from halfseen.components import StreamBatch
from halfseen.estimators.latent_states import LatentStates
from halfseen.estimators.observed import Observed
from halfseen.kernels.random import stream_keys
from halfseen.learners.known import KnownByState
from halfseen.learners.ridge import Ridge

every_agent = pytest.mark.parametrize("name", list(hs.catalog()))
CUT, ROUNDS = 60, 80
LATE = range(62, 72, 2)  # rounds whose real reward comes late


def manual(name: str) -> dict[str, object]:
    return {"refit": "manual"} if "refit" in hs.catalog()[name].options else {}


def grown_up(name: str) -> hs.Agent:
    """One that has learnt from some rounds and, if it identifies, has a model."""
    xs, ys, noise = simulate_rounds(CUT, missing=0.1)
    agent = make_small(name, **manual(name))
    play_rounds(agent, xs, ys, noise)
    if agent.policy.can_refit:
        agent.refit()
    return agent


def paid(number: int) -> float:
    return float(np.sin(3.0 * number)) + 0.2 * number


def go_on(agent: hs.Agent, *, provisional: float | None, heard: bool = False, checkpoint=lambda agent: agent):
    """Rounds CUT + 1 to ROUNDS, arms as in a record. Rewards come when the next round has begun, or `heard` before it.

    Those of LATE are `provisional` at first, with which the real ones come at the end; or with None real at once.
    """
    xs, ys, _ = simulate_rounds(ROUNDS, missing=0.1)

    def come(number: int) -> None:
        if number in LATE and provisional is not None:
            agent.learn(number, provisional, provisional=True)
        else:
            agent.learn(number, paid(number))

    for t in range(CUT, ROUNDS):
        agent.replay(ys[t], (3 * t) % ARMS, propensity=0.3, **context_argument(agent, xs[t]))
        if heard:
            come(t + 1)
        elif t > CUT:
            come(t)
    agent = checkpoint(agent)
    if provisional is not None:
        assert set(LATE) <= set(agent.pending)
        first, second, *others = reversed(LATE)
        agent.learn(first, paid(first))
        agent.learn(second, -7.0, provisional=True)  # changed its mind
        agent.learn_many([second, *others], [paid(number) for number in (second, *others)])
    return agent


@every_agent
def test_the_real_reward_in_the_place_of_the_provisional_is_as_if_it_had_come_at_once(name):
    at_once, agent = grown_up(name), grown_up(name)
    assert agent.takes_provisional
    go_on(at_once, provisional=None)
    go_on(agent, provisional=-1.3)
    if agent.policy.can_refit:
        assert agent.policy.learner.fitted.all()
        assert not agent.policy.estimator.plain.any()
    wanted, got = at_once.state(), agent.state()
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-9 * _size(value), err_msg=key)
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(got[key], value, err_msg=key)


def _size(value: np.ndarray) -> float:
    finite = np.abs(value[np.isfinite(value)]) if value.dtype.kind == "f" else np.zeros(0)
    return float(finite.max(initial=0.0))


@every_agent
def test_a_provisional_reward_is_learnt_as_any_other(name):
    agent, twin = grown_up(name), grown_up(name)
    for one in (agent, twin):
        one.replay([0.3, -0.2, 0.1], 2, **context_argument(one, np.ones(5)))
    agent.learn(CUT + 1, 0.7, provisional=True)
    assert agent.pending == (CUT + 1,)
    assert agent.health().facts["provisional rewards"] == 1
    assert agent.health().facts["decisions waiting"] == 0
    twin.learn(CUT + 1, 0.7)
    held = agent.state()
    assert held.pop(PROVISIONAL)[0, :2].tolist() == [CUT + 1, 0.7]
    for key, value in twin.state().items():
        if not key.startswith("pending."):
            np.testing.assert_array_equal(held[key], value, err_msg=key)
    agent.learn(CUT + 1, 0.7)  # the same for good
    assert_same_state(agent, twin)


@every_agent
def test_saved_and_loaded_in_between_it_goes_on_bit_for_bit(name, tmp_path):
    def saved(agent: hs.Agent) -> hs.Agent:
        agent.save(tmp_path / "agent.hs")
        return hs.load(tmp_path / "agent.hs")

    agent, again, twin = grown_up(name), grown_up(name), grown_up(name)
    go_on(agent, provisional=0.4, heard=True)
    go_on(again, provisional=0.4, heard=True)
    assert_same_state(agent, again)
    twin = go_on(twin, provisional=0.4, heard=True, checkpoint=saved)
    assert_same_state(agent, twin)


@every_agent
def test_a_batch_is_single_agents(name):
    stories = [simulate_rounds(40, seed=s, missing=0.05 * s) for s in range(3)]
    policy = CATALOG[name].build(
        StreamBatch(stream_keys([11, 12, 13]), OBSERVED, ARMS), small_options(name) | manual(name)
    )
    singles = [make_small(name, seed=11 + s, **manual(name)) for s in range(3)]
    arms, given = np.array([1, 0, 3]), np.array([0.5, -2.0, 1.25])
    held = []
    for t in range(40):
        contexts, ys = (np.stack([one[part][t] for one in stories]) for part in range(2))
        made = policy.replay(ys, arms, contexts=contexts if policy.estimator.reveals_context else None)
        credits = policy.learn_provisional(made.rounds, made.features, arms, given + t)
        held.append((made.rounds, made.features, credits))
        for agent, x, y, arm, value in zip(singles, contexts, ys, arms, given, strict=True):
            agent.replay(y, int(arm), **context_argument(agent, x))
            agent.learn(t + 1, float(value) + t, provisional=True)
    for t in (35, 7, 20):
        rounds, features, credits = held[t]
        policy.replace_rewards(rounds, features, arms, given + t, given * given, credits)
        for agent, value in zip(singles, given, strict=True):
            agent.learn(t + 1, float(value * value))
    for key, value in policy.learner.state().items():
        for s, agent in enumerate(singles):
            np.testing.assert_array_equal(value[s], agent.policy.learner.state()[key][0], err_msg=key)


@every_agent
def test_a_provisional_reward_that_is_refused_changes_nothing(name):
    agent = grown_up(name)
    agent.replay([0.3, -0.2, 0.1], 2, **context_argument(agent, np.ones(5)))
    for held in (False, True):
        if held:
            agent.learn(CUT + 1, 0.5, provisional=True)
        before = state_bytes(agent)
        for number, value, provisional in (
            (CUT + 1, float("nan"), True),
            (CUT + 1, 1e101, True),
            (CUT + 1, float("inf"), False),
            (CUT + 2, 1.0, True),
            (1, 1.0, True),
        ):
            with pytest.raises(hs.HalfseenError):
                agent.learn(number, value, provisional=provisional)
        for ids in ([CUT + 1, CUT + 1], [CUT + 1, 1]):
            with pytest.raises(hs.HalfseenError):
                agent.learn_many(ids, [1.0, 2.0])
        assert state_bytes(agent) == before


@pytest.mark.parametrize("name", ["adaptive", "adaptive-ts", "adaptive-ids"])
def test_the_next_identification_sees_the_real_rewards_only(name):
    """What was heard of the context, and what was decided meanwhile, is as it was; a refit makes all of it good."""
    at_once, agent = grown_up(name), grown_up(name)
    go_on(at_once, provisional=None, heard=True)
    go_on(agent, provisional=-1.3, heard=True)
    assert not np.array_equal(agent.policy.estimator.x, at_once.policy.estimator.x)
    for one in (at_once, agent):
        one.refit()
    assert_same_state(agent, at_once)


@pytest.mark.parametrize("newest", [False, True])
def test_after_a_fit_in_between_the_arms_are_those_of_the_real_rewards(newest):
    """The hyperparameters are those that were found with the provisional one; under them the posterior is exact."""
    agent = grown_up("adaptive")
    xs, ys, _ = simulate_rounds(ROUNDS, missing=0.1)
    for t in range(CUT, ROUNDS):
        agent.replay(ys[t], (3 * t) % ARMS, propensity=0.3, **context_argument(agent, xs[t]))
        if t < ROUNDS - 2 or newest:
            agent.learn(t + 1, paid(t + 1), provisional=t + 1 in (*LATE, ROUNDS))
    agent.refit()
    estimator, learner = agent.policy.estimator, agent.policy.learner
    before = learner.mean.copy()
    for number in (*LATE, *([ROUNDS] if newest else [])):
        agent.learn(number, -paid(number))
    _, arms, rewards, window = estimator.window(0)
    size = int(estimator.sizes[0])
    features = estimator.history.belief[0, window, : size + 1]
    arm_fit = learner.fit(0, features, arms, rewards, warm=True, fixed_hyperparameters=True)
    got = learner.mean[0, : arm_fit.mean.size].reshape(arm_fit.mean.shape)
    np.testing.assert_allclose(got, arm_fit.mean, rtol=1e-9, atol=1e-9 * np.abs(arm_fit.mean).max())
    assert np.abs(learner.mean - before).max() > 1e-3


def test_a_round_no_longer_kept_teaches_nothing():
    agent = make_small("adaptive", history=80, **manual("adaptive"))
    _, ys, _ = simulate_rounds(200)
    for t in range(200):
        agent.replay(ys[t], t % ARMS)
        agent.learn(t + 1, paid(t), provisional=t < 3 or t == 110)
        if t % 60 == 59:
            agent.refit()
    before = agent.policy.learner.mean.copy()
    for number in (1, 3, 111):  # long forgotten; 111 is still there, and the next fit will leave it out
        agent.learn(number, 50.0)
    np.testing.assert_array_equal(agent.policy.learner.mean, before)
    assert agent.health().facts["decisions waiting"] == 0
    assert "3 rewards came after their round was forgotten" in " ".join(agent.health().notes)
    assert agent.pending == (2,)


def test_states_heard_of_from_rewards_are_worked_out_again():
    """Not to rounding but to the last bit; and what is older than the memory counts as too late."""
    agent, at_once = make_small("mts", memory=20), make_small("mts", memory=20)
    for one in (agent, at_once):
        for t in range(25):
            one.replay(np.zeros(OBSERVED), t % ARMS)
            one.learn(t + 1, -9.0 if one is agent and t in (2, 15) else paid(t), provisional=t in (2, 15))
    agent.learn(16, paid(15))
    at_once.learn(16, paid(15))
    agent.learn(3, paid(2))
    at_once.give_up(3)
    facts = agent.health().facts
    assert (facts.pop("rewards too late to count"), at_once.health().facts["rewards too late to count"]) == (1, 0)
    assert (agent.state()["estimator.evidence"] == at_once.state()["estimator.evidence"]).all()


def test_decisions_with_a_provisional_reward_are_bounded_and_let_go_of_like_others():
    agent = hs.make("ts-pco", observed=2, arms=2, seed=1, max_pending=3)
    for number in range(1, 4):
        agent.decide([0.1, 0.2])
        agent.learn(number, 0.0, provisional=True)
    agent.decide([0.3, 0.1])
    assert agent.pending == (2, 3, 4)
    assert sorted(agent.state()[PROVISIONAL][:, 0]) == [2, 3]
    with pytest.raises(hs.HalfseenError, match="decision_id: got 1, which was rewarded before"):
        agent.learn(1, 5.0)
    health = agent.health()
    assert (health.facts["rewards"], health.facts["decisions dropped"], health.facts["decisions waiting"]) == (3, 0, 1)
    assert health.facts["provisional rewards"] == 2
    agent.give_up(2)  # its reward stands
    assert agent.pending == (3, 4)
    assert "decisions given up" not in agent.health().facts
    agent.learn(3, 1.0)
    assert PROVISIONAL not in agent.state()
    assert agent.health().facts["rewards"] == 3


def test_many_rewards_are_all_taken_or_none():
    agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
    for y in ([0.1, 0.2], [1e100, 0.2], [0.3, 0.3]):
        agent.decide(y)
    agent.learn(1, 0.5, provisional=True)
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match="context"):  # of the second, which cannot be learnt from
        agent.learn_many([3, 1, 2], [1.0, 2.0, 3.0])
    assert state_bytes(agent) == before
    agent.learn_many([3, 1], [1.0, 2.0])
    assert agent.pending == (2,)


class OfItsOwn(Ridge):
    """It learns in a way of its own, and does not say how that is taken back."""

    def learn(self, rows, features, arms, rewards):
        super().learn(rows, features, arms, np.tanh(rewards))


class HardOfHearing(LatentStates):
    """The same of an estimator that hears rewards."""

    def update_from_rewards(self, rows, rounds, arms, rewards, learner):
        super().update_from_rewards(rows, rounds, arms, np.tanh(rewards), learner)


@pytest.fixture(params=["learner", "estimator"])
def stubborn(request, monkeypatch):
    entry = {
        "learner": CatalogueEntry("stubborn", Observed, OfItsOwn, Thompson, "", ""),
        "estimator": CatalogueEntry("stubborn", HardOfHearing, KnownByState, CATALOG["mts"].chooser, "", ""),
    }[request.param]
    monkeypatch.setitem(CATALOG._entries, "stubborn", entry)
    return make_small("stubborn")


def test_an_agent_that_cannot_take_a_reward_back_says_so_and_changes_nothing(stubborn):
    assert not stubborn.takes_provisional
    stubborn.decide([0.1, 0.2, 0.3])
    before = state_bytes(stubborn)
    with pytest.raises(hs.HalfseenError) as refused:
        stubborn.learn(1, 1.0, provisional=True)
    assert str(refused.value) == (
        "provisional: expected False: 'stubborn' cannot put another reward in the place of one that it has learnt, got True"
    )
    assert state_bytes(stubborn) == before
    with pytest.raises(hs.HalfseenError, match="one with provisional rewards"):
        stubborn.restore(stubborn.state() | {PROVISIONAL: np.array([[1.0, 0.5, 1.0, 0.0]])})
    assert state_bytes(stubborn) == before
    stubborn.learn(1, 1.0)


@pytest.mark.parametrize(
    "held",
    [
        np.array([[2.0, 0.5, 1.0, 0.0]]),  # which does not wait
        np.array([[1.0, 0.5, 1.0, 0.0], [1.0, 0.5, 1.0, 0.0]]),
        np.array([[1.0, np.nan, 1.0, 0.0]]),
        np.array([[1.0, 0.5, 1.0]]),
        np.array([[1, 0, 1, 0]]),
    ],
)
def test_a_state_that_does_not_fit_is_refused(held):
    agent = make_small("ts-pco")
    agent.decide([0.1, 0.2, 0.3])
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match=f"state '{PROVISIONAL}'"):
        agent.restore(agent.state() | {PROVISIONAL: held})
    assert state_bytes(agent) == before


def test_a_fleet_does_not_take_an_agent_with_provisional_rewards():
    fleet = hs.Fleet("ts-pco", observed=2, arms=2)
    agent = hs.make("ts-pco", observed=2, arms=2, seed=3)
    agent.decide([0.1, 0.2])
    agent.learn(1, 0.0, provisional=True)
    with pytest.raises(hs.HalfseenError, match="agent: expected none, got 1 provisional rewards"):
        fleet.adopt(agent)
    assert len(fleet) == 0
    agent.give_up(1)
    fleet.adopt(agent)
    assert len(fleet) == 1
