"""Agents and worlds as users would write them, at the top level of a module, where other processes find them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import halfseen as hs
from halfseen.components import Estimator


class EpsilonGreedy:
    """The arm with the highest mean reward so far or, with probability epsilon, any arm."""

    def __init__(self, arms, seed, epsilon=0.1):
        self.rng, self.epsilon = np.random.default_rng(seed), epsilon
        self.total, self.count = np.zeros(arms), np.ones(arms)
        self.arms = [None]  # the arm of every round; rounds are counted from 1

    def decide(self, observation):
        explore = self.rng.random() < self.epsilon
        self.arms.append(self.rng.integers(len(self.count)) if explore else np.argmax(self.total / self.count))
        return self.arms[-1]

    def learn(self, round, reward):
        arm = self.arms[round]
        self.total[arm] += reward
        self.count[arm] += 1


class Ewma(Estimator):
    """The exponentially weighted mean of the observations."""

    coordinates = "canonical"
    state_names = ("mean",)

    def __init__(self, streams, *, rate=0.3):
        self.dimension, self.rate = streams.observed, rate
        self.mean = np.zeros((streams.count, streams.observed))

    def observe(self, rows, observations, rounds, complete, contexts):
        seen = ~np.isnan(observations)
        change = self.rate * (np.where(seen, observations, 0.0) - self.mean[rows])
        self.mean[rows] += np.where(seen, change, 0.0)
        return self.mean[rows]


class Chosen(NamedTuple):
    arm: int
    propensities: list[float]


def ts_pco(observed, arms, seed):
    """An agent of the catalogue as a plain agent: rounds are the ids of its decisions."""
    return hs.make("ts-pco", observed=observed, arms=arms, seed=seed)


def tide(seed, period=50, contexts=True):
    """A noisy sensor of a tide."""
    rng, t = np.random.default_rng(seed), 0
    while True:
        t, level = t + 1, np.sin(2 * np.pi * t / period)
        rewards = [level, -level, 0.0]
        yield ([level + 0.5 * rng.normal()], rewards, [level]) if contexts else ([level], rewards)
