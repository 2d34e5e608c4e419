"""Identification when the user says so, and the memory of an agent that keeps a history."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, assert_same_state, make_small, simulate_rounds, state_bytes

import halfseen as hs

ROUNDS = 60  # the first identification of the small setting falls due at round 20


def played(rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations, and arms and rewards as somebody else chose them."""
    xs, ys, noise = simulate_rounds(rounds, missing=0.05)
    arms = np.random.default_rng(3).integers(ARMS, size=rounds)
    return ys, arms, 40.0 + 3.0 * (xs * np.eye(ARMS, xs.shape[1])[arms]).sum(axis=1) + noise


def look(agent: hs.Agent, y: np.ndarray, arm: int) -> int:
    """A round in which somebody else chose the arm; its id."""
    agent.fold(y[None], [arm], [np.nan])
    return agent.pending[-1]


def test_refit_brings_what_inline_brings_at_that_round():
    inline, manual = make_small("adaptive"), make_small("adaptive", refit="manual")
    identified = 0
    for y, arm, reward in zip(*played(ROUNDS), strict=True):
        before = inline.policy.estimator.epochs[0]
        ids = look(inline, y, arm), look(manual, y, arm)
        if inline.policy.estimator.epochs[0] > before:
            manual.refit()
            want, got = inline.state(), manual.state()
            for name in want.keys() - {"pending.features"}:  # the last is what was decided on, before the refit
                np.testing.assert_array_equal(got[name], want[name], err_msg=name)
            identified += 1
        inline.learn(ids[0], reward)
        manual.learn(ids[1], reward)
    assert identified >= 3


def test_manual_never_identifies_inside_decide(monkeypatch):
    agent = make_small("adaptive", refit="manual")
    with monkeypatch.context() as patched:
        for name in ("_identify", "_fit_hyperparameters", "_restart"):
            patched.setattr(type(agent.policy.estimator), name, lambda *_: pytest.fail("inside decide"))
        for y, _, reward in zip(*played(ROUNDS), strict=True):
            agent.learn(agent.decide(y), reward)
    assert agent.health().facts["identifications"] == 0
    assert not agent.policy.learner.fitted[0]
    agent.refit()
    agent.refit()  # nothing is due, and it identifies all the same
    assert agent.health().facts["identifications"] == 2
    assert agent.policy.learner.fitted[0]


def test_refit_before_there_is_enough_to_identify_calibrates_the_arms():
    agent, (ys, arms, rewards) = make_small("adaptive", refit="manual"), played(12)
    agent.refit()
    agent.fold(ys, arms, rewards)
    agent.refit()
    assert agent.health().facts["identifications"] == 0
    assert agent.policy.learner.fitted[0]


def test_decisions_that_wait_are_credited_in_the_new_model():
    """A reward that comes after a refit is credited to its round as the new model sees it."""
    ys, arms, rewards = played(ROUNDS)
    agent = make_small("adaptive", refit="manual")
    agent.fold(ys[:-1], arms[:-1], rewards[:-1])
    waiting = look(agent, ys[-1], arms[-1])
    old = agent.state()["pending.features"][-1].copy()
    agent.refit()
    estimator = agent.policy.estimator
    new = estimator.features_of(np.array([0]), np.array([ROUNDS]), old[None])[0]
    assert not np.allclose(old, new)
    np.testing.assert_array_equal(new[1:], estimator.x[0] + estimator.shift[0])
    counts = agent.policy.learner.counts.copy()
    agent.learn(waiting, float(rewards[-1]))
    assert (agent.policy.learner.counts - counts).sum() == 1


def test_a_loaded_agent_can_be_refitted_at_once(tmp_path):
    agent = make_small("adaptive", refit="manual").fold(*played(ROUNDS))
    agent.save(tmp_path / "agent.hs")
    again = hs.load(tmp_path / "agent.hs")
    for one in (agent, again):
        one.refit()
        one.fold(*played(5))
    assert_same_state(agent, again)


@pytest.mark.parametrize("name", ["kf-ts", "ts-pco", "emkf-ts"])
def test_agents_without_a_history_refuse(name):
    agent, (ys, arms, rewards) = make_small(name), played(5)
    agent.fold(ys, arms, rewards)
    before = state_bytes(agent)
    with pytest.raises(
        hs.HalfseenError, match=f"^refit: expected [^\n]*$, got '{name}', which has nothing to identify"
    ):
        agent.refit()
    assert state_bytes(agent) == before


def test_bad_refit():
    with pytest.raises(hs.HalfseenError, match="refit: expected 'inline' or 'manual, got 'never''"):
        make_small("adaptive", refit="never")


def test_memory_is_flat_once_the_history_is_full():
    agent = hs.make("adaptive", observed=OBSERVED, arms=ARMS, history=80, refit="manual")

    def size() -> int:
        held = vars(agent.policy.estimator.history).values()
        return sum(array.nbytes for array in held if isinstance(array, np.ndarray))

    sizes, carried = [], []
    for _ in range(6):
        agent.fold(*played(100))
        agent.refit()
        sizes.append(size())
        carried.append(sum(array.nbytes for array in agent.state().values()))
    assert len(set(sizes[1:])) == 1, "all slots are there from round 120 on"
    assert agent.health().facts["rounds kept"] <= 120
    assert max(carried) <= carried[0] + 20 * 8 * (OBSERVED + 2 + agent.policy.estimator.dimension), (
        "120 rounds and not 100"
    )


# ---------------------------------------------------------------------- in another process


def expected_rewards(agent: hs.Agent, y: np.ndarray) -> np.ndarray:
    copy = hs.make("adaptive", observed=OBSERVED, arms=len(agent.arms), refit="manual")
    copy.restore(agent.state())
    return np.asarray(copy.decide(y).expected)


def copy_of(agent: hs.Agent, tmp_path) -> hs.Agent:
    agent.save(tmp_path / "copy.hs")
    return hs.load(tmp_path / "copy.hs")


@pytest.mark.parametrize("rounds", [12, 60, 400])
def test_accepting_ones_own_model_changes_nothing_beyond_the_first_rounds(rounds):
    """x_0 is not part of a model, and washes out."""
    agent = make_small("adaptive", refit="manual").fold(*played(rounds))
    agent.refit()
    y = played(rounds + 1)[0][-1]
    before = expected_rewards(agent, y)
    agent.accept(agent.model())
    spread = np.ptp(before) + 1e-9
    np.testing.assert_allclose(expected_rewards(agent, y), before, atol=0.02 * spread)


def test_a_model_found_by_a_copy_is_accepted_rounds_later(tmp_path):
    ys, arms, rewards = played(220)
    agent = make_small("adaptive", refit="manual").fold(ys[:200], arms[:200], rewards[:200])
    assert agent.refit_due
    copy = copy_of(agent, tmp_path)
    copy.refit()
    agent.fold(ys[200:], arms[200:], rewards[200:])
    agent.accept(copy.model())
    assert not agent.refit_due
    copy.fold(ys[200:], arms[200:], rewards[200:])
    for name in ("transition", "process_cov", "centre", "rung", "next_epoch", "epochs"):
        source = [one.policy.estimator for one in (agent, copy)]
        got, want = (getattr(one.candidates if name == "rung" else one, name) for one in source)
        np.testing.assert_array_equal(got, want, err_msg=name)
    got, want = (expected_rewards(one, ys[-1]) for one in (agent, copy))
    assert np.abs(got - want).max() < 0.1 * np.ptp(rewards)


def test_the_state_is_a_fold_over_rounds_rewards_and_accepted_models(tmp_path):
    """Bit for bit: the same rounds, the same rewards, the same models accepted in between."""
    ys, arms, rewards = played(200)
    first, second = (make_small("adaptive", refit="manual") for _ in range(2))
    for at in range(0, 200, 50):
        copy = copy_of(first, tmp_path)
        copy.refit()
        found = copy.model()
        for agent in (first, second):
            agent.fold(ys[at : at + 50], arms[at : at + 50], rewards[at : at + 50])
            agent.accept(found)
    assert_same_state(first, second)


def test_accepting_where_arms_came_since(tmp_path):
    agent = make_small("adaptive", refit="manual").fold(*played(100))
    copy = copy_of(agent, tmp_path)
    copy.refit()
    new = agent.add_arm()
    agent.accept(copy.model())
    decision = agent.decide(played(101)[0][-1])
    assert decision.propensities[new] > 0
    assert agent.policy.learner.noise_var[0, new] == agent.policy.learner.pooled[0]


def test_a_change_noticed_elsewhere_is_forgotten_here(tmp_path):
    ys, arms, rewards = played(400)
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


def test_a_model_that_does_not_fit_is_refused_and_nothing_changes(tmp_path):
    agent = make_small("adaptive", refit="manual").fold(*played(100))
    agent.refit()
    before = state_bytes(agent)
    for bad in ({}, agent.model() | {"sizes": np.array(1.5)}, agent.model() | {"transition": np.zeros(3)}):
        with pytest.raises(hs.HalfseenError, match=r"expected [^\n]*$, got ^model '[^\n]*"):
            agent.accept(bad)
    with pytest.raises(hs.HalfseenError, match=r"^model: expected what agent.model\(\) gives$, got 3"):
        agent.accept(3)
    with pytest.raises(hs.HalfseenError, match=r"^accept: got 'ts-pco', which has nothing to identify"):
        make_small("ts-pco").accept({})
    assert state_bytes(agent) == before
