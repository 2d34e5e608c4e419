"""Monte Carlo of the whole pipeline on one core: rounds of `kf-ts` and `emkf-ts` in `orbit`, world included.

Flops of a round: the context moves and pays, Dx + ε and μ_a·x for every arm; the filter, its gain settled; every arm is
scored and one taught. `emkf-ts` adds the sums of x̂x̂ᵀ, twice for the two ends of a step, and of x̂'x̂ᵀ. Its refits, one in
200 rounds, the rounds it takes the gain to settle after one, and all random draws (36 normals a round) are not counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import halfseen as hs
from benchmarks import monte_carlo_jax, monte_carlo_numpy
from benchmarks.flops import learn, product, score, steady_filter_step, triangle
from benchmarks.harness import Contender, Job
from benchmarks.monte_carlo_draws import LearntStart, draws_of
from benchmarks.peers import Entrants
from benchmarks.settings import ARMS, LATENT, OBSERVED

SEEDS, ROUNDS, QUICK_ROUNDS, SLOW_ROUNDS, ALIKE = 64, 2000, 600, 400, 150


def flops(d: int, k: int, arms: int, *, learns_model: bool) -> int:
    world = product(d, d) + d + product(arms, d) + 1
    refit = 4 * triangle(d) + product(d, d) if learns_model else 0
    return world + steady_filter_step(d, k) + score(d, arms) + learn(d) + refit


def agree(one: np.ndarray, other: np.ndarray) -> None:
    """The same decisions (streams, rounds) on the same draws, until rounding first tips one.

    From then on a stream goes its own way, so a few in the first rounds are let pass.
    """
    streams, rounds = len(other), min(other.shape[1], ALIKE)
    same = (one[:streams, :rounds] == other[:, :rounds]).mean(axis=1)
    assert (same == 1.0).mean() >= 0.95, f"only {(same == 1.0).sum()} of {streams} streams decide alike"


def job(agent: str, quick: bool = False) -> Job:
    seeds, rounds = SEEDS, QUICK_ROUNDS if quick else ROUNDS
    learns = agent == "emkf-ts"
    draws = draws_of(range(seeds), rounds)
    start = LearntStart.of(range(seeds)) if learns else None

    def ours() -> np.ndarray:
        return hs.run(agent, world="orbit", rounds=rounds, seeds=seeds).tracks["orbit", agent].arm

    entrants = Entrants(
        Contender("halfseen", ours, seeds * rounds, f"`hs.run`, {seeds} seeds"),
        Contender(
            "NumPy loop",
            lambda: monte_carlo_numpy.one_stream(draws.first(1, SLOW_ROUNDS), start),
            SLOW_ROUNDS,
            "one stream; draws handed to it",
        ),
        Contender(
            "NumPy, batched",
            lambda: monte_carlo_numpy.batched(draws, start),
            seeds * rounds,
            "draws handed to it" if learns else "gain held after 200 rounds; draws handed to it",
        ),
    )

    def with_jax(module: Any, label: str, *, held: bool) -> Contender:
        name = f"{label}, vmap + scan" + (", gain held" if held else "")
        handed, drawing = monte_carlo_jax.compiled(draws, start, held=held)
        note = "draws its own" + ("; gain held after 200 rounds" if held else "")
        return Contender(name, drawing, seeds * rounds, note, handed, at_least=3.0)

    entrants.enter("jax", "jax", lambda module, label: with_jax(module, label, held=False))
    if not learns:
        entrants.enter("jax", "jax", lambda module, label: with_jax(module, label, held=True))
    return Job(
        f"Monte Carlo of {agent}, one core",
        "round",
        flops(LATENT, OBSERVED, ARMS, learns_model=learns),
        entrants.contenders,
        agree,
        list(dict.fromkeys(entrants.absent)),
        repeats=5,
        flop_limit=15.0,
    )
