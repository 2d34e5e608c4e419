"""Invalid integers in a state are refused or harmless.

Kernels use some of these integers as indices and check no bounds.
"""

import numpy as np
import pytest
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
                    changed = array.copy()
                    changed.flat[index] = value
                    yield f"{key}[{index}] = {value}", state | {key: changed}


def played_agent(name):
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(ROUNDS)
    ids = []
    for x, y, reward in zip(xs, ys, noise, strict=True):
        ids.append(agent.decide(y, **context_argument(agent, x)).id)
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
