"""The model and the kept history of an estimator that has both, as something to be examined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from halfseen.components import Estimator
from halfseen.diagnostics.examined import Subject
from halfseen.diagnostics.health import ENOUGH_ROUNDS
from halfseen.diagnostics.record import make_record
from halfseen.errors import HalfseenError
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.kernels.random import Floats
from halfseen.models.linear_gaussian import LinearGaussianModel


def kept_subject(
    estimator: Estimator, row: int, arm_names: Sequence[str], retired: Iterable[int] = ()
) -> Subject | None:
    """Stream `row` of an adaptive estimator, in its running units; None before there is a model.

    Where y itself is the context, the model is the one that identification would filter with if it were to.
    """
    if not isinstance(estimator, Adaptive) or not estimator.identified[row]:
        return None
    count, rung = int(estimator.history.count[row]), int(estimator.candidates.rung[row])
    plain = bool(estimator.plain[row])
    if count < ENOUGH_ROUNDS or (plain and rung < 0):
        return None
    kept = slice(max(0, count - estimator.history.rounds), count)
    ys = (estimator.history.ys[row, kept] - estimator.centre[row]) / estimator.scale[row]
    record = make_record(
        ys,
        estimator.history.arm[row, kept],
        estimator.history.reward[row, kept],
        features=ys.shape[1],
        arm_names=list(arm_names),
    )
    ladder = _ladder(estimator, row)
    model = ladder.get(rung) if plain else _in_force(estimator, row)
    if model is None:
        return None
    others = tuple(one for at, one in ladder.items() if at != rung)
    return Subject(model, record, fitted=True, plain=plain, alternatives=others, retired=frozenset(retired))


def enough_from(estimator: Estimator, row: int) -> int | None:
    """The round from which on the kept history of stream `row` is long enough; None where it is, or none is kept."""
    if not isinstance(estimator, Adaptive) or int(estimator.history.count[row]) >= ENOUGH_ROUNDS:
        return None
    return int(estimator.history.offset[row]) + ENOUGH_ROUNDS


def kept_rounds(estimator: Estimator, row: int) -> slice:
    """Which of the stream's rounds, counted from 0, the subject's record holds."""
    assert isinstance(estimator, Adaptive)
    offset, count = int(estimator.history.offset[row]), int(estimator.history.count[row])
    return slice(offset + max(0, count - estimator.history.rounds), offset + count)


def _in_force(estimator: Adaptive, row: int) -> LinearGaussianModel | None:
    d, k = int(estimator.sizes[row]), estimator.centre.shape[1]
    D = estimator.transition[row, : d * d].reshape(d, d)
    Q = estimator.process_cov[row, : d * d].reshape(d, d)
    return _model(D, Q, estimator.observation_cov[row, : k * k].reshape(k, k))


def _ladder(estimator: Adaptive, row: int) -> dict[int, LinearGaussianModel]:
    """The models of all dimensions that have been tried, by rung, in the units of now."""
    rungs, models = estimator.candidates, {}
    k = estimator.centre.shape[1]
    for rung in np.flatnonzero(rungs.rung_known[row]):
        d = rungs.dimensions[rung]
        unit = np.ones(d)
        unit[:k] = rungs.rung_scale[row, rung] / estimator.scale[row]
        D = rungs.rung_transition[row, rung, : d * d].reshape(d, d) * unit[:, None] / unit
        Q = rungs.rung_process_cov[row, rung, : d * d].reshape(d, d) * np.outer(unit, unit)
        model = _model(D, Q, np.diag(rungs.rung_noise[row, rung] * unit[:k] ** 2))
        if model is not None:
            models[int(rung)] = model
    return models


def _model(D: Floats, Q: Floats, R: Floats) -> LinearGaussianModel | None:
    """None where rounding has made a covariance of it that is none."""
    try:
        return LinearGaussianModel(transition=D, process_cov=0.5 * (Q + Q.T), observation_cov=R)
    except HalfseenError:
        return None
