"""Sweeps: every agent of an experiment is played with every combination of given values of its options."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halfseen.agents.catalogue import AgentSpec, Entry
from halfseen.errors import UnknownName, invalid


@dataclass(frozen=True)
class GridPoint:
    """One agent of a sweep: its label without the swept options, and the values of the swept options."""

    agent: str
    values: Mapping[str, Any]


def expand(specs: Sequence[AgentSpec], grid: Any) -> tuple[tuple[AgentSpec, ...], dict[str, GridPoint]]:
    """Return every agent with every combination of values of the swept options, and the `GridPoint`s by label.

    An agent is swept only over the options that it has. If it has none of them, it is returned once, unchanged.
    """
    options = _checked_grid(grid)
    for name in options:
        if not any(_has_option(spec.entry, name) for spec in specs):
            raise invalid("grid", "options that at least one of the agents has", f"'{name}'")
    expanded, points = [], {}
    for spec in specs:
        swept = {name: values for name, values in options.items() if _has_option(spec.entry, name)}
        for name in swept:
            if name in spec.options:
                raise invalid("grid", f"options that '{spec.label}' does not set itself", f"'{name}'")
        for values in itertools.product(*swept.values()):
            own = dict(zip(swept, values, strict=True))
            texts = ",".join(f"{name}={value_text(value, swept[name])}" for name, value in own.items())
            label = f"{spec.label}{',' if ':' in spec.label else ':'}{texts}" if own else spec.label
            expanded.append(AgentSpec(spec.entry, dict(spec.options) | own, label))
            points[label] = GridPoint(spec.label, own)
    return tuple(expanded), points


def _checked_grid(grid: Any) -> dict[str, list[Any]]:
    expected = "a dictionary from names of options to lists of values"
    if not isinstance(grid, Mapping) or not grid or not all(isinstance(name, str) for name in grid):
        raise invalid("grid", expected, repr(grid))
    checked = {}
    for name, values in grid.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise invalid("grid", expected, f"{name}={values!r}")
        checked[name] = list(values)
        if not checked[name]:
            raise invalid("grid", f"at least one value of '{name}'", "none")
    return checked


def _has_option(entry: Entry, option: str) -> bool:
    try:
        entry.check_options([option])
    except UnknownName:
        return False
    return True


def value_text(value: Any, values: Sequence[Any]) -> str:
    """Return a short text for a value. Arrays and models are numbered in the order in which they are given."""
    if isinstance(value, bool | int | float | str) or value is None:
        return str(value)
    return f"#{1 + next(at for at, one in enumerate(values) if one is value)}"
