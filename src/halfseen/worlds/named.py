"""The named worlds, one function for each (docs/mathematics.md, "The worlds")."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from halfseen.errors import unknown
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.tables import Table
from halfseen.validation import at_least, positive
from halfseen.worlds.linear_gaussian import FixedWorld, RandomWorld
from halfseen.worlds.markets import power, returns, voltrade
from halfseen.worlds.markov_chain import ChainWorld, MarkovChain
from halfseen.worlds.world import World


def paper(*, noise: float = 0.1) -> RandomWorld:
    """The experiment of the paper (section 4). Option `noise` is ε in Q = εI."""
    process_var = positive("noise", noise)
    return RandomWorld(
        name=f"paper ε={process_var:g}",
        latent=20,
        observed=10,
        arms=15,
        dynamics="stochastic",
        process_var=process_var,
        reward_std=1.0,
    )


def orbit() -> RandomWorld:
    """Slow hidden modes and little noise. Hidden coordinates can be inferred from the motion of the observed ones."""
    return RandomWorld(
        name="orbit", latent=20, observed=10, arms=15, dynamics="orthogonal", process_var=0.01, reward_std=0.1
    )


def keyhole() -> RandomWorld:
    """Three of eight coordinates are observed."""
    return RandomWorld(
        name="keyhole", latent=8, observed=3, arms=6, dynamics="orthogonal", process_var=0.1, reward_std=1.0
    )


def foggy_keyhole() -> RandomWorld:
    """`keyhole` with noisy sensors, Σ = ½ I."""
    return dataclasses.replace(keyhole(), name="foggy-keyhole", observation_var=0.5)


def fog() -> RandomWorld:
    """The dynamics of the paper with sensors that are much noisier than the process, Σ = I."""
    return RandomWorld(
        name="fog",
        latent=10,
        observed=5,
        arms=8,
        dynamics="stochastic",
        process_var=0.01,
        reward_std=1.0,
        observation_var=1.0,
    )


def switch(*, at: int = 1500) -> RandomWorld:
    """`orbit` with a change of D after round `at`, about which agents are not informed."""
    last = at_least("at", at, 1)
    name = "switch" if last == 1500 else f"switch at={last}"
    return dataclasses.replace(orbit(), name=name, changes_after=last)


def regimes() -> ChainWorld:
    """Three persistent hidden states with noisy observations. The rewards of the arms depend on the state."""
    angles = 2.0 * np.pi * np.arange(3) / 3
    chain = MarkovChain(
        transition=np.array([[0.95, 0.04, 0.01], [0.02, 0.95, 0.03], [0.03, 0.03, 0.94]]),
        means=1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1),
        noise_var=1.0,
    )
    return ChainWorld(name="regimes", chain=chain, arms=5, reward_std=1.0)


def blurred(*, noise: float = 1.0, common: float = 5.0) -> FixedWorld:
    """Independent contexts, completely observed with noise, and two arms with similar rewards."""
    d, var, shared = 5, positive("noise", noise, zero_allowed=True), positive("common", common, zero_allowed=True)
    # x ~ N(1, I), independent in every round. The last coordinate is always 1 and provides the mean.
    transition, process_cov, initial_cov = np.zeros((3, d + 1, d + 1))
    transition[:, d] = 1.0
    process_cov[:d, :d] = initial_cov[:d, :d] = np.eye(d)
    model = LinearGaussianModel(
        transition=transition,
        process_cov=process_cov,
        observation_cov=var * np.eye(d),
        initial_mean=np.ones(d + 1),
        initial_cov=initial_cov,
    )
    arms = np.zeros((2, d + 1))
    arms[:, :d] = shared + np.array([[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, -1.0, 1.0, -1.0]])
    name = "blurred" if (var, shared) == (1.0, 5.0) else f"blurred noise={var:g} common={shared:g}"
    return FixedWorld(name, model, arms, 1.0)


NAMED: dict[str, Callable[..., World]] = {
    "paper": paper,
    "orbit": orbit,
    "keyhole": keyhole,
    "foggy-keyhole": foggy_keyhole,
    "fog": fog,
    "switch": switch,
    "regimes": regimes,
    "blurred": blurred,
}
RECORDED = {"voltrade": voltrade, "power": power, "returns": returns}  # they need the packages of the extra `data`
_RECORDED_SIZES = {"voltrade": (8, 5, 5), "power": (9, 5, 5), "returns": (8, 5, 5)}  # d, k and K
_ALL: dict[str, Callable[..., World]] = {**NAMED, **RECORDED}


def named(name: str, **options: Any) -> World:
    """Return a named world.

    Parameters
    ----------
    name : str
        One of `hs.worlds.NAMED` (simulated) or `hs.worlds.RECORDED` (recorded data, which need the extra `data`).
    **options
        Options of the world: `noise` for "paper", `at` for "switch", `noise` and `common` for "blurred".

    Returns
    -------
    World
        The world, which can be passed to `hs.run`.

    Raises
    ------
    HalfseenError
        If there is no world or option of that name, or if a data package is not installed.

    Examples
    --------
    >>> import halfseen as hs
    >>> hs.worlds.named("paper", noise=0.01).name
    'paper ε=0.01'
    """
    if name not in _ALL:
        raise unknown("world", name, _ALL)
    make = _ALL[name]
    allowed = inspect.signature(make).parameters
    for option in options:
        if option not in allowed:
            raise unknown("option", option, allowed, f"World '{name}'")
    return make(**options)


def world_table() -> Table:
    """Return a table with one row per world: its name, sizes, options and description."""
    rows = []
    for name, make in _ALL.items():
        d, k, K = _RECORDED_SIZES.get(name) or ((world := make()).latent, world.observed, world.arms)
        options = inspect.signature(make).parameters.values()
        rows.append(
            {
                "world": name,
                "d": str(d),
                "k": str(k),
                "K": str(K),
                "options": ", ".join(f"{option.name}={option.default:g}" for option in options),
                "what it is": (make.__doc__ or "").strip(),
            }
        )
    return Table(rows)
