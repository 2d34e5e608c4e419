"""What a sensor is worth: the same record with one feature gone, or with a hidden one shown."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.diagnostics.explained import seen_only
from halfseen.diagnostics.held_out import Gain, HeldOut, gain, greedy_reward, hold_out
from halfseen.diagnostics.record import Record
from halfseen.kernels.random import Floats
from halfseen.models.linear_gaussian import LinearGaussianModel


class Worth(NamedTuple):
    """Of one feature; `money` is None where the rewards of all arms were not recorded."""

    name: str
    hidden: bool  # it was recorded but not shown: its worth is what showing it would add
    share: Gain  # of the reward variance that is lost without it, or won with it
    money: float | None  # mean reward a round of the greedy choice that is lost or won


def worths(
    record: Record, model: LinearGaussianModel, held: HeldOut, contexts: Floats, nothing: HeldOut
) -> list[Worth]:
    """Every observed feature, then every hidden one that was recorded; `held` is of the filtered `contexts`."""
    paid = record.payments()
    found = []
    for i, name in enumerate(record.sensors):
        without = hold_out(record, contexts_without(model, record.observations, i), paid)
        lost = gain(without, held, nothing, paid.rounds)
        found.append(Worth(name, False, lost, _difference(record, held, without)))
    for i, name in enumerate(record.hidden_names):
        assert record.hidden is not None
        shown = hold_out(record, np.column_stack([contexts, seen_only(record.hidden[:, [i]])]), paid)
        won = gain(held, shown, nothing, paid.rounds)
        found.append(Worth(name, True, won, _difference(record, shown, held)))
    return found


def contexts_without(model: LinearGaussianModel, ys: Floats, sensor: int) -> Floats:
    """Filtered contexts of the same model when one of its features is never seen; (n, 0) if that was the only one."""
    others = np.arange(model.observed) != sensor
    if not others.any():
        return np.zeros((len(ys), 0))
    rest = LinearGaussianModel(
        transition=model.transition,
        process_cov=model.process_cov,
        observation_cov=model.observation_cov[np.ix_(others, others)],
        observation=model.observation[others],
        initial_mean=model.initial_mean,
        initial_cov=model.initial_cov,
    )
    return np.asarray(rest.filter(ys[:, others]).means)


def _difference(record: Record, more: HeldOut, less: HeldOut) -> float | None:
    return greedy_reward(record, more) - greedy_reward(record, less) if record.knows_every_arm else None
