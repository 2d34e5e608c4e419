"""Randomness as a pure function of (seed, stream, round, purpose).

Counter-based: Philox-4x64 with ten rounds (Salmon et al., 2011), the generator behind `numpy.random.Philox`,
evaluated at key (seed, stream) and counter (block, round, purpose, 0). Nothing is carried from one draw to
the next, so a resumed, re-ordered or re-sharded run makes the same draws, and every agent of an experiment
meets the same noise. NumPy's own class cannot be asked for one counter at a time at a price a decision can pay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.errors import invalid
from halfseen.kernels.box_muller import to_normals
from halfseen.kernels.compiling import AS_WRITTEN, kernel, multiply_high
from halfseen.validation import seed_number

Keys = NDArray[np.uint64]  # (n, 2): seed, stream
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of every recorded result: add, never renumber."""

    TRANSITION = 1
    ARM_PARAMETERS = 2
    INITIAL_CONTEXT = 3
    PROCESS_NOISE = 4
    OBSERVATION_NOISE = 5
    REWARD_NOISE = 6
    CHOICE = 7
    INITIAL_MODEL = 8
    SECOND_TRANSITION = 9
    CLUSTERS = 10  # starts of k-means
    HIDDEN_STATE = 11  # of a Markov chain
    QUANTISATION = 12  # of a linear-Gaussian world into states


def stream_keys(seeds: ArrayLike, streams: ArrayLike = 0) -> Keys:
    """Keys (n, 2) of the given seeds; `streams` tells apart several streams that share one seed."""
    seed = np.atleast_1d(np.asarray(seeds, dtype=np.uint64))
    stream = np.atleast_1d(np.asarray(streams, dtype=np.uint64))
    return np.stack(np.broadcast_arrays(seed, stream), axis=1)


def checked_keys(seeds: Sequence[int]) -> Keys:
    """The keys of the streams that `seeds` open."""
    if not isinstance(seeds, Iterable) or not (listed := list(seeds)):
        raise invalid("seeds", "a list of at least one seed", repr(seeds))
    return stream_keys([seed_number("seeds", seed) for seed in listed])


def normals(keys: Keys, rounds: Ints, purpose: int, count: int) -> Floats:
    """Standard normals (n, count): row i belongs to keys[i] at rounds[i]."""
    out = np.empty((len(keys), count))
    draw(keys, rounds, int(purpose), True, out)
    return out


def uniforms(keys: Keys, rounds: Ints, purpose: int, count: int) -> Floats:
    """Uniforms on (0, 1), (n, count): row i belongs to keys[i] at rounds[i]."""
    out = np.empty((len(keys), count))
    draw(keys, rounds, int(purpose), False, out)
    return out


def normal_series(keys: Keys, first_round: int, length: int, purpose: int, count: int) -> Floats:
    """Standard normals (n, length, count) for `length` rounds from `first_round` on, for every key."""
    n = len(keys)
    rounds = np.tile(np.arange(first_round, first_round + length, dtype=np.int64), n)
    return normals(np.repeat(keys, length, axis=0), rounds, purpose, count).reshape(n, length, count)


def stochastic_matrices(keys: Keys, purpose: int, size: int) -> Floats:
    """One matrix a key (n, size, size): uniform entries, every row divided by its sum."""
    raw = uniforms(keys, np.zeros(len(keys), dtype=np.int64), purpose, size * size).reshape(-1, size, size)
    return np.ascontiguousarray(raw / raw.sum(axis=2, keepdims=True))


def orthogonal_matrices(keys: Keys, purpose: int, size: int) -> Floats:
    """One matrix a key (n, size, size), uniform over the orthogonal ones."""
    raw = normals(keys, np.zeros(len(keys), dtype=np.int64), purpose, size * size).reshape(-1, size, size)
    factor, triangle = np.linalg.qr(raw)
    # With the signs of R's diagonal taken out the factor is uniform, whatever signs LAPACK chooses.
    return np.ascontiguousarray(factor * np.sign(np.einsum("bii->bi", triangle))[:, None, :])


_MULTIPLIER_0 = np.uint64(0xD2E7470EE14C6C93)
_MULTIPLIER_1 = np.uint64(0xCA5A826395121157)
_WEYL_0 = np.uint64(0x9E3779B97F4A7C15)
_WEYL_1 = np.uint64(0xBB67AE8584CAA73B)
_TO_53_BITS = np.uint64(11)
SPARE = 7  # draws come eight at a time
_NOTHING, _ONE = np.uint64(0), np.uint64(1)


@kernel(AS_WRITTEN)
def _turn(key_0, key_1, c_0, c_1, c_2, c_3):  # type: ignore[no-untyped-def]
    high_0, low_0 = multiply_high(_MULTIPLIER_0, c_0), _MULTIPLIER_0 * c_0
    high_1, low_1 = multiply_high(_MULTIPLIER_1, c_2), _MULTIPLIER_1 * c_2
    return high_1 ^ c_1 ^ key_0, low_1, high_0 ^ c_3 ^ key_1, low_0


@kernel(AS_WRITTEN)
def _two_blocks(key_0, key_1, block, now, purpose):  # type: ignore[no-untyped-def]
    """Philox's words of `block` and of the next: two at a time, as each product waits for that of the turn before."""
    a_0, a_1, a_2, a_3 = block, now, purpose, _NOTHING
    b_0, b_1, b_2, b_3 = block + _ONE, now, purpose, _NOTHING
    for _ in range(10):
        a_0, a_1, a_2, a_3 = _turn(key_0, key_1, a_0, a_1, a_2, a_3)
        b_0, b_1, b_2, b_3 = _turn(key_0, key_1, b_0, b_1, b_2, b_3)
        key_0 += _WEYL_0
        key_1 += _WEYL_1
    return a_0, a_1, a_2, a_3, b_0, b_1, b_2, b_3


@kernel(AS_WRITTEN)
def _uniform(word):  # type: ignore[no-untyped-def]
    """The middle of one of 2^53 cells: never 0; 1 only as the last of them, which rounds to it."""
    return (np.int64(word >> _TO_53_BITS) + 0.5) * (1.0 / 9007199254740992.0)


@kernel(AS_WRITTEN)
def draw_one(i, keys, now, purpose, as_normals, scratch, o, out):  # type: ignore[no-untyped-def]
    """`draw` for keys[i] in round `now`, into out[o]; `scratch` has count + SPARE places."""
    count = out.shape[1]
    half = scratch.shape[0] // 2
    even, odd = scratch[:half], scratch[half:]  # every other draw: pairs side by side
    pairs = (count + 7) // 8 * 4
    for j in range(0, pairs, 4):
        word = _two_blocks(keys[i, 0], keys[i, 1], np.uint64(j // 2), np.uint64(now), np.uint64(purpose))
        even[j], odd[j] = _uniform(word[0]), _uniform(word[1])
        even[j + 1], odd[j + 1] = _uniform(word[2]), _uniform(word[3])
        even[j + 2], odd[j + 2] = _uniform(word[4]), _uniform(word[5])
        even[j + 3], odd[j + 3] = _uniform(word[6]), _uniform(word[7])
    if as_normals:
        to_normals(even, odd, pairs)  # the spare ones too: four cost what one does
    for j in range(count // 2):
        out[o, 2 * j], out[o, 2 * j + 1] = even[j], odd[j]
    if count % 2 == 1:
        out[o, count - 1] = even[count // 2]


@kernel(AS_WRITTEN)
def draw(keys, rounds, purpose, as_normals, out):  # type: ignore[no-untyped-def]
    """Standard normals, or uniforms on (0, 1), into `out` (n, count): for `normals`, `uniforms` and kernels."""
    scratch = np.empty(out.shape[1] + SPARE)
    for i in range(out.shape[0]):
        draw_one(i, keys, rounds[i], purpose, as_normals, scratch, i, out)
