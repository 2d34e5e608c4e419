"""Worlds from which a share of the rounds is left out. Nothing is observed or decided in these rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfseen.kernels.random import Floats, Ints, Purpose, stream_keys, uniforms
from halfseen.worlds.world import DrawnRounds, Episodes, Rounds, World, all_settings

_CHUNK = 256  # rounds of the complete world per call
_COPIED = (
    "latent", "observed", "arms", "reward_unit", "reward_family", "recorded", "costs", "reward_every", "is_own",
    "known_facts",
)  # fmt: skip


def kept_rounds(first: int, count: int, share: float) -> Ints:
    """Return which of the `count` rounds from round `first` on are kept. They are the same for all seeds."""
    keys = np.repeat(stream_keys(0), count, axis=0)
    draws = uniforms(keys, np.arange(first, first + count), Purpose.GAPS, 1)[:, 0]
    return first + np.flatnonzero(draws >= share)


class GapsWorld(World):
    """A world from which rounds are left out at random, each with probability `share`.

    If `told` is true, agents are told how many rounds have passed (`elapsed`). Otherwise they treat the rounds that are
    kept as consecutive rounds.
    """

    def __init__(self, world: World, share: float, *, told: bool, base_name: str) -> None:
        self._world, self._share, self._told = world, share, told
        for name in _COPIED:
            setattr(self, name, getattr(world, name))
        self.name = f"gaps in {base_name}, {share:.0%} left out" + ("" if told else ", untold")
        if world.changes_after is not None:
            self.changes_after = len(kept_rounds(1, world.changes_after, share))
        if world.length is not None:
            self.length = len(kept_rounds(1, world.length, share))

    def begin(self, seeds: Sequence[int]) -> GapsEpisodes:
        return GapsEpisodes(self._world.begin(seeds), self._share, self._told, self._world.length)

    def settings(self) -> dict[str, Any]:
        return {"kind": "gaps", "share": self._share, "told": self._told, "world": all_settings(self._world)}


class GapsEpisodes(Episodes):
    """B streams of a world with gaps."""

    def __init__(self, episodes: Episodes, share: float, told: bool, length: int | None) -> None:
        self._episodes, self._share, self._told, self._length = episodes, share, told, length
        self.canonical, self.arm_params = episodes.canonical, episodes.arm_params
        # The number of rounds drawn from the complete world, and the step of the last round returned.
        self._passed, self._last = 0, 0
        self._step = 0  # step of the last round drawn; differs from `_passed` if the complete world has gaps itself
        self._waiting: list[tuple[int, list[Floats]]] = []  # rounds that are kept but have not been requested yet

    def advance(self, n: int) -> Rounds:
        while len(self._waiting) < n:
            count = _CHUNK if self._length is None else min(_CHUNK, self._length - self._passed)
            rounds = self._episodes.advance(count)
            fields = [*rounds] if rounds.rewards is None else [*rounds, rounds.rewards]
            steps = self._step + np.cumsum(np.ones(count, dtype=np.int64) if rounds.elapsed is None else rounds.elapsed)
            for at in kept_rounds(self._passed + 1, count, self._share) - self._passed - 1:
                self._waiting.append((int(steps[at]), [array[at] for array in fields]))
            self._passed, self._step = self._passed + count, int(steps[-1])
        taken, self._waiting = self._waiting[:n], self._waiting[n:]
        arrays = [np.ascontiguousarray(np.stack(parts)) for parts in zip(*(one for _, one in taken), strict=True)]
        result = Rounds(*arrays) if len(arrays) == 4 else DrawnRounds.of(arrays[0], arrays[1], arrays[2], arrays[4])
        at = np.array([t for t, _ in taken])
        if self._told:
            result = result.with_elapsed(np.diff(at, prepend=self._last))
        self._last = int(at[-1])
        return result

    def facts(self) -> dict[str, Any]:
        return self._episodes.facts()
