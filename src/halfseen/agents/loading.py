"""Agents and fleets restored from save files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from halfseen.agents import saving
from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import make_with_arms
from halfseen.agents.fleet import Fleet
from halfseen.agents.pending import ROUND_MASK
from halfseen.errors import HalfseenError, SaveFileError, invalid
from halfseen.estimators.adaptive.upgrade import upgrade_arrays

T = TypeVar("T")
# If one of these options of an agent is d, the state of the agent has at least d²/4 numbers. `_check_size` therefore
# refuses a file with fewer numbers.
_SQUARED = ("latent", "states", "lags")


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
    source = str(path)
    if saving.kind_of(Path(path)) != saving.FLEET_KIND:
        return _restored(_agent, *saving.read(Path(path)), source)
    return _restored(_fleet, *saving.read(Path(path), kind=saving.FLEET_KIND), source)


def from_bytes(content: bytes, source: str) -> Agent:
    """Restore an agent from the result of `Agent.packed`. `source` names the content in error messages."""
    return _restored(_agent, *saving.from_bytes(content, source), source)


def _agent(recipe: dict[str, Any], state: dict[str, Any]) -> Agent:
    added = recipe.pop("added", ())
    fixed = {name: recipe.pop(name) for name in ("name", "observed", "arms", "seed", "max_pending")}
    agent = make_with_arms(**fixed, options=recipe, added=added)
    agent.restore(state)
    return agent


def _fleet(recipe: dict[str, Any], state: dict[str, Any]) -> Fleet:
    fleet = Fleet(**recipe)
    fleet.restore_empty(state)
    return fleet


def _restored(
    restore: Callable[[dict[str, Any], dict[str, Any]], T], recipe: dict[str, Any], state: dict[str, Any], source: str
) -> T:
    try:
        recipe = _renamed_options(recipe, state)
        state = upgrade_arrays(_with_rounds(state), "estimator.")
        _check_size(recipe, state)
        return restore(recipe, state)
    except Exception as error:  # an invalid recipe can fail anywhere in the components
        reason = str(error) if isinstance(error, HalfseenError) else f"{type(error).__name__}: {error}"
        raise SaveFileError(f"The content of '{source}' is inconsistent: {' '.join(reason.split())}") from None


def _with_rounds(state: dict[str, Any]) -> dict[str, Any]:
    """Add the arrays needed for rounds without a decision, which files from before version 0.3.0 lack."""
    if "extra_rounds" in state or "rounds" not in state or "pending.ids" not in state:
        return state
    rounds = np.asarray(state["pending.ids"]) & ROUND_MASK  # in a fleet, an id also contains the stream
    return state | {"extra_rounds": np.zeros_like(np.asarray(state["rounds"])), "pending.rounds": rounds}


def _check_size(recipe: dict[str, Any], state: dict[str, Any]) -> None:
    """Refuse a recipe that describes a larger agent than the one whose state is in the file.

    Otherwise a small file could fill the memory, because the agent is made before its state is restored.
    """
    active, missing = (np.shape(state[name]) for name in ("active", "missing_counts"))
    arms = recipe["arms"] if isinstance(recipe["arms"], int) else len(recipe["arms"])
    if active[-1:] != (arms + len(recipe.get("added", ())),):
        raise invalid("state", f"a state of {arms} arms", f"an array 'active' of shape {active}")
    if missing[-1:] != (recipe["observed"],):
        raise invalid("state", f"a state of {recipe['observed']} observed features", f"shape {missing}")
    numbers = sum(np.size(array) for array in state.values())
    for name in _SQUARED:
        value = recipe.get(name)
        if isinstance(value, int) and value * value > 4 * numbers:
            raise invalid(f"option '{name}'", f"a number that fits a state of {numbers} numbers", value)


def _renamed_options(recipe: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an agent with the current names of its options.

    Until version 0.2.0 the option `minimum_probability` of `meb` was called `floor`, which is the name of a guardrail
    in later versions.
    """
    if recipe.get("name") == "meb" and "floor" in recipe and "guardrails.shares" not in state:
        return {("minimum_probability" if name == "floor" else name): value for name, value in recipe.items()}
    return recipe
