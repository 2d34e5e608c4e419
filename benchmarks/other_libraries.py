"""Agents of MABWiser, Vowpal Wabbit and River as plain agents, which `hs.run` plays like agents of halfseen.

`python -m benchmarks.other_libraries` plays them in `keyhole` and checks them with `hs.check_agent`. The page
docs/how-to/own-agent.md shows these classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import halfseen as hs


class MabWiser:
    """LinTS of MABWiser."""

    def __init__(self, arms, seed, alpha=1.0):
        from mabwiser.mab import MAB, LearningPolicy

        self.mab, self.fitted = MAB(list(range(arms)), LearningPolicy.LinTS(alpha=alpha), seed=seed), False

    def decide(self, observation):
        self.context = observation[None]
        self.arm = self.mab.predict(self.context) if self.fitted else 0
        return self.arm

    def learn(self, round, reward):
        update = self.mab.partial_fit if self.fitted else self.mab.fit
        update([self.arm], [reward], self.context)
        self.fitted = True


class Choice(NamedTuple):
    """An arm and the probabilities of all arms."""

    arm: int
    propensities: np.ndarray


class VowpalWabbit:
    """Contextual bandits of Vowpal Wabbit, with exploration by bagging."""

    def __init__(self, arms, seed, bags=5):
        from vowpalwabbit import Workspace

        self.rng = np.random.default_rng(seed)
        self.workspace = Workspace(f"--cb_explore {arms} --bag {bags} --random_seed {seed} --quiet")

    def decide(self, observation):
        self.text = "| " + " ".join(f"{entry}:{value:.9g}" for entry, value in enumerate(observation))
        shares = np.array(self.workspace.predict(self.text))
        shares /= shares.sum()
        self.choice = Choice(int(self.rng.choice(len(shares), p=shares)), shares)
        return self.choice

    def learn(self, round, reward):
        arm, share = self.choice.arm, self.choice.propensities[self.choice.arm]
        self.workspace.learn(f"{arm + 1}:{-reward}:{share} {self.text}")


class River:
    """LinUCB of River, with one regression per arm."""

    def __init__(self, arms, seed, alpha=1.0):
        from river.bandit import LinUCBDisjoint

        self.arms, self.policy = list(range(arms)), LinUCBDisjoint(alpha=alpha, seed=seed)

    def decide(self, observation):
        self.context = dict(enumerate(observation.tolist()))
        self.arm = self.policy.pull(self.arms, context=self.context)
        return self.arm

    def learn(self, round, reward):
        self.policy.update(self.arm, self.context, reward)


AGENTS: dict[str, Any] = {"mabwiser": MabWiser, "vowpalwabbit": VowpalWabbit, "river": River}


def main() -> None:
    for agent in AGENTS.values():
        print(f"{agent.__name__}\n{hs.check_agent(agent)}\n")
    print(hs.run([*AGENTS.values(), "ts-pco", "emkf-ts"], world="keyhole", rounds=500, seeds=2))


if __name__ == "__main__":
    main()
