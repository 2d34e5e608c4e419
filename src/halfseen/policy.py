"""An estimator, a learner and a chooser composed, for a batch of streams stepped together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfseen.component import Chooser, Estimator, Learner, State, Stateful, Streams
from halfseen.errors import invalid
from halfseen.kernels.checks import COMPLETE, EXCESSIVE, LIMIT, survey
from halfseen.kernels.choice import pick, win_probabilities
from halfseen.randomness import Floats, Ints, Purpose, normals

Mask = NDArray[np.bool_]


class Choices(NamedTuple):
    """What was decided for n streams, and all that is needed to credit and to explain it."""

    rounds: Ints  # (n,), from 1
    arms: Ints  # (n,)
    features: Floats  # (n, p) the context each arm was chosen on
    means: Floats  # (n, K) predicted rewards
    variances: Floats  # (n, K) of those predictions
    widths: Floats  # (n, K) standard deviations of exploration
    available: Mask  # (n, K)


class Policy(Stateful):
    """B streams of one agent. State = fold over (observation, arm, reward): no draw is remembered, none is hidden."""

    state_names = ("rounds",)

    def __init__(self, streams: Streams, estimator: Estimator, learner: Learner, chooser: Chooser) -> None:
        self.streams, self.estimator, self.learner, self.chooser = streams, estimator, learner, chooser
        self.rounds: Ints = np.zeros(streams.count, dtype=np.int64)
        self.everyone: Ints = np.arange(streams.count)
        self._keys = streams.keys
        self._all_available: Mask = np.ones((streams.count, streams.arms), dtype=np.bool_)

    def observe(
        self, observations: Floats, *, contexts: Floats | None = None, rows: Ints | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Open the next round of `rows` (all streams if not given) with y_t (n, k): rows, rounds and features."""
        rows = self.everyone if rows is None else rows
        found = survey(observations)
        if found == EXCESSIVE:
            raise invalid("observation", "an entry too large", f"numbers within ±{LIMIT:g}, NaN for what was not seen")
        rounds = self.rounds.take(rows) + 1
        features = self.estimator.observe(rows, observations, rounds, found == COMPLETE, contexts)
        self.rounds[rows] = rounds
        return rows, rounds, features

    def decide(
        self,
        observations: Floats,
        *,
        contexts: Floats | None = None,
        available: Mask | None = None,
        rows: Ints | None = None,
    ) -> Choices:
        """See y_t (n, k), choose an arm for every stream in `rows`."""
        rows, rounds, features = self.observe(observations, contexts=contexts, rows=rows)
        means, variances = self.learner.score(rows, features)
        widths = self.chooser.widths(rows, rounds, self.learner)
        if available is None:
            available = self._all_available[: len(rows)]
        keys = self._keys if rows is self.everyone else self._keys[rows]
        noise = normals(keys, rounds, Purpose.CHOICE, self.streams.arms)
        judged = self.chooser.judge(means, variances)
        arms = np.empty(len(rows), dtype=np.int64)
        pick(judged, variances, widths, self.chooser.sampled, noise, available, arms)
        return Choices(rounds, arms, features, means, variances, widths, available)

    def propensities(self, choices: Choices) -> Floats:
        """The exact probability with which each arm was going to be chosen, (n, K)."""
        judged = self.chooser.judge(choices.means, choices.variances)
        probabilities = np.empty_like(judged)
        win_probabilities(
            judged, choices.variances, choices.widths, self.chooser.sampled, choices.available, probabilities
        )
        return probabilities

    def learn(self, features: Floats, arms: Ints, rewards: Floats, *, rows: Ints | None = None) -> None:
        """Credit rewards (n,) to the arms (n,) played on features (n, p), whenever they come."""
        self.learner.learn(self.everyone if rows is None else rows, features, arms, rewards)

    def state(self) -> State:
        parts = {"estimator": self.estimator, "learner": self.learner}
        named = {f"{part}.{name}": value for part, holder in parts.items() for name, value in holder.state().items()}
        return super().state() | named

    def restore(self, state: State) -> None:
        """Become what `state()` described; nothing changes unless all of it fits."""
        holders = {"estimator": self.estimator, "learner": self.learner}
        parts = {
            part: {n.removeprefix(f"{part}."): v for n, v in state.items() if n.startswith(f"{part}.")}
            for part in holders
        }
        self.check(state)
        for part, holder in holders.items():
            holder.check(parts[part])
        super().restore(state)
        for part, holder in holders.items():
            holder.restore(parts[part])
