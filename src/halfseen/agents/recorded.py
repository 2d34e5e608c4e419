"""A recorded history of one stream, checked before any of it is lived through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation as inputs
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.policy import Policy
from halfseen.errors import invalid
from halfseen.kernels.checks import COMPLETE, EXCESSIVE, survey
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import LIMIT


class Record(NamedTuple):
    """n rounds."""

    observations: Floats  # (n, k), NaN: not seen
    places: Ints  # (n,) of the arms played
    rewards: Floats  # (n,), NaN: none came
    contexts: Floats | None  # (n, d), for agents that are shown them
    propensities: Floats | None  # (n,)

    @classmethod
    def checked(
        cls,
        policy: Policy,
        known: Arms,
        observations: ArrayLike,
        arms: Sequence[Arm],
        rewards: ArrayLike,
        contexts: ArrayLike | None,
        propensities: ArrayLike | None,
    ) -> Record:
        """What users hand over, for an agent with this policy and the arms `known`."""
        ys = inputs.table("observations", observations, policy.streams.observed)
        values = inputs.numbers("rewards", rewards, "numbers, one a round")
        played = inputs.listed("arms", arms, "a list of arms")
        places = np.array([known.place("arms", arm) for arm in played], dtype=np.int64)
        if survey(ys) == EXCESSIVE:
            raise invalid("observations", "an entry too large", f"numbers within ±{LIMIT:g}, NaN for what was not seen")
        if values.shape != (len(ys),) or survey(values[None]) == EXCESSIVE:
            wanted = f"{len(ys)} numbers within ±{LIMIT:g}, one a round, NaN where none came"
            raise invalid("rewards", f"shape {values.shape}", wanted)
        if len(places) != len(ys):
            raise invalid("arms", f"{len(places)} arms", f"{len(ys)}, one a round")
        xs = None
        if policy.estimator.reveals_context:
            xs = inputs.table("contexts", () if contexts is None else contexts, policy.estimator.dimension)
            if len(xs) != len(ys) or survey(xs) != COMPLETE:
                raise invalid("contexts", f"{len(xs)} rows", f"{len(ys)} rows of numbers within ±{LIMIT:g}")
        return cls(ys, places, values, xs, _chances(propensities, len(ys)))

    def rounds(self) -> Iterator[tuple[Floats, Ints, Floats | None, Floats | None, float]]:
        """Observation, place, context, propensity and reward of one round after the other; all but the last (1, …)."""
        for t in range(len(self.rewards)):
            one = slice(t, t + 1)
            context = None if self.contexts is None else self.contexts[one]
            propensity = None if self.propensities is None else self.propensities[one]
            yield self.observations[one], self.places[one], context, propensity, float(self.rewards[t])


def _chances(propensities: ArrayLike | None, rounds: int) -> Floats | None:
    if propensities is None:
        return None
    chances = inputs.numbers("propensities", propensities, "numbers, one a round")
    if chances.shape != (rounds,):
        raise invalid("propensities", f"shape {chances.shape}", f"{rounds} probabilities, one a round")
    if not (fine := (chances > 0.0) & (chances < 1.0 + 1e-6)).all():
        raise invalid("propensities", f"{chances[~fine][0]}", "probabilities above 0")
    return chances
