"""What an experiment is made of, as plain data: agents, worlds, seeds, rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halfseen.catalogue import CATALOG
from halfseen.component import at_least, seed_number
from halfseen.errors import invalid, unknown
from halfseen.worlds import World, named

CHUNK = 200  # rounds simulated at once; part of what makes two runs equal, so not an option


@dataclass(frozen=True)
class AgentSpec:
    """A catalogued agent with options of its own, under a label of its own."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        entry = CATALOG[self.name]
        if not isinstance(self.options, Mapping):
            raise invalid("options", repr(self.options), "a dictionary of options")
        for option in self.options:
            if option not in entry.options:
                raise unknown(f"option of '{self.name}'", option, entry.options)
        if not self.label:
            chosen = ",".join(f"{key}={value}" for key, value in self.options.items())
            object.__setattr__(self, "label", f"{self.name}:{chosen}" if chosen else self.name)


@dataclass(frozen=True)
class Experiment:
    """Agents × worlds × seeds for some rounds."""

    agents: tuple[AgentSpec, ...]
    worlds: tuple[World, ...]
    seeds: tuple[int, ...]
    rounds: int

    def slices(self, size: int) -> list[Slice]:
        """The independent pieces of work, `size` seeds of one world each."""
        return [
            Slice(world, self.agents, self.seeds[at : at + size], self.rounds)
            for world in self.worlds
            for at in range(0, len(self.seeds), size)
        ]


@dataclass(frozen=True)
class Slice:
    """All agents on some seeds of one world."""

    world: World
    agents: tuple[AgentSpec, ...]
    seeds: tuple[int, ...]
    rounds: int


def split_spec(text: str) -> tuple[str, dict[str, Any]]:
    """'name:key=value,key=value' as a name and options; values are JSON where they can be, else text."""
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise invalid("option", f"'{part}' in '{text}'", "name:key=value,key=value")
        try:
            options[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            options[key.strip()] = value.strip()
    return name.strip(), options


def agent_spec(agent: str | AgentSpec) -> AgentSpec:
    """An agent by name ('emkf-ts'), by name with options ('emkf-ts:window=400'), or ready-made."""
    if isinstance(agent, AgentSpec):
        return agent
    if not isinstance(agent, str):
        raise invalid("agents", repr(agent), "names of agents, or AgentSpecs")
    name, options = split_spec(agent)
    return AgentSpec(name, options)


def world_spec(world: str | World) -> World:
    """A world by name ('orbit'), by name with options ('paper:noise=0.5'), or ready-made."""
    if isinstance(world, World):
        return world
    if not isinstance(world, str):
        raise invalid("world", repr(world), "the name of a world, or a world")
    name, options = split_spec(world)
    return named(name, **options)


def _each(given: Any) -> list[Any]:
    """What was given as a list, one thing given alone included."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def seed_range(count: int, first: int) -> range:
    """`count` seeds from `first` on."""
    start = seed_number("first-seed", first)
    return range(start, start + at_least("seeds", count, 1))


def experiment(
    agents: Sequence[str | AgentSpec] | str,
    world: str | World | Sequence[str | World],
    rounds: int,
    seeds: int | Iterable[int],
) -> Experiment:
    """Check and assemble; `seeds` is a count (0, 1, …) or the seeds themselves."""
    specs = tuple(agent_spec(agent) for agent in _each(agents))
    chosen = _each(world)
    worlds = tuple(world_spec(one) for one in chosen)
    numbers = seeds if isinstance(seeds, Iterable) else range(at_least("seeds", seeds, 1))
    listed = tuple(seed_number("seeds", seed) for seed in numbers)
    for argument, values in (
        ("agents", [spec.label for spec in specs]),
        ("world", [one.name for one in worlds]),
        ("seeds", [str(seed) for seed in listed]),
    ):
        if not values:
            raise invalid(argument, "none", "at least one")
        if len(set(values)) < len(values):
            raise invalid(argument, ", ".join(values), "each only once")
    return Experiment(specs, worlds, listed, at_least("rounds", rounds, 1))
