"""Agents and fleets from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halfseen.agents import saving
from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import make_with_arms
from halfseen.agents.fleet import Fleet
from halfseen.errors import SaveFileError


def load(path: str | Path) -> Agent | Fleet:
    """The agent or the fleet saved in a file, exactly as it was."""
    if saving.kind_of(Path(path)) != saving.FLEET_KIND:
        return _agent(*saving.read(Path(path)), str(path))
    recipe, state = saving.read(Path(path), kind=saving.FLEET_KIND)
    try:
        fleet = Fleet(**recipe)
        fleet.restore_empty(state)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SaveFileError(f"The content of '{path}' is inconsistent: {error}") from None
    return fleet


def from_bytes(content: bytes, source: str) -> Agent:
    """The agent that `Agent.packed` has written; `source` is what errors call it."""
    return _agent(*saving.from_bytes(content, source), source)


def _agent(recipe: dict[str, Any], state: dict[str, Any], path: str) -> Agent:
    try:
        added = recipe.pop("added", ())
        fixed = {name: recipe.pop(name) for name in ("name", "observed", "arms", "seed", "max_pending")}
        agent = make_with_arms(**fixed, options=recipe, added=added)
        agent.restore(state)
    except (KeyError, TypeError, ValueError) as error:
        raise SaveFileError(f"The content of '{path}' is inconsistent: {error}") from None
    return agent
