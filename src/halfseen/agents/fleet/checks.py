"""What users hand to a fleet, checked before anything changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation as inputs
from halfseen.agents.arms import Arm, Arms
from halfseen.components import Mask
from halfseen.errors import invalid
from halfseen.kernels.checks import COMPLETE, survey
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import LIMIT, refuse_outside, seed_number


def seeds(given: Any, count: int) -> Any:
    """One seed a stream, as integers."""
    if not (isinstance(given, np.ndarray) and given.dtype.kind in "iu" and given.ndim == 1 and (given >= 0).all()):
        numbers = inputs.listed("seeds", given, "one seed a stream")
        given = np.array([seed_number("seeds", one) for one in numbers], dtype=np.uint64)
    if len(given) != count:
        raise invalid("seeds", f"{len(given)} of them", f"{count}, one a stream")
    return given


def ids(given: ArrayLike) -> Ints:
    """Numbers of decisions."""
    try:
        numbers = np.asarray(given)
        if numbers.size == 0:
            return np.zeros(0, dtype=np.int64)
        if numbers.ndim == 1 and numbers.dtype.kind in "iu":
            return numbers.astype(np.int64)
    except (TypeError, ValueError):
        pass
    raise invalid("ids", repr(given), "ids of decisions, as in decisions.ids")


def contexts(given: ArrayLike | None, count: int, dimension: int | None, name: str) -> Floats | None:
    """The true contexts (n, d) of an agent that decides on them; a `dimension` of None says that it does not."""
    if dimension is None:
        if given is not None:
            raise invalid("contexts", "the true contexts", f"nothing: '{name}' decides without them")
        return None
    if given is None:
        raise invalid("contexts", "nothing", f"the true contexts: '{name}' decides on them")
    xs = inputs.table("contexts", given, dimension)
    if len(xs) != count:
        raise invalid("contexts", f"{len(xs)} rows", f"{count}, one a stream")
    if survey(xs) != COMPLETE:
        raise invalid("contexts", "an entry missing or too large", f"numbers within ±{LIMIT:g}")
    return xs


def mask(available: Mask | Iterable[Arm], arms: Arms, active: Mask) -> Mask:
    """Which arms each stream may play, (n, K), from a list for all or a mask; all of them `active` (n, K)."""
    if isinstance(available, np.ndarray) and available.dtype == np.bool_:
        if available.shape != active.shape:
            raise invalid("available", f"a mask of shape {available.shape}", f"one of shape {active.shape}")
        allowed = available.copy()
        if not allowed.any(axis=1).all():
            raise invalid("available", "no arms for a stream", "at least one arm for each")
    else:
        everything = np.ones((1, active.shape[1]), dtype=np.bool_)
        allowed = np.repeat(arms.mask(available, everything), len(active), axis=0)
    if (allowed & ~active).any():
        raise invalid("available", "an arm that its stream has retired", "arms that are active")
    return allowed


def state(given: Mapping[str, Any], known: Mapping[str, Any], round_bits: int, arms: int) -> int:
    """Refuse a state that is not that of one fleet; how many streams it has. The parts check what is theirs."""
    if given.keys() != known.keys():
        raise invalid("state", f"{len(given)} arrays of other names", f"the arrays {', '.join(known)}")
    numbers, waits = np.asarray(given["streams"]), np.asarray(given["pending.ids"])
    streams, pending = np.size(numbers), np.size(waits)
    lengths = dict.fromkeys(("streams", "names", "keys", "rewards"), streams) | {"next": 1}
    lengths |= dict.fromkeys(("pending.ids", "pending.arms", "pending.features"), pending)
    for name, length in lengths.items():
        mine, array = known[name], np.asarray(given[name])
        if array.dtype.kind != mine.dtype.kind or array.shape != (length, *mine.shape[1:]):
            wanted = f"{mine.dtype} {(length, *mine.shape[1:])}"
            raise invalid(f"state '{name}'", f"{array.dtype} {array.shape}", wanted)
    rising = all((np.diff(array, prepend=-1) > 0).all() for array in (numbers, waits))
    if not rising or int(given["next"][0]) <= numbers.max(initial=-1):
        raise invalid("state", "streams or decisions out of order", "the state of one fleet")
    if not np.isin(waits >> round_bits, numbers).all():
        raise invalid("state", "decisions of streams that are not there", "the state of one fleet")
    rounds, latest = np.asarray(given["rounds"]), (1 << round_bits) - 1
    if rounds.dtype != np.int64 or rounds.shape != (streams,):
        raise invalid("state 'rounds'", f"{rounds.dtype} {rounds.shape}", f"int64 {(streams,)}")
    refuse_outside("state 'rounds'", rounds, 0, latest)
    refuse_outside("state 'next'", np.asarray(given["next"]), 0, (1 << (63 - round_bits)) - 1)
    refuse_outside("state 'pending.ids'", waits & latest, 1, rounds[np.searchsorted(numbers, waits >> round_bits)])
    refuse_outside("state 'rewards'", np.asarray(given["rewards"]), 0, rounds[:, None])
    played = np.asarray(given["pending.arms"])
    if ((played < 0) | (played >= arms)).any() or not np.asarray(given["active"]).any(axis=-1).all():
        raise invalid("state", "arms that are not there", f"those of {arms} arms")
    return streams
