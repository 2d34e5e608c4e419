"""The last decisions of a stream, folded from its events: what the charts of the dashboard are drawn from."""

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
_MAX_NUMBERS = 1_000_000  # in all events that are read at first: fewer events where each of them is long
_MIN_EVENTS = 200


def max_events(view: StreamView) -> int:
    """How many events of a stream are read at most, the last ones."""
    observed = view.spec.observed if isinstance(view.spec.observed, int) else len(view.spec.observed)
    numbers = observed + 2 * len(view.arms) + 1
    return max(_MIN_EVENTS, min(2 * MAX_DECISIONS, _MAX_NUMBERS // numbers))


@dataclass(eq=False, slots=True)
class WindowDecision:
    """A decision and what became of it. Arms, K at the time, are numbered in the order in which the stream got them."""

    id: str
    round: int
    time: int
    arm: int  # the one played
    possible: Mask  # (K,), arms that could have been played
    propensity: float
    propensities: Floats  # (K,)
    expected: Floats  # (K,), rewards of the possible arms; NaN where the agent could not say
    observation: Floats  # (k,), NaN where not seen
    reward: float | None = None
    reward_time: int | None = None
    how: str | None = None
    expired: bool = False


class DecisionWindow:
    """The last decisions of a stream by id, oldest first, up to event `version`."""

    def __init__(self, view: StreamView, record: Sequence[Event] = ()) -> None:
        """`record` are the last events up to the version of `view`; which arms were active before follows from both."""
        self.arms: list[Arm] = list(view.arms)
        self._active = set(view.active)
        self.first = record[0].seq if record else view.version + 1  # the first event that was read
        self.version = self.first - 1
        self.decisions: OrderedDict[str, WindowDecision] = OrderedDict()
        self._max_decisions = min(MAX_DECISIONS, max_events(view))
        for event in reversed(record):
            if isinstance(event.content, events.ArmRetired):
                self._active.add(event.content.arm)
            elif isinstance(event.content, events.ArmAdded):
                self._active.discard(event.content.arm)
                self.arms.remove(event.content.arm)
        self.fold(record)

    @property
    def is_whole_stream(self) -> bool:
        """Whether no decision came before those of the window."""
        return self.first == 1 and (not self.decisions or next(iter(self.decisions.values())).round == 1)

    def fold(self, record: Iterable[Event]) -> None:
        """Add the next events. Rewards of decisions before the window are passed over."""
        for event in record:
            content = event.content
            if isinstance(content, events.Decided):
                self._add_decision(event, content)
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
        able = self._active if content.available is None else self._active & set(content.available)
        possible = np.array([arm in able or arm == content.arm for arm in self.arms])
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
        )
        if len(self.decisions) > self._max_decisions:
            self.decisions.popitem(last=False)
