"""Invalid numbers in a state, a model or a save file are refused or harmless.

Kernels use integers as indices and check no bounds.
"""

from pathlib import Path

import numpy as np
import pytest
from contracts import hostile_cases
from contracts.hostile_cases import change_state, run_in_children, use_agent
from settings import (
    ARMS,
    OBSERVED,
    context_argument,
    contexts_argument,
    make_small,
    simulate_rounds,
    small_options,
    state_bytes,
)

import halfseen as hs
from halfseen.agents import saving
from halfseen.errors import SaveFileError

VALUES = (-1, -(2**62), 10**6, 2**62)
ROUNDS = 45

pytestmark = pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
every_agent = pytest.mark.parametrize("name", list(hs.catalog()))


def hostile_states(state):
    """Yield copies of the state in which one or all integers of an array are replaced."""
    for key, array in state.items():
        if array.dtype.kind in "iu" and array.size:
            for value in VALUES:
                if array.dtype.kind == "u" and value < 0:
                    continue
                for index in (0, -1, slice(None)):
                    changed, limits = array.copy(), np.iinfo(array.dtype)
                    changed.flat[index] = min(max(value, limits.min), limits.max)  # small types cannot hold the others
                    yield f"{key}[{index}] = {value}", state | {key: changed}


def played_agent(name, **options):
    agent, (xs, ys, noise) = make_small(name, **options), simulate_rounds(ROUNDS)
    ids = []
    for t, (x, y, reward) in enumerate(zip(xs, ys, noise, strict=True)):
        if t % 20 == 7:  # so that the state has rounds of gaps and rounds without a decision
            agent.observe(y, elapsed=150 if t == 27 else 2)
        ids.append(agent.decide(y, elapsed=1 + 2 * (t % 15 == 3), **context_argument(agent, x)).id)
        if len(ids) > 4:
            agent.learn(ids.pop(0), float(reward))
    return agent


@every_agent
def test_hostile_states_of_an_agent(name):
    agent, twin = played_agent(name), make_small(name)
    xs, ys, _ = simulate_rounds(3, seed=5)
    blank, refused = state_bytes(twin), 0
    for description, state in hostile_states(agent.state()):
        try:
            twin.restore(state)
        except hs.HalfseenError:
            assert state_bytes(twin) == blank, description
            refused += 1
            continue
        for x, y in zip(xs, ys, strict=True):
            twin.decide(y, **context_argument(twin, x)).propensities  # noqa: B018
            twin.learn(twin.pending[0], 1.0)
        if twin.policy.can_refit:
            twin.refit()
        twin.health()
        twin = make_small(name)
    assert refused > 20


@every_agent
def test_hostile_states_of_a_fleet(name):
    def fresh():
        return hs.Fleet(name, observed=OBSERVED, arms=ARMS, **small_options(name))

    fleet, (xs, ys, _) = fresh(), simulate_rounds(12)
    fleet.add(["a", "b"], seeds=[1, 2])
    given = contexts_argument(name, xs[:2])
    for y in ys:
        decisions = fleet.decide(np.stack([y, -y]), **given)
        fleet.learn(decisions.ids[:1], [1.0])
    for _, state in hostile_states(fleet.state()):
        other = fresh()
        try:
            other.restore(state)
        except hs.HalfseenError:
            continue
        other.decide(np.stack([y, -y]), **given)
        other.learn([other.pending(other.streams[1])[0]], [1.0])
        other.health()


def test_hostile_guardrails():
    guardrails = {"floor": 0.05, "holdback": 0.2, "control": (1, 0.1)}
    agent, twin, y = played_agent("ts-pco", **guardrails), make_small("ts-pco"), simulate_rounds(1)[1][0]
    blank, refused = state_bytes(twin), 0
    for description, state in hostile_states(agent.state()):
        try:
            twin.restore(state)
        except hs.HalfseenError:
            assert state_bytes(twin) == blank, description
            refused += "guardrails" in description or "branches" in description
            continue
        twin.decide(y)
        twin.learn(twin.pending[0], 1.0)
        twin.health()
        twin = make_small("ts-pco")
    assert refused > 20
    fleet = hs.Fleet("ts-pco", observed=OBSERVED, arms=ARMS, **guardrails)
    fleet.add(2)
    fleet.decide(np.stack([y, -y]))
    for _, state in hostile_states(fleet.state()):
        other = hs.Fleet("ts-pco", observed=OBSERVED, arms=ARMS)
        try:
            other.restore(state)
        except hs.HalfseenError:
            continue
        other.decide(np.stack([y, -y]))
        other.learn([other.pending(other.streams[1])[0]], [1.0])
        other.health()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("guardrails.shares", lambda array: array * np.nan),
        ("guardrails.shares", lambda array: array * 6.0),
        ("guardrails.control", lambda array: array + ARMS),
        ("guardrails.reward_counts", lambda array: array + ROUNDS // 3),
        ("guardrails.reward_counts", lambda array: array * 0),
        ("guardrails.reward_means", lambda array: array + 1e101),
        ("guardrails.reward_squares", lambda array: array - 1e3),
        ("guardrails.reward_squares", lambda array: array + 1e250),
        ("guardrails.reward_means", None),
        ("pending.branches", lambda array: array[:-1]),
        ("pending.branches", lambda array: array + 4),
        ("pending.branches", lambda array: array.astype(float)),
    ],
)
def test_guardrails_that_contradict_the_state_are_refused(name, change):
    agent = played_agent("ts-pco", floor=0.05, holdback=0.2, control=(1, 0.1))
    agent.learn(agent.pending[0], 1.0, provisional=True)
    before, state = state_bytes(agent), agent.state()
    state[name] = None if change is None else change(state[name])
    if change is None:
        del state[name]
    with pytest.raises(hs.HalfseenError):
        agent.restore(state)
    assert state_bytes(agent) == before


def test_a_provisional_reward_that_no_branch_has_counted_is_refused():
    agent = played_agent("ts-pco", holdback=0.2)
    agent.learn(agent.pending[0], 1.0, provisional=True)
    state = agent.state()
    for array in ("reward_counts", "reward_means", "reward_squares"):
        state[f"guardrails.{array}"][:] = 0
    with pytest.raises(hs.HalfseenError, match=r"state 'pending.branches': expected provisional rewards"):
        agent.restore(state)


def test_streams_of_a_fleet_with_different_guardrails_are_refused():
    fleet = hs.Fleet("ts-pco", observed=OBSERVED, arms=ARMS, holdback=0.2)
    fleet.add(2)
    before, state = state_bytes(fleet), fleet.state()
    state["guardrails.shares"][1, 1] = 0.3
    with pytest.raises(hs.HalfseenError, match="expected the same guardrails in all streams"):
        fleet.restore(state)
    assert state_bytes(fleet) == before


def test_hostile_models():
    agent = played_agent("adaptive")
    agent.refit()
    before, start = state_bytes(agent), agent.state()
    for description, model in hostile_states(agent.model()):
        try:
            agent.accept(model)
        except hs.HalfseenError:
            assert state_bytes(agent) == before, description
            continue
        agent.decide(simulate_rounds(1)[1][0])
        agent.restore(start)


def test_hostile_states_of_version_0_2_0(tmp_path):
    """States of that version are completed before they are checked."""
    recipe, state = saving.read(Path(__file__).parents[1] / "data" / "0.2.0" / "adaptive.hs")
    rng, refused = np.random.default_rng(3), 0
    for _ in range(60):
        _, changed = change_state(rng, state)
        saving.write(tmp_path / "hostile.hs", recipe, changed)
        try:
            agent = hs.load(tmp_path / "hostile.hs")
        except SaveFileError:
            refused += 1
            continue
        with np.errstate(all="ignore"):
            use_agent(agent, tmp_path)
    assert 10 < refused < 50


@pytest.mark.parametrize("cases", [40, pytest.param(20_000, marks=pytest.mark.slow)])
def test_hostile_values_never_crash_an_agent(cases):
    counts, failures = run_in_children(0, cases)
    assert not failures, "\n".join(failures)
    assert min(counts.values()) > cases / 5


def test_a_crash_is_reported_with_its_case(monkeypatch, tmp_path):
    program = tmp_path / "crash.py"
    program.write_text("import ctypes; print('case 7: file, ts-pco: mean = 1', flush=True); ctypes.string_at(0)")
    monkeypatch.setattr(hostile_cases, "__file__", str(program))
    counts, (failure,) = run_in_children(7, 1)
    assert failure.startswith("case 7: file, ts-pco: mean = 1: the process ended with -11")
    assert counts == {"refused": 0, "used": 0}


def test_an_arm_that_does_not_exist_is_refused(tmp_path):
    """At refits, a kernel uses the arms of the history as indices."""
    agent = played_agent("adaptive")
    state = agent.state()
    state["estimator.arms"][:] = 1_000_000
    saving.write(tmp_path / "agent.hs", agent.recipe, state)
    with pytest.raises(SaveFileError, match=r"state 'arms': expected integers from 0 to 3, got .* to 1000000"):
        hs.load(tmp_path / "agent.hs")


def test_a_model_from_the_future_is_refused():
    agent = played_agent("adaptive")
    agent.refit()
    before, model = state_bytes(agent), agent.model()
    rounds = agent.rounds + int(agent.policy.extra_rounds[0])  # of the estimator
    for name, value in (("regime_start", rounds + 1), ("next_identification", -1), ("latent_dims", 99)):
        with pytest.raises(hs.HalfseenError, match=f"model '{name}'"):
            agent.accept(model | {name: np.array(value)})
        assert state_bytes(agent) == before
    covariance = np.full_like(model["process_cov"], -1e200)
    with pytest.raises(hs.HalfseenError):
        agent.accept(model | {"process_cov": covariance})
    assert state_bytes(agent) == before


@pytest.mark.parametrize("state", [None, 3, [1, 2], {"rounds": [[1], [2, 3]]}, {}])
def test_something_else_than_a_state_is_refused(state):
    agent, fleet = make_small("ts-pco"), hs.Fleet("ts-pco", observed=OBSERVED, arms=ARMS)
    for one in (agent, fleet):
        with pytest.raises(hs.HalfseenError, match="state"):
            one.restore(state)
    ragged = agent.state() | {"learner.mean": [[1.0], [2.0, 3.0]]}
    with pytest.raises(hs.HalfseenError, match="state"):
        agent.restore(ragged)


def test_a_large_round_number_does_not_slow_a_fleet_down():
    """The oldest open decision of a stream is dropped without counting through all rounds before it."""
    fleet = hs.Fleet("ts-pco", observed=OBSERVED, arms=ARMS, max_pending=2)
    fleet.add(1)
    ys = simulate_rounds(4)[1]
    fleet.decide(ys[:1])
    fleet.decide(ys[1:2])
    state = fleet.state()
    state["rounds"][:] = 2_000_000_000
    state["pending.ids"][1] = state["pending.rounds"][1] = 1_999_999_999
    fleet.restore(state)
    for y in ys[2:]:
        fleet.decide(y[None])
    assert fleet.pending(0).tolist() == [2_000_000_001, 2_000_000_002]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("budget.spent", lambda array: array - 1e3),
        ("budget.spent", lambda array: array * np.nan),
        ("budget.spent", lambda array: array + np.inf),
        ("budget.relative_price", lambda array: array * 0.0),
        ("budget.relative_price", lambda array: array * 1e9),
        ("budget.relative_price", lambda array: array * np.nan),
        ("budget.reward_counts", lambda array: array + 1000),
        ("budget.reward_counts", lambda array: array - 1000),
        ("budget.reward_means", lambda array: array + 1e101),
        ("budget.reward_squares", lambda array: array - 1e9),
        ("budget.reward_squares", lambda array: array + 1e250),
        ("budget.spent", lambda array: array.astype(np.int64)),
        ("budget.spent", lambda array: np.repeat(array, 2)),
        ("budget.spent", None),
    ],
)
def test_hostile_budgets_are_refused_and_change_nothing(name, change):
    agent, ys = make_small("ts-pco", budget=(10.0, 40)), simulate_rounds(21)[1]
    costs = np.linspace(0.0, 1.0, ARMS)
    for t, y in enumerate(ys[:20]):
        agent.learn(agent.decide(y, costs=costs), 0.1 * t)
    before, state = agent.state(), agent.state()
    if change is None:
        del state[name]
    else:
        state[name] = change(state[name])
    with pytest.raises(hs.HalfseenError):
        agent.restore(state)
    after = agent.state()
    for key, array in before.items():
        np.testing.assert_array_equal(after[key], array)
    agent.decide(ys[20], costs=costs)
