"""What of the rewards is explained by what is seen, by filtering it, by the hidden block, by the truth.

Filtering and the hidden block are two things. A noisy sensor is better filtered, whether or not anything is hidden
behind it. So the filtered context is set against the best that can be done without hidden coordinates: y itself, the
observed block of the filtered context, and the filter of a model of as many dimensions as there are features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.examination.held_out import Gain, HeldOut, gain, hold_out, share
from halfseen.examination.record import Record
from halfseen.kernels.em import DIAGONAL, Parameters, em_path
from halfseen.kernels.series import filter_series
from halfseen.randomness import Floats

ITERATIONS = 20  # of EM for the model without hidden coordinates
ROUNDS_WITH_GAPS = 500  # that EM looks at where entries are missing
MUCH, SOME = 0.10, 0.03  # share of what the context explains that is owed to something
_FLOORS = 1e-9, 1e-5  # of the process noise and of the sensors', in units of y


class Explained(NamedTuple):
    """Shares of the reward variance, out of sample, and what filtering and the hidden block add."""

    shares: dict[str, float]  # by description: "seen", "filtered, nothing hidden", "filtered context", "true context"
    filtering: Gain  # of the best without hidden coordinates over y itself
    hidden: Gain  # of the filtered context over the best without hidden coordinates
    held: dict[str, HeldOut]
    nothing: HeldOut  # each arm's mean

    @property
    def hidden_pays(self) -> str:
        """ "much", "some" or "little"."""
        return grade(self.hidden, max(self.shares["filtered context"], self.shares["filtered, nothing hidden"]))

    @property
    def filtering_pays(self) -> str:
        return grade(self.filtering, max(self.shares["filtered, nothing hidden"], self.shares["seen"]))


def grade(added: Gain, explained: float) -> str:
    """How much an addition is of all that is explained with it; little where chance could have done it."""
    if not added.clear or explained <= 0.0:
        return "little"
    part = added.value / explained
    return "much" if part >= MUCH else "some" if part >= SOME else "little"


def explain(record: Record, contexts: Floats, observed: int) -> Explained:
    """`contexts` (n, d) are the filtered ones, in coordinates whose first `observed` are those that are seen."""
    paid = record.payments()
    plain = seen_only(record.observations)
    nothing = hold_out(record, np.zeros((record.rounds, 0)), paid)
    held = {"seen": hold_out(record, plain, paid), "filtered context": hold_out(record, contexts, paid)}
    alone = [held["seen"]]
    if not np.allclose(contexts[:, :observed], plain, rtol=1e-4, atol=1e-6 * np.abs(plain).max()):
        alone.append(hold_out(record, contexts[:, :observed], paid))
    filtered = filter_alone(record.observations)
    if filtered is not None:
        alone.append(hold_out(record, filtered, paid))
    held["filtered, nothing hidden"] = min(alone, key=lambda one: float(one.losses.sum()))
    if record.contexts is not None:
        held["true context"] = hold_out(record, record.contexts, paid)
    order = ["seen", "filtered, nothing hidden", "filtered context", "true context"]
    held = {name: held[name] for name in order if name in held}
    without = held["filtered, nothing hidden"]
    return Explained(
        {name: share(one, nothing) for name, one in held.items()},
        gain(held["seen"], without, nothing, paid.rounds),
        gain(without, held["filtered context"], nothing, paid.rounds),
        held,
        nothing,
    )


def seen_only(ys: Floats) -> Floats:
    """y itself; an entry not seen is at its mean."""
    seen = ~np.isnan(ys)
    counts = np.maximum(seen.sum(axis=0), 1)
    means = np.where(seen, ys, 0.0).sum(axis=0) / counts
    return np.where(seen, ys, means)


def filter_alone(ys: Floats) -> Floats | None:
    """Filtered contexts (n, k) of a model without hidden coordinates, that takes y for noisy; None if EM fails.

    y alone often cannot tell noise of the sensors from movement of the context, and EM leaves the sum where it
    starts. This start puts it into the sensors; y itself, beside it, is the other extreme.
    """
    k = ys.shape[1]
    filled = seen_only(ys)
    centre, scale = filled.mean(axis=0), filled.std(axis=0)
    y = np.ascontiguousarray((ys - centre) / np.where(scale > 0, scale, 1.0))
    slow = Parameters(0.95 * np.eye(k), 0.02 * np.eye(k), 0.7 * np.eye(k), np.zeros(k), np.eye(k))
    floors = {"q_floor": np.full(k, _FLOORS[0]), "r_floor": np.full(k, _FLOORS[1])}
    complete = not np.isnan(y).any()
    part = y if complete else np.ascontiguousarray(y[-ROUNDS_WITH_GAPS:])  # gaps make EM slow, filtering less so
    model: Parameters | None = None
    try:
        path = em_path(slow, part, update_R=DIAGONAL, update_initial=complete, **floors)
        for step, (improved, loglik, _) in enumerate(path):
            if not np.isfinite(loglik):
                break
            model = improved
            if step == ITERATIONS:
                break
    except np.linalg.LinAlgError:
        pass
    if model is None:
        return None
    contexts = np.asarray(filter_series(*model, y[None])[0][0, 1:])
    return contexts if np.isfinite(contexts).all() else None
