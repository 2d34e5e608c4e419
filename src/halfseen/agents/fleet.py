"""Thousands of independent streams of one agent, which decide and learn in one call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen import validation
from halfseen.agents import saving
from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.catalogue import component_entry, make
from halfseen.agents.decision import Decisions
from halfseen.agents.guardrails import Guardrails, split_guardrails
from halfseen.agents.pending import (
    MARKS,
    MAX_ROUNDS,
    MAX_STREAMS,
    PROVISIONAL,
    ROUND_BITS,
    ROUND_MASK,
    FleetPending,
    check_features,
    check_marks,
    check_rounds,
)
from halfseen.agents.policy import Policy
from halfseen.agents.stream_registry import Stream, StreamRegistry
from halfseen.components import ROW_GROWTH, Mask, State, Stateful, StreamBatch, resized
from halfseen.diagnostics.family_calibration import family_calibration
from halfseen.diagnostics.health import LONG_SILENCE, Finding, Health, Verdict
from halfseen.errors import DecisionError, HalfseenError, invalid
from halfseen.kernels.checks import EXCESSIVE, classify_values
from halfseen.kernels.random import Ints, Keys, stream_keys
from halfseen.validation import at_least, check_range, seed_number

SLICE = 512  # streams per call of the policy, so that their arrays fit into the L2 cache


class Fleet:
    """Many independent streams of one catalogued agent.

    Every stream decides, bit for bit, as an agent from `halfseen.make` with the seed of the stream would. If a method
    raises a `HalfseenError`, the state of the fleet is unchanged.

    Parameters
    ----------
    name : str
        The name of the agent in the catalogue.
    observed : int
        The number k of observed features of every stream.
    arms : int or sequence of str
        The number of arms of every stream, or the names of these arms.
    max_pending : int, default 100_000
        How many decisions of a stream can wait for their reward. If more decisions wait, the oldest decisions of the
        stream are dropped.
    **options
        Options of the agent, as for `halfseen.make`.

    Raises
    ------
    HalfseenError
        If the name or an option is unknown, or if a value is invalid.

    Examples
    --------
    >>> import halfseen as hs
    >>> fleet = hs.Fleet("ts-pco", observed=2, arms=["low", "high"])
    >>> fleet.add(["anna", "ben"]).tolist()
    [0, 1]
    >>> decisions = fleet.decide([[0.5, -1.0], [0.1, 0.3]])
    >>> fleet.learn(decisions, [1.0, 0.0])
    >>> fleet
    <Fleet of ts-pco: 2 streams, 2 observed, 2 arms, 2 rounds, 0 unrewarded>
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
        component_entry(name)
        template = make(name, observed=observed, arms=arms, max_pending=max_pending, **options)  # checks the arguments
        guards, self._options = split_guardrails(options)
        self._max_pending = int(max_pending)
        self._recipe = {key: value for key, value in template.recipe.items() if key != "seed"}
        self._arms, self._observed = Arms(template.arms), int(observed)
        self._guardrails = template.guardrails if guards else None  # None if the fleet never had guardrails
        self._policy = self._build(np.zeros((2, 2), dtype=np.uint64))  # two rows that no stream uses yet
        self._registry = StreamRegistry()
        self._pending = FleetPending(self._max_pending, 2, self._policy.estimator.dimension)
        # For each row, the number of rewards, and the number of rounds when the last reward was received.
        self._reward_counts: Ints = np.zeros((2, 2), dtype=np.int64)

    def _build(self, keys: Keys) -> Policy:
        policy = component_entry(self.name).build(StreamBatch(keys, self._observed, len(self.arms)), self._options)
        if self._guardrails is not None:
            policy.set_guardrails(self._guardrails, self._arms)
        return policy

    # ------------------------------------------------------------------ properties

    @property
    def name(self) -> str:
        """The agent's name in the catalogue."""
        return str(self._recipe["name"])

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms of every stream."""
        return self._arms.names

    @property
    def streams(self) -> Ints:
        """The numbers of all streams, oldest first. Calls without the argument `streams` use this order."""
        return self._registry.numbers.copy()

    @property
    def names(self) -> list[str | None]:
        """The names of all streams in the order of `streams`, with None for each stream without a name."""
        return [self._registry.name(number) for number in self._registry.numbers.tolist()]

    @property
    def rounds(self) -> Ints:
        """The number of decisions of every stream so far, in the order of `streams`."""
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
        """Return the number and the row of a stream."""
        position = self._registry.positions([stream])[0]
        return int(self._registry.numbers[position]), int(self._registry.rows[position])

    # ------------------------------------------------------------------ adding and removing streams

    def add(self, streams: int | Iterable[str], *, seeds: ArrayLike | None = None) -> Ints:
        """Add streams.

        Parameters
        ----------
        streams : int or iterable of str
            The number of new streams, or their names.
        seeds : array_like of int, optional
            One seed per new stream. By default the seed of a stream is its number.

        Returns
        -------
        ndarray of shape (n,)
            The numbers of the new streams. The number of a stream is never used again, even after the stream is
            removed.

        Raises
        ------
        HalfseenError
            If a name exists already or a seed is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> fleet.add(2).tolist()
        [0, 1]
        >>> fleet.add(["anna"], seeds=[7]).tolist()
        [2]
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
            self._write_rows(rows[part], keys[part], self._build(keys[part]).state())
        self._reward_counts[rows] = 0
        return self._registry.add(rows, names)

    def _reserve_rows(self, rows: Ints) -> None:
        needed, old = int(rows.max(initial=-1)) + 1, self._policy.streams.count
        if needed > old:
            count = max(needed, int(old * ROW_GROWTH))
            keys = resized(self._policy.streams.keys, count)
            self._policy.resize(StreamBatch(keys, self._observed, len(self.arms)))
            self._reward_counts = resized(self._reward_counts, count)
            self._pending.resize(count)

    def _write_rows(self, rows: Ints, keys: Keys, state: State) -> None:
        """Overwrite `rows` with the state of a policy that was built with the same arguments."""
        self._policy.streams.keys[rows] = keys
        self._policy.restore(state, rows)

    def remove(self, streams: Iterable[Stream]) -> None:
        """Remove streams and their pending decisions.

        Parameters
        ----------
        streams : iterable of int or str
            Numbers or names of streams.

        Raises
        ------
        HalfseenError
            If a stream is unknown or named twice.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> numbers = fleet.add(3)
        >>> fleet.remove([1])
        >>> fleet.streams.tolist()
        [0, 2]
        """
        positions = self._registry.positions(streams)
        self._pending.drop_rows(self._registry.rows[positions])
        self._registry.remove(positions)

    def agent(self, stream: Stream) -> Agent:
        """Copy a stream into a single agent.

        Parameters
        ----------
        stream : int or str
            The number or name of a stream.

        Returns
        -------
        Agent
            An agent that continues, bit for bit, as the stream would. The stream is unchanged.

        Raises
        ------
        HalfseenError
            If the stream is unknown.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> numbers = fleet.add(["anna"])
        >>> fleet.agent("anna")
        <ts-pco: 2 observed, 2 arms, 0 rounds, 0 unrewarded>
        """
        number, row = self._find(stream)
        marked = self._guardrails is not None
        waiting = self._pending.state(self._pending.indices_of_stream(number), marked=marked)
        state: dict[str, Any] = self._policy.state(np.array([row])) | waiting
        state |= {"pending.ids": waiting["pending.ids"] & ROUND_MASK, "reward_counts": self._reward_counts[row].copy()}
        agent = make(**self._recipe, seed=int(self._policy.streams.keys[row, 0]))
        agent.restore(state)
        return agent

    def adopt(self, agent: Agent, name: str | None = None) -> int:
        """Add a stream that continues as a single agent would.

        Pending decisions of the agent can be rewarded in the fleet, under the ids that `pending` returns.

        Parameters
        ----------
        agent : Agent
            An agent that was made with the same name, arms and options as this fleet. The agent is unchanged.
        name : str, optional
            The name of the new stream.

        Returns
        -------
        int
            The number of the new stream.

        Raises
        ------
        HalfseenError
            If the agent was made with other arguments or has provisional rewards, or if the name exists already.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=7)
        >>> decision = agent.decide([0.5, -1.0])
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> number = fleet.adopt(agent, "anna")
        >>> fleet.learn(fleet.pending("anna"), [1.0])
        """
        if not isinstance(agent, Agent):
            raise invalid("agent", "an agent from halfseen.make", type(agent).__name__)
        (_, theirs), (_, ours) = split_guardrails(agent.recipe), split_guardrails(self._recipe)
        if not saving.same_recipe(theirs | {"seed": None}, ours | {"seed": None}) or agent.arms != self.arms:
            raise invalid("agent", f"an agent with the options and arms of {self!r}", repr(agent))
        if agent.guardrails != self.guardrails:
            raise invalid("agent", f"an agent with the guardrails of this fleet ({self.guardrails})", agent.guardrails)
        names = [] if name is None else [name]
        self._registry.check_new(names)
        state = agent.state()
        if PROVISIONAL in state:
            got = f"an agent with {len(state[PROVISIONAL])}"
            raise invalid("agent", "an agent without provisional rewards", got)
        row = self._registry.free_rows(1)
        self._reserve_rows(row)
        if self._guardrails is None and agent.policy.guardrails is not None:  # all shares of the agent are 0
            self._set_guardrails(agent.guardrails)
        key = stream_keys(agent.recipe["seed"])
        self._write_rows(row, key, self._build(key).state() | agent.policy.state())
        self._reward_counts[row] = state["reward_counts"][:2]  # a fleet does not count decisions that were given up
        number = int(self._registry.add(row, names)[0])
        ids = (number << ROUND_BITS) | state["pending.ids"]
        arms, features = state["pending.arms"], state["pending.features"]
        self._pending.add(ids, np.repeat(row, len(ids)), state["pending.rounds"], arms, features, state.get(MARKS))
        return number

    # ------------------------------------------------------------------ rounds

    def decide(
        self,
        observations: ArrayLike,
        *,
        streams: Iterable[Stream] | Ints | None = None,
        contexts: ArrayLike | None = None,
        available: Mask | Iterable[Arm] | None = None,
        costs: ArrayLike | Mapping[Arm, float] | None = None,
        elapsed: ArrayLike = 1,
    ) -> Decisions:
        """Start the next round of the given streams and choose an arm for each stream.

        Parameters
        ----------
        observations : array_like of shape (n, k)
            One observation per stream, with NaN for missing entries.
        streams : iterable of int or str, optional
            Numbers or names of n streams. All streams by default.
        contexts : array_like of shape (n, d), optional
            The true contexts. Agents named ``oracle-...`` require the true contexts, and all other agents refuse them.
        available : iterable of arms or boolean ndarray of shape (n, K), optional
            The arms to choose from: a list that is valid for all streams, or a mask with one row per stream. All active
            arms by default.
        costs : array_like of shape (n, K) or (K,), or mapping from arms to numbers, optional
            The cost of each arm, per stream or the same for all streams, as for `Agent.decide`.
        elapsed : int or array_like of shape (n,), default 1
            The number of steps since the last round of each stream, as for `Agent.decide`.

        Returns
        -------
        Decisions
            The chosen arms, in the order of `streams`.

        Raises
        ------
        HalfseenError
            If an argument is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=["low", "high"])
        >>> numbers = fleet.add(["anna", "ben"])
        >>> fleet.decide([[0.5, -1.0]], streams=["ben"], available=["low"]).arms.tolist()
        ['low']
        """
        positions = slice(None) if streams is None else self._registry.positions(streams)
        rows, numbers = self._registry.rows[positions], self._registry.numbers[positions].copy()
        ys = validation.table("observations", observations, self._observed)
        if len(ys) != len(rows):
            raise invalid("observations", f"{len(rows)} rows, one per stream", f"{len(ys)} rows")
        if classify_values(ys) == EXCESSIVE:
            raise validation.too_large("observations")
        xs = self._policy.check_contexts("contexts", contexts, len(rows), self.name)
        mask = None if available is None else _mask(available, self._arms, self._policy.active[rows])
        if mask is not None and self._policy.guardrails is not None:
            self._policy.guardrails.check_available(rows, mask, self.arms)
        steps = self._elapsed(elapsed, len(rows))
        arm_costs = self._policy.check_costs(costs, len(rows), self.arms)
        if arm_costs is not None:
            self._policy.check_affordable(rows, arm_costs, mask)
        choices = [
            self._policy.decide(
                ys[part],
                contexts=None if xs is None else xs[part],
                available=None if mask is None else mask[part],
                costs=None if arm_costs is None else arm_costs[part],
                rows=rows[part],
                elapsed=None if steps is None else steps[part],
            )
            for part in _slices(len(rows))
        ]
        ids = (numbers << ROUND_BITS) | self._policy.rounds[rows]
        for part, chosen in zip(_slices(len(rows)), choices, strict=True):
            self._pending.add(ids[part], rows[part], chosen.rounds, chosen.arms, chosen.features, chosen.branches)
        return Decisions(ids, numbers, self.arms, choices, self._policy, self)

    def _elapsed(self, elapsed: ArrayLike, count: int) -> Ints | None:
        if isinstance(elapsed, int) and elapsed == 1:
            return None
        return self._policy.check_elapsed(validation.elapsed_series("elapsed", elapsed, count, "stream"))

    def observe(
        self,
        observations: ArrayLike,
        *,
        streams: Iterable[Stream] | Ints | None = None,
        elapsed: ArrayLike = 1,
    ) -> None:
        """Process observations of the given streams without deciding, as `Agent.observe` does.

        Parameters
        ----------
        observations : array_like of shape (n, k)
            One observation per stream, with NaN for missing entries.
        streams : iterable of int or str, optional
            Numbers or names of n streams. All streams by default.
        elapsed : int or array_like of shape (n,), default 1
            The number of steps since the last round of each stream.

        Raises
        ------
        HalfseenError
            If an argument is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> numbers = fleet.add(["anna", "ben"])
        >>> fleet.observe([[0.5, -1.0]], streams=["ben"])
        >>> fleet.rounds.tolist()
        [0, 0]
        """
        positions = slice(None) if streams is None else self._registry.positions(streams)
        rows = self._registry.rows[positions]
        ys = validation.table("observations", observations, self._observed)
        if len(ys) != len(rows):
            raise invalid("observations", f"{len(rows)} rows, one per stream", f"{len(ys)} rows")
        if classify_values(ys) == EXCESSIVE:
            raise validation.too_large("observations")
        steps = self._elapsed(elapsed, len(rows))
        for part in _slices(len(rows)):
            passed = None if steps is None else steps[part]
            self._policy.observe(ys[part], rows=rows[part], elapsed=passed, decides=False)

    def learn(self, ids: Decisions | ArrayLike, rewards: ArrayLike) -> None:
        """Learn the rewards of decisions, which may belong to different streams.

        Rewards of the same stream are learnt in the given order. If one reward is refused, none is learnt.

        Parameters
        ----------
        ids : Decisions or array_like of int
            Distinct decisions of this fleet, or their ids.
        rewards : array_like of shape (n,)
            One reward per decision.

        Raises
        ------
        DecisionError
            If a decision is unknown, already rewarded, too old or named twice.
        HalfseenError
            If a reward is not a finite number, is outside of the range of the reward family, or cannot be learnt.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> numbers = fleet.add(3)
        >>> decisions = fleet.decide([[0.5, -1.0], [0.1, 0.3], [0.0, 0.2]])
        >>> fleet.learn(decisions.ids[:2], [1.0, 0.0])
        >>> len(fleet.pending(2))
        1
        """
        decision_ids = ids.ids_for(self) if isinstance(ids, Decisions) else _ids(ids)
        values = validation.rewards_of_decisions(rewards, len(decision_ids), self._policy.learner.reward_range)
        pending = self._pending
        indices = pending.take(decision_ids)
        try:
            if (indices < 0).any():
                raise self._no_such_decision(decision_ids, int(np.argmax(indices < 0)))
            rows, rounds = pending.rows[indices], pending.rounds[indices]
            self._policy.learn_many(rows, rounds, pending.features[indices], pending.arms[indices], values)
        except BaseException:
            pending.put_back(indices[indices >= 0])
            raise
        if self._policy.guardrails is not None:
            self._policy.guardrails.learn(rows, pending.branches[indices], values)
        pending.free(indices)
        np.add.at(self._reward_counts[:, 0], rows, 1)
        self._reward_counts[rows, 1] = self._policy.rounds[rows]

    def pending(self, stream: Stream) -> Ints:
        """Return the ids of the decisions of a stream that can still be rewarded, oldest first.

        Parameters
        ----------
        stream : int or str
            The number or name of a stream.

        Returns
        -------
        ndarray of int
            The ids for `learn`.

        Raises
        ------
        HalfseenError
            If the stream is unknown.
        """
        return self._pending.ids[self._pending.indices_of_stream(self._find(stream)[0])]

    def _no_such_decision(self, ids: Ints, position: int) -> DecisionError:
        decision_id = int(ids[position])
        if decision_id in ids[:position]:
            return DecisionError(f"ids: expected distinct decisions, got {decision_id} more than once")
        stream, round_ = decision_id >> ROUND_BITS, decision_id & ROUND_MASK
        expected = "ids: expected decisions of this fleet"
        if stream not in self:
            return DecisionError(f"{expected}, got {decision_id}, whose stream does not exist")
        if not 1 <= round_ <= self._policy.rounds[self._find(stream)[1]]:
            return DecisionError(f"{expected}, got {decision_id}, which was never made")
        return DecisionError(
            f"ids: expected decisions of fleet.pending(stream), got {decision_id}, which already has its reward or is "
            f"older than the last {self._max_pending} unrewarded decisions of its stream"
        )

    # ------------------------------------------------------------------ guardrails

    @property
    def guardrails(self) -> Guardrails:
        """The guardrails of all streams. All shares are 0 if there are none."""
        return Guardrails() if self._guardrails is None else self._guardrails

    def set_guardrails(
        self, *, floor: float = 0.0, holdback: float = 0.0, control: tuple[Arm, float] | None = None
    ) -> None:
        """Change the guardrails of all streams, including streams that are added later.

        Parameters
        ----------
        floor, holdback, control
            As for `Agent.set_guardrails`.

        Raises
        ------
        HalfseenError
            If a share is invalid, or if the control arm is retired in a stream.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=["low", "high"])
        >>> numbers = fleet.add(2)
        >>> fleet.set_guardrails(holdback=1.0)
        >>> fleet.decide([[0.5, -1.0], [0.1, 0.3]]).branches.tolist()
        ['holdback', 'holdback']
        """
        options = {"floor": floor, "holdback": holdback, "control": control}
        self._set_guardrails(Guardrails.checked(self._arms, options))

    def _set_guardrails(self, guardrails: Guardrails) -> None:
        new_stream = np.ones((1, len(self.arms)), dtype=np.bool_)
        active = np.concatenate([self._policy.active[self._registry.rows], new_stream])
        self._pending.unmark(self._policy.set_guardrails(guardrails, self._arms, active=active))
        self._guardrails = guardrails
        self._recipe |= asdict(guardrails)

    # ------------------------------------------------------------------ memory and health

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays, including rows reserved for new streams."""
        return self._registry.nbytes + self._pending.nbytes + sum(array.nbytes for array in self._arrays().values())

    def memory(self) -> dict[str, float]:
        """Return the bytes of memory per stream.

        Returns
        -------
        dict of str to float
            Bytes per stream for ``"estimator"``, ``"learner"``, ``"bookkeeping"`` (such as rounds and reward counts),
            ``"shared"`` (arrays that all streams share, divided by the number of streams), ``"pending"`` decisions and
            the ``"total"``. Names of streams are not counted.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> numbers = fleet.add(1000)
        >>> fleet.memory()["learner"]
        96.0
        """
        found = {"estimator": 0.0, "learner": 0.0, "bookkeeping": 16.0, "shared": 0.0}
        for name, array in self._arrays().items():
            if len(array) == self._policy.streams.count:
                part = name.partition(".")[0]
                found[part if part in found else "bookkeeping"] += array.itemsize * math.prod(array.shape[1:])
            else:
                found["shared"] += array.nbytes / max(1, len(self))
        found["pending"] = self._pending.nbytes / max(1, len(self))
        return found | {"total": sum(found.values())}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays of the policy and its components by name, without duplicates."""
        policy = self._policy
        arrays = {"keys": policy.streams.keys, "reward_counts": self._reward_counts} | _arrays_of(policy)
        arrays |= {"counts": self._pending.counts, "oldest": self._pending.oldest}
        for kind, part in policy.parts():
            arrays |= {f"{kind}.{name}": array for name, array in _arrays_of(part).items()}
        names = {id(array): name for name, array in reversed(arrays.items())}
        return {name: arrays[name] for name in names.values()}

    def health(self) -> Health:
        """Report the state of all streams together.

        `fleet.agent(stream).health()` reports on a single stream in more detail.

        Returns
        -------
        Health
            Facts by name, and a note for each problem.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("ts-pco", observed=2, arms=2)
        >>> numbers = fleet.add(3)
        >>> fleet.health().facts["streams"]
        3
        """
        rows = self._registry.rows
        rounds, missing = self._policy.rounds[rows], self._policy.missing_counts[rows]
        processed = rounds + self._policy.extra_rounds[rows]
        rewards, last_rewarded = self._reward_counts[rows].T
        waiting = self._pending.counts[rows]
        dropped = rounds - rewards - waiting
        without_reward = int((rounds - last_rewarded >= LONG_SILENCE).sum())
        with_dropped = int((dropped > 0).sum())
        with_missing = int((self._policy.missing_streaks[rows] >= LONG_SILENCE).any(axis=1).sum())
        facts: dict[str, object] = {
            "streams": len(rounds),
            "rounds": int(rounds.sum()),
            "rounds of the youngest and of the oldest stream": [int(rounds.min()), int(rounds.max())]
            if len(rounds)
            else [],
            "rewards": int(rewards.sum()),
            "decisions waiting": int(waiting.sum()),
            "decisions dropped": int(dropped.sum()),
            "share of entries not seen": float(missing.sum() / max(1, int(processed.sum()) * missing.shape[1])),
            "streams without a reward in their last decisions": without_reward,
            "streams with an entry not seen for long": with_missing,
        }
        findings: tuple[Finding, ...] = ()
        if self._policy.guardrails is not None:
            guardrail_facts, findings = self._policy.guardrails.report(rows, self.arms)
            facts |= guardrail_facts
        family_facts, family_findings = family_calibration(self._policy.learner, rows, self.arms)
        facts, findings = facts | family_facts, findings + family_findings
        notes = [finding.sentence for finding in findings if finding.verdict is Verdict.BAD]
        if without_reward:
            notes.append(
                f"in {without_reward} of {len(rounds)} streams no reward has come in the last {LONG_SILENCE} "
                "decisions or more"
            )
        if with_dropped:
            notes.append(
                f"{int(dropped.sum())} decisions of {with_dropped} streams can no longer be rewarded: more than "
                f"{self._max_pending} were waiting"
            )
        if with_missing:
            notes.append(
                f"in {with_missing} of {len(rounds)} streams an entry has not been seen in the last {LONG_SILENCE} "
                "rounds or more"
            )
        return Health(tuple(notes), facts, findings)

    # ------------------------------------------------------------------ saving and restoring

    def state(self) -> dict[str, Any]:
        """Return a copy of the state.

        Returns
        -------
        dict of str to ndarray
            All arrays that the fleet keeps from one round to the next, by name. Rows are in the order of `streams`.
        """
        rows = self._registry.rows
        own = {
            "streams": self.streams,
            "names": np.array([name or "" for name in self.names], dtype=np.str_),
            "next_number": np.array([self._registry.next_number]),
            "keys": self._policy.streams.keys[rows],
            "reward_counts": self._reward_counts[rows],
        }
        marked = self._guardrails is not None
        return own | self._pending.state(self._pending.all_indices(), marked=marked) | self._policy.state(rows)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one that `state` returned.

        Parameters
        ----------
        state : mapping of str to ndarray
            The state of a fleet that was made with the same arguments.

        Raises
        ------
        HalfseenError
            If the state does not fit this fleet.
        """
        if not isinstance(state, Mapping):
            raise invalid("state", "a result of fleet.state()", repr(state))
        fresh = Fleet(**self._recipe)
        fresh.restore_empty(state)
        self.__dict__.update(fresh.__dict__)

    def restore_empty(self, state: Mapping[str, Any]) -> None:
        """Restore a state in a fleet without streams."""
        arrays = validation.arrays("state", state)
        guarded = "guardrails.shares" in arrays
        if guarded != (self._guardrails is not None):
            self._guardrails = Guardrails() if guarded else None
            self._recipe = self._recipe if guarded else split_guardrails(self._recipe)[1]
            self._policy = self._build(np.zeros((2, 2), dtype=np.uint64))
        self._check(arrays)
        numbers, ids = arrays["streams"], arrays["pending.ids"]
        rows, waiting_in = np.arange(len(numbers)), np.searchsorted(numbers, ids >> ROUND_BITS)
        self._reserve_rows(rows)
        self._policy.streams.keys[rows] = arrays["keys"]
        self._policy.write(arrays, rows)
        self._reward_counts[rows] = arrays["reward_counts"]
        self._registry.add(rows, arrays["names"].tolist(), numbers)
        self._registry.next_number = int(arrays["next_number"][0])
        arms, features = arrays["pending.arms"], np.ascontiguousarray(arrays["pending.features"])
        self._pending.add(ids, waiting_in, arrays["pending.rounds"], arms, features, arrays.get(MARKS))
        if self._policy.guardrails is not None and len(rows):
            self._set_guardrails(self._policy.guardrails.settings(0, self.arms))

    def _check(self, state: dict[str, NDArray[Any]]) -> None:
        """Refuse arrays that `state` cannot have returned."""
        known = self.state()
        if state.keys() != known.keys():
            raise invalid("state", f"the arrays {', '.join(known)}", f"{len(state)} arrays with other names")
        numbers, ids, names = state["streams"], state["pending.ids"], state["names"]
        lengths = dict.fromkeys(("streams", "names", "keys", "reward_counts"), numbers.size) | {"next_number": 1}
        lengths |= dict.fromkeys(("pending.ids", "pending.rounds", "pending.arms", "pending.features"), ids.size)
        for name, length in lengths.items():
            mine, array = known[name], state[name]
            same = array.dtype.kind == "U" if name == "names" else array.dtype == mine.dtype
            if not same or array.shape != (length, *mine.shape[1:]):
                expected = f"{mine.dtype} {(length, *mine.shape[1:])}"
                raise invalid(f"state '{name}'", expected, f"{array.dtype} {array.shape}")
        self._policy.check(state, len(numbers))
        check_range("state 'rounds'", state["rounds"], 0, MAX_ROUNDS)
        check_range("state 'streams'", numbers, 0, MAX_STREAMS)
        check_range("state 'next_number'", state["next_number"], numbers.max(initial=-1) + 1, MAX_STREAMS + 1)
        check_range("state 'reward_counts'", state["reward_counts"], 0, state["rounds"][:, None])
        check_range("state 'pending.arms'", state["pending.arms"], 0, len(self.arms) - 1)
        check_features(state["pending.features"])
        if not all((np.diff(array, prepend=-1) > 0).all() for array in (numbers, ids)):
            raise invalid("state", "streams and decisions in increasing order", "another order")
        if not np.isin(ids >> ROUND_BITS, numbers).all():
            raise invalid("state", "decisions of the streams in the state", "decisions of other streams")
        waiting_in, rounds = np.searchsorted(numbers, ids >> ROUND_BITS), ids & ROUND_MASK
        if not ((rounds >= 1) & (rounds <= state["rounds"][waiting_in])).all():
            raise invalid("state", "decisions of past rounds", "decisions of rounds that were never played")
        check_rounds(state["pending.rounds"], rounds, state["extra_rounds"][waiting_in])
        waiting = np.bincount(waiting_in, minlength=len(numbers))
        if (waiting > self._max_pending).any() or (waiting + state["reward_counts"][:, 0] > state["rounds"]).any():
            raise invalid("state", "as many rewards and open decisions as rounds at most", "more")
        named = names[names != ""]
        if len(np.unique(named)) < len(named):
            raise invalid("state 'names'", "names that differ from each other", "a name more than once")
        if self._guardrails is not None:
            self._check_guardrails(state)

    def _check_guardrails(self, state: dict[str, NDArray[Any]]) -> None:
        """Refuse arrays of guardrails that the policy accepts, but that do not fit a fleet."""
        check_marks(state[MARKS], len(state["pending.ids"]))
        for name in ("guardrails.shares", "guardrails.control"):
            if (state[name] != state[name][:1]).any():
                raise invalid(f"state '{name}'", "the same guardrails in all streams", "different guardrails")
        if (state["guardrails.reward_counts"].sum(axis=1) > state["reward_counts"][:, 0]).any():
            raise invalid("state 'guardrails.reward_counts'", "at most as many rewards as the stream has", "more")

    def save(self, path: str | Path) -> None:
        """Write the fleet to a file, from which `halfseen.load` restores it bit for bit.

        Parameters
        ----------
        path : str or Path
            The file. An existing file is replaced only when the new one is complete.

        Raises
        ------
        SaveFileError
            If the file cannot be written.
        """
        saving.write(validation.file_path("path", path), self._recipe, self.state(), kind=saving.FLEET_KIND)


def _slices(count: int) -> list[slice]:
    return [slice(start, start + SLICE) for start in range(0, count, SLICE)]


def _arrays_of(part: Stateful) -> dict[str, NDArray[Any]]:
    arrays = {name: value for name, value in vars(part).items() if isinstance(value, np.ndarray)}
    for inner in part.nested:
        arrays |= _arrays_of(getattr(part, inner))
    return arrays


def _seeds(given: Any, count: int) -> Any:
    """Return one seed per stream."""
    if not (isinstance(given, np.ndarray) and given.dtype.kind in "iu" and given.ndim == 1 and (given >= 0).all()):
        numbers = validation.as_list("seeds", given, f"{count} seeds, one per stream")
        given = np.array([seed_number("seeds", one) for one in numbers], dtype=np.uint64)
    if len(given) != count:
        raise invalid("seeds", f"{count} seeds, one per stream", f"{len(given)} seeds")
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
    raise invalid("ids", "ids of decisions, such as decisions.ids", repr(given))


def _mask(available: Mask | Iterable[Arm], arms: Arms, active: Mask) -> Mask:
    """Return a mask (n, K) of the `available` arms of each stream, all of which must be `active` (n, K)."""
    if hasattr(validation.narwhals_frame("available", available), "columns"):
        available = validation.table("available", available, active.shape[1]) == 1.0  # type: ignore[arg-type]
    if isinstance(available, np.ndarray) and available.dtype == np.bool_:
        if available.shape != active.shape:
            raise invalid("available", f"a mask of shape {active.shape}", f"a mask of shape {available.shape}")
        allowed = available.copy()
        if not allowed.any(axis=1).all():
            raise invalid("available", "at least one arm per stream", "a stream without available arms")
    else:
        all_arms = np.ones((1, active.shape[1]), dtype=np.bool_)
        allowed = np.repeat(arms.mask(available, all_arms), len(active), axis=0)
    if (allowed & ~active).any():
        raise invalid("available", "active arms", "an arm that is retired in its stream")
    return allowed
