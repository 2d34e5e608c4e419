"""What an experiment is made of, as plain data: agents, worlds, seeds, rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from halfseen.agents.catalogue import CATALOG, AgentSpec, agent_spec, split_spec
from halfseen.errors import invalid
from halfseen.validation import at_least, seed_number
from halfseen.worlds import named
from halfseen.worlds.world import World


class Defaults(NamedTuple):
    """What is played when nothing is asked for."""

    agents: tuple[str, ...]
    seeds: int
    rounds: int | None  # None: all there are


SIMULATED_DEFAULTS = Defaults(("oracle-ts", "kf-ts", "adaptive", "emkf-ts", "ts-pco", "random"), 20, 10_000)
RECORDED_DEFAULTS = Defaults(("oracle-ts", "adaptive", "lag-ts", "ts-pco", "emkf-ts", "random"), 10, None)
CHUNK = 200  # rounds simulated at once; part of what makes two runs equal, so not an option


@dataclass(frozen=True)
class Experiment:
    """Agents × worlds × seeds for some rounds."""

    agents: tuple[AgentSpec, ...]
    worlds: tuple[World, ...]
    seeds: tuple[int, ...]
    rounds: int

    def slice_of(self, world: World) -> Slice:
        """Return all that is to be played in one of the worlds."""
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
        """Stream-rounds to play."""
        return len(self.agents) * len(self.seeds) * self.rounds


def world_spec(world: str | World) -> World:
    """A world by name ('orbit'), by name with options ('paper:noise=0.5'), or ready-made."""
    if isinstance(world, World):
        return world
    if not isinstance(world, str):
        raise invalid("world", "the name of a world, or a world", repr(world))
    name, options = split_spec(world)
    return named(name, **options)


def _listed(given: Any) -> list[Any]:
    """Return what was given as a list, also if it is a single value."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def seed_range(count: int, first: int) -> range:
    """`count` seeds from `first` on."""
    start = seed_number("first-seed", first)
    return range(start, start + at_least("seeds", count, 1))


def experiment(
    agents: Sequence[str | AgentSpec] | str | None,
    world: str | World | Sequence[str | World],
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
) -> Experiment:
    """Check and assemble. `seeds` is a count (0, 1, …) or the seeds themselves. None stands for the defaults."""
    worlds = tuple(world_spec(one) for one in _listed(world))
    specs = tuple(agent_spec(agent) for agent in (defaults_for(worlds).agents if agents is None else _listed(agents)))
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
            raise invalid(argument, "each only once", ", ".join(values))
    _check_kinds(worlds)
    for one in worlds:
        for spec in specs:
            _check_required_facts(spec, one)
    return Experiment(specs, worlds, checked_seeds, _rounds_to_play(rounds, worlds))


def defaults_for(worlds: Sequence[World]) -> Defaults:
    """Return what is played in such worlds when nothing is asked for."""
    return RECORDED_DEFAULTS if worlds and all(world.recorded for world in worlds) else SIMULATED_DEFAULTS


def _check_kinds(worlds: Sequence[World]) -> None:
    """Recorded worlds are judged by the reward, simulated ones by the regret: one table cannot hold both."""
    names = {kind: [world.name for world in worlds if world.recorded is kind] for kind in (True, False)}
    if names[True] and names[False]:
        raise invalid("world", "one kind at a time", f"'{names[True][0]}', recorded, beside '{names[False][0]}'")


def _check_required_facts(spec: AgentSpec, world: World) -> None:
    if world.known_facts is None:
        return
    for fact in CATALOG[spec.name].required:
        if fact not in world.known_facts and fact not in spec.options:
            raise invalid(
                "agents",
                f"one that need not be told its {fact}: of recorded data nobody knows it",
                f"'{spec.label}' in '{world.name}'",
            )


def _rounds_to_play(rounds: int | None, worlds: Sequence[World]) -> int:
    lengths = {world.name: world.length for world in worlds if world.length is not None}
    if rounds is None:
        if len(set(lengths.values())) > 1:
            given = ", ".join(f"{length} in '{name}'" for name, length in lengths.items())
            raise invalid("rounds", "a number that all of these worlds have", f"nothing, with {given}")
        rounds = next(iter(lengths.values()), SIMULATED_DEFAULTS.rounds)
    asked = at_least("rounds", rounds, 1)
    for name, length in lengths.items():
        if asked > length:
            raise invalid("rounds", f"at most {length}: '{name}' has no more", str(asked))
    return asked
