"""What of the rewards is explained by what is seen, by filtering it, by the hidden block, by the truth.

Filtering and the hidden block are two things. A noisy sensor is better filtered, whether or not anything is hidden
behind it. So the filtered context is set against the best that can be done without hidden coordinates: y itself, the
observed block of the filtered context, and the filter of a model of as many dimensions as there are features. A
sensor that shows next to nothing but noise lends its coordinate to something hidden: such a coordinate does not count
as observed, and the sensor stands for itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.diagnostics.held_out import Gain, HeldOut, gain, hold_out, share
from halfseen.diagnostics.record import Record
from halfseen.kernels.em import DIAGONAL, Parameters, em_path
from halfseen.kernels.random import Floats
from halfseen.kernels.series import filter_series

ITERATIONS = 20  # of EM for the model without hidden coordinates
ROUNDS_WITH_GAPS = 500  # that EM looks at where entries are missing
MUCH, SOME = 0.10, 0.03  # share of what the context explains that is owed to something
FOLLOWS, TELLS = 0.5, 0.01  # of a sensor's variance: in the filtered coordinate, or told by its prediction
DESCRIPTIONS = ("seen", "filtered, nothing hidden", "filtered context")  # of the context; the truth may be a fourth
_FLOORS = 1e-9, 1e-5  # of the process noise and of the sensors', in units of y


class Explained(NamedTuple):
    """Shares of the reward variance, out of sample, and what filtering and the hidden block add."""

    shares: dict[str, float]  # by description: "seen", "filtered, nothing hidden", "filtered context", the truth
    context: Gain  # of the best description without the truth over none: 0 if rewards have nothing to do with contexts
    filtering: Gain  # of the best without hidden coordinates over y itself
    hidden: Gain  # of the filtered context over the best without hidden coordinates
    held: dict[str, HeldOut]
    nothing: HeldOut  # each arm's mean

    @property
    def tells_anything(self) -> bool:
        """Three standard errors, since it is the best of several descriptions."""
        return self.context.value > 3.0 * self.context.error

    @property
    def hidden_pays(self) -> str:
        """ "much", "some" or "little"."""
        if not self.tells_anything:
            return "little"
        return grade(self.hidden, max(self.shares["filtered context"], self.shares["filtered, nothing hidden"]))

    @property
    def filtering_pays(self) -> str:
        if not self.tells_anything:
            return "little"
        return grade(self.filtering, max(self.shares["filtered, nothing hidden"], self.shares["seen"]))


def grade(added: Gain, explained: float) -> str:
    """How much an addition is of all that is explained with it; little where chance could have done it."""
    if not added.clear or explained <= 0.0:
        return "little"
    part = added.value / explained
    return "much" if part >= MUCH else "some" if part >= SOME else "little"


def explain(record: Record, contexts: Floats, predicted: Floats) -> Explained:
    """`contexts` (n, d) are the filtered ones, the first k of them those that are seen; `predicted` (n, k) of y."""
    observed = predicted.shape[1]
    paid = record.payments()
    plain = seen_only(record.observations)
    nothing = hold_out(record, np.zeros((record.rounds, 0)), paid)
    held = {"seen": hold_out(record, plain, paid), "filtered context": hold_out(record, contexts, paid)}
    alone = [held["seen"]]
    block = visible(contexts[:, :observed], predicted, record.observations)
    if not np.allclose(block, plain, rtol=1e-4, atol=1e-6 * np.abs(plain).max()):
        alone.append(hold_out(record, block, paid))
    without = filter_alone(record.observations)
    if without is not None:
        alone.append(hold_out(record, visible(*without, record.observations), paid))
    held["filtered, nothing hidden"] = min(alone, key=lambda one: float(one.losses.sum()))
    if record.contexts is not None:
        held[record.contexts_name] = hold_out(record, record.contexts, paid)
    held = {name: held[name] for name in (*DESCRIPTIONS, record.contexts_name) if name in held}
    best_without = held["filtered, nothing hidden"]
    best = min((held[name] for name in DESCRIPTIONS), key=lambda one: float(one.losses.sum()))
    return Explained(
        {name: share(one, nothing) for name, one in held.items()},
        gain(nothing, best, nothing, paid.rounds),
        gain(held["seen"], best_without, nothing, paid.rounds),
        gain(best_without, held["filtered context"], nothing, paid.rounds),
        held,
        nothing,
    )


def seen_only(ys: Floats) -> Floats:
    """y itself; an entry not seen is at its mean."""
    seen = ~np.isnan(ys)
    counts = np.maximum(seen.sum(axis=0), 1)
    means = np.where(seen, ys, 0.0).sum(axis=0) / counts
    return np.where(seen, ys, means)


def visible(filtered: Floats, predicted: Floats, ys: Floats) -> Floats:
    """Filtered coordinates (n, k) that their own sensors show; for the others, the sensors as they are.

    A coordinate is shown by its sensor if it follows it, or if its prediction tells something of what the sensor is
    going to show. One that a model has put behind a sensor of noise does neither.
    """
    plain = seen_only(ys)
    spread = ((plain - plain.mean(axis=0)) ** 2).sum(axis=0)
    missed = (np.where(np.isnan(ys), 0.0, ys - predicted) ** 2).sum(axis=0)
    shown = (filtered.var(axis=0) >= FOLLOWS * plain.var(axis=0)) | (missed < (1.0 - TELLS) * spread)
    return np.where(shown, filtered, plain)


def filter_alone(ys: Floats) -> tuple[Floats, Floats] | None:
    """Filtered contexts (n, k) of a model without hidden coordinates, that takes y for noisy, and its predictions of y;
    None if EM fails.

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
    x = filter_series(*model, y[None])[0][0]
    unit = np.where(scale > 0, scale, 1.0)
    contexts, predicted = x[1:] * unit + centre, (x[:-1] @ model.D.T) * unit + centre
    return (contexts, predicted) if np.isfinite(contexts).all() else None
