"""For every catalogued agent, replacing a provisional reward equals learning the final reward at once."""

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
LATE = range(62, 72, 2)  # rounds whose final reward arrives late


def manual_refit(name: str) -> dict[str, object]:
    return {"refit": "manual"} if "refit" in hs.catalog()[name].options else {}


def trained_agent(name: str) -> hs.Agent:
    """Return an agent that has learnt from some rounds and has been refitted if it can be."""
    xs, ys, noise = simulate_rounds(CUT, missing=0.1)
    agent = make_small(name, **manual_refit(name))
    play_rounds(agent, xs, ys, noise)
    if agent.policy.can_refit:
        agent.refit()
    return agent


def final_reward(number: int) -> float:
    return float(np.sin(3.0 * number)) + 0.2 * number


def continue_playing(
    agent: hs.Agent, *, provisional: float | None, at_once: bool = False, checkpoint=lambda agent: agent
):
    """Replay rounds CUT + 1 to ROUNDS.

    The reward of a round is learnt after the next round has started or, with `at_once`, before. The rounds of LATE
    first get the reward `provisional` and their final reward at the end. If `provisional` is None, they get their final
    reward like the other rounds.
    """
    xs, ys, _ = simulate_rounds(ROUNDS, missing=0.1)

    def learn(number: int) -> None:
        if number in LATE and provisional is not None:
            agent.learn(number, provisional, provisional=True)
        else:
            agent.learn(number, final_reward(number))

    for t in range(CUT, ROUNDS):
        agent.replay(ys[t], (3 * t) % ARMS, propensity=0.3, **context_argument(agent, xs[t]))
        if at_once:
            learn(t + 1)
        elif t > CUT:
            learn(t)
    agent = checkpoint(agent)
    if provisional is not None:
        assert set(LATE) <= set(agent.pending)
        first, second, *others = reversed(LATE)
        agent.learn(first, final_reward(first))
        agent.learn(second, -7.0, provisional=True)  # a provisional reward can be replaced by another one
        agent.learn_many([second, *others], [final_reward(number) for number in (second, *others)])
    return agent


@every_agent
def test_replacing_a_provisional_reward_equals_learning_the_final_one(name):
    direct, agent = trained_agent(name), trained_agent(name)
    assert agent.takes_provisional
    continue_playing(direct, provisional=None)
    continue_playing(agent, provisional=-1.3)
    if agent.policy.can_refit:
        assert agent.policy.learner.fitted.all()
        assert not agent.policy.estimator.uses_raw_observation.any()
    expected, got = direct.state(), agent.state()
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-9 * _largest(value), err_msg=key)
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(got[key], value, err_msg=key)


def _largest(value: np.ndarray) -> float:
    finite = np.abs(value[np.isfinite(value)]) if value.dtype.kind == "f" else np.zeros(0)
    return float(finite.max(initial=0.0))


@every_agent
def test_a_provisional_reward_is_learnt_like_any_other(name):
    agent, twin = trained_agent(name), trained_agent(name)
    for one in (agent, twin):
        one.replay([0.3, -0.2, 0.1], 2, **context_argument(one, np.ones(5)))
    agent.learn(CUT + 1, 0.7, provisional=True)
    assert agent.pending == (CUT + 1,)
    assert agent.health().facts["provisional rewards"] == 1
    assert agent.health().facts["decisions waiting"] == 0
    twin.learn(CUT + 1, 0.7)
    state = agent.state()
    assert state.pop(PROVISIONAL)[0, :2].tolist() == [CUT + 1, 0.7]
    for key, value in twin.state().items():
        if not key.startswith("pending."):
            np.testing.assert_array_equal(state[key], value, err_msg=key)
    agent.learn(CUT + 1, 0.7)  # the final reward equals the provisional one
    assert_same_state(agent, twin)


@every_agent
def test_a_loaded_agent_with_provisional_rewards_continues_bit_for_bit(name, tmp_path):
    def save_and_load(agent: hs.Agent) -> hs.Agent:
        agent.save(tmp_path / "agent.hs")
        return hs.load(tmp_path / "agent.hs")

    agent, repeated, twin = trained_agent(name), trained_agent(name), trained_agent(name)
    continue_playing(agent, provisional=0.4, at_once=True)
    continue_playing(repeated, provisional=0.4, at_once=True)
    assert_same_state(agent, repeated)
    twin = continue_playing(twin, provisional=0.4, at_once=True, checkpoint=save_and_load)
    assert_same_state(agent, twin)


@every_agent
def test_a_batch_equals_single_agents(name):
    simulations = [simulate_rounds(40, seed=s, missing=0.05 * s) for s in range(3)]
    policy = CATALOG[name].build(
        StreamBatch(stream_keys([11, 12, 13]), OBSERVED, ARMS), small_options(name) | manual_refit(name)
    )
    singles = [make_small(name, seed=11 + s, **manual_refit(name)) for s in range(3)]
    arms, given = np.array([1, 0, 3]), np.array([0.5, -2.0, 1.25])
    learnt = []
    for t in range(40):
        contexts, ys = (np.stack([one[part][t] for one in simulations]) for part in range(2))
        choices = policy.replay(ys, arms, contexts=contexts if policy.estimator.reveals_context else None)
        replacement_data = policy.learn_provisional(choices.rounds, choices.features, arms, given + t)
        learnt.append((choices.rounds, choices.features, replacement_data))
        for agent, x, y, arm, value in zip(singles, contexts, ys, arms, given, strict=True):
            agent.replay(y, int(arm), **context_argument(agent, x))
            agent.learn(t + 1, float(value) + t, provisional=True)
    for t in (35, 7, 20):
        rounds, features, replacement_data = learnt[t]
        policy.replace_rewards(rounds, features, arms, given + t, given * given, replacement_data)
        for agent, value in zip(singles, given, strict=True):
            agent.learn(t + 1, float(value * value))
    for key, value in policy.learner.state().items():
        for s, agent in enumerate(singles):
            np.testing.assert_array_equal(value[s], agent.policy.learner.state()[key][0], err_msg=key)


@every_agent
def test_an_invalid_provisional_reward_changes_nothing(name):
    agent = trained_agent(name)
    agent.replay([0.3, -0.2, 0.1], 2, **context_argument(agent, np.ones(5)))
    for has_provisional in (False, True):
        if has_provisional:
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
def test_a_refit_uses_the_final_rewards_only(name):
    """Until the refit, the belief of the context still depends on the provisional rewards."""
    direct, agent = trained_agent(name), trained_agent(name)
    continue_playing(direct, provisional=None, at_once=True)
    continue_playing(agent, provisional=-1.3, at_once=True)
    assert not np.array_equal(agent.policy.estimator.belief_mean, direct.policy.estimator.belief_mean)
    for one in (direct, agent):
        one.refit()
    assert_same_state(agent, direct)


@pytest.mark.parametrize("newest", [False, True])
def test_after_a_refit_the_posterior_of_the_arms_follows_from_the_final_rewards(newest):
    """A refit chooses the hyperparameters with the provisional rewards.

    Given these hyperparameters, the posterior is exact.
    """
    agent = trained_agent("adaptive")
    xs, ys, _ = simulate_rounds(ROUNDS, missing=0.1)
    for t in range(CUT, ROUNDS):
        agent.replay(ys[t], (3 * t) % ARMS, propensity=0.3, **context_argument(agent, xs[t]))
        if t < ROUNDS - 2 or newest:
            agent.learn(t + 1, final_reward(t + 1), provisional=t + 1 in (*LATE, ROUNDS))
    agent.refit()
    estimator, learner = agent.policy.estimator, agent.policy.learner
    before = learner.mean.copy()
    for number in (*LATE, *([ROUNDS] if newest else [])):
        agent.learn(number, -final_reward(number))
    _, arms, rewards, window = estimator.window(0)
    size = int(estimator.latent_dims[0])
    features = estimator.history.features[0, window, : size + 1]
    arm_fit = learner.fit(0, features, arms, rewards, warm=True, fixed_hyperparameters=True)
    got = learner.mean[0, : arm_fit.mean.size].reshape(arm_fit.mean.shape)
    np.testing.assert_allclose(got, arm_fit.mean, rtol=1e-9, atol=1e-9 * np.abs(arm_fit.mean).max())
    assert np.abs(learner.mean - before).max() > 1e-3


def test_rewards_of_rounds_outside_of_the_history_are_not_learnt():
    agent = make_small("adaptive", history=80, **manual_refit("adaptive"))
    _, ys, _ = simulate_rounds(200)
    for t in range(200):
        agent.replay(ys[t], t % ARMS)
        agent.learn(t + 1, final_reward(t), provisional=t < 3 or t == 110)
        if t % 60 == 59:
            agent.refit()
    before = agent.policy.learner.mean.copy()
    for number in (1, 3, 111):  # 1 and 3 are no longer in the history; the next fit will not use 111
        agent.learn(number, 50.0)
    np.testing.assert_array_equal(agent.policy.learner.mean, before)
    assert agent.health().facts["decisions waiting"] == 0
    assert "rewards discarded because their round was no longer in the history: 3" in agent.health().notes
    assert agent.pending == (2,)


def test_mts_recomputes_its_belief_bit_for_bit():
    """Rewards of rounds that are older than the memory are counted as too late."""
    agent, direct = make_small("mts", memory=20), make_small("mts", memory=20)
    for one in (agent, direct):
        for t in range(25):
            one.replay(np.zeros(OBSERVED), t % ARMS)
            one.learn(t + 1, -9.0 if one is agent and t in (2, 15) else final_reward(t), provisional=t in (2, 15))
    agent.learn(16, final_reward(15))
    direct.learn(16, final_reward(15))
    agent.learn(3, final_reward(2))
    direct.give_up(3)
    facts = agent.health().facts
    assert (facts.pop("rewards too late to count"), direct.health().facts["rewards too late to count"]) == (1, 0)
    assert (agent.state()["estimator.log_likelihoods"] == direct.state()["estimator.log_likelihoods"]).all()


def test_decisions_with_a_provisional_reward_are_dropped_and_given_up_like_others():
    agent = hs.make("ts-pco", observed=2, arms=2, seed=1, max_pending=3)
    for number in range(1, 4):
        agent.decide([0.1, 0.2])
        agent.learn(number, 0.0, provisional=True)
    agent.decide([0.3, 0.1])
    assert agent.pending == (2, 3, 4)
    assert sorted(agent.state()[PROVISIONAL][:, 0]) == [2, 3]
    with pytest.raises(
        hs.HalfseenError, match=r"expected a decision of agent.pending, got 1, which already has its reward"
    ):
        agent.learn(1, 5.0)
    health = agent.health()
    assert (health.facts["rewards"], health.facts["decisions dropped"], health.facts["decisions waiting"]) == (3, 0, 1)
    assert health.facts["provisional rewards"] == 2
    agent.give_up(2)  # its provisional reward becomes final
    assert agent.pending == (3, 4)
    assert "decisions given up" not in agent.health().facts
    agent.learn(3, 1.0)
    assert PROVISIONAL not in agent.state()
    assert agent.health().facts["rewards"] == 3


def test_learn_many_with_provisional_rewards_learns_all_or_none():
    agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
    for y in ([0.1, 0.2], [1e100, 0.2], [0.3, 0.3]):
        agent.decide(y)
    agent.learn(1, 0.5, provisional=True)
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match="context"):  # the context of decision 2 is too large
        agent.learn_many([3, 1, 2], [1.0, 2.0, 3.0])
    assert state_bytes(agent) == before
    agent.learn_many([3, 1], [1.0, 2.0])
    assert agent.pending == (2,)


class TanhRidge(Ridge):
    """A learner that overrides `learn` but not `replace_rewards`."""

    def learn(self, rows, features, arms, rewards):
        super().learn(rows, features, arms, np.tanh(rewards))


class TanhLatentStates(LatentStates):
    """An estimator that overrides `update_from_rewards` but not `replace_rewards`."""

    def update_from_rewards(self, rows, rounds, arms, rewards, learner):
        super().update_from_rewards(rows, rounds, arms, np.tanh(rewards), learner)


@pytest.fixture(params=["learner", "estimator"])
def unable(request, monkeypatch):
    entry = {
        "learner": CatalogueEntry("unable", Observed, TanhRidge, Thompson, "", ""),
        "estimator": CatalogueEntry("unable", TanhLatentStates, KnownByState, CATALOG["mts"].chooser, "", ""),
    }[request.param]
    monkeypatch.setitem(CATALOG._entries, "unable", entry)
    return make_small("unable")


def test_an_agent_that_cannot_replace_rewards_refuses_provisional_ones(unable):
    assert not unable.takes_provisional
    unable.decide([0.1, 0.2, 0.3])
    before = state_bytes(unable)
    with pytest.raises(hs.HalfseenError) as refused:
        unable.learn(1, 1.0, provisional=True)
    assert str(refused.value) == ("'unable' takes no provisional rewards, because it cannot replace a learnt reward.")
    assert state_bytes(unable) == before
    with pytest.raises(hs.HalfseenError, match="got a state with provisional rewards"):
        unable.restore(unable.state() | {PROVISIONAL: np.array([[1.0, 0.5, 1.0, 0.0]])})
    assert state_bytes(unable) == before
    unable.learn(1, 1.0)


@pytest.mark.parametrize(
    "provisional",
    [
        np.array([[2.0, 0.5, 1.0, 0.0]]),  # decision 2 does not exist
        np.array([[1.0, 0.5, 1.0, 0.0], [1.0, 0.5, 1.0, 0.0]]),
        np.array([[1.0, np.nan, 1.0, 0.0]]),
        np.array([[1.0, 0.5, 1.0]]),
        np.array([[1, 0, 1, 0]]),
    ],
)
def test_invalid_provisional_rewards_in_a_state_are_refused(provisional):
    agent = make_small("ts-pco")
    agent.decide([0.1, 0.2, 0.3])
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match=f"state '{PROVISIONAL}'"):
        agent.restore(agent.state() | {PROVISIONAL: provisional})
    assert state_bytes(agent) == before


def test_a_fleet_does_not_adopt_an_agent_with_provisional_rewards():
    fleet = hs.Fleet("ts-pco", observed=2, arms=2)
    agent = hs.make("ts-pco", observed=2, arms=2, seed=3)
    agent.decide([0.1, 0.2])
    agent.learn(1, 0.0, provisional=True)
    with pytest.raises(
        hs.HalfseenError, match="agent: expected an agent without provisional rewards, got an agent with 1"
    ):
        fleet.adopt(agent)
    assert len(fleet) == 0
    agent.give_up(1)
    fleet.adopt(agent)
    assert len(fleet) == 1
