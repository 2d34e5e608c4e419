"""Single agents: how they are made, their arms, decision ids and limits."""

import time

import numpy as np
import pytest
from settings import OBSERVED, arm_params, make_small, simulate_rounds, small_model, small_options, state_bytes

import halfseen as hs
from halfseen.agents.pending import PendingDecisions
from halfseen.errors import DecisionError


def test_arms_can_have_names():
    agent = hs.make("ts-pco", observed=2, arms=["hold", "buy", "sell"], seed=1)
    seen = set()
    for t in range(40):
        decision = agent.decide([np.sin(t), 1.0], available=["hold", "sell"])
        assert agent.arms[decision.index] == decision.arm
        seen.add(decision.arm)
        agent.learn(decision.id, 0.0)
    assert seen == {"hold", "sell"}
    with pytest.raises(hs.HalfseenError, match=r"There is no arm 'buyy'\. Did you mean 'buy'"):
        agent.decide([0.0, 1.0], available=["buyy"])


def test_the_number_of_pending_decisions_is_bounded():
    agent = make_small("ts-pco", max_pending=3)
    ids = [agent.decide(y).id for y in simulate_rounds(5)[1]]
    assert agent.pending == tuple(ids[2:])
    with pytest.raises(hs.HalfseenError, match="older than the last 3 unrewarded decisions"):
        agent.learn(ids[0], 1.0)
    agent.learn(ids[2], 1.0)
    assert agent.pending == tuple(ids[3:])


def test_a_decision_takes_no_longer_once_older_decisions_are_dropped():
    pending, choices = PendingDecisions(30_000, 1), (np.zeros(1), np.zeros(1), np.zeros((1, 1)))
    seconds = []
    for _ in range(6):
        began = time.thread_time()
        for _ in range(15_000):
            pending.add(choices)
        seconds.append(time.thread_time() - began)
    assert len(pending.waiting) == 30_000
    assert max(seconds[2:]) < 10 * max(seconds[:2])


def test_the_expected_rewards_of_bayes_are_unbiased():
    """The filtered mean times the true arm parameters is the conditional expectation of the reward."""
    agent, (xs, ys, _) = make_small("bayes"), simulate_rounds(20_000)
    errors = [agent.decide(y).expected - arm_params() @ x for x, y in zip(xs, ys, strict=True)]
    mean, standard_error = np.mean(errors, axis=0), np.std(errors, axis=0) / np.sqrt(len(errors) / 10)
    assert (np.abs(mean) < 4 * standard_error).all()


def test_kf_with_any_observation_matrix_estimates_the_same_context():
    """A change of the coordinates of the model changes the coordinates of the estimate and nothing else."""
    rng = np.random.default_rng(2)
    model, change = small_model(), rng.normal(size=(5, 5)) + 3 * np.eye(5)
    inverse = np.linalg.inv(change)
    transformed = hs.LinearGaussianModel(
        transition=change @ model.transition @ inverse,
        process_cov=change @ model.process_cov @ change.T,
        observation_cov=model.observation_cov,
        observation=np.eye(3, 5) @ inverse,
        initial_mean=change @ model.initial_mean,
        initial_cov=change @ model.initial_cov @ change.T,
    )
    original, changed = make_small("kf-ts"), make_small("kf-ts", model=transformed)
    for y in simulate_rounds(60, missing=0.1)[1]:
        np.testing.assert_allclose(changed.decide(y).context, change @ original.decide(y).context, atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"name": "emfk-ts"}, "There is no agent 'emfk-ts'. Did you mean 'emkf-ts'?"),
        ({"name": "ts-pco", "observed": 0}, "observed: expected an integer of at least 1, got 0"),
        ({"name": "ts-pco", "observed": 2.5}, "observed: expected an integer of at least 1, got 2.5"),
        ({"name": "ts-pco", "arms": 0}, "arms: expected an integer of at least 1, got 0"),
        ({"name": "ts-pco", "arms": []}, "arms: expected a count of at least 1, or a list of names, got []"),
        ({"name": "ts-pco", "arms": "ab"}, "arms: expected a count of at least 1, or a list of names, got 'ab'"),
        (
            {"name": "ts-pco", "arms": ["a", "a"]},
            "arms: expected names that differ from each other, got ['a', 'a']",
        ),
        ({"name": "ts-pco", "seed": -1}, "seed: expected an integer of at least 0, got -1"),
        (
            {"name": "ts-pco", "seed": 2**64},
            "seed: expected an integer of at most 18446744073709551615, got 18446744073709551616",
        ),
        ({"name": "ts-pco", "max_pending": 0}, "max_pending: expected an integer between 1 and 1000000000, got 0"),
        ({"name": "kf-ts"}, "'kf-ts' requires the option 'model'."),
        ({"name": "kf-ts", "model": 3}, "model: expected a LinearGaussianModel, got int"),
        ({"name": "kf-ts", "model": small_model()}, "model: expected a model of 2 observed features, got one of 3"),
        ({"name": "ts-pco", "model": small_model()}, "'ts-pco' has no option 'model'"),
        (
            {"name": "bayes", "observed": 3, "model": small_model(), "arm_params": np.eye(2)},
            "arm_params: expected shape (2, 5), got shape (2, 2)",
        ),
    ],
)
def test_make_refuses_invalid_arguments_in_one_line(arguments, line):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.make(**({"observed": 2, "arms": 2} | arguments))
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_only_oracles_take_the_true_context():
    with pytest.raises(
        hs.HalfseenError, match=r"^context: expected the true context, which 'oracle-ts' needs, got none$"
    ):
        make_small("oracle-ts").decide(np.zeros(3))
    with pytest.raises(
        hs.HalfseenError, match=r"^'ts-pco' does not decide on the true context, so it takes no context\.$"
    ):
        make_small("ts-pco").decide(np.zeros(3), context=np.zeros(5))
    with pytest.raises(
        hs.HalfseenError, match=r"^context: expected numbers .*, got an entry that is missing or too large$"
    ):
        make_small("oracle-ts").decide(np.zeros(3), context=[0, 0, np.nan, 0, 0])


def test_an_invalid_history_is_not_folded():
    agent, (_, ys, _) = make_small("ts-pco"), simulate_rounds(4)
    for ys_, arms, rewards, line in [
        (ys, [0, 1], np.zeros(4), "arms: expected 4 arms, one per round, got 2 arms"),
        (ys, [0, 1, 2, 9], np.zeros(4), "arms: expected arm numbers from 0 to 3, got 9"),
        (ys, [0] * 4, np.zeros(3), "rewards: expected 4 numbers .*, got shape"),
        (ys[:, :2], [0] * 4, np.zeros(4), "observations: expected a table of 3 columns, got shape"),
    ]:
        with pytest.raises(hs.HalfseenError, match=line):
            agent.fold(ys_, arms, rewards)
    assert agent.rounds == 0


def test_fold_refuses_contexts_as_decide_does():
    ys, xs = np.zeros((2, 3)), np.zeros((2, 5))
    cases = [
        ("ts-pco", xs, "'ts-pco' does not decide on the true context, so it takes no contexts."),
        ("oracle-ts", None, "contexts: expected the true contexts, which 'oracle-ts' needs, got none"),
        ("oracle-ts", xs[:1], "contexts: expected 2 rows, one per round, got 1 rows"),
        ("oracle-ts", np.full((2, 5), np.nan), "contexts: expected numbers within ±1e+100, got an entry that is"),
    ]
    for name, contexts, line in cases:
        agent = make_small(name)
        with pytest.raises(hs.HalfseenError) as caught:
            agent.fold(ys, [0, 1], [1.0, 2.0], contexts=contexts)
        assert str(caught.value).startswith(line)
        assert agent.rounds == 0


def test_a_history_with_a_reward_that_cannot_be_learnt_is_not_folded_at_all():
    agent, (_, ys, _) = make_small("ts-pco"), simulate_rounds(9)
    agent.learn(agent.decide(ys[0]).id, 1.0)
    before = state_bytes(agent)
    ys[7] = 1e50
    with pytest.raises(hs.HalfseenError, match=r"^context: expected smaller entries .*, got 1e\+50$"):
        agent.fold(ys, [0] * 9, np.ones(9))
    assert state_bytes(agent) == before


def test_the_catalogue_is_printed_as_a_table():
    text = repr(hs.catalog())
    for name in hs.catalog():
        assert name in text
    assert "Algorithm 1" in text


def test_reprs_of_agents_and_decisions():
    agent = make_small("ts-pco")
    assert repr(agent) == "<ts-pco: 3 observed, 4 arms, 0 rounds, 0 unrewarded>"
    assert repr(agent.decide([0.0, 0.0, 1.0])).startswith("Decision(id=1, arm=")


@pytest.mark.parametrize(
    "observation",
    [["1", "2", "3"], np.array([1j, 2, 3]), np.array(["2020-01-01"] * 3, dtype="datetime64[D]"), [10**400, 1, 1]],
)
def test_observations_that_are_not_real_numbers_are_refused(observation):
    agent = make_small("ts-pco")
    with pytest.raises(hs.HalfseenError, match=r"^observation: expected 3 numbers, got .*"):
        agent.decide(observation)
    assert agent.rounds == 0


def test_masked_entries_are_missing():
    masked, missing = make_small("kf-ts"), make_small("kf-ts")
    seen = masked.decide(np.ma.array([1.0, 9e9, 3.0], mask=[False, True, False]))
    np.testing.assert_array_equal(seen.context, missing.decide([1.0, np.nan, 3.0]).context)


@pytest.mark.parametrize("reward", ["1.5", 1 + 2j, [1.0], None, 10**400, np.array(["a"])])
def test_rewards_that_are_not_real_numbers_are_refused(reward):
    agent = make_small("ts-pco")
    decision = agent.decide([0.0, 1.0, 2.0])
    with pytest.raises(hs.HalfseenError, match=r"^reward: expected a number within .*, got .*"):
        agent.learn(decision.id, reward)
    assert agent.pending == (1,)
    for valid in (np.float32(1.5), 2, np.int64(3), True):
        agent.learn(agent.decide([0.0, 1.0, 2.0]).id, valid)


def test_a_decision_object_is_refused_by_another_agent():
    agent, other = make_small("ts-pco"), make_small("ts-pco")
    decision = agent.decide([0.0, 1.0, 2.0])
    other.decide([0.0, 1.0, 2.0])
    with pytest.raises(
        hs.HalfseenError, match=r"decision_id: expected a decision of <ts-pco.*>, got a decision of <ts-pco"
    ):
        other.learn(decision, 1.0)
    agent.learn(decision, 1.0)
    assert (agent.pending, other.pending) == ((), (1,))


def test_writing_into_the_arrays_of_a_decision_changes_nothing():
    agent = make_small("ts-pco")
    decision = agent.decide([0.0, 1.0, 2.0])
    decision.context[:] = 99
    decision.expected[:] = 99
    assert decision.context.max() == 2
    assert decision.expected.max() == 0
    with pytest.raises(ValueError, match="read-only"):
        decision.propensities[0] = 1


@pytest.mark.parametrize("name", ["kf-ts", "emkf-ts", "em-rts-ts", "ts-pco"])
def test_a_state_with_arrays_of_other_shapes_is_refused(name):
    agent = make_small(name)
    agent.decide([0.0, 1.0, 2.0])
    before = state_bytes(agent)
    state = agent.state()
    for broken in (
        {},
        {**state, "learner.mean": np.zeros((1, 4, 7))},
        {**state, "learner.log_det": state["learner.log_det"].astype(np.float32)},
        {**state, "pending.arms": np.zeros(3, dtype=np.int64)},
        {**state, "pending.arms": np.array([4])},  # of arms 0 to 3
        {**state, "pending.arms": np.array([-1])},
        {**state, "rounds": np.zeros(2, dtype=np.int64)},
    ):
        with pytest.raises(hs.HalfseenError, match=r"^state"):
            agent.restore(broken)
        assert state_bytes(agent) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learner.latent_dims", 5000),
        ("estimator.latent_dims", 5000),
        ("estimator.latent_dims", 0),
        ("estimator.stored_rounds", -5),
    ],
)
def test_a_state_with_sizes_beyond_its_arrays_is_refused(name, value):
    agent = make_small("adaptive")
    agent.decide([0.0, 1.0, 2.0])
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match=r"^state '(latent_dims|stored_rounds)'"):
        agent.restore({**agent.state(), name: np.array([value])})
    assert state_bytes(agent) == before


def test_messages_about_long_values_are_one_short_line():
    with pytest.raises(hs.HalfseenError) as caught:
        make_small("ts-pco").decide(np.full((40, 40), "text"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"name": ["ts-pco"]}, "There is no agent '['ts-pco']'."),
        ({"arms": 2.0}, "arms: expected a count of at least 1, or a list of names, got 2.0"),
        ({"arms": None}, "arms: expected a count of at least 1, or a list of names, got None"),
    ],
)
def test_make_refuses_arguments_of_the_wrong_type(arguments, line):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.make(**({"name": "ts-pco", "observed": 2, "arms": 2} | arguments))
    assert str(caught.value).startswith(line)


def test_named_arms_can_be_added_and_retired():
    agent = hs.make("ts-pco", observed=2, arms=["hold", "buy"], seed=1)
    assert agent.add_arm("sell") == "sell"
    agent.retire_arm("buy")
    assert agent.arms == ("hold", "buy", "sell")
    assert agent.active_arms == ("hold", "sell")
    assert {agent.decide([1.0, 0.5]).arm for _ in range(30)} == {"hold", "sell"}
    before = state_bytes(agent)
    for name, line in [
        (None, "name: expected a name, because the other arms have names, got None"),
        ("", "name: expected a name, because the other arms have names, got ''"),
        (3, "name: expected a name, because the other arms have names, got 3"),
        ("hold", "name: expected a name that no arm has had, got 'hold'"),
        ("buy", "name: expected a name that no arm has had, got 'buy'"),
    ]:
        with pytest.raises(hs.HalfseenError) as caught:
            agent.add_arm(name)
        assert str(caught.value) == line
    with pytest.raises(
        hs.HalfseenError, match=r"^available: expected arms of agent.active_arms, got 'buy', which is retired"
    ):
        agent.decide([1.0, 0.5], available=["hold", "buy"])
    with pytest.raises(hs.HalfseenError, match=r"^There is no arm 'byu'\. Did you mean 'buy'"):
        agent.retire_arm("byu")
    with pytest.raises(
        hs.HalfseenError, match=r"^params: expected nothing, as this agent estimates the arm parameters, got .*"
    ):
        agent.add_arm("wait", params=[1.0, 2.0])
    assert state_bytes(agent) == before


def test_bayes_requires_the_parameters_of_a_new_arm():
    agent, table = make_small("bayes"), arm_params(arms=5)
    with pytest.raises(hs.HalfseenError, match=r"^params: expected 5 numbers.*, got nothing"):
        agent.add_arm()
    with pytest.raises(hs.HalfseenError, match=r"^params: expected shape \(5,\), got shape \(2,\)"):
        agent.add_arm(params=[1.0, 2.0])
    assert agent.arms == (0, 1, 2, 3)
    agent.add_arm(params=table[4])
    decision = agent.decide([0.3, 1.0, -2.0])
    np.testing.assert_allclose(decision.expected, table @ decision.context)


def test_the_width_of_linucb_depends_on_the_number_of_arms():
    agent = make_small("kf-ucb", horizon=500, delta=0.3)
    agent.add_arm()
    choices = agent.policy.decide(np.zeros((1, 3)))
    np.testing.assert_allclose(choices.widths, np.full((1, 5), 1 + np.sqrt(0.5 * np.log(2 * 500 * 5 / 0.3))))
    integer_width = make_small("kf-ucb", width=2)
    integer_width.add_arm()
    assert integer_width.policy.decide(np.zeros((1, 3))).widths.dtype == np.float64


@pytest.mark.parametrize(("name", "width"), [("kf-ts", "theory"), ("kf-ucb", "self-normalised")])
def test_theoretical_widths_have_one_entry_per_arm(name, width):
    agent = make_small(name, width=width)
    agent.add_arm()
    assert agent.policy.decide(np.zeros((1, 3))).widths.shape == (1, 5)


def test_health_reports_facts_and_notes():
    agent = make_small("ts-pco", max_pending=40)
    assert agent.health().ok
    ys = simulate_rounds(130)[1]
    ys[20:, 2] = np.nan
    for t, y in enumerate(ys):
        decision = agent.decide(y, available=[0, 1])
        if t < 10:
            agent.learn(decision, 1.0)
    assert agent.health().notes == (
        "no reward has come in the last 120 decisions",
        "80 decisions can no longer be rewarded: more than 40 were waiting",
        "entry 2 of the observation has not been seen in the last 110 rounds",
        "these arms are many rounds old and have never been rewarded: 2, 3",
    )
    assert not agent.health().ok
    agent.learn(agent.pending[-1], 1.0)
    agent.decide([1.0, 2.0, 3.0])
    agent.retire_arm(3)
    agent.add_arm()
    health = agent.health()
    assert health.notes == (
        "80 decisions can no longer be rewarded: more than 40 were waiting",
        "these arms are many rounds old and have never been rewarded: 2",
    )
    assert health.facts == {
        "rounds": 131,
        "rewards": 11,
        "decisions since the last reward": 1,
        "decisions waiting": 40,
        "decisions dropped": 80,
        "arms": 5,
        "arms retired": 1,
        "share of entries not seen": 110 / 393,
        "rounds since each entry was seen": [0, 0, 0],
        "time between rounds": "does not matter, because no filter predicts the context",
        "arms never rewarded": [2, 4],
    }
    assert str(health).startswith("2 notes\n* 80 decisions can no longer")
    assert "arms never rewarded: 2, 4" in str(health)


def test_learn_many_with_a_reward_that_cannot_be_learnt_changes_nothing():
    agent = make_small("ts-pco")
    ids = [agent.decide(y).id for y in ([1.0, 0.0, 0.0], [1e50, 0.0, 0.0], [0.0, 2.0, 0.0])]
    before = state_bytes(agent)
    with pytest.raises(hs.HalfseenError, match=r"^context: expected smaller entries .*, got 1e\+50$"):
        agent.learn_many(ids, [1.0, 2.0, 3.0])
    assert state_bytes(agent) == before


def test_a_state_that_contradicts_itself_is_refused():
    agent = make_small("ts-pco")
    with pytest.raises(
        hs.HalfseenError,
        match=r"^state: expected at least one active arm per stream, got a stream without an active arm",
    ):
        agent.restore({**agent.state(), "active": np.zeros((1, 4), dtype=np.bool_)})
    with pytest.raises(hs.HalfseenError, match=r"^state 'reward_counts'"):
        agent.restore({**agent.state(), "reward_counts": np.zeros((2, 2), dtype=np.int64)})
    for _ in range(2):
        agent.decide([0.1, 0.2, 0.3])
    for ids in ([2, 1], [1, 1], [0, 1], [1, 3]):
        with pytest.raises(hs.HalfseenError, match=r"^state 'pending.ids'"):
            agent.restore({**agent.state(), "pending.ids": np.array(ids)})


@pytest.mark.parametrize("name", ["ts-pco", "meb", "adaptive"])
def test_replay_and_fold_give_the_same_state_as_decide(name):
    rng = np.random.default_rng(3)
    ys, rewards = rng.normal(size=(12, OBSERVED)), rng.normal(size=12)
    ys[4, 1] = np.nan
    decided, replayed, folded = (
        hs.make(name, observed=OBSERVED, arms=3, seed=2, **small_options(name)) for _ in range(3)
    )
    arms, propensities = [], []
    for y, reward in zip(ys, rewards, strict=True):
        decision = decided.decide(y)
        decided.learn(decision.id, reward)
        arms.append(decision.arm)
        propensities.append(decision.propensity)
        replayed.learn(replayed.replay(y, decision.arm, propensity=decision.propensity), reward)
    folded.fold(ys, arms, rewards, propensities=propensities)
    for key, array in decided.state().items():
        assert array.tobytes() == replayed.state()[key].tobytes() == folded.state()[key].tobytes()
    before = replayed.state()
    for invalid in ({"observation": [1.0], "arm": 0}, {"observation": ys[0], "arm": 9}):
        with pytest.raises(hs.HalfseenError):
            replayed.replay(**invalid)
    assert all(array.tobytes() == replayed.state()[key].tobytes() for key, array in before.items())


def test_packed_is_the_content_of_a_save_file(tmp_path):
    agent = hs.make("ts-pco", observed=OBSERVED, arms=["a", "b"], seed=2)
    agent.learn(agent.decide([0.5] * OBSERVED).id, 1.0)
    agent.add_arm("c")
    agent.save(tmp_path / "saved.hs")
    for small in (True, False):
        (tmp_path / "packed.hs").write_bytes(agent.packed(small=small))
        one, other = hs.load(tmp_path / "saved.hs"), hs.load(tmp_path / "packed.hs")
        assert one.arms == other.arms == ("a", "b", "c")
        assert all(array.tobytes() == other.state()[key].tobytes() for key, array in one.state().items())


def test_decisions_that_are_given_up_are_counted_apart_from_dropped_ones(tmp_path):
    agent = hs.make("ts-pco", observed=2, arms=3, seed=1)
    first, second, third = (agent.decide([0.5, -0.5]) for _ in range(3))
    agent.give_up(second)
    agent.give_up(third.id)
    assert agent.pending == (first.id,)
    assert agent.unrewarded == 1
    for unknown in (second, 17):
        with pytest.raises(DecisionError):
            agent.give_up(unknown)
    with pytest.raises(DecisionError, match="given up"):
        agent.learn(second, 1.0)
    agent.save(tmp_path / "a.hs")
    for one in (agent, hs.load(tmp_path / "a.hs")):
        facts = one.health().facts
        assert (facts["decisions dropped"], facts["decisions given up"], facts["decisions waiting"]) == (0, 2, 1)
    fleet = hs.Fleet("ts-pco", observed=2, arms=3)
    assert len(fleet.pending(fleet.adopt(agent))) == 1
