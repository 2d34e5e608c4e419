"""Thousands of independent streams of one agent, decided and learnt in one call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation as inputs
from halfseen.agents import saving as savefile
from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.catalogue import CATALOG, make
from halfseen.agents.catalogue import load as load_agent
from halfseen.agents.fleet import checks
from halfseen.agents.fleet.decisions import Decisions
from halfseen.agents.fleet.engine import Engine
from halfseen.agents.fleet.packing import Array, grown
from halfseen.agents.fleet.parts import Laned
from halfseen.agents.fleet.roll import Roll, Stream
from halfseen.agents.fleet.summary import summarise
from halfseen.agents.fleet.waiting import Waiting
from halfseen.agents.pending import PROVISIONAL
from halfseen.components import Mask
from halfseen.diagnostics.health import Health
from halfseen.errors import DecisionError, HalfseenError, SaveFileError, invalid
from halfseen.kernels.checks import EXCESSIVE, survey
from halfseen.kernels.random import Ints, stream_keys
from halfseen.kernels.waiting import FOUND, TWICE
from halfseen.learners.calibrated import with_fits_dated
from halfseen.validation import LIMIT, at_least

ROUND_BITS = 32  # of an id: the lower ones are the round, the upper ones the number of the stream
LATEST = (1 << ROUND_BITS) - 1


class Fleet:
    """Streams of one catalogued agent, each of which decides as `halfseen.make(..., seed=its seed)` would, bit for bit.

    `observed`, `arms`, `max_pending` (decisions that may wait, a stream) and the options are those of `make`, and hold
    for all streams. With `packed` symmetric matrices are kept as triangles: less memory, more time, the same decisions.
    """

    def __init__(
        self,
        name: str,
        *,
        observed: int,
        arms: int | Sequence[str],
        max_pending: int = 100_000,
        packed: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(packed, bool):
            raise invalid("packed", repr(packed), "True or False")
        pattern = make(name, observed=observed, arms=arms, max_pending=max_pending, **options)  # refuses what is wrong
        self._options, self._packed, self._max_pending = options, packed, int(max_pending)
        self._recipe = {key: value for key, value in pattern.recipe.items() if key != "seed"}
        self._arms, self._observed = Arms(pattern.arms), int(observed)
        self._clear()

    def _clear(self) -> None:
        entry = CATALOG[self.name]
        self._engine = Engine(entry, self._observed, len(self.arms), self._options, packed=self._packed)
        self._waiting = Waiting(self._max_pending, self._engine.dimension)
        self._roll = Roll()
        self._rewarded: Ints = np.zeros((0, 2), dtype=np.int64)  # rewards of each row; its rounds when the last came

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
        return self._roll.numbers.copy()

    @property
    def names(self) -> list[str | None]:
        """The names of all streams in the same order, None for those without."""
        return [self._roll.name(number) for number in self._roll.numbers.tolist()]

    @property
    def rounds(self) -> Ints:
        """Decisions made so far by every stream, in the same order."""
        return self._engine.rounds[self._roll.rows]

    def __len__(self) -> int:
        return len(self._roll)

    def __contains__(self, stream: object) -> bool:
        try:
            self._row(stream)
        except HalfseenError:
            return False
        return True

    def __repr__(self) -> str:
        return (
            f"<Fleet of {self.name}: {len(self)} streams, {self._observed} observed, {len(self.arms)} arms, "
            f"{int(self.rounds.sum())} rounds, {len(self._waiting)} unrewarded>"
        )

    def _row(self, stream: Any) -> int:
        return int(self._roll.rows[self._roll.places([stream])[0]])

    # ------------------------------------------------------------------ streams come and go

    def add(self, streams: int | Iterable[str], *, seeds: ArrayLike | None = None) -> Ints:
        """So many new streams, or one for each name; their numbers, which are never used again.

        `seeds` are theirs, one each; left out, a stream's seed is its number.
        """
        names: list[str] = []
        if isinstance(streams, int | np.integer):
            count = at_least("streams", streams, 1)
        else:
            names = inputs.listed("streams", streams, "a count of at least 1, or names of streams")
            count = len(names)
            self._roll.check_new(names)
        rows, numbers = self._roll.free_rows(count), np.arange(self._roll.next_number, self._roll.next_number + count)
        keys = stream_keys(numbers if seeds is None else checks.seeds(seeds, count)).reshape(count, 2)
        self._make_rows(rows)
        self._engine.begin(rows, keys)
        self._rewarded[rows] = 0
        return self._roll.enter(rows, names)

    def _make_rows(self, rows: Ints) -> None:
        needed = int(rows.max(initial=-1)) + 1
        self._engine.make_rows(needed)
        size = len(self._engine.rounds)
        if size > len(self._rewarded):
            self._rewarded = grown(self._rewarded, size)
            self._waiting.make_rows(size)

    def remove(self, streams: Iterable[Stream]) -> None:
        """Forget streams, given by number or name, and all that waits in them. Their memory serves the next."""
        places = self._roll.places(streams)
        rows = self._roll.rows[places]
        self._waiting.forget(rows)
        self._engine.leave(rows)
        self._roll.remove(places)

    def agent(self, stream: Stream) -> Agent:
        """A single agent that goes on as the stream would, bit for bit. The stream stays as it is."""
        row = np.array([self._row(stream)])
        waits = self._waiting.of(row)
        state: dict[str, Any] = self._engine.read(row)
        state |= {
            "pending.ids": self._waiting.ids[waits] & LATEST,
            "pending.arms": self._waiting.arms[waits].astype(np.int64),
            "pending.features": self._waiting.features[waits],
            "rewards": self._rewarded[row[0]].copy(),
        }
        agent = make(**self._recipe, seed=int(self._engine.keys[row[0], 0]))
        agent.restore(state)
        return agent

    def adopt(self, agent: Agent, name: str | None = None) -> int:
        """A new stream that goes on as a single agent would, which was made as those here are; its number.

        Decisions that wait can be rewarded here: `pending` gives their ids. The agent stays as it is.
        """
        if not isinstance(agent, Agent):
            raise invalid("agent", type(agent).__name__, "an agent, as made by halfseen.make")
        theirs = {key: value for key, value in agent.recipe.items() if key != "seed"}
        if not savefile.alike(theirs, self._recipe) or agent.arms != self.arms:
            raise invalid("agent", repr(agent), f"one made with the options of {self!r}, and its arms")
        names = [] if name is None else [name]
        self._roll.check_new(names)
        state = agent.state()
        if PROVISIONAL in state:
            raise invalid(
                "agent", f"{len(state[PROVISIONAL])} provisional rewards", "none: learn them, or give them up"
            )
        row = self._roll.free_rows(1)
        self._make_rows(row)
        self._engine.keys[row] = stream_keys(agent.recipe["seed"])
        self._engine.take(row, agent.policy)
        self._rewarded[row] = state["rewards"][:2]  # a fleet does not tell given up from dropped
        number = int(self._roll.enter(row, names)[0])
        ids = (number << ROUND_BITS) | state["pending.ids"]
        self._waiting.open(ids, np.repeat(row, len(ids)), state["pending.arms"], state["pending.features"])
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
        `contexts` (n, d).
        """
        places = slice(None) if streams is None else self._roll.places(streams)
        rows, numbers = self._roll.rows[places], self._roll.numbers[places].copy()
        ys = inputs.table("observations", observations, self._observed)
        if len(ys) != len(rows):
            raise invalid("observations", f"{len(ys)} rows", f"{len(rows)}, one a stream")
        if survey(ys) == EXCESSIVE:
            raise invalid("observations", "an entry too large", f"numbers within ±{LIMIT:g}, NaN for what was not seen")
        wanted = self._engine.dimension if self._engine.reveals_context else None
        shown = checks.contexts(contexts, len(rows), wanted, self.name)
        mask = None if available is None else checks.mask(available, self._arms, self._engine.active[rows])
        parts = self._engine.decide(rows, ys, shown, mask)
        ids = (numbers << ROUND_BITS) | self._engine.rounds[rows]
        decisions = Decisions(ids, numbers, self.arms, parts, self._engine.propensities, self)
        at = 0
        for part in parts:
            upto = at + len(part.arms)
            self._waiting.open(ids[at:upto], rows[at:upto], part.arms, part.features)
            at = upto
        return decisions

    def learn(self, ids: Decisions | ArrayLike, rewards: ArrayLike) -> None:
        """Credit rewards (n,) to decisions of any streams, given by their ids; all of them or, if refused, none.

        Those of one stream are learnt in the order given.
        """
        numbers = ids.ids_for(self) if isinstance(ids, Decisions) else checks.ids(ids)
        values = inputs.numbers("rewards", rewards, "numbers, one a decision")
        if values.shape != numbers.shape:
            raise invalid("rewards", f"shape {values.shape}", f"{len(numbers)} numbers, one a decision")
        if not (fine := np.abs(values) <= LIMIT).all():
            raise invalid("rewards", f"{values[~fine][0]}", f"numbers within ±{LIMIT:g}")
        places, found, at = self._waiting.find(numbers)
        if found != FOUND:
            raise self._no_such_decision(int(numbers[at]), found)
        rows = self._waiting.streams[places].astype(np.int64)
        arms, features = self._waiting.arms[places].astype(np.int64), self._waiting.features[places]
        self._engine.learn(rows, numbers & LATEST, features, arms, values)
        self._waiting.close(places, self._engine.rounds, self._rewarded)

    def pending(self, stream: Stream) -> Ints:
        """The ids of a stream's decisions that may still be rewarded, oldest first."""
        return self._waiting.ids[self._waiting.of(np.array([self._row(stream)]))]

    def _no_such_decision(self, number: int, found: int) -> DecisionError:
        if found == TWICE:
            return DecisionError(f"ids: got {number} more than once; want every decision once")
        stream, round_ = number >> ROUND_BITS, number & LATEST
        if stream not in self:
            return DecisionError(
                f"ids: got {number}, of a stream that is not there; want ids of this fleet's decisions"
            )
        if not 1 <= round_ <= self._engine.rounds[self._row(stream)]:
            return DecisionError(f"ids: got {number}, which was never decided; want decisions of this fleet")
        return DecisionError(
            f"ids: got {number}, which was rewarded before or is older than the last {self._max_pending} unrewarded "
            "decisions of its stream; want some of fleet.pending(stream)"
        )

    # ------------------------------------------------------------------ how it is

    @property
    def nbytes(self) -> int:
        """All that is held in arrays now, room for more streams included."""
        parts = [*self._streamwise().values(), *self._common().values()]
        return self._roll.nbytes + sum(array.nbytes for array in parts)

    def memory(self) -> dict[str, float]:
        """Bytes a stream takes, by part. What streams share is divided by their number; names are not counted."""
        found = {"estimator": 0.0, "learner": 0.0, "books": 16.0, "lanes": 0.0, "waiting": 0.0}
        for name, array in self._streamwise().items():
            found[name.partition(".")[0] if "." in name else "books"] += array.itemsize * math.prod(array.shape[1:])
        for name, array in self._common().items():
            found[name.partition(".")[0]] += array.nbytes / max(1, len(self))
        return found | {"total": sum(found.values())}

    def _streamwise(self) -> dict[str, Array]:
        """Arrays with a row a stream."""
        engine = self._engine
        books = {name: getattr(engine, name) for name in ("keys", "rounds", "active", "missed", "silent")}
        books |= {"rewarded": self._rewarded, "heads": self._waiting.heads}
        for kind, held in (("estimator", engine.estimator), ("learner", engine.learner)):
            books |= {f"{kind}.{name}": array for name, array in held.arrays().items()}
            books |= {f"{kind}.{name}": array for name, array in held.told(len(engine.keys)).items()}
        once = {id(array): name for name, array in reversed(books.items())}  # parts may share one
        return {name: books[name] for name in reversed(once.values())}

    def _common(self) -> dict[str, Array]:
        """Arrays whose size does not follow from the number of streams."""
        common = {f"waiting.{name}": array for name, array in self._waiting.arrays.items() if name != "heads"}
        if isinstance(self._engine.estimator, Laned):
            common |= {f"lanes.{name}": array for name, array in self._engine.estimator.shared().items()}
        return common

    def health(self) -> Health:
        """How all streams are doing, counted; `fleet.agent(stream).health()` says more about one."""
        rows = self._roll.rows
        return summarise(
            self._engine.rounds[rows],
            self._rewarded[rows],
            self._waiting.heads[rows, 2],
            self._engine.missed[rows],
            self._engine.silent[rows],
            self._max_pending,
        )

    # ------------------------------------------------------------------ keeping it

    def state(self) -> dict[str, Any]:
        """A copy of every array that streams carry from round to round, by name; rows are in the order of `streams`."""
        rows = self._roll.rows
        waits = self._waiting.of(rows)
        own = {
            "streams": self.streams,
            "names": np.array([name or "" for name in self.names], dtype=np.str_),
            "next": np.array([self._roll.next_number]),
            "keys": self._engine.keys[rows],
            "rewards": self._rewarded[rows],
            "pending.ids": self._waiting.ids[waits],
            "pending.arms": self._waiting.arms[waits].astype(np.int64),
            "pending.features": self._waiting.features[waits],
        }
        return own | self._engine.save(rows)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state()` of a fleet made alike described."""
        fresh = Fleet(**self._recipe, packed=self._packed)
        fresh._fill(state)
        self.__dict__.update(fresh.__dict__)

    def _fill(self, state: Mapping[str, Any]) -> None:
        known = self.state()
        state = with_fits_dated(state, known, np.size(state.get("streams", ())))
        count = checks.state(state, known, ROUND_BITS, len(self.arms))
        self._engine.fits(state, count)
        rows, numbers, ids = np.arange(count), np.asarray(state["streams"]), np.asarray(state["pending.ids"])
        waiting_in = np.searchsorted(numbers, ids >> ROUND_BITS)
        self._make_rows(rows)
        self._engine.load(rows, np.asarray(state["keys"]), state)
        self._rewarded[rows] = state["rewards"]
        self._roll.enter(rows, np.asarray(state["names"]).tolist(), numbers)
        self._roll.next_number = int(state["next"][0])
        arms, features = np.asarray(state["pending.arms"]), np.ascontiguousarray(state["pending.features"])
        self._waiting.open(ids, waiting_in, arms, features)

    def save(self, path: str | Path) -> None:
        """Write the whole fleet to a file; `halfseen.load` gives it back and it goes on bit for bit."""
        if not isinstance(path, str | Path):
            raise invalid("path", repr(path), "the path of a file")
        savefile.write(Path(path), self._recipe | {"packed": self._packed}, self.state(), kind=savefile.FLEET)


def load(path: str | Path) -> Agent | Fleet:
    """The agent or the fleet saved in a file, exactly as it was."""
    if savefile.kind_of(Path(path)) != savefile.FLEET:
        return load_agent(path)
    recipe, state = savefile.read(Path(path), kind=savefile.FLEET)
    try:
        fleet = Fleet(**recipe)
        fleet._fill(state)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SaveFileError(f"file: got '{path}', whose content does not fit together ({error})") from None
    return fleet
