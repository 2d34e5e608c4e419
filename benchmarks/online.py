"""One online round of an agent through the public API: decide + learn, a stream at a time.

Flops of a round: the filter, its gain settled, every arm scored and one taught; for `emkf-ts` also the sums for its
refits (benchmarks/monte_carlo.py). `adaptive` is counted as `kf-ts`: the rest is what it costs to be told nothing.
"""

from __future__ import annotations

import numpy as np

import halfseen as hs
from benchmarks import monte_carlo_numpy
from benchmarks.flops import learn, product, score, steady_filter_step, triangle
from benchmarks.harness import Contender, Job
from benchmarks.monte_carlo_draws import LearntStart, draws_of
from benchmarks.settings import ARMS, LATENT, OBSERVED
from halfseen.worlds import named

ROUNDS, ALIKE = 600, 150
WARM, STEPS, INLINE = 1000, 300, 3000


def flops(d: int, k: int, arms: int, *, learns_model: bool = False) -> int:
    refit = 4 * triangle(d) + product(d, d) if learns_model else 0
    return steady_filter_step(d, k) + score(d, arms) + learn(d) + refit


def job(agent: str, quick: bool = False) -> Job:
    """Beside the same agent in plain NumPy, which plays its world as well."""
    draws, learns = draws_of([0], ROUNDS), agent == "emkf-ts"
    start = LearntStart.of([0]) if learns else None
    episodes = named("orbit").begin([0])
    told = {"latent": LATENT, "observation_cov": np.zeros((OBSERVED, OBSERVED)), "initial_transition": "orthogonal"}
    model = told if learns else {"model": episodes.models[0]}
    rounds = episodes.advance(ROUNDS)
    observations = list(rounds.observations[:, 0])
    payoffs = (rounds.expected[:, 0] + rounds.reward_noise[:, :1]).tolist()

    def ours() -> np.ndarray:
        player = hs.make(agent, observed=OBSERVED, arms=ARMS, seed=0, **model)
        played = np.empty((1, ROUNDS), dtype=np.int64)
        for t, y in enumerate(observations):
            decision = player.decide(y)
            arm = played[0, t] = decision.arm
            player.learn(decision.id, payoffs[t][arm])
        return played

    def agree(one: np.ndarray, other: np.ndarray) -> None:
        np.testing.assert_array_equal(one[:, :ALIKE], other[:, :ALIKE])

    return Job(
        f"Online round of {agent}",
        "round",
        flops(LATENT, OBSERVED, ARMS, learns_model=learns),
        [
            Contender("halfseen", ours, ROUNDS, "from the first round on"),
            Contender("NumPy loop", lambda: monte_carlo_numpy.one_stream(draws, start), ROUNDS),
        ],
        agree,
    )


def adaptive_job(quick: bool = False) -> Job:
    """`adaptive` between two refits, and with its refits; nothing else does what it does, so beside `kf-ts`."""
    inline = INLINE // 3 if quick else INLINE
    episodes = named("orbit").begin([0])
    model, rounds = episodes.models[0], episodes.advance(inline)
    observations = list(rounds.observations[:, 0])
    payoffs = (rounds.expected[:, 0] + rounds.reward_noise[:, :1]).tolist()

    def play(player: hs.Agent, first: int, last: int) -> np.ndarray:
        for t in range(first, last):
            decision = player.decide(observations[t])
            player.learn(decision.id, payoffs[t][decision.index])
        return np.array([player.rounds > 0])

    def warmed(player: hs.Agent) -> hs.Agent:
        play(player, 0, WARM - STEPS)
        return player

    between = warmed(hs.make("adaptive", observed=OBSERVED, arms=ARMS, seed=0, refit="manual"))
    between.refit()
    knowing = warmed(hs.make("kf-ts", observed=OBSERVED, arms=ARMS, seed=0, model=model))

    def with_refits() -> np.ndarray:
        return play(hs.make("adaptive", observed=OBSERVED, arms=ARMS, seed=0), 0, inline)

    return Job(
        "Online round of adaptive",
        "round",
        flops(LATENT, OBSERVED, ARMS),
        [
            Contender("kf-ts", lambda: play(knowing, WARM - STEPS, WARM), STEPS, "told the model"),
            Contender("adaptive, between refits", lambda: play(between, WARM - STEPS, WARM), STEPS, 'refit="manual"'),
            Contender("adaptive, refits included", with_refits, inline, f"rounds 1 to {inline:,}"),
        ],
        np.testing.assert_array_equal,
        ["all peers: none decides on a context it must find out by itself"],
        repeats=3,
    )
