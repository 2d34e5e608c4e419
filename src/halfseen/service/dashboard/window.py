"""A window of the most recent decisions of a stream, computed from its events, for the charts of the dashboard."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from halfseen.components import Mask
from halfseen.journal import events
from halfseen.journal.events import Event
from halfseen.kernels.random import Floats
from halfseen.service.schemas import Arm, StreamView

MAX_DECISIONS = 5_000  # per stream
_MAX_NUMBERS = 1_000_000  # in all events of the first read; the longer the events, the fewer are read
_MIN_EVENTS = 200


def max_events(view: StreamView) -> int:
    """Return how many of the most recent events of a stream may be read."""
    observed = view.spec.observed if isinstance(view.spec.observed, int) else len(view.spec.observed)
    numbers = observed + 2 * len(view.arms) + 1
    return max(_MIN_EVENTS, min(2 * MAX_DECISIONS, _MAX_NUMBERS // numbers))


@dataclass(eq=False, slots=True)
class WindowDecision:
    """A decision and its outcome. Arms are numbered as in the stream; K is the number of arms at that time."""

    id: str
    round: int
    time: int
    arm: int  # the arm that was played
    possible: Mask  # (K,), whether the arm could have been played
    propensity: float
    propensities: Floats  # (K,)
    expected: Floats  # (K,), expected rewards of the possible arms, NaN if the agent had no finite estimate
    observation: Floats  # (k,), NaN for missing values
    elapsed: int = 1  # steps since the previous observation or decision
    observed_before: tuple[tuple[Floats, int], ...] = ()  # observations since the previous decision, with their steps
    estimated: str | None = None  # which propensities were estimated, "all" or "others", as in the journal
    reward: float | None = None
    reward_time: int | None = None
    how: str | None = None
    expired: bool = False


class DecisionWindow:
    """The most recent decisions of a stream by id, oldest first, up to event number `version`."""

    def __init__(self, view: StreamView, last_events: Sequence[Event] = ()) -> None:
        """Apply `last_events`, the last of which is event number `view.version`.

        `view` gives the arms that are active after these events. The arms that were active before the events are
        computed from these arms and the events.
        """
        self.arms: list[Arm] = list(view.arms)
        self._active = set(view.active)
        self.first = last_events[0].seq if last_events else view.version + 1  # number of the first event read
        self.version = self.first - 1
        self.decisions: OrderedDict[str, WindowDecision] = OrderedDict()
        self._observed: list[tuple[Floats, int]] = []  # since the last decision
        self._max_decisions = min(MAX_DECISIONS, max_events(view))
        for event in reversed(last_events):
            if isinstance(event.content, events.ArmRetired):
                self._active.add(event.content.arm)
            elif isinstance(event.content, events.ArmAdded):
                self._active.discard(event.content.arm)
                self.arms.remove(event.content.arm)
        self.fold(last_events)

    @property
    def is_whole_stream(self) -> bool:
        """Whether the window contains all decisions of the stream."""
        return self.first == 1 and (not self.decisions or next(iter(self.decisions.values())).round == 1)

    def fold(self, next_events: Iterable[Event]) -> None:
        """Add the next events. Rewards of decisions before the window are ignored."""
        for event in next_events:
            content = event.content
            if isinstance(content, events.Decided):
                self._add_decision(event, content)
            elif isinstance(content, events.Observed):
                self._observed.append((np.array(content.observation, dtype=np.float64), content.elapsed))
            elif isinstance(content, events.Rewarded | events.Expired):
                decision = self.decisions.get(content.decision)
                if decision is not None and isinstance(content, events.Rewarded):
                    decision.reward, decision.reward_time, decision.how = content.value, event.time, content.how
                elif decision is not None:
                    decision.expired = True
            elif isinstance(content, events.ArmAdded):
                self.arms.append(content.arm)
                self._active.add(content.arm)
            elif isinstance(content, events.ArmRetired):
                self._active.discard(content.arm)
            self.version = event.seq

    def _add_decision(self, event: Event, content: events.Decided) -> None:
        assert event.id is not None
        available = self._active if content.available is None else self._active & set(content.available)
        possible = np.array([arm in available or arm == content.arm for arm in self.arms])
        self.decisions[event.id] = WindowDecision(
            id=event.id,
            round=content.round,
            time=event.time,
            arm=self.arms.index(content.arm),
            possible=possible,
            propensity=content.propensity,
            propensities=np.array(content.propensities),
            expected=np.where(possible, np.array(content.expected, dtype=np.float64), 0.0),
            observation=np.array(content.observation, dtype=np.float64),
            elapsed=content.elapsed,
            observed_before=tuple(self._observed),
            estimated=content.estimated,
        )
        self._observed = []
        if len(self.decisions) > self._max_decisions:
            self.decisions.popitem(last=False)
