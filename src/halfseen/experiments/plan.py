"""The plan of an experiment, as plain data: agents, worlds, seeds and rounds."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from halfseen.agents.catalogue import AgentSpec, agent_spec, is_triple, split_spec
from halfseen.agents.plain import PlainEntry, factory_name
from halfseen.errors import invalid
from halfseen.experiments.grid import GridPoint, expand
from halfseen.validation import at_least, seed_number
from halfseen.worlds import named
from halfseen.worlds.world import World


class Defaults(NamedTuple):
    """The agents, the number of seeds and the number of rounds of an experiment that does not specify them."""

    agents: tuple[str, ...]
    seeds: int
    rounds: int | None  # None means all rounds of a recorded world


SIMULATED_DEFAULTS = Defaults(("oracle-ts", "kf-ts", "adaptive", "emkf-ts", "ts-pco", "random"), 20, 10_000)
RECORDED_DEFAULTS = Defaults(("oracle-ts", "adaptive", "lag-ts", "ts-pco", "emkf-ts", "random"), 10, None)
CHUNK = 200  # rounds simulated at once. It is not an option because the random draws depend on it.
BYTES_PER_ROUND = 68  # per stream: four numbers of 8 bytes and an arm of 2 bytes, doubled because joining copies them


@dataclass(frozen=True)
class Experiment:
    """All agents in all worlds on all seeds, for a number of rounds."""

    agents: tuple[AgentSpec, ...]
    worlds: tuple[World, ...]
    seeds: tuple[int, ...]
    rounds: int
    grid: Mapping[str, GridPoint] = field(default_factory=dict)  # the agents of a sweep by label, empty without a sweep

    def slice_of(self, world: World) -> Slice:
        """Return the slice of all agents and all seeds in one of the worlds."""
        return Slice(world, self.agents, self.seeds, self.rounds)


@dataclass(frozen=True)
class Slice:
    """All agents on some seeds of one world."""

    world: World
    agents: tuple[AgentSpec, ...]
    seeds: tuple[int, ...]
    rounds: int

    @property
    def size(self) -> int:
        """Number of stream-rounds to play."""
        return len(self.agents) * len(self.seeds) * self.rounds


def world_spec(world: str | World) -> World:
    """Return the world for a name ('orbit') or for a name with options ('paper:noise=0.5')."""
    if isinstance(world, World):
        return world
    if not isinstance(world, str):
        how = f" (hs.worlds.generated({factory_name(world)}, ...) makes one)" if callable(world) else ""
        raise invalid("world", f"the name of a world, or a world{how}", repr(world))
    name, options = split_spec(world)
    return named(name, **options)


def check_memory(size: int, rounds: int) -> None:
    """Raise if `size` stream-rounds of an experiment with this many rounds do not fit into the machine's memory."""
    if not hasattr(os, "sysconf"):  # Windows does not report its memory in this way
        return
    needed, memory = size * BYTES_PER_ROUND, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        gigabytes = 1e9
        raise invalid(
            "rounds",
            f"few enough rounds and seeds for {memory / gigabytes:.0f} GB of memory",
            f"{rounds:,} rounds, which need {needed / gigabytes:,.0f} GB",
        )


def as_list(given: Any) -> list[Any]:
    """Return the given values as a list. A single value becomes a list of one."""
    alone = isinstance(given, str) or inspect.isclass(given) or is_triple(given)
    return list(given) if isinstance(given, Iterable) and not alone else [given]


def seed_range(count: int, first: int) -> range:
    """Return `count` consecutive seeds, starting with `first`."""
    start = seed_number("first-seed", first)
    return range(start, start + at_least("seeds", count, 1))


def experiment(
    agents: Any,
    world: str | World | Sequence[str | World],
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
    grid: Mapping[str, Iterable[Any]] | None = None,
) -> Experiment:
    """Check the arguments of `run` and return them as an `Experiment`. None means the default."""
    worlds = tuple(world_spec(one) for one in as_list(world))
    specs = tuple(agent_spec(agent) for agent in (defaults_for(worlds).agents if agents is None else as_list(agents)))
    points: dict[str, GridPoint] = {}
    if grid is not None:
        specs, points = expand(specs, grid)
    seeds = defaults_for(worlds).seeds if seeds is None else seeds
    numbers = seeds if isinstance(seeds, Iterable) else range(at_least("seeds", seeds, 1))
    checked_seeds = tuple(seed_number("seeds", seed) for seed in numbers)
    for argument, values in (
        ("agents", [spec.label for spec in specs]),
        ("world", [one.name for one in worlds]),
        ("seeds", [str(seed) for seed in checked_seeds]),
    ):
        if not values:
            raise invalid(argument, "at least one", "none")
        if len(set(values)) < len(values):
            raise invalid(argument, "no duplicates", ", ".join(values))
    _check_kinds(worlds)
    for one in worlds:
        for spec in specs:
            _check_required_facts(spec, one)
    return Experiment(specs, worlds, checked_seeds, _rounds_to_play(rounds, worlds), points)


def defaults_for(worlds: Sequence[World]) -> Defaults:
    """Return the default agents, seeds and rounds for these worlds."""
    return RECORDED_DEFAULTS if worlds and all(world.recorded for world in worlds) else SIMULATED_DEFAULTS


def _check_kinds(worlds: Sequence[World]) -> None:
    """Raise if recorded worlds, which are judged by reward, are combined with simulated worlds, judged by regret."""
    names = {kind: [world.name for world in worlds if world.recorded is kind] for kind in (True, False)}
    if names[True] and names[False]:
        raise invalid(
            "world",
            "only recorded or only simulated worlds",
            f"'{names[True][0]}' (recorded) and '{names[False][0]}' (simulated)",
        )


def _check_required_facts(spec: AgentSpec, world: World) -> None:
    if isinstance(spec.entry, PlainEntry):
        spec.entry.check_required(spec.options)
        return
    if world.known_facts is None:
        return
    for fact in spec.entry.required:
        if fact not in world.known_facts and fact not in spec.options:
            source = "recorded data" if world.recorded else "this world"
            raise invalid(
                "agents",
                f"agents that do not require {fact}, which is unknown for {source}",
                f"'{spec.label}' in '{world.name}'",
            )


def _rounds_to_play(rounds: int | None, worlds: Sequence[World]) -> int:
    lengths = {world.name: world.length for world in worlds if world.length is not None}
    if rounds is None:
        if len(set(lengths.values())) > 1:
            given = ", ".join(f"{length} in '{name}'" for name, length in lengths.items())
            raise invalid("rounds", "a number, as the worlds have different lengths", f"none, with {given}")
        rounds = next(iter(lengths.values()), SIMULATED_DEFAULTS.rounds)
    checked = at_least("rounds", rounds, 1)
    for name, length in lengths.items():
        if checked > length:
            raise invalid("rounds", f"at most {length}, the length of '{name}'", str(checked))
    return checked
