"""Worlds that a user defines by a generator function, which yields one round after the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from halfseen.agents.plain import factory_name
from halfseen.agents.source_code import source_hash_of
from halfseen.errors import InvalidInput, invalid
from halfseen.kernels.random import Floats, Keys, Purpose, checked_keys, normal_series
from halfseen.validation import LIMIT, at_least, positive, real_numbers
from halfseen.worlds.world import Episodes, Rounds, World

_COMPARED = 5  # number of first rounds that are generated twice, to check that the same seed gives the same rounds
_YIELDED = "observation, expected_rewards and, optionally, the context"


class GeneratedEpisodes(Episodes):
    """B streams, each with a generator of its own."""

    def __init__(self, world: GeneratedWorld, seeds: Sequence[int], keys: Keys) -> None:
        self._world, self._keys, self._seeds, self._round = world, keys, seeds, 0
        self._streams = [world.start(seed) for seed in seeds]

    def advance(self, n: int) -> Rounds:
        world, first, n, B = self._world, self._round + 1, at_least("n", n, 1), len(self._seeds)
        contexts, observations = np.empty((n, B, world.latent)), np.empty((n, B, world.observed))
        expected = np.empty((n, B, world.arms))
        for b, stream in enumerate(self._streams):
            for t in range(n):
                where = f"world '{world.name}', seed {self._seeds[b]}, round {first + t}"
                observations[t, b], expected[t, b], contexts[t, b] = world.read(where, next_round(where, stream))
        self._round += n
        noise = normal_series(self._keys, first, n, Purpose.REWARD_NOISE, 1)[:, :, 0]
        return Rounds(contexts, observations, expected, np.ascontiguousarray(world.reward_std * noise.T))

    def facts(self) -> dict[str, Any]:
        """Return the standard deviation of the noise and, if contexts are generated, their dimension."""
        facts: dict[str, Any] = {"noise_std": self._world.reward_std}
        return facts | ({"latent": self._world.latent} if self._world.has_contexts else {})


def next_round(where: str, stream: Iterator[Any]) -> Any:
    """Return the next round of a generator, or None at its end. Exceptions get the note `where`."""
    try:
        return next(stream, None)
    except Exception as error:
        error.add_note(where)
        raise


class GeneratedWorld(World):
    """A world whose rounds come from a generator function. Make one with `generated`."""

    is_own = True

    def __init__(
        self, function: Callable[..., Iterator[Any]], name: str, reward_std: float, options: Mapping[str, Any]
    ) -> None:
        self._function, self.name, self.reward_std, self.options = function, name, reward_std, dict(options)
        sizes = self._split(f"world '{name}', round 1", next_round(f"world '{name}', seed 0, round 1", self.start(0)))
        self.observed, self.arms = len(sizes[0]), len(sizes[1])
        self.has_contexts = sizes[2] is not None
        self.latent = self.observed if sizes[2] is None else len(sizes[2])
        self.known_facts = ("noise_std", "latent") if self.has_contexts else ("noise_std",)

    def start(self, seed: int) -> Iterator[Any]:
        """Return a new generator."""
        try:
            rounds = self._function(seed, **self.options)
        except Exception as error:
            error.add_note(f"world '{self.name}', seed {seed}, when it was made")
            raise
        if not isinstance(rounds, Iterator):
            raise invalid(
                f"world '{self.name}'", "a generator function, which yields rounds", f"{type(rounds).__name__}"
            )
        return rounds

    def check_repeatable(self, seed: int) -> None:
        """Raise unless two generators with one seed yield the same first rounds.

        The two generators are advanced alternately, which also reveals a random number generator that they share.
        """
        first, second = self.start(seed), self.start(seed)
        for t in range(1, _COMPARED + 1):
            where = f"world '{self.name}', seed {seed}, round {t}"
            pair = next_round(where, first), next_round(where, second)
            if pair == (None, None):
                return  # the end of both generators is an error only if more rounds are played
            once, twice = (self.read(where, given) for given in pair)
            if not all(np.array_equal(*both, equal_nan=True) for both in zip(once, twice, strict=True)):
                expected = "the same round whenever the seed is the same (draws must depend on the seed alone)"
                raise invalid(where, expected, "another one the second time")

    def read(self, where: str, given: Any) -> tuple[Floats, Floats, Floats]:
        """Return the observation, the expected rewards and the context of a round that was yielded."""
        observation, expected, context = self._split(where, given)
        got = (observation.shape, expected.shape, None if context is None else context.shape)
        sizes = ((self.observed,), (self.arms,), (self.latent,) if self.has_contexts else None)
        if got != sizes:
            raise invalid(where, f"shapes as in round 1 of seed 0, {sizes}", f"{got}")
        return observation, expected, observation if context is None else context

    def _split(self, where: str, given: Any) -> tuple[Floats, Floats, Floats | None]:
        if given is None:
            raise InvalidInput(f"{where}: expected another round, got the end of the generator")
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise invalid(where, f"a tuple of {_YIELDED}", repr(given))
        arrays = [
            np.atleast_1d(real_numbers(f"{where}, {name}", one)) for name, one in zip(_NAMES, given, strict=False)
        ]
        for name, array in zip(_NAMES, arrays, strict=False):
            if array.ndim != 1 or not len(array):
                raise invalid(f"{where}, {name}", "a list of numbers", f"shape {array.shape}")
            if (np.abs(array) > LIMIT).any() or (name != _NAMES[0] and np.isnan(array).any()):
                raise invalid(f"{where}, {name}", f"numbers within ±{LIMIT:g}", repr(array.tolist()))
        return arrays[0], arrays[1], arrays[2] if len(arrays) > 2 else None

    def begin(self, seeds: Sequence[int]) -> GeneratedEpisodes:
        keys = checked_keys(seeds)
        for seed in seeds[:1]:
            self.check_repeatable(seed)
        return GeneratedEpisodes(self, list(seeds), keys)

    def settings(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "function": factory_name(self._function),
            "observed": self.observed,
            "arms": self.arms,
            "reward_std": self.reward_std,
            "options": ", ".join(f"{key}={value}" for key, value in self.options.items()) or "–",
            "source": source_hash_of(self._function),
        }


_NAMES = ("observation", "expected_rewards", "context")


def generated(
    function: Callable[..., Iterator[Any]], *, reward_std: float = 1.0, name: str | None = None, **options: Any
) -> GeneratedWorld:
    """Make a simulated world from a generator function.

    Parameters
    ----------
    function : callable
        A generator function. It is called as `function(seed, **options)` and yields one tuple per round: the
        observation (k numbers, NaN where missing), the expected reward of every arm (K numbers) and, optionally, the
        context (d numbers), which only agents such as `oracle-ts` see. The same seed must give the same rounds.
    reward_std : float, default 1.0
        The standard deviation of the noise that is added to the expected reward of the arm played. With 0, agents
        receive exactly the yielded rewards.
    name : str, optional
        Name of the world in tables. The default is the name of the function.
    **options
        Arguments of the function.

    Returns
    -------
    GeneratedWorld
        The world, which can be passed to `hs.run`.

    Raises
    ------
    HalfseenError
        If the function is not a generator function, has no argument for one of the options, or yields anything but
        such tuples. It is also raised if the same seed gives different rounds. To check this, the first rounds of the
        first seed are generated twice at the start.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen as hs
    >>> def tide(seed, period=50):
    ...     rng, t = np.random.default_rng(seed), 0
    ...     while True:
    ...         t, level = t + 1, np.sin(2 * np.pi * t / period)
    ...         yield [level + 0.5 * rng.normal()], [level, -level], [level]
    >>> world = hs.worlds.generated(tide, reward_std=0.1, period=30)
    >>> world.observed, world.arms, world.latent
    (1, 2, 1)
    >>> result = hs.run(["oracle-ts", "random"], world=world, rounds=100, seeds=2)
    """
    if not callable(function):
        raise invalid("function", "a generator function", repr(function))
    label = factory_name(function) if name is None else name
    try:
        inspect.signature(function).bind(0, **options)
    except TypeError as error:
        raise invalid(
            f"world '{label}'",
            "a function that is called with a seed and these options",
            str(error).removeprefix("got "),
        ) from None
    return GeneratedWorld(function, label, positive("reward_std", reward_std, zero_allowed=True), options)
