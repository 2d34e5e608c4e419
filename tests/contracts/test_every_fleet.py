"""For every catalogued agent, a stream of a fleet does the same as a single agent with its seed, bit for bit."""

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
)

import halfseen as hs
from halfseen.agents import fleet as fleet_module

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
ROUNDS = 2 * 5 * LATENT + 9  # more than two windows of the estimators that refit


class Twins:
    """A fleet and single agents that get the same observations and rewards."""

    def __init__(self, name, **options):
        self.name, self.options = name, small_options(name) | options
        self.fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **self.options)
        self.singles, self.simulations, self.played, self.pending = {}, {}, {}, []
        self.rng = np.random.default_rng(7)

    def add(self, *names):
        seeds = [100 + len(self.simulations) + i for i in range(len(names))]
        self.fleet.add(names, seeds=seeds)
        for name, seed in zip(names, seeds, strict=True):
            self.singles[name] = hs.make(self.name, observed=OBSERVED, arms=ARMS, seed=seed, **self.options)
            self.simulations[name] = simulate_rounds(ROUNDS, seed=seed, missing=0.04 * (seed % 3))
            self.played[name] = 0

    def remove(self, name):
        self.fleet.remove([name])
        del self.singles[name]
        self.pending = [entry for entry in self.pending if entry[0] != name]

    def decide(self, names, available=None):
        rounds = [self.simulations[name] for name in names]
        times = [self.played[name] for name in names]
        xs, ys = (np.stack([one[part][t] for one, t in zip(rounds, times, strict=True)]) for part in range(2))
        given = contexts_argument(self.name, xs)
        decisions = self.fleet.decide(ys, streams=names, available=available, **given)
        for i, name in enumerate(names):
            single = self.singles[name]
            expected = single.decide(ys[i], available=available, **context_argument(single, xs[i]))
            assert decisions.indices[i] == expected.index
            np.testing.assert_array_equal(decisions.expected[i], expected.expected)
            np.testing.assert_array_equal(decisions.contexts[i], expected.context)
            if times[i] % 9 == 0:
                np.testing.assert_array_equal(decisions.propensities[i], expected.propensities)
            reward = float(arm_params()[expected.index] @ xs[i] + rounds[i][2][times[i]])
            self.pending.append((name, int(decisions.ids[i]), expected.id, reward))
            self.played[name] += 1

    def learn(self, share):
        """Reward a share of the pending decisions in random order, which is the same for the single agents."""
        order = self.rng.permutation(len(self.pending))
        chosen = [self.pending[i] for i in order[: int(np.ceil(share * len(order)))]]
        self.fleet.learn([entry[1] for entry in chosen], [entry[3] for entry in chosen])
        for name, _, number, reward in chosen:
            self.singles[name].learn(number, reward)
        self.pending = [entry for entry in self.pending if entry not in chosen]

    def check(self):
        assert self.fleet.names == list(self.singles)
        for name, single in self.singles.items():
            assert_same_state(self.fleet.agent(name), single)


def test_streams_can_be_added_and_removed_and_rewards_can_be_late(name, monkeypatch):
    monkeypatch.setattr(fleet_module, "SLICE", 2)  # so that one call needs several slices
    twins = Twins(name)
    twins.add("a", "b", "c")
    for t in range(ROUNDS):
        if t == 11:
            twins.add("d")
        if t == 25:
            twins.remove("b")
        if t == 30:
            twins.add("e", "f")
        names = list(twins.singles)
        some = twins.rng.permutation(names)[: twins.rng.integers(1, len(names) + 1)]
        twins.decide([str(one) for one in (names if t % 2 else some)], available=[0, 2, 3] if t % 7 == 0 else None)
        twins.learn(0.7 if t % 5 else 0.2)
    twins.learn(1.0)
    twins.check()


def test_saved_and_moved_streams_continue_bit_for_bit(name, tmp_path):
    twins = Twins(name)
    twins.add("a", "b", "c")
    for _ in range(30):
        twins.decide(["a", "c", "b"])
        twins.learn(0.8)
    twins.fleet.save(tmp_path / "fleet.hs")
    twins.fleet = hs.load(tmp_path / "fleet.hs")
    twins.check()
    for _ in range(8):
        twins.decide(["c", "a", "b"])
        twins.learn(0.6)

    moved = twins.fleet.agent("b")
    old_ids = twins.fleet.pending("b")
    twins.fleet.remove(["b"])
    number = twins.fleet.adopt(moved, "b")
    ids = dict(zip(old_ids.tolist(), twins.fleet.pending(number).tolist(), strict=True))
    twins.pending = [(one, ids.get(mine, mine), number, reward) for one, mine, number, reward in twins.pending]
    twins.singles["b"] = twins.singles.pop("b")  # the fleet now lists this stream last
    for _ in range(8):
        twins.decide(["a", "b", "c"])
        twins.learn(0.9)
    twins.check()


def test_invalid_calls_change_nothing(name):
    twins = Twins(name)
    twins.add("a", "b")
    for _ in range(5):
        twins.decide(["a", "b"])
        twins.learn(0.5)
    fleet, k = twins.fleet, OBSERVED
    before = {key: value.tobytes() for key, value in fleet.state().items()}
    xs = contexts_argument(name, np.zeros((2, LATENT)))
    ids, valid = [entry[1] for entry in twins.pending], np.zeros((2, k))
    huge = valid.copy()
    huge[1, 0] = 1e200
    calls = [
        (
            lambda: fleet.decide(huge, **xs),
            "observations: expected numbers within ±1e+100, NaN where missing, got an entry that is too large",
        ),
        (lambda: fleet.decide(np.zeros((3, k)), **xs), "observations: expected 2 rows, one per stream, got 3 rows"),
        (
            lambda: fleet.decide(np.zeros((2, k + 1)), **xs),
            "observations: expected a table of 3 columns, got shape (2, 4)",
        ),
        (lambda: fleet.decide(valid, streams=["a", "z"], **xs), "There is no stream 'z'."),
        (
            lambda: fleet.decide(valid, streams=[0, 9], **xs),
            "streams: expected one of the 2 streams of this fleet, got 9",
        ),
        (
            lambda: fleet.decide(valid, streams=["a", 0], **xs),
            "streams: expected distinct streams, got 'a' more than once",
        ),
        (lambda: fleet.decide(valid, available=[9], **xs), "available: expected arm numbers from 0 to 3, got 9"),
        (
            lambda: fleet.decide(valid, available=np.zeros((2, ARMS), bool), **xs),
            "available: expected at least one arm per stream",
        ),
        (lambda: fleet.learn(ids, [float("nan")] * len(ids)), "rewards: expected numbers within ±1e+100, got nan"),
        (
            lambda: fleet.learn(ids, [1.0] * (len(ids) + 1)),
            f"rewards: expected {len(ids)} numbers, one per decision, got shape ({len(ids) + 1},)",
        ),
        (
            lambda: fleet.learn([*ids, ids[0]], [1.0] * (len(ids) + 1)),
            f"ids: expected distinct decisions, got {ids[0]} more than once",
        ),
        (
            lambda: fleet.learn([*ids, 12345], [1.0] * (len(ids) + 1)),
            "ids: expected decisions of this fleet, got 12345, which was never made",
        ),
        (lambda: fleet.add(["c", "a"]), "streams: expected names that no stream has, got 'a', which exists already"),
        (lambda: fleet.add(2, seeds=[1]), "seeds: expected 2 seeds, one per stream, got 1 seeds"),
        (lambda: fleet.remove(["a", "z"]), "There is no stream 'z'."),
    ]
    for call, line in calls:
        with pytest.raises(hs.HalfseenError) as caught:
            call()
        assert str(caught.value).startswith(line)
        assert "\n" not in str(caught.value)
    assert {key: value.tobytes() for key, value in fleet.state().items()} == before
    twins.check()


def test_if_one_reward_cannot_be_learnt_no_stream_learns(name):
    """Some agents refuse rewards that they cannot learn in double precision."""
    fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **small_options(name))
    fleet.add(3)
    singles = [make_small(name, seed=s) for s in range(3)]
    ys = np.array([[0.4, 1.0, -1.0], [1e60, 1e60, 1e60], [1.0, 0.2, 0.3]])
    xs = np.ones((3, LATENT))
    given = contexts_argument(name, xs)
    decisions = fleet.decide(ys, **given)
    refused = False
    for single, y, x in zip(singles, ys, xs, strict=True):
        number = single.decide(y, **context_argument(single, x)).id
        try:
            single.learn(number, 2.0)
        except hs.HalfseenError:
            refused = True
    before = {key: value.tobytes() for key, value in fleet.state().items()}
    if refused:
        with pytest.raises(hs.HalfseenError, match=r"^context: expected smaller entries "):
            fleet.learn(decisions.ids, [2.0, 2.0, 2.0])
        assert {key: value.tobytes() for key, value in fleet.state().items()} == before
        fleet.learn(decisions.ids[[0, 2]], [2.0, 2.0])
    else:
        fleet.learn(decisions.ids, [2.0, 2.0, 2.0])
    for s, single in enumerate(singles):
        assert_same_state(fleet.agent(s), single)
