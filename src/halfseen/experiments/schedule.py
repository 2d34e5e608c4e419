"""Which cell is played next, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from halfseen.experiments.cells import Cell


class Schedule:
    """Cells yet to be played, those that take longest first, so that no process is left alone with them at the end.

    How long a cell takes is learnt from those that are done: of the same agent in the same world, else of the same
    agent. An agent of which nothing is known goes before all others, once.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._waiting = list(cells)
        self._running: dict[int, Cell] = {}  # by identity: options may be arrays, which have no plain equality
        self._started: set[str] = set()
        self._spent: dict[tuple[str, ...], tuple[float, int]] = {}  # seconds and stream-rounds, by place and by agent

    def __iter__(self) -> Iterator[Cell]:
        """The cells; which is next is decided when it is asked for."""
        while self._waiting:
            at = max(range(len(self._waiting)), key=lambda at: self._urgency(self._waiting[at]))  # the first of equals
            cell = self._waiting.pop(at)
            self._running[id(cell)] = cell
            self._started.add(cell.agent.label)
            yield cell

    def finished(self, cell: Cell, seconds: float) -> None:
        """Learn from a cell that is done, in this run or an earlier one."""
        self._running.pop(id(cell), None)
        self._started.add(cell.agent.label)
        for key in (cell.place, (cell.agent.label,)):
            before = self._spent.get(key, (0.0, 0))
            self._spent[key] = before[0] + seconds, before[1] + cell.size

    def seconds_left(self) -> float | None:
        """Work left, of all processes together; None while there is an agent that nothing is known of."""
        expected = [self._expected(cell) for cell in [*self._waiting, *self._running.values()]]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(expected) else None

    def _urgency(self, cell: Cell) -> float:
        return float("inf") if cell.agent.label not in self._started else self._expected(cell) or 0.0

    def _expected(self, cell: Cell) -> float | None:
        for key in (cell.place, (cell.agent.label,)):
            if key in self._spent:
                seconds, size = self._spent[key]
                return seconds * cell.size / size
        return None
