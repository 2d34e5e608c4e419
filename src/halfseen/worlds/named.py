"""The worlds that have a name: a table, one row each (docs/mathematics.md, "The worlds")."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from halfseen.component import at_least, positive
from halfseen.errors import unknown
from halfseen.table import Table
from halfseen.worlds.linear_gaussian import RandomWorld
from halfseen.worlds.power import power
from halfseen.worlds.returns import returns
from halfseen.worlds.voltrade import voltrade
from halfseen.worlds.world import World


def paper(*, noise: float = 0.1) -> RandomWorld:
    """The paper's own experiment (section 4); `noise` is its ε, the variance in Q = εI."""
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
    """Slow hidden modes, little noise: what is hidden can be inferred from how the seen part moves."""
    return RandomWorld(
        name="orbit", latent=20, observed=10, arms=15, dynamics="orthogonal", process_var=0.01, reward_std=0.1
    )


def keyhole() -> RandomWorld:
    """Three of eight coordinates seen."""
    return RandomWorld(
        name="keyhole", latent=8, observed=3, arms=6, dynamics="orthogonal", process_var=0.1, reward_std=1.0
    )


def foggy_keyhole() -> RandomWorld:
    """`keyhole` through noisy sensors, Σ = ½ I."""
    return dataclasses.replace(keyhole(), name="foggy-keyhole", observation_var=0.5)


def fog() -> RandomWorld:
    """The paper's kind of dynamics through sensors much noisier than the process, Σ = I."""
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
    """`orbit` until round `at`; then another D takes over, unannounced."""
    last = at_least("at", at, 1)
    name = "switch" if last == 1500 else f"switch at={last}"
    return dataclasses.replace(orbit(), name=name, changes_after=last)


NAMED = {
    "paper": paper,
    "orbit": orbit,
    "keyhole": keyhole,
    "foggy-keyhole": foggy_keyhole,
    "fog": fog,
    "switch": switch,
}


RECORDED = {"voltrade": voltrade, "power": power, "returns": returns}  # read from packages of the extra `data`
_SIZES = {"voltrade": (8, 5, 5), "power": (9, 5, 5), "returns": (8, 5, 5)}  # d, k, K: the table needs no package


def named(name: str, **options: Any) -> World:
    """A world by its name; `paper` takes `noise`, `switch` takes `at`."""
    makers: dict[str, Callable[..., World]] = {**NAMED, **RECORDED}
    if name not in makers:
        raise unknown("world", name, makers)
    make = makers[name]
    allowed = inspect.signature(make).parameters
    for option in options:
        if option not in allowed:
            raise unknown(f"option of world '{name}'", option, allowed)
    return make(**options)


def world_table() -> Table:
    """One row a world: name, sizes, options, what it is."""
    rows = []
    makers: dict[str, Callable[..., World]] = {**NAMED, **RECORDED}
    for name, make in makers.items():
        d, k, K = _SIZES[name] if name in RECORDED else _sizes(make())
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


def _sizes(world: World) -> tuple[int, int, int]:
    return world.latent, world.observed, world.arms
