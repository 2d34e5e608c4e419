"""Fleets: adding, removing, moving and saving streams. tests/contracts compares streams with single agents."""

import numpy as np
import pytest
from settings import ARMS, LATENT, OBSERVED, assert_same_state, make_small, small_options

import halfseen as hs
from halfseen.agents.pending import FleetPending
from halfseen.errors import DecisionError


def small_fleet(name="ts-pco", count=3, **options):
    fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **(small_options(name) | options))
    if count:
        fleet.add(count)
    return fleet


def play(fleet, rounds, seed=0, rewarded=1.0):
    """Play rounds in which a share `rewarded` of the decisions gets a reward."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        decisions = fleet.decide(rng.normal(size=(len(fleet), OBSERVED)))
        chosen = rng.uniform(size=len(fleet)) < rewarded
        fleet.learn(decisions.ids[chosen], rng.normal(size=len(fleet))[chosen])


def fleet_bytes(fleet):
    return {key: value.tobytes() for key, value in fleet.state().items()}


def test_the_default_seed_of_a_stream_is_its_number():
    fleet = small_fleet(count=2)
    assert fleet.add(["x"], seeds=[2**64 - 1]).tolist() == [2]
    y = np.array([[0.3, -1.0, 2.0]] * 3)
    got = [fleet.decide(y).arms.tolist() for _ in range(20)]
    singles = [make_small("ts-pco", seed=seed) for seed in (0, 1, 2**64 - 1)]
    assert got == [[single.decide(y[0]).arm for single in singles] for _ in range(20)]


def test_numbers_are_not_reused_but_rows_are():
    fleet = small_fleet(count=4)
    play(fleet, 5)
    fleet.remove([1, 2])
    size = fleet.nbytes
    assert fleet.add(["x", "y"]).tolist() == [4, 5]
    assert fleet.nbytes == size
    assert fleet.streams.tolist() == [0, 3, 4, 5]
    assert fleet.names == [None, None, "x", "y"]
    assert fleet.rounds.tolist() == [5, 5, 0, 0]
    assert "x" in fleet
    assert 1 not in fleet
    assert len(fleet) == 4
    assert_same_state(fleet.agent("y"), make_small("ts-pco", seed=5))


def test_arrays_grow_geometrically():
    fleet, sizes = small_fleet(count=0), set()
    for _ in range(300):
        fleet.add(1)
        sizes.add(fleet.nbytes)
    assert len(sizes) < 40
    assert fleet.nbytes < 1.6 * 300 * fleet.memory()["total"]


def test_decisions_are_arrays_in_the_order_of_the_given_streams():
    fleet = hs.Fleet("ts-pco", observed=OBSERVED, arms=["left", "right"], regularisation=2.3)
    fleet.add(["a", "b", "c"])
    decisions = fleet.decide(np.eye(3)[:2], streams=["c", "a"])
    assert decisions.streams.tolist() == [2, 0]
    assert len(decisions) == 2
    assert set(decisions.arms) <= {"left", "right"}
    assert decisions.arms.tolist() == [fleet.arms[i] for i in decisions.indices]
    assert decisions.expected.shape == decisions.propensities.shape == (2, 2)
    assert decisions.propensities.sum(axis=1) == pytest.approx([1, 1], abs=1e-9)
    np.testing.assert_array_equal(decisions.propensity, decisions.propensities[[0, 1], decisions.indices])
    np.testing.assert_array_equal(decisions.contexts, np.eye(3)[:2])
    assert fleet.pending("c").tolist() == [decisions.ids[0]]
    assert fleet.pending("b").tolist() == []
    assert repr(decisions) == "<2 decisions of 2 arms>"
    assert repr(fleet) == "<Fleet of ts-pco: 3 streams, 3 observed, 2 arms, 2 rounds, 2 unrewarded>"


def test_propensities_read_later_belong_to_the_decision():
    fleet, twin = small_fleet(), small_fleet()
    y = np.random.default_rng(0).normal(size=(3, OBSERVED))
    late, immediate = fleet.decide(y), twin.decide(y).propensities
    play(fleet, 5)
    fleet.remove([0])
    fleet.add(4)
    np.testing.assert_array_equal(late.propensities, immediate)


def test_a_mask_gives_the_available_arms_of_each_stream():
    fleet = small_fleet(count=4)
    mask = np.zeros((4, ARMS), dtype=bool)
    mask[np.arange(4), [3, 1, 0, 2]] = True
    decisions = fleet.decide(np.ones((4, OBSERVED)), available=mask)
    assert decisions.arms.tolist() == [3, 1, 0, 2]
    mask[:] = True
    assert decisions.propensity.tolist() == [1, 1, 1, 1]


def test_the_oldest_decisions_are_dropped_as_in_a_single_agent():
    fleet, single = small_fleet(count=2, max_pending=3), make_small("ts-pco", seed=1, max_pending=3)
    ys = np.random.default_rng(0).normal(size=(6, OBSERVED))
    ids = [fleet.decide(np.stack([y, y])).ids for y in ys]
    expected = [single.decide(y).id for y in ys]
    assert fleet.pending(1).tolist() == [round_ids[1] for round_ids in ids[3:]]
    with pytest.raises(hs.HalfseenError, match="already has its reward or is older than the last 3 unrewarded"):
        fleet.learn([ids[0][1]], [1.0])
    fleet.learn([ids[5][1], ids[3][1]], [0.5, -2.0])
    single.learn(expected[5], 0.5)
    single.learn(expected[3], -2.0)
    with pytest.raises(hs.HalfseenError, match="already has its reward"):
        fleet.learn([ids[5][1]], [1.0])
    assert_same_state(fleet.agent(1), single)
    health = fleet.health()
    assert health.facts["decisions dropped"] == 6
    assert any("6 decisions of 2 streams can no longer be rewarded" in note for note in health.notes)


def test_health_counts_streams_with_problems():
    fleet = small_fleet(count=3)
    assert fleet.health().ok
    y = np.zeros((3, OBSERVED))
    y[2, 1] = np.nan
    for _ in range(120):
        fleet.learn(fleet.decide(y).ids[1:], [1.0, 2.0])
    health = fleet.health()
    assert health.facts["streams"] == 3
    assert health.facts["rounds"] == 360
    assert health.facts["rewards"] == 240
    assert health.facts["decisions waiting"] == 120
    assert health.facts["share of entries not seen"] == pytest.approx(1 / 9)
    assert health.notes == (
        "in 1 of 3 streams no reward has come in the last 100 decisions or more",
        "in 1 of 3 streams an entry has not been seen in the last 100 rounds or more",
    )


def test_arms_retired_before_adoption_stay_retired():
    single, fleet = make_small("ts-pco", seed=4), small_fleet(count=1)
    single.retire_arm(2)
    number = fleet.adopt(single, "mine")
    ys = np.random.default_rng(0).normal(size=(50, OBSERVED))
    for y in ys:
        decisions, want = fleet.decide(y[None], streams=["mine"]), single.decide(y)
        assert decisions.indices[0] == want.index != 2
        fleet.learn(decisions, [1.0])
        single.learn(want, 1.0)
    with pytest.raises(
        hs.HalfseenError, match="available: expected active arms, got an arm that is retired in its stream"
    ):
        fleet.decide(ys[:1], streams=[number], available=[1, 2])
    assert_same_state(fleet.agent(number), single)


@pytest.mark.parametrize(
    "other",
    [
        lambda: make_small("ts-pco", regularisation=1.1),
        lambda: make_small("ts-pco", max_pending=7),
        lambda: make_small("pco-scaled"),
        lambda: hs.make("ts-pco", observed=OBSERVED, arms=ARMS + 1, regularisation=2.3),
        lambda: "an agent",
    ],
)
def test_agents_made_with_other_arguments_are_not_adopted(other):
    fleet = small_fleet()
    play(fleet, 3)
    before = fleet_bytes(fleet)
    with pytest.raises(hs.HalfseenError, match="agent: expected an agent"):
        fleet.adopt(other())
    assert fleet_bytes(fleet) == before


def test_an_agent_with_an_added_arm_is_not_adopted():
    single = make_small("ts-pco")
    single.add_arm()
    with pytest.raises(hs.HalfseenError, match="agent: expected an agent with the options and arms of"):
        small_fleet().adopt(single)


def test_a_fleet_shares_no_arrays_with_adopted_or_copied_agents():
    fleet, single = small_fleet(), make_small("ts-pco", seed=9)
    number = fleet.adopt(single)
    copied = fleet.agent(number)
    before = fleet_bytes(fleet)
    for agent in (single, copied):
        agent.learn(agent.decide([1.0, 2.0, 3.0]), 4.0)
    assert fleet_bytes(fleet) == before


def test_restore_returns_to_an_earlier_state():
    fleet = small_fleet("kf-ts")
    play(fleet, 10, rewarded=0.5)
    state, before = fleet.state(), fleet_bytes(fleet)
    play(fleet, 10, seed=1)
    fleet.remove([1])
    fleet.restore(state)
    assert fleet_bytes(fleet) == before
    with pytest.raises(hs.HalfseenError, match="state 'rounds'"):
        fleet.restore(state | {"rounds": state["rounds"][:2]})
    with pytest.raises(hs.HalfseenError, match=r"state 'cov'"):
        fleet.restore(state | {"estimator.cov": state["estimator.cov"][:, :2]})
    with pytest.raises(hs.HalfseenError, match="state: expected the arrays"):
        fleet.restore({key: value for key, value in state.items() if key != "keys"})
    assert fleet_bytes(fleet) == before


def test_load_distinguishes_files_of_agents_and_fleets(tmp_path):
    fleet, single = small_fleet("kf-ts"), make_small("kf-ts")
    play(fleet, 5, rewarded=0.5)
    fleet.save(tmp_path / "fleet.hs")
    single.save(tmp_path / "agent.hs")
    assert isinstance(hs.load(tmp_path / "agent.hs"), hs.Agent)
    loaded = hs.load(tmp_path / "fleet.hs")
    assert isinstance(loaded, hs.Fleet)
    assert fleet_bytes(loaded) == fleet_bytes(fleet)
    assert repr(loaded) == repr(fleet)
    content = (tmp_path / "fleet.hs").read_bytes()
    (tmp_path / "half.hs").write_bytes(content[: len(content) // 2])
    with pytest.raises(hs.HalfseenError, match="truncated or damaged"):
        hs.load(tmp_path / "half.hs")
    with pytest.raises(hs.HalfseenError, match="There is no file"):
        hs.load(tmp_path / "none.hs")


def test_a_fleet_can_be_empty(tmp_path):
    fleet = small_fleet(count=0)
    assert len(fleet.decide(np.zeros((0, OBSERVED)))) == 0
    fleet.learn([], [])
    assert fleet.health().ok
    fleet.save(tmp_path / "fleet.hs")
    assert len(hs.load(tmp_path / "fleet.hs")) == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"name": "nobody"}, "There is no agent 'nobody'"),
        ({"name": "kf-ts"}, "'kf-ts' requires the option 'model'."),
        ({"arms": 0}, "arms: expected an integer of at least 1, got 0"),
        ({"max_pending": 0}, "max_pending: expected an integer between 1 and 1000000000, got 0"),
        ({"lags": 3}, "'ts-pco' has no option 'lags'"),
    ],
)
def test_invalid_options_are_refused_when_the_fleet_is_made(options, line):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.Fleet(**({"name": "ts-pco", "observed": 3, "arms": 4} | options))
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda fleet: fleet.add(0), "streams: expected an integer of at least 1, got 0"),
        (lambda fleet: fleet.add("abc"), "streams: expected a count of at least 1, or names of streams, got 'abc'"),
        (
            lambda fleet: fleet.add(["a", "a"]),
            "streams: expected names that differ from each other, got a name more than once",
        ),
        (lambda fleet: fleet.add([""]), "streams: expected a count of at least 1, or names of streams, got ''"),
        (lambda fleet: fleet.add(1, seeds=[-1]), "seeds: expected an integer of at least 0, got -1"),
        (lambda fleet: fleet.add(1, seeds=[0.5]), "seeds: expected an integer of at least 0, got 0.5"),
        (lambda fleet: fleet.agent("z"), "There is no stream 'z'."),
        (lambda fleet: fleet.agent(None), "streams: expected numbers or names of streams, got None"),
        (lambda fleet: fleet.learn("abc", [1.0]), "ids: expected ids of decisions, such as decisions.ids, got 'abc'"),
        (lambda fleet: fleet.learn([0.5], [1.0]), "ids: expected ids of decisions, such as decisions.ids, got [0.5]"),
        (
            lambda fleet: fleet.learn([9 << 32], [1.0]),
            "ids: expected decisions of this fleet, got 38654705664, whose stream does not exist",
        ),
        (
            lambda fleet: fleet.learn([-1], [1.0]),
            "ids: expected decisions of this fleet, got -1, whose stream does not exist",
        ),
        (
            lambda fleet: fleet.decide(np.zeros((3, 3)), contexts=np.zeros((3, 3))),
            "'ts-pco' does not decide on the true context, so it takes no contexts.",
        ),
        (lambda fleet: fleet.save(3), "path: expected the path of a file, got 3"),
    ],
)
def test_invalid_calls_are_refused_in_one_line_and_change_nothing(call, line):
    fleet = small_fleet()
    play(fleet, 2)
    before = fleet_bytes(fleet)
    with pytest.raises(hs.HalfseenError) as caught:
        call(fleet)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    assert fleet_bytes(fleet) == before


def test_oracles_require_the_true_contexts():
    fleet, y = small_fleet("oracle-ts"), np.zeros((3, OBSERVED))
    for contexts, line in [
        (None, "contexts: expected the true contexts, which 'oracle-ts' needs, got none"),
        (np.zeros((2, LATENT)), "contexts: expected 3 rows, one per stream, got 2 rows"),
        (np.full((3, LATENT), np.nan), "contexts: expected numbers within ±1e+100, got an entry that is missing"),
    ]:
        with pytest.raises(hs.HalfseenError) as caught:
            fleet.decide(y, contexts=contexts)
        assert str(caught.value).startswith(line)
    assert fleet.rounds.tolist() == [0, 0, 0]


def test_memory_counts_the_bytes_of_all_arrays():
    d, k, K = LATENT, OBSERVED, ARMS
    triangle = d * (d + 1) // 2
    memory = small_fleet("kf-ts", count=100).memory()
    assert memory["learner"] == 8 * K * (triangle + d + 1)
    assert memory["estimator"] == 8 * d + 8
    registry, key, rounds_and_row, missing, rewards, pending = 16, 16, 3 * 8, 2 * 8 * k, 16, 16
    assert memory["bookkeeping"] == registry + key + rounds_and_row + K + missing + rewards + pending
    assert memory["shared"] == (8 * (3 * d * d + k * k + d * k) + 1 + 8) / 100  # model to gain, frozen, users
    memory = small_fleet("emkf-ts", count=100).memory()
    assert (
        memory["estimator"] == 8 * (5 * d * d + k * k + d * k + 3 * d) + 8 + 1 + 2 * 8
    )  # the last terms are rounds, frozen, group and users
    assert memory["learner"] == 8 * K * (triangle + d + 1)


def test_decisions_of_another_fleet_are_refused():
    fleets = [hs.Fleet("ts-pco", observed=2, arms=3) for _ in range(2)]
    decisions = []
    for i, fleet in enumerate(fleets):
        fleet.add(3, seeds=[i, i + 10, i + 20])
        decisions.append(fleet.decide(np.ones((3, 2))))
    before = {name: array.copy() for name, array in fleets[1].state().items()}
    with pytest.raises(DecisionError, match=r"ids: expected decisions of <Fleet .*>, got decisions of <Fleet"):
        fleets[1].learn(decisions[0], [1.0, 2.0, 3.0])
    for name, array in fleets[1].state().items():
        np.testing.assert_array_equal(array, before[name])
    fleets[1].learn(decisions[1], [1.0, 2.0, 3.0])


def test_an_empty_list_adds_no_stream():
    fleet = hs.Fleet("ts-pco", observed=2, arms=3)
    fleet.add(3)
    fleet.remove([1])
    assert len(fleet.add([])) == 0
    assert fleet.add(2).tolist() == [3, 4]


@pytest.mark.parametrize("max_pending", [1, 3, 1000])
def test_fleet_pending_behaves_like_a_dictionary(max_pending):
    rng = np.random.default_rng(max_pending)
    streams = 12
    pending, expected = FleetPending(max_pending, streams // 2, 2), {row: {} for row in range(streams)}
    pending.resize(streams)
    rounds = np.zeros(streams, dtype=np.int64)
    for _ in range(400):
        rows = rng.permutation(streams)[: rng.integers(1, streams + 1)]
        rounds[rows] += 1
        ids = (rows.astype(np.int64) << 32) | rounds[rows]
        arms, features = rng.integers(5, size=len(rows)), rng.normal(size=(len(rows), 2))
        pending.add(ids, rows, rounds[rows] + 7, arms, features)
        for i, row in enumerate(rows):
            expected[row][int(ids[i])] = (arms[i], tuple(features[i]))
            while len(expected[row]) > max_pending:
                del expected[row][next(iter(expected[row]))]
        known = [number for entries in expected.values() for number in entries]
        chosen = rng.permutation(known)[: rng.integers(0, len(known) + 1) if rng.uniform() < 0.5 else 0].astype(
            np.int64
        )
        indices = pending.take(chosen)
        if rng.uniform() < 0.2:
            pending.put_back(indices)
            indices = pending.take(chosen)
        for index, number in zip(indices, chosen, strict=True):
            row = int(number >> 32)
            arm, feature = expected[row].pop(int(number))
            assert (pending.rows[index], pending.arms[index]) == (row, arm)
            assert pending.rounds[index] == (number & 0xFFFFFFFF) + 7
            assert tuple(pending.features[index]) == feature
        pending.free(indices)
        if rng.uniform() < 0.05:
            removed = rng.permutation(streams)[:2]
            pending.drop_rows(removed)
            for row in removed:
                expected[row].clear()
        assert len(pending) == sum(map(len, expected.values()))
        assert pending.counts.tolist() == [len(entries) for entries in expected.values()]
        for row in range(streams):
            assert pending.ids[pending.indices_of_stream(row)].tolist() == list(expected[row])
        assert pending.ids[pending.all_indices()].tolist() == [
            number for entries in expected.values() for number in entries
        ]
    assert pending.take(np.array([-1, 99 << 32])).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"pending.arms": np.array([ARMS])}, "state 'pending.arms': expected integers from 0 to 3, got"),
        ({"pending.ids": np.array([(1 << 32) | 9])}, "state: expected decisions of past rounds, got"),
        ({"pending.ids": np.array([(9 << 32) | 1])}, "state: expected decisions of the streams in the state, got"),
        ({"streams": np.array([2, 1, 0])}, "state: expected streams and decisions in increasing order, got"),
        ({"next_number": np.array([2])}, "state 'next_number': expected integers from 3 to 1073741824, got"),
        (
            {"rounds": np.array([1, 1, -1])},
            "state 'rounds': expected integers from 0 to 9007199254740992, got integers from -1 to 1",
        ),
        ({"active": np.zeros((3, ARMS), dtype=bool)}, "state: expected at least one active arm per stream"),
    ],
)
def test_a_state_with_indices_out_of_range_is_refused(changed, line):
    fleet = small_fleet()
    decisions = fleet.decide(np.ones((3, OBSERVED)))
    fleet.learn(decisions.ids[[0, 2]], [1.0, 2.0])
    before = fleet_bytes(fleet)
    with pytest.raises(hs.HalfseenError) as caught:
        fleet.restore(fleet.state() | changed)
    assert str(caught.value).startswith(line)
    assert fleet_bytes(fleet) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("chosen_candidate", 99), ("stored_rounds", 99), ("arms", ARMS), ("latent_dims", 99), ("dropped_rounds", -1)],
)
def test_integers_in_the_state_of_an_estimator_are_checked(name, value):
    fleet = small_fleet("adaptive", count=2)
    play(fleet, 3)
    state = fleet.state()
    state[f"estimator.{name}"] = np.full_like(state[f"estimator.{name}"], value)
    with pytest.raises(hs.HalfseenError, match=f"state '{name}'"):
        fleet.restore(state)
