"""The named worlds, one function each, and their table (docs/mathematics.md, "The worlds")."""

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


def regimes() -> ChainWorld:
    """Three hidden states that last, seen through noise; each arm pays by the state."""
    angles = 2.0 * np.pi * np.arange(3) / 3
    chain = MarkovChain(
        transition=np.array([[0.95, 0.04, 0.01], [0.02, 0.95, 0.03], [0.03, 0.03, 0.94]]),
        means=1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1),
        noise_var=1.0,
    )
    return ChainWorld(name="regimes", chain=chain, arms=5, reward_std=1.0)


def blurred(*, noise: float = 1.0, common: float = 5.0) -> FixedWorld:
    """A context without memory, all of it seen through noise, and two arms that pay much the same."""
    d, var, shared = 5, positive("noise", noise, zero_allowed=True), positive("common", common, zero_allowed=True)
    # x = 1 + N(0, I) afresh in every round; a last coordinate, always 1, is where the mean comes from.
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
RECORDED = {"voltrade": voltrade, "power": power, "returns": returns}  # read from packages of the extra `data`
_RECORDED_SIZES = {"voltrade": (8, 5, 5), "power": (9, 5, 5), "returns": (8, 5, 5)}  # d, k, K, without the packages
_ALL: dict[str, Callable[..., World]] = {**NAMED, **RECORDED}


def named(name: str, **options: Any) -> World:
    """A world by its name; `paper` takes `noise`, `switch` takes `at`, `blurred` takes `noise` and `common`."""
    if name not in _ALL:
        raise unknown("world", name, _ALL)
    make = _ALL[name]
    allowed = inspect.signature(make).parameters
    for option in options:
        if option not in allowed:
            raise unknown("option", option, allowed, f"World '{name}'")
    return make(**options)


def world_table() -> Table:
    """One row per world: name, sizes, options, what it is."""
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
