"""Agents and fleets restored from save files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halfseen.agents import saving
from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import make_with_arms
from halfseen.agents.fleet import Fleet
from halfseen.errors import SaveFileError


def load(path: str | Path) -> Agent | Fleet:
    """Restore an agent or a fleet from a file that `save` wrote.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Agent or Fleet
        The agent or fleet in exactly the state in which it was saved.

    Raises
    ------
    SaveFileError
        If the file cannot be read, is damaged or has the format of another version.

    Examples
    --------
    >>> import tempfile
    >>> import halfseen as hs
    >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     agent.save(f"{folder}/agent.hs")
    ...     hs.load(f"{folder}/agent.hs").name
    'ts-pco'
    """
    if saving.kind_of(Path(path)) != saving.FLEET_KIND:
        return _restore_agent(*saving.read(Path(path)), str(path))
    recipe, state = saving.read(Path(path), kind=saving.FLEET_KIND)
    try:
        fleet = Fleet(**recipe)
        fleet.restore_empty(state)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SaveFileError(f"The content of '{path}' is inconsistent: {error}") from None
    return fleet


def from_bytes(content: bytes, source: str) -> Agent:
    """Restore an agent from the result of `Agent.packed`. Error messages call the content `source`."""
    return _restore_agent(*saving.from_bytes(content, source), source)


def _restore_agent(recipe: dict[str, Any], state: dict[str, Any], source: str) -> Agent:
    try:
        added = recipe.pop("added", ())
        fixed = {name: recipe.pop(name) for name in ("name", "observed", "arms", "seed", "max_pending")}
        agent = make_with_arms(**fixed, options=recipe, added=added)
        agent.restore(state)
    except (KeyError, TypeError, ValueError) as error:
        raise SaveFileError(f"The content of '{source}' is inconsistent: {error}") from None
    return agent
