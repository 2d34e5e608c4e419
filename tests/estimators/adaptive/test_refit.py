"""Manual identification, and models that another process has identified."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, assert_same_state, make_small, simulate_rounds, state_bytes

import halfseen as hs

ROUNDS = 60  # the first identification of the small setting is due in round 20


def simulate_log(rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate observations, arms chosen uniformly at random and their rewards."""
    xs, ys, noise = simulate_rounds(rounds, missing=0.05)
    arms = np.random.default_rng(3).integers(ARMS, size=rounds)
    return ys, arms, 40.0 + 3.0 * (xs * np.eye(ARMS, xs.shape[1])[arms]).sum(axis=1) + noise


def play_given_arm(agent: hs.Agent, y: np.ndarray, arm: int) -> int:
    """Let the agent play a round with the given arm, and return the id of the decision."""
    agent.fold(y[None], [arm], [np.nan])
    return agent.pending[-1]


def test_a_manual_refit_has_the_same_result_as_an_inline_refit_of_the_same_round():
    inline, manual = make_small("adaptive"), make_small("adaptive", refit="manual")
    identified = 0
    for y, arm, reward in zip(*simulate_log(ROUNDS), strict=True):
        before = inline.policy.estimator.identifications[0]
        ids = play_given_arm(inline, y, arm), play_given_arm(manual, y, arm)
        if inline.policy.estimator.identifications[0] > before:
            manual.refit()
            want, got = inline.state(), manual.state()
            for name in want.keys() - {"pending.features"}:  # manual decides before the refit
                np.testing.assert_array_equal(got[name], want[name], err_msg=name)
            identified += 1
        inline.learn(ids[0], reward)
        manual.learn(ids[1], reward)
    assert identified >= 3


def test_with_manual_refits_decide_never_identifies(monkeypatch):
    agent = make_small("adaptive", refit="manual")
    with monkeypatch.context() as patched:
        for name in ("_identify", "_fit_arms", "_restart"):
            patched.setattr(type(agent.policy.estimator), name, lambda *_: pytest.fail("identification in decide"))
        for y, _, reward in zip(*simulate_log(ROUNDS), strict=True):
            agent.learn(agent.decide(y), reward)
    assert agent.health().facts["identifications"] == 0
    assert not agent.policy.learner.fitted[0]
    agent.refit()
    agent.refit()  # it identifies although nothing is due
    assert agent.health().facts["identifications"] == 2
    assert agent.policy.learner.fitted[0]


def test_a_refit_with_too_few_rounds_only_fits_the_arms():
    agent, (ys, arms, rewards) = make_small("adaptive", refit="manual"), simulate_log(12)
    agent.refit()
    agent.fold(ys, arms, rewards)
    agent.refit()
    assert agent.health().facts["identifications"] == 0
    assert agent.policy.learner.fitted[0]


def test_a_reward_after_a_refit_is_learnt_with_the_features_of_the_new_model():
    ys, arms, rewards = simulate_log(ROUNDS)
    agent = make_small("adaptive", refit="manual")
    agent.fold(ys[:-1], arms[:-1], rewards[:-1])
    pending = play_given_arm(agent, ys[-1], arms[-1])
    old = agent.state()["pending.features"][-1].copy()
    agent.refit()
    estimator = agent.policy.estimator
    new = estimator.features_of(np.array([0]), np.array([ROUNDS]), old[None])[0]
    assert not np.allclose(old, new)
    np.testing.assert_array_equal(new[1:], estimator.belief_mean[0] + estimator.shift[0])
    counts = agent.policy.learner.reward_counts.copy()
    agent.learn(pending, float(rewards[-1]))
    assert (agent.policy.learner.reward_counts - counts).sum() == 1


def test_a_loaded_agent_can_be_refitted(tmp_path):
    agent = make_small("adaptive", refit="manual").fold(*simulate_log(ROUNDS))
    agent.save(tmp_path / "agent.hs")
    loaded = hs.load(tmp_path / "agent.hs")
    for one in (agent, loaded):
        one.refit()
        one.fold(*simulate_log(5))
    assert_same_state(agent, loaded)


@pytest.mark.parametrize("name", ["kf-ts", "ts-pco", "emkf-ts"])
def test_agents_without_a_history_cannot_be_refitted(name):
    agent, (ys, arms, rewards) = make_small(name), simulate_log(5)
    agent.fold(ys, arms, rewards)
    before = state_bytes(agent)
    with pytest.raises(
        hs.HalfseenError, match=f"^refit: expected an agent that identifies a model [^\n]*, got '{name}'$"
    ):
        agent.refit()
    assert state_bytes(agent) == before


def test_an_invalid_refit_option_is_refused():
    with pytest.raises(hs.HalfseenError, match="refit: expected 'inline' or 'manual', got 'never'"):
        make_small("adaptive", refit="never")


def test_memory_is_constant_once_the_history_is_full():
    agent = hs.make("adaptive", observed=OBSERVED, arms=ARMS, history=80, refit="manual")

    def size() -> int:
        values = vars(agent.policy.estimator.history).values()
        return sum(array.nbytes for array in values if isinstance(array, np.ndarray))

    sizes, saved = [], []
    for _ in range(6):
        agent.fold(*simulate_log(100))
        agent.refit()
        sizes.append(size())
        saved.append(sum(array.nbytes for array in agent.state().values()))
    assert len(set(sizes[1:])) == 1, "the capacity is reached in round 120"
    assert agent.health().facts["rounds kept"] <= 120
    bytes_per_round = 8 * (OBSERVED + 2 + agent.policy.estimator.dimension) + 1  # 1: whether it begins a series
    assert max(saved) <= saved[0] + 20 * bytes_per_round, "120 rounds instead of 100"


# ---------------------------------------------------------------------- models from another process


def expected_rewards(agent: hs.Agent, y: np.ndarray) -> np.ndarray:
    copy = hs.make("adaptive", observed=OBSERVED, arms=len(agent.arms), refit="manual")
    copy.restore(agent.state())
    return np.asarray(copy.decide(y).expected)


def copy_of(agent: hs.Agent, tmp_path) -> hs.Agent:
    agent.save(tmp_path / "copy.hs")
    return hs.load(tmp_path / "copy.hs")


@pytest.mark.parametrize("rounds", [12, 60, 400])
def test_accepting_its_own_model_hardly_changes_an_agent(rounds):
    """Only the belief about x_0 changes, which is not part of the model and has little effect later."""
    agent = make_small("adaptive", refit="manual").fold(*simulate_log(rounds))
    agent.refit()
    y = simulate_log(rounds + 1)[0][-1]
    before = expected_rewards(agent, y)
    agent.accept(agent.model())
    spread = np.ptp(before) + 1e-9
    np.testing.assert_allclose(expected_rewards(agent, y), before, atol=0.02 * spread)


def test_an_agent_accepts_the_model_of_a_copy_some_rounds_later(tmp_path):
    ys, arms, rewards = simulate_log(220)
    agent = make_small("adaptive", refit="manual").fold(ys[:200], arms[:200], rewards[:200])
    assert agent.refit_due
    copy = copy_of(agent, tmp_path)
    copy.refit()
    agent.fold(ys[200:], arms[200:], rewards[200:])
    agent.accept(copy.model())
    assert not agent.refit_due
    copy.fold(ys[200:], arms[200:], rewards[200:])
    for name in ("transition", "process_cov", "centre", "chosen_candidate", "next_identification", "identifications"):
        source = [one.policy.estimator for one in (agent, copy)]
        got, want = (getattr(one.candidates if name == "chosen_candidate" else one, name) for one in source)
        np.testing.assert_array_equal(got, want, err_msg=name)
    got, want = (expected_rewards(one, ys[-1]) for one in (agent, copy))
    assert np.abs(got - want).max() < 0.1 * np.ptp(rewards)


def test_the_same_rounds_rewards_and_accepted_models_give_the_same_state(tmp_path):
    ys, arms, rewards = simulate_log(200)
    first, second = (make_small("adaptive", refit="manual") for _ in range(2))
    for start in range(0, 200, 50):
        copy = copy_of(first, tmp_path)
        copy.refit()
        model = copy.model()
        for agent in (first, second):
            agent.fold(ys[start : start + 50], arms[start : start + 50], rewards[start : start + 50])
            agent.accept(model)
    assert_same_state(first, second)


def test_accepting_a_model_after_an_arm_was_added(tmp_path):
    agent = make_small("adaptive", refit="manual").fold(*simulate_log(100))
    copy = copy_of(agent, tmp_path)
    copy.refit()
    new = agent.add_arm()
    agent.accept(copy.model())
    decision = agent.decide(simulate_log(101)[0][-1])
    assert decision.propensities[new] > 0
    assert agent.policy.learner.noise_var[0, new] == agent.policy.learner.pooled_noise_var[0]


def test_an_accepted_model_with_a_detected_change_drops_the_history(tmp_path):
    ys, arms, rewards = simulate_log(400)
    agent = make_small("adaptive", refit="manual").fold(ys, arms, rewards)
    agent.refit()
    agent.policy.estimator.surprise[0] = 99.0
    copy = copy_of(agent, tmp_path)
    copy.refit()
    assert copy.health().facts["changes of the dynamics noticed"] == 1
    agent.fold(ys[:30], arms[:30], rewards[:30])
    agent.accept(copy.model())
    facts = agent.health().facts
    assert facts["changes of the dynamics noticed"] == 1
    assert facts["rounds kept"] == copy.health().facts["rounds kept"] + 30


def test_an_invalid_model_is_refused_and_changes_nothing(tmp_path):
    agent = make_small("adaptive", refit="manual").fold(*simulate_log(100))
    agent.refit()
    before = state_bytes(agent)
    for bad in ({}, agent.model() | {"latent_dims": np.array(1.5)}, agent.model() | {"transition": np.zeros(3)}):
        with pytest.raises(hs.HalfseenError, match=r"^model '[^\n]*': expected [^\n]*, got [^\n]*$"):
            agent.accept(bad)
    with pytest.raises(hs.HalfseenError, match=r"^model: expected [^\n]* agent.model\(\)[^\n]*, got 3$"):
        agent.accept(3)
    with pytest.raises(
        hs.HalfseenError, match=r"^accept: expected an agent that identifies a model [^\n]*, got 'ts-pco'$"
    ):
        make_small("ts-pco").accept({})
    assert state_bytes(agent) == before
