"""What `hs.run` draws for streams of `orbit`, to be handed to those who do the same by other means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.settings import ARMS, LATENT, OBSERVED
from halfseen.components import StreamBatch
from halfseen.estimators.starting_model import starting_transition
from halfseen.kernels.random import Purpose, normal_series, normals, stream_keys
from halfseen.worlds import named

WINDOW = 200  # rounds between two refits of `emkf-ts`


@dataclass(frozen=True)
class Draws:
    """B streams, T rounds; all standard normal but the models."""

    transition: np.ndarray  # D (B, d, d)
    arm_params: np.ndarray  # μ (B, K, d)
    process_std: float
    reward_std: float
    context: np.ndarray  # x_0 (B, d)
    process: np.ndarray  # (B, T, d)
    reward: np.ndarray  # (B, T)
    choice: np.ndarray  # (B, T, K)

    def first(self, streams: int, rounds: int) -> Draws:
        return replace(
            self,
            transition=self.transition[:streams],
            arm_params=self.arm_params[:streams],
            context=self.context[:streams],
            process=self.process[:streams, :rounds],
            reward=self.reward[:streams, :rounds],
            choice=self.choice[:streams, :rounds],
        )


@dataclass(frozen=True)
class LearntStart:
    """Where `emkf-ts` starts: D̂ (B, d, d); Q̂ is I."""

    transition: np.ndarray

    @classmethod
    def of(cls, seeds: Sequence[int]) -> LearntStart:
        streams = StreamBatch(stream_keys(list(seeds)), OBSERVED, ARMS)
        return cls(starting_transition(streams, LATENT, "orthogonal"))


def draws_of(seeds: Sequence[int], rounds: int) -> Draws:
    keys, episodes = stream_keys(list(seeds)), named("orbit").begin(list(seeds))
    return Draws(
        np.stack([model.transition for model in episodes.models]),
        episodes.arm_params,
        float(np.sqrt(episodes.models[0].process_cov[0, 0])),
        episodes.reward_std,
        normals(keys, np.zeros(len(keys), dtype=np.int64), Purpose.INITIAL_CONTEXT, LATENT),
        normal_series(keys, 1, rounds, Purpose.PROCESS_NOISE, LATENT),
        normal_series(keys, 1, rounds, Purpose.REWARD_NOISE, 1)[:, :, 0],
        normal_series(keys, 1, rounds, Purpose.CHOICE, ARMS),
    )
