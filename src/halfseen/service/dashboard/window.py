"""The last decisions of a stream, folded from its events: all that the dashboard draws from, and no more of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from halfseen.journal import events
from halfseen.journal.events import Event
from halfseen.kernels.random import Floats
from halfseen.service.schemas import Arm, StreamView

MOST_DECISIONS = 5_000  # of one stream that are shown
_MOST_NUMBERS = 1_000_000  # of all events that are read at first: fewer events where each of them is long
_LEAST_EVENTS = 200
NO_CHANCE = 1e-6  # a propensity below this counts as none


def events_read(view: StreamView) -> int:
    """How many events of a stream are read at most, the last ones."""
    observed = view.spec.observed if isinstance(view.spec.observed, int) else len(view.spec.observed)
    numbers = observed + 2 * len(view.arms) + 1
    return max(_LEAST_EVENTS, min(2 * MOST_DECISIONS, _MOST_NUMBERS // numbers))


@dataclass(eq=False, slots=True)
class Row:
    """A decision and what became of it."""

    id: str
    round: int
    time: int
    place: int  # of the arm played
    propensity: float
    choices: int  # arms that could have been played
    uncovered: float  # share of them that had no chance
    expected: float  # of the arm played, by the agent
    expected_uniform: float  # mean over the arms that could have been played
    observation: Floats  # (k,), NaN where not seen
    reward: float | None = None
    reward_time: int | None = None
    how: str | None = None
    expired: bool = False


class Window:
    """The rows of the last decisions, oldest first, up to event `version`."""

    def __init__(self, view: StreamView, record: Sequence[Event] = ()) -> None:
        """`record` are the last events up to the version of `view`; which arms were active before follows from both."""
        self.arms: list[Arm] = list(view.arms)
        self._active = set(view.active)
        self.first = record[0].seq if record else view.version + 1  # the first event that was read
        self.version = self.first - 1
        self.rows: OrderedDict[str, Row] = OrderedDict()
        self.most = min(MOST_DECISIONS, events_read(view))
        for event in reversed(record):
            if isinstance(event.content, events.ArmRetired):
                self._active.add(event.content.arm)
            elif isinstance(event.content, events.ArmAdded):
                self._active.discard(event.content.arm)
                self.arms.remove(event.content.arm)
        self.add(record)

    def add(self, record: Iterable[Event]) -> None:
        """Live through the next events. Rewards of decisions before the window are passed over."""
        for event in record:
            content = event.content
            if isinstance(content, events.Decided):
                self._decided(event, content)
            elif isinstance(content, events.Rewarded):
                row = self.rows.get(content.decision)
                if row is not None:
                    row.reward, row.reward_time, row.how = content.value, event.time, content.how
            elif isinstance(content, events.Expired):
                row = self.rows.get(content.decision)
                if row is not None:
                    row.expired = True
            elif isinstance(content, events.ArmAdded):
                self.arms.append(content.arm)
                self._active.add(content.arm)
            elif isinstance(content, events.ArmRetired):
                self._active.discard(content.arm)
            self.version = event.seq

    def _decided(self, event: Event, content: events.Decided) -> None:
        assert event.id is not None
        able = self._active if content.available is None else self._active & set(content.available)
        places = [place for place, arm in enumerate(self.arms) if arm in able or arm == content.arm]
        propensities = np.array(content.propensities)[places]
        expected = np.array(content.expected, dtype=np.float64)  # NaN where the agent has none
        place = self.arms.index(content.arm)
        expected = np.array(content.expected, dtype=np.float64)  # NaN where the agent could not say
        self.rows[event.id] = Row(
            id=event.id,
            round=content.round,
            time=event.time,
            place=place,
            propensity=content.propensity,
            choices=len(places),
            uncovered=float((propensities < NO_CHANCE).mean()),
            expected=float(expected[place]),
            expected_uniform=float(expected[places].mean()),
            observation=np.array(content.observation, dtype=np.float64),
        )
        if len(self.rows) > self.most:
            self.rows.popitem(last=False)

    @property
    def reaches_back(self) -> bool:
        """Whether nothing came before what is shown."""
        return self.first == 1 and (not self.rows or next(iter(self.rows.values())).round == 1)
