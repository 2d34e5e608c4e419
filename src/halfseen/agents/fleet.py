"""Thousands of independent streams of one agent, decided and learnt in one call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen import validation
from halfseen.agents import saving
from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.catalogue import CATALOG, make
from halfseen.agents.decision import Decisions
from halfseen.agents.pending import PROVISIONAL, ROUND_BITS, ROUND_MASK, FleetPending
from halfseen.agents.policy import Policy
from halfseen.agents.stream_registry import Stream, StreamRegistry
from halfseen.components import ROW_GROWTH, Mask, Stateful, StreamBatch, resized
from halfseen.diagnostics.health import LONG_SILENCE, Health
from halfseen.errors import DecisionError, HalfseenError, invalid
from halfseen.kernels.checks import EXCESSIVE, classify_values
from halfseen.kernels.random import Ints, Keys, stream_keys
from halfseen.validation import LIMIT, at_least, seed_number

SLICE = 512  # streams that are decided in one call of the policy: what is computed for them stays in the L2 cache


class Fleet:
    """Streams of one catalogued agent, each of which decides as `halfseen.make(..., seed=its seed)` would, bit for bit.

    `observed`, `arms`, `max_pending` (decisions that may wait, a stream) and the options are those of `make`, and hold
    for all streams.
    """

    def __init__(
        self,
        name: str,
        *,
        observed: int,
        arms: int | Sequence[str],
        max_pending: int = 100_000,
        **options: Any,
    ) -> None:
        template = make(name, observed=observed, arms=arms, max_pending=max_pending, **options)  # refuses what is wrong
        self._options, self._max_pending = options, int(max_pending)
        self._recipe = {key: value for key, value in template.recipe.items() if key != "seed"}
        self._arms, self._observed = Arms(template.arms), int(observed)
        self._policy = self._build(np.zeros((2, 2), dtype=np.uint64))  # rows that no stream has yet
        self._registry = StreamRegistry()
        self._pending = FleetPending(self._max_pending, 2, self._policy.estimator.dimension)
        self._rewarded: Ints = np.zeros((2, 2), dtype=np.int64)  # rewards of each row; its rounds when the last came

    def _build(self, keys: Keys) -> Policy:
        return CATALOG[self.name].build(StreamBatch(keys, self._observed, len(self.arms)), self._options)

    # ------------------------------------------------------------------ what there is

    @property
    def name(self) -> str:
        """The agent's name in the catalogue."""
        return str(self._recipe["name"])

    @property
    def arms(self) -> tuple[Arm, ...]:
        return self._arms.names

    @property
    def streams(self) -> Ints:
        """The numbers of all streams, oldest first: the order of a call that names none."""
        return self._registry.numbers.copy()

    @property
    def names(self) -> list[str | None]:
        """The names of all streams in the same order, None for those without."""
        return [self._registry.name(number) for number in self._registry.numbers.tolist()]

    @property
    def rounds(self) -> Ints:
        """Decisions made so far by every stream, in the same order."""
        return self._policy.rounds[self._registry.rows]

    def __len__(self) -> int:
        return len(self._registry)

    def __contains__(self, stream: object) -> bool:
        try:
            self._find(stream)
        except HalfseenError:
            return False
        return True

    def __repr__(self) -> str:
        return (
            f"<Fleet of {self.name}: {len(self)} streams, {self._observed} observed, {len(self.arms)} arms, "
            f"{int(self.rounds.sum())} rounds, {len(self._pending)} unrewarded>"
        )

    def _find(self, stream: Any) -> tuple[int, int]:
        """The number and the row of a stream."""
        at = self._registry.positions([stream])[0]
        return int(self._registry.numbers[at]), int(self._registry.rows[at])

    # ------------------------------------------------------------------ streams come and go

    def add(self, streams: int | Iterable[str], *, seeds: ArrayLike | None = None) -> Ints:
        """So many new streams, or one for each name; their numbers, which are never used again.

        `seeds` are theirs, one each; left out, a stream's seed is its number.
        """
        names: list[str] = []
        if isinstance(streams, int | np.integer):
            count = at_least("streams", streams, 1)
        else:
            names = validation.as_list("streams", streams, "a count of at least 1, or names of streams")
            count = len(names)
            self._registry.check_new(names)
        next_number = self._registry.next_number
        numbers, rows = np.arange(next_number, next_number + count), self._registry.free_rows(count)
        keys = stream_keys(numbers if seeds is None else _seeds(seeds, count)).reshape(count, 2)
        self._reserve_rows(rows)
        for part in _slices(count):
            self._write_rows(rows[part], keys[part], self._build(keys[part]))
        self._rewarded[rows] = 0
        return self._registry.add(rows, names)

    def _reserve_rows(self, rows: Ints) -> None:
        needed, old = int(rows.max(initial=-1)) + 1, self._policy.streams.count
        if needed > old:
            count = max(needed, int(old * ROW_GROWTH))
            keys = resized(self._policy.streams.keys, count)
            self._policy.resize(StreamBatch(keys, self._observed, len(self.arms)))
            self._rewarded = resized(self._rewarded, count)
            self._pending.resize(count)

    def _write_rows(self, rows: Ints, keys: Keys, policy: Policy) -> None:
        """Let `rows` be the streams of a policy made as this fleet's own."""
        self._policy.streams.keys[rows] = keys
        self._policy.restore(policy.state(), rows)

    def remove(self, streams: Iterable[Stream]) -> None:
        """Forget streams, given by number or name, and all that waits in them. Their memory serves the next."""
        positions = self._registry.positions(streams)
        self._pending.forget(self._registry.rows[positions])
        self._registry.remove(positions)

    def agent(self, stream: Stream) -> Agent:
        """A single agent that goes on as the stream would, bit for bit. The stream stays as it is."""
        number, row = self._find(stream)
        waiting = self._pending.state(self._pending.of_stream(number))
        state: dict[str, Any] = self._policy.state(np.array([row])) | waiting
        state |= {"pending.ids": waiting["pending.ids"] & ROUND_MASK, "rewards": self._rewarded[row].copy()}
        agent = make(**self._recipe, seed=int(self._policy.streams.keys[row, 0]))
        agent.restore(state)
        return agent

    def adopt(self, agent: Agent, name: str | None = None) -> int:
        """A new stream that goes on as a single agent would, which was made as those here are; its number.

        Decisions that wait can be rewarded here: `pending` gives their ids. The agent stays as it is.
        """
        if not isinstance(agent, Agent):
            raise invalid("agent", "an agent, as made by halfseen.make", type(agent).__name__)
        theirs = {key: value for key, value in agent.recipe.items() if key != "seed"}
        if not saving.same_recipe(theirs, self._recipe) or agent.arms != self.arms:
            raise invalid("agent", f"one made with the options of {self!r}, and its arms", repr(agent))
        names = [] if name is None else [name]
        self._registry.check_new(names)
        state = agent.state()
        if PROVISIONAL in state:
            raise invalid(
                "agent", "none: learn them, or give them up", f"{len(state[PROVISIONAL])} provisional rewards"
            )
        row = self._registry.free_rows(1)
        self._reserve_rows(row)
        self._write_rows(row, stream_keys(agent.recipe["seed"]), agent.policy)
        self._rewarded[row] = state["rewards"][:2]  # a fleet does not tell given up from dropped
        number = int(self._registry.add(row, names)[0])
        ids = (number << ROUND_BITS) | state["pending.ids"]
        self._pending.open(ids, np.repeat(row, len(ids)), state["pending.arms"], state["pending.features"])
        return number

    # ------------------------------------------------------------------ rounds

    def decide(
        self,
        observations: ArrayLike,
        *,
        streams: Iterable[Stream] | Ints | None = None,
        contexts: ArrayLike | None = None,
        available: Mask | Iterable[Arm] | None = None,
    ) -> Decisions:
        """See y (n, k), NaN where not seen, of the `streams` (all if not given) and choose an arm for each of them.

        `available` is a list of arms, for all alike, or a mask (n, K). Agents named `oracle-…` also want the true
        `contexts` (n, d). Tables may be DataFrames of pandas or polars, whose columns are taken in order.
        """
        positions = slice(None) if streams is None else self._registry.positions(streams)
        rows, numbers = self._registry.rows[positions], self._registry.numbers[positions].copy()
        ys = validation.table("observations", observations, self._observed)
        if len(ys) != len(rows):
            raise invalid("observations", f"{len(rows)}, one per stream", f"{len(ys)} rows")
        if classify_values(ys) == EXCESSIVE:
            raise invalid("observations", f"numbers within ±{LIMIT:g}, NaN for what was not seen", "an entry too large")
        xs = self._policy.check_contexts("contexts", contexts, len(rows), self.name)
        mask = None if available is None else _mask(available, self._arms, self._policy.active[rows])
        choices = [
            self._policy.decide(
                ys[part],
                contexts=None if xs is None else xs[part],
                available=None if mask is None else mask[part],
                rows=rows[part],
            )
            for part in _slices(len(rows))
        ]
        ids = (numbers << ROUND_BITS) | self._policy.rounds[rows]
        for part, made in zip(_slices(len(rows)), choices, strict=True):
            self._pending.open(ids[part], rows[part], made.arms, made.features)
        return Decisions(ids, numbers, self.arms, choices, self._policy.propensities, self)

    def learn(self, ids: Decisions | ArrayLike, rewards: ArrayLike) -> None:
        """Credit rewards (n,) to decisions of any streams, given by their ids; all of them or, if refused, none.

        Those of one stream are learnt in the order given.
        """
        numbers = ids.ids_for(self) if isinstance(ids, Decisions) else _ids(ids)
        values = validation.numbers("rewards", rewards, "numbers, one per decision")
        if values.shape != numbers.shape:
            raise invalid("rewards", f"{len(numbers)} numbers, one per decision", f"shape {values.shape}")
        if not (fine := np.abs(values) <= LIMIT).all():
            raise invalid("rewards", f"numbers within ±{LIMIT:g}", f"{values[~fine][0]}")
        pending = self._pending
        slots = pending.take(numbers)
        try:
            if (slots < 0).any():
                raise self._no_such_decision(numbers, int(np.argmax(slots < 0)))
            rows = pending.rows[slots]
            self._policy.learn_many(rows, numbers & ROUND_MASK, pending.features[slots], pending.arms[slots], values)
        except BaseException:
            pending.put_back(slots[slots >= 0])
            raise
        pending.free(slots)
        np.add.at(self._rewarded[:, 0], rows, 1)
        self._rewarded[rows, 1] = self._policy.rounds[rows]

    def pending(self, stream: Stream) -> Ints:
        """The ids of a stream's decisions that may still be rewarded, oldest first."""
        return self._pending.ids[self._pending.of_stream(self._find(stream)[0])]

    def _no_such_decision(self, ids: Ints, at: int) -> DecisionError:
        number = int(ids[at])
        if number in ids[:at]:
            return DecisionError(f"ids: expected distinct decisions, got {number} more than once")
        stream, round_ = number >> ROUND_BITS, number & ROUND_MASK
        if stream not in self:
            return DecisionError(f"ids: expected decisions of this fleet, got {number}, whose stream does not exist")
        if not 1 <= round_ <= self._policy.rounds[self._find(stream)[1]]:
            return DecisionError(f"ids: expected decisions of this fleet, got {number}, which was never made")
        return DecisionError(
            f"ids: expected decisions of fleet.pending(stream), got {number}, which already has its reward or is older "
            f"than the last {self._max_pending} unrewarded decisions of its stream"
        )

    # ------------------------------------------------------------------ how it is

    @property
    def nbytes(self) -> int:
        """All that is held in arrays now, room for more streams included."""
        return self._registry.nbytes + self._pending.nbytes + sum(array.nbytes for array in self._arrays().values())

    def memory(self) -> dict[str, float]:
        """Bytes a stream takes, by part. What streams share is divided by their number; names are not counted."""
        found = {"estimator": 0.0, "learner": 0.0, "books": 16.0, "shared": 0.0}
        for name, array in self._arrays().items():
            if len(array) == self._policy.streams.count:
                found[name.partition(".")[0] if "." in name else "books"] += array.itemsize * math.prod(array.shape[1:])
            else:
                found["shared"] += array.nbytes / max(1, len(self))
        found["waiting"] = self._pending.nbytes / max(1, len(self))
        return found | {"total": sum(found.values())}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Every array of the policy and its parts, by name, each once."""
        policy = self._policy
        arrays = {"keys": policy.streams.keys, "rewarded": self._rewarded} | _arrays_of(policy)
        arrays |= {"counts": self._pending.counts, "oldest": self._pending.oldest}
        for kind, part in (("estimator", policy.estimator), ("learner", policy.learner)):
            arrays |= {f"{kind}.{name}": array for name, array in _arrays_of(part).items()}
        once = {id(array): name for name, array in reversed(arrays.items())}
        return {name: arrays[name] for name in once.values()}

    def health(self) -> Health:
        """How all streams are doing, counted; `fleet.agent(stream).health()` says more about one."""
        rows = self._registry.rows
        rounds, missed, silent = (
            array[rows] for array in (self._policy.rounds, self._policy.missing_counts, self._policy.missing_streaks)
        )
        rewards, last_rewarded = self._rewarded[rows].T
        waiting = self._pending.counts[rows]
        dropped = rounds - rewards - waiting
        quiet, losing = int((rounds - last_rewarded >= LONG_SILENCE).sum()), int((dropped > 0).sum())
        blind = int((silent >= LONG_SILENCE).any(axis=1).sum())
        facts: dict[str, object] = {
            "streams": len(rounds),
            "rounds": int(rounds.sum()),
            "rounds of the youngest and of the oldest stream": [int(rounds.min()), int(rounds.max())]
            if len(rounds)
            else [],
            "rewards": int(rewards.sum()),
            "decisions waiting": int(waiting.sum()),
            "decisions dropped": int(dropped.sum()),
            "share of entries not seen": float(missed.sum() / max(1, int(rounds.sum()) * missed.shape[1])),
            "streams without a reward in their last decisions": quiet,
            "streams with an entry not seen for long": blind,
        }
        notes = []
        if quiet:
            notes.append(
                f"in {quiet} of {len(rounds)} streams no reward has come in the last {LONG_SILENCE} decisions or more"
            )
        if losing:
            notes.append(
                f"{int(dropped.sum())} decisions of {losing} streams can no longer be rewarded: more than "
                f"{self._max_pending} were waiting"
            )
        if blind:
            notes.append(
                f"in {blind} of {len(rounds)} streams an entry has not been seen in the last {LONG_SILENCE} rounds "
                "or more"
            )
        return Health(tuple(notes), facts)

    # ------------------------------------------------------------------ keeping it

    def state(self) -> dict[str, Any]:
        """A copy of every array that streams carry from round to round, by name; rows are in the order of `streams`."""
        rows = self._registry.rows
        own = {
            "streams": self.streams,
            "names": np.array([name or "" for name in self.names], dtype=np.str_),
            "next": np.array([self._registry.next_number]),
            "keys": self._policy.streams.keys[rows],
            "rewards": self._rewarded[rows],
        }
        return own | self._pending.state(self._pending.of_all()) | self._policy.state(rows)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state()` of a fleet made alike described."""
        fresh = Fleet(**self._recipe)
        fresh.restore_empty(state)
        self.__dict__.update(fresh.__dict__)

    def restore_empty(self, state: Mapping[str, Any]) -> None:
        """The same, for a fleet without streams."""
        self._check(state)
        numbers, ids = np.asarray(state["streams"]), np.asarray(state["pending.ids"])
        rows, waiting_in = np.arange(len(numbers)), np.searchsorted(numbers, ids >> ROUND_BITS)
        self._reserve_rows(rows)
        self._policy.streams.keys[rows] = state["keys"]
        self._policy.restore(dict(state), rows)
        if not ((ids & ROUND_MASK >= 1) & (ids & ROUND_MASK <= self._policy.rounds[waiting_in])).all():
            raise invalid("state", "the state of one fleet", "decisions of rounds that have not been")
        self._rewarded[rows] = state["rewards"]
        self._registry.add(rows, np.asarray(state["names"]).tolist(), numbers)
        self._registry.next_number = int(state["next"][0])
        arms, features = np.asarray(state["pending.arms"]), np.ascontiguousarray(state["pending.features"])
        self._pending.open(ids, waiting_in, arms, features)

    def _check(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that is not that of one fleet; the policy checks what is its own."""
        known = self.state()
        if state.keys() != known.keys():
            raise invalid("state", f"the arrays {', '.join(known)}", f"{len(state)} arrays of other names")
        numbers, ids, played = (np.asarray(state[name]) for name in ("streams", "pending.ids", "pending.arms"))
        lengths = dict.fromkeys(("streams", "names", "keys", "rewards"), numbers.size) | {"next": 1}
        lengths |= dict.fromkeys(("pending.ids", "pending.arms", "pending.features"), ids.size)
        for name, length in lengths.items():
            mine, array = known[name], np.asarray(state[name])
            if array.dtype.kind != mine.dtype.kind or array.shape != (length, *mine.shape[1:]):
                wanted = f"{mine.dtype} {(length, *mine.shape[1:])}"
                raise invalid(f"state '{name}'", wanted, f"{array.dtype} {array.shape}")
        rising = all((np.diff(array, prepend=-1) > 0).all() for array in (numbers, ids))
        if not rising or int(state["next"][0]) <= numbers.max(initial=-1):
            raise invalid("state", "the state of one fleet", "streams or decisions out of order")
        if not np.isin(ids >> ROUND_BITS, numbers).all():
            raise invalid("state", "the state of one fleet", "decisions of streams that are not there")
        if ((played < 0) | (played >= len(self.arms))).any():
            raise invalid("state", f"those of {len(self.arms)} arms", "arms that are not there")

    def save(self, path: str | Path) -> None:
        """Write the whole fleet to a file; `halfseen.load` gives it back and it goes on bit for bit."""
        if not isinstance(path, str | Path):
            raise invalid("path", "the path of a file", repr(path))
        saving.write(Path(path), self._recipe, self.state(), kind=saving.FLEET_KIND)


def _slices(count: int) -> list[slice]:
    return [slice(at, at + SLICE) for at in range(0, count, SLICE)]


def _arrays_of(part: Stateful) -> dict[str, NDArray[Any]]:
    arrays = {name: value for name, value in vars(part).items() if isinstance(value, np.ndarray)}
    for inner in part.nested:
        arrays |= _arrays_of(getattr(part, inner))
    return arrays


def _seeds(given: Any, count: int) -> Any:
    """One seed per stream, as integers."""
    if not (isinstance(given, np.ndarray) and given.dtype.kind in "iu" and given.ndim == 1 and (given >= 0).all()):
        numbers = validation.as_list("seeds", given, "one seed a stream")
        given = np.array([seed_number("seeds", one) for one in numbers], dtype=np.uint64)
    if len(given) != count:
        raise invalid("seeds", f"{count}, one per stream", f"{len(given)} of them")
    return given


def _ids(given: ArrayLike) -> Ints:
    try:
        numbers = np.asarray(given)
        if numbers.size == 0:
            return np.zeros(0, dtype=np.int64)
        if numbers.ndim == 1 and numbers.dtype.kind in "iu":
            return numbers.astype(np.int64)
    except (TypeError, ValueError):
        pass
    raise invalid("ids", "ids of decisions, as in decisions.ids", repr(given))


def _mask(available: Mask | Iterable[Arm], arms: Arms, active: Mask) -> Mask:
    """Which arms each stream may play, (n, K), from a list for all or a mask; all of them `active` (n, K)."""
    if hasattr(validation.narwhals_frame("available", available), "columns"):
        available = validation.table("available", available, active.shape[1]) == 1.0  # type: ignore[arg-type]
    if isinstance(available, np.ndarray) and available.dtype == np.bool_:
        if available.shape != active.shape:
            raise invalid("available", f"one of shape {active.shape}", f"a mask of shape {available.shape}")
        allowed = available.copy()
        if not allowed.any(axis=1).all():
            raise invalid("available", "at least one arm for each", "no arms for a stream")
    else:
        everything = np.ones((1, active.shape[1]), dtype=np.bool_)
        allowed = np.repeat(arms.mask(available, everything), len(active), axis=0)
    if (allowed & ~active).any():
        raise invalid("available", "arms that are active", "an arm that its stream has retired")
    return allowed
