"""The map of the paper's claims. It shows in which settings each claim holds.

The paper leaves these settings open. A cell of the map is the world of the paper with one process noise ε and one
observation noise Σ = sI. EMKF plays every cell with two starts, because the paper states neither EMKF's first estimate
of Q nor the length of its windows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from halfseen.agents.catalogue import AgentSpec, agent_spec
from halfseen.errors import HalfseenError
from halfseen.experiments.cache import SliceStore
from halfseen.experiments.claims import Claim, ClaimVerdict, combine, regret_claims, relative_regret
from halfseen.experiments.engines import choose_executor
from halfseen.experiments.plan import Experiment, Slice, check_memory
from halfseen.experiments.slice_schedule import Progress, play_slices
from halfseen.experiments.slice_summary import CURVE_POINTS, SliceSummary, one_agent_slices, world_and_agent
from halfseen.kernels.random import Floats
from halfseen.reports.tables import count
from halfseen.statistics.confidence_intervals import Estimate, standard_error
from halfseen.statistics.growth import growth_from_blocks, log_grid
from halfseen.worlds import named
from halfseen.worlds.world import World

NOISE = (1e-4, 1e-3, 0.01, 0.1, 1.0)  # ε
SENSOR_NOISE = (0.0, 0.01, 0.1, 1.0)  # s
MAP_SEEDS, QUICK_MAP_SEEDS = 10, 3
LONGER = 6  # a long map has this many times as many rounds as the first map
REFERENCES, SUBJECTS = ("oracle-ts", "kf-ts", "ts-pco"), ("emkf-ts", "emkf-ucb")


class Cell(NamedTuple):
    """One setting of the noise."""

    noise: float  # ε
    sensor_noise: float  # s

    @property
    def world(self) -> World:
        return named("paper", noise=self.noise, sensor_noise=self.sensor_noise)


class Start(NamedTuple):
    """The first estimate of Q and the length of the windows of EMKF."""

    name: str
    initial_process_var: float | None  # None means ε
    window: int

    def agent(self, subject: str, noise: float) -> AgentSpec:
        """Return EMKF with this start in a cell with process noise ε = `noise`."""
        first = noise if self.initial_process_var is None else self.initial_process_var
        options = {"initial_process_var": first, "window": self.window}
        return AgentSpec(subject, options, self.label(subject))

    def label(self, subject: str) -> str:
        return f"{subject}, {self.name}"


STARTS = (Start("Q̂₀ = I, L = 200", 1.0, 200), Start("Q̂₀ = εI, L = 1000", None, 1000))


@dataclass(frozen=True)
class MapPlan:
    """The number of rounds, the seeds and, for each start in the order of `STARTS`, the cells to play."""

    cells: tuple[tuple[Cell, ...], ...]
    rounds: int
    seeds: tuple[int, ...]

    def slices(self) -> list[Slice]:
        """Return the slices of all cells. Agents that do not depend on the start play every cell once."""
        slices = []
        for cell in sorted(set().union(*self.cells)):
            specs = [agent_spec(name) for name in REFERENCES]
            specs += [
                start.agent(subject, cell.noise)
                for start, cells in zip(STARTS, self.cells, strict=True)
                if cell in cells
                for subject in SUBJECTS
            ]
            slices += one_agent_slices(Experiment(tuple(specs), (cell.world,), self.seeds, self.rounds))
        return slices


def long_plan(before: ClaimMap, rounds: int) -> MapPlan:
    """Return a plan that plays, with each start and `rounds` rounds, the cells of `before` in which a claim held."""
    repeated: list[tuple[Cell, ...]] = []
    for start, cells in zip(STARTS, before.plan.cells, strict=True):
        panels = [panel for panel in before.panels() if panel.start in (None, start)]
        chosen = set().union(*(panel.where(ClaimVerdict.HOLDS) for panel in panels))
        repeated.append(tuple(cell for cell in cells if cell in chosen))
    return MapPlan(tuple(repeated), rounds, before.plan.seeds)


def map_plan(rounds: int, seeds: Iterable[int]) -> MapPlan:
    """Return the plan of the whole map."""
    cells = tuple(Cell(noise, sensor_noise) for sensor_noise in SENSOR_NOISE for noise in NOISE)
    return MapPlan((cells,) * len(STARTS), rounds, tuple(seeds))


class AgentRegret(NamedTuple):
    """The regret of one agent in one cell, with one row per seed."""

    total: Floats  # R(T) (S,)
    blocks: Floats  # `block_means` of the regret per round (S, 4)
    curve: Floats  # R(t) (S, G) at `log_grid(rounds, CURVE_POINTS)`


@dataclass(frozen=True)
class StartRegrets:
    """The regrets with one start, from which the claims are tested."""

    worlds: tuple[str, ...]
    rounds: int
    by_world_and_agent: Mapping[tuple[str, str], AgentRegret]
    start: Start
    agents: tuple[str, ...] = (*REFERENCES, *SUBJECTS)

    def of(self, world: str, agent: str) -> AgentRegret:
        return self.by_world_and_agent[world, self.start.label(agent) if agent in SUBJECTS else agent]

    def total_regret(self, world: str, agent: str) -> Floats:
        return self.of(world, agent).total

    def growth_exponent(self, world: str, agent: str) -> Estimate:
        return growth_from_blocks(self.of(world, agent).blocks, self.rounds)


@dataclass(frozen=True)
class ClaimMap:
    """The regrets of all cells."""

    plan: MapPlan
    regrets: tuple[StartRegrets, ...]  # one per start
    wall_seconds: float

    def panels(self) -> list[Panel]:
        """Return one panel per claim and start. A claim for which the start does not matter has only one panel."""
        panels: list[Panel] = []
        for start, cells, regrets in zip(STARTS, self.plan.cells, self.regrets, strict=True):
            for number, claim in enumerate(regret_claims(regrets)):
                depends = any(finding.subject in SUBJECTS for finding in claim.findings)
                if depends or start is STARTS[0]:
                    panels.append(Panel(number, claim, start if depends else None, cells))
        return sorted(panels, key=lambda panel: panel.number)

    def summary(self, before: ClaimMap | None = None) -> dict[str, Any]:
        """Return the map as plain data.

        If this map repeats the cells of the map `before` with more rounds, the panel of a claim contains only those
        cells in which the claim held before.
        """
        earlier = None if before is None else {panel.key: panel.where(ClaimVerdict.HOLDS) for panel in before.panels()}
        panels = self.panels()
        if earlier is not None:
            panels = [panel.restricted(earlier[panel.key]) for panel in panels]
        return {
            "rounds": self.plan.rounds,
            "rounds_before": None if before is None else before.plan.rounds,
            "seeds": list(self.plan.seeds),
            "wall_seconds": self.wall_seconds,
            "noise": list(NOISE),
            "sensor_noise": list(SENSOR_NOISE),
            "starts": [start.name for start in STARTS],
            "panels": [
                panel.summary(self.plan.rounds, None if before is None else before.plan.rounds) for panel in panels
            ],
            "known_model": self._known_model(),
            "cells": [self._cell_summary(cell) for cell in sorted(set().union(*self.plan.cells))],
        }

    def _known_model(self) -> list[dict[str, Any]]:
        """Return R(T) of kf-ts relative to oracle-ts in every cell. kf-ts is given the true model."""
        figures = []
        for cell in sorted(set().union(*self.plan.cells)):
            figure = relative_regret(self.regrets[0], cell.world.name, "kf-ts", "oracle-ts")
            assert figure is not None
            figures.append(cell._asdict() | {"figures": {"kf-ts": figure.as_dict()}, "verdict": None})
        return figures

    def _cell_summary(self, cell: Cell) -> dict[str, Any]:
        world = cell.world.name
        agents = {
            agent: {
                "regret_by_seed": regret.total.tolist(),
                "blocks_by_seed": regret.blocks.tolist(),
                "curve": {
                    "rounds": log_grid(self.plan.rounds, CURVE_POINTS).tolist(),
                    "mean": regret.curve.mean(axis=0).tolist(),
                    "standard_error": [standard_error(column) for column in regret.curve.T],
                },
            }
            for (name, agent), regret in self.regrets[0].by_world_and_agent.items()
            if name == world
        }
        return cell._asdict() | {"world": world, "agents": agents}


@dataclass(frozen=True)
class Panel:
    """The findings about one claim in all cells. `start` is None if the start of EMKF does not matter."""

    number: int  # of the claim
    claim: Claim
    start: Start | None
    cells: tuple[Cell, ...]

    @property
    def key(self) -> tuple[int, Start | None]:
        return self.number, self.start

    def verdict(self, cell: Cell) -> ClaimVerdict:
        """Return the verdict in one cell, over all agents that the claim is about."""
        return combine(finding.verdict for finding in self.claim.findings if finding.world == cell.world.name)

    def where(self, verdict: ClaimVerdict) -> set[Cell]:
        return {cell for cell in self.cells if self.verdict(cell) is verdict}

    def restricted(self, cells: set[Cell]) -> Panel:
        return replace(self, cells=tuple(cell for cell in self.cells if cell in cells))

    def summary(self, rounds: int, rounds_before: int | None) -> dict[str, Any]:
        """Return the panel as plain data.

        `rounds_before` is given if the panel repeats only cells in which the claim held with that many rounds.
        """
        cells = []
        for cell in self.cells:
            found = [finding for finding in self.claim.findings if finding.world == cell.world.name]
            figures = {one.subject: one.figure.as_dict() | {"verdict": str(one.verdict)} for one in found}
            cells.append(cell._asdict() | {"verdict": str(self.verdict(cell)), "figures": figures})
        return {
            "title": self.claim.title,
            "measure": self.claim.measure,
            "start": None if self.start is None else self.start.name,
            "statement": self.statement(rounds, rounds_before),
            "cells": cells,
        }

    def statement(self, rounds: int, rounds_before: int | None) -> str:
        """Return a sentence that says in which cells the claim holds."""
        holds, fails = self.where(ClaimVerdict.HOLDS), self.where(ClaimVerdict.FAILS)
        undecided = len(self.cells) - len(holds) - len(fails)
        start = "" if self.start is None else f", with {self.start.name.replace(', ', ' and ')},"
        cells = count(self.cells, "cell")
        if rounds_before is not None:
            cells = f"the {cells} in which it holds at T = {rounds_before:,}"
            if not self.cells:
                return f"At T = {rounds_before:,}{start} it holds in no cell, so none was repeated."
        place = f": {describe_cells(holds)}" if holds else ""
        rest = f"It does not hold in {len(fails)} and is undecided in {undecided}."
        return f"At T = {rounds:,}{start} it holds in {len(holds)} of {cells}{place}. {rest}"


def describe_cells(cells: Collection[Cell]) -> str:
    """Describe a set of cells as a few rectangles of the map: "where Σ ≥ 0.01 I and ε ≤ 0.01; where Σ = 0"."""
    parts, left = [], set(cells)
    while left:
        largest = max(_rectangles_within(set(cells)), key=lambda one: len(left & one.cells))
        parts.append(largest.text)
        left -= largest.cells
    return "; ".join(parts)


class _Rectangle(NamedTuple):
    cells: frozenset[Cell]
    text: str


def _rectangles_within(cells: set[Cell]) -> list[_Rectangle]:
    """Return every rectangle of the map that lies within the given cells, the largest first."""
    found = []
    for (noise, about_noise), (sensor_noise, about_sensors) in itertools.product(
        _ranges(NOISE, lambda value: f"{value:g}", "ε"), _ranges(SENSOR_NOISE, _matrix_text, "Σ")
    ):
        members = frozenset(Cell(one, other) for one in noise for other in sensor_noise)
        if members <= cells:
            conditions = " and ".join(filter(None, (about_sensors, about_noise)))
            found.append(_Rectangle(members, f"where {conditions}" if conditions else "everywhere"))
    return sorted(found, key=lambda one: -len(one.cells))


def _ranges(
    values: Sequence[float], text: Callable[[float], str], symbol: str
) -> Iterator[tuple[Sequence[float], str | None]]:
    """Yield every range of neighbouring values with its description, which is None for the range of all values."""
    last = len(values) - 1
    for first, end in itertools.combinations_with_replacement(range(len(values)), 2):
        low, high = text(values[first]), text(values[end])
        if (first, end) == (0, last):
            description = None
        elif first == end:
            description = f"{symbol} = {low}"
        elif first == 0:
            description = f"{symbol} ≤ {high}"
        elif end == last:
            description = f"{symbol} ≥ {low}"
        else:
            description = f"{low} ≤ {symbol} ≤ {high}"
        yield values[first : end + 1], description


def _matrix_text(value: float) -> str:
    """Return Σ = sI as text."""
    return "0" if value == 0.0 else "I" if value == 1.0 else f"{value:g} I"


def play_map(
    plan: MapPlan,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    store: SliceStore | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> ClaimMap:
    """Play all cells of the map. Slices that are already in `store` are not played again."""
    slices = plan.slices()
    began = time.perf_counter()
    with choose_executor(jobs, cluster, most=len(slices)) as executor:
        check_memory(executor.workers * max(task.size for task in slices), plan.rounds)
        summaries, _ = play_slices(slices, executor, store, progress)
    regrets = _join(slices, summaries)
    return ClaimMap(
        plan,
        tuple(
            StartRegrets(tuple(cell.world.name for cell in cells), plan.rounds, regrets, start)
            for start, cells in zip(STARTS, plan.cells, strict=True)
        ),
        time.perf_counter() - began,
    )


def _join(slices: Sequence[Slice], summaries: Sequence[SliceSummary]) -> dict[tuple[str, str], AgentRegret]:
    parts: dict[tuple[str, str], list[SliceSummary]] = {}
    for task, summary in zip(slices, summaries, strict=True):
        world, agent = world_and_agent(task)
        if summary.error is not None:
            raise HalfseenError(f"'{agent}' failed in '{world}': {summary.error}")
        parts.setdefault((world, agent), []).append(summary)
    return {
        key: AgentRegret(
            np.concatenate([one.regret_by_seed for one in several]),
            np.concatenate([one.blocks_by_seed for one in several]),
            np.concatenate([one.curve_by_seed for one in several]),
        )
        for key, several in parts.items()
    }
