"""Every stream of a fleet does what a single agent of its seed does, bit for bit; for every catalogued agent."""

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
)

import halfseen as hs
from halfseen.agents import fleet as fleet_module

pytestmark = pytest.mark.parametrize("name", list(hs.catalog()))
ROUNDS = 2 * 5 * LATENT + 9  # past two windows of the estimators that refit


class Twins:
    """A fleet and single agents that live through the same."""

    def __init__(self, name, **options):
        self.name, self.options = name, small_options(name) | options
        self.fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **self.options)
        self.singles, self.stories, self.lived, self.waiting = {}, {}, {}, []
        self.rng = np.random.default_rng(7)

    def add(self, *names):
        seeds = [100 + len(self.stories) + i for i in range(len(names))]
        self.fleet.add(names, seeds=seeds)
        for name, seed in zip(names, seeds, strict=True):
            self.singles[name] = hs.make(self.name, observed=OBSERVED, arms=ARMS, seed=seed, **self.options)
            self.stories[name] = simulate_rounds(ROUNDS, seed=seed, missing=0.04 * (seed % 3))
            self.lived[name] = 0

    def remove(self, name):
        self.fleet.remove([name])
        del self.singles[name]
        self.waiting = [entry for entry in self.waiting if entry[0] != name]

    def decide(self, names, available=None):
        rounds = [self.stories[name] for name in names]
        at = [self.lived[name] for name in names]
        xs, ys = (np.stack([one[part][t] for one, t in zip(rounds, at, strict=True)]) for part in range(2))
        open_cards = hs.catalog()[self.name].reveals_context
        given = {"contexts": xs} if open_cards else {}
        decisions = self.fleet.decide(ys, streams=names, available=available, **given)
        for i, name in enumerate(names):
            single = self.singles[name]
            want = single.decide(ys[i], available=available, **context_argument(single, xs[i]))
            assert decisions.indices[i] == want.index
            np.testing.assert_array_equal(decisions.expected[i], want.expected)
            np.testing.assert_array_equal(decisions.contexts[i], want.context)
            if at[i] % 9 == 0:
                np.testing.assert_array_equal(decisions.propensities[i], want.propensities)
            reward = float(arm_params()[want.index] @ xs[i] + rounds[i][2][at[i]])
            self.waiting.append((name, int(decisions.ids[i]), want.id, reward))
            self.lived[name] += 1

    def learn(self, share):
        """A share of what waits, in any order; the same order for the single agents."""
        order = self.rng.permutation(len(self.waiting))
        chosen = [self.waiting[i] for i in order[: int(np.ceil(share * len(order)))]]
        self.fleet.learn([entry[1] for entry in chosen], [entry[3] for entry in chosen])
        for name, _, number, reward in chosen:
            self.singles[name].learn(number, reward)
        self.waiting = [entry for entry in self.waiting if entry not in chosen]

    def check(self):
        assert self.fleet.names == list(self.singles)
        for name, single in self.singles.items():
            assert_same_state(self.fleet.agent(name), single)


def test_streams_at_their_own_pace_with_late_rewards_and_streams_that_come_and_go(name, monkeypatch):
    monkeypatch.setattr(fleet_module, "SLICE", 2)  # so that a call takes several slices
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


def test_save_load_and_moving_streams_go_on_bit_for_bit(name, tmp_path):
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
    before = twins.fleet.pending("b")
    twins.fleet.remove(["b"])
    number = twins.fleet.adopt(moved, "b")
    ids = dict(zip(before.tolist(), twins.fleet.pending(number).tolist(), strict=True))
    twins.waiting = [(one, ids.get(mine, mine), number, reward) for one, mine, number, reward in twins.waiting]
    twins.singles["b"] = twins.singles.pop("b")  # the order of the fleet's streams
    for _ in range(8):
        twins.decide(["a", "b", "c"])
        twins.learn(0.9)
    twins.check()


def test_what_is_refused_changes_nothing(name):
    twins = Twins(name)
    twins.add("a", "b")
    for _ in range(5):
        twins.decide(["a", "b"])
        twins.learn(0.5)
    fleet, k = twins.fleet, OBSERVED
    before = {key: value.tobytes() for key, value in fleet.state().items()}
    xs = {"contexts": np.zeros((2, LATENT))} if hs.catalog()[name].reveals_context else {}
    ids, fine = [entry[1] for entry in twins.waiting], np.zeros((2, k))
    huge = fine.copy()
    huge[1, 0] = 1e200
    calls = [
        (lambda: fleet.decide(huge, **xs), "observations: got an entry too large"),
        (lambda: fleet.decide(np.zeros((3, k)), **xs), "observations: expected 2, one per stream, got 3 rows"),
        (
            lambda: fleet.decide(np.zeros((2, k + 1)), **xs),
            "observations: expected a table of 3 columns, got shape (2, 4)",
        ),
        (lambda: fleet.decide(fine, streams=["a", "z"], **xs), "streams: got 'z'"),
        (lambda: fleet.decide(fine, streams=[0, 9], **xs), "streams: got 9, which is not there"),
        (
            lambda: fleet.decide(fine, streams=["a", 0], **xs),
            "streams: expected every stream once, got 'a' more than once",
        ),
        (lambda: fleet.decide(fine, available=[9], **xs), "available: expected arm numbers from 0 to 3, got 9"),
        (lambda: fleet.decide(fine, available=np.zeros((2, ARMS), bool), **xs), "available: got no arms for a stream"),
        (lambda: fleet.learn(ids, [float("nan")] * len(ids)), "rewards: expected numbers within ±1e+100, got nan"),
        (lambda: fleet.learn(ids, [1.0] * (len(ids) + 1)), f"rewards: got shape ({len(ids) + 1},)"),
        (lambda: fleet.learn([*ids, ids[0]], [1.0] * (len(ids) + 1)), f"ids: got {ids[0]} more than once"),
        (lambda: fleet.learn([*ids, 12345], [1.0] * (len(ids) + 1)), "ids: got 12345, which was never decided"),
        (lambda: fleet.add(["c", "a"]), "streams: got 'a', which is there already"),
        (lambda: fleet.add(2, seeds=[1]), "seeds: expected 2, one per stream, got 1 of them"),
        (lambda: fleet.remove(["a", "z"]), "streams: got 'z'"),
    ]
    for call, line in calls:
        with pytest.raises(hs.HalfseenError) as caught:
            call()
        assert str(caught.value).startswith(line)
        assert "\n" not in str(caught.value)
    assert {key: value.tobytes() for key, value in fleet.state().items()} == before
    twins.check()


def test_a_reward_that_cannot_be_learnt_takes_the_whole_batch_with_it(name):
    """What double precision cannot learn from is refused by some agents; then no stream has learnt anything."""
    fleet = hs.Fleet(name, observed=OBSERVED, arms=ARMS, **small_options(name))
    fleet.add(3)
    singles = [make_small(name, seed=s) for s in range(3)]
    ys = np.array([[0.4, 1.0, -1.0], [1e60, 1e60, 1e60], [1.0, 0.2, 0.3]])
    xs = np.ones((3, LATENT))
    given = {"contexts": xs} if hs.catalog()[name].reveals_context else {}
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
        with pytest.raises(hs.HalfseenError, match="context: got entries as large as"):
            fleet.learn(decisions.ids, [2.0, 2.0, 2.0])
        assert {key: value.tobytes() for key, value in fleet.state().items()} == before
        fleet.learn(decisions.ids[[0, 2]], [2.0, 2.0])
    else:
        fleet.learn(decisions.ids, [2.0, 2.0, 2.0])
    for s, single in enumerate(singles):
        assert_same_state(fleet.agent(s), single)
