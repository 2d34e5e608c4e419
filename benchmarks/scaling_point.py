"""One point of the scaling curves, in a process of its own, so that it finds caches and memory as any other does.

`benchmarks.scaling` starts it with the point as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import halfseen as hs
from halfseen.worlds.linear_gaussian import RandomWorld
from halfseen.worlds.world import Episodes

CHUNK = 100  # rounds drawn ahead, outside the time taken


def world(latent: int, observed: int, arms: int) -> RandomWorld:
    """`orbit` of any size."""
    return RandomWorld(
        name="orbit", latent=latent, observed=observed, arms=arms, dynamics="orthogonal", process_var=0.01,
        reward_std=0.1,
    )  # fmt: skip


def told(agent: str, episodes: Episodes) -> dict[str, Any]:
    facts = episodes.facts()
    return {name: facts[name]() if callable(facts[name]) else facts[name] for name in hs.catalog()[agent].required}


class _Single:
    """One stream through the public interface."""

    def __init__(self, agent: str, size: RandomWorld, episodes: Episodes) -> None:
        self._agent = hs.make(agent, observed=size.observed, arms=size.arms, seed=0, **told(agent, episodes))

    def carried(self) -> int:
        return sum(array.nbytes for array in self._agent.policy.state().values())

    def round(self, y: np.ndarray, expected: np.ndarray, noise: np.ndarray) -> None:
        decision = self._agent.decide(y[0])
        self._agent.learn(decision.id, expected[0, decision.index] + noise[0])


class _Many:
    """Streams of a fleet: of one world, and of one model where the agent is told it."""

    def __init__(self, agent: str, size: RandomWorld, episodes: Episodes, streams: int) -> None:
        self._fleet = hs.Fleet(agent, observed=size.observed, arms=size.arms, **told(agent, episodes))
        self._fleet.add(streams)
        self._streams = streams

    def carried(self) -> int:
        return self._fleet.nbytes

    def round(self, y: np.ndarray, expected: np.ndarray, noise: np.ndarray) -> None:
        decisions = self._fleet.decide(np.repeat(y, self._streams, axis=0))
        self._fleet.learn(decisions.ids, expected[0, decisions.indices] + noise)


class Player:
    """An agent of some size, ready to be played from mark to mark."""

    def __init__(self, agent: str, latent: int, observed: int, arms: int, streams: int) -> None:
        size = world(latent, observed, arms)
        self._episodes = size.begin([0])
        self._streams, self._t = streams, 0
        self._player = (
            _Single(agent, size, self._episodes) if streams == 1 else _Many(agent, size, self._episodes, streams)
        )

    def up_to(self, mark: int) -> dict[str, float]:
        """Play on to a round: microseconds of processor time a round and stream on the way, and bytes carried there."""
        spent, since = 0.0, self._t
        while self._t < mark:
            rounds = self._episodes.advance(min(CHUNK, mark - self._t))
            began = time.process_time()
            for y, expected, noise in zip(rounds.observations, rounds.expected, rounds.reward_noise, strict=True):
                self._player.round(y, expected, noise)
            spent += time.process_time() - began
            self._t += len(rounds.observations)
        taken = 1e6 * spent / ((mark - since) * self._streams)
        return {"round": mark, "microseconds": taken, "bytes": self._player.carried()}


def main() -> None:
    point = json.loads(sys.argv[1])
    marks = point.pop("marks")
    Player(point["agent"], 4, 2, 2, min(2, point["streams"])).up_to(250)  # loads what is compiled
    player = Player(**point)
    print(json.dumps([player.up_to(mark) for mark in marks]))


if __name__ == "__main__":
    main()
