"""Random numbers that are a pure function of (seed, stream, round, purpose).

The generator is Philox-4x64 with ten rounds (Salmon et al., 2011), as in `numpy.random.Philox`, with the key (seed,
stream) and the counter (block, round, purpose, 0). A draw does not depend on earlier draws, so a run that is resumed,
reordered or distributed makes the same draws, and all agents of an experiment get the same noise. NumPy's own class is
too slow here: every decision needs another counter, and setting it takes long.
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
    """The purpose of a draw. Published results depend on these numbers, so they never change."""

    TRANSITION = 1
    ARM_PARAMETERS = 2
    INITIAL_CONTEXT = 3
    PROCESS_NOISE = 4
    OBSERVATION_NOISE = 5
    REWARD_NOISE = 6
    CHOICE = 7
    INITIAL_MODEL = 8
    SECOND_TRANSITION = 9
    CLUSTERS = 10  # the start of k-means
    HIDDEN_STATE = 11  # the states of a Markov chain
    QUANTISATION = 12  # the states of a quantised linear-Gaussian world
    GUARDRAILS = 13  # whether the chooser decides, and which arm is played if it does not
    FORECAST = 14  # contexts over which a forecast is averaged
    GAPS = 15  # which rounds of a world are left out


def stream_keys(seeds: ArrayLike, streams: ArrayLike = 0) -> Keys:
    """Return the keys (n, 2) of the seeds. `streams` distinguishes streams with the same seed."""
    seed = np.atleast_1d(np.asarray(seeds, dtype=np.uint64))
    stream = np.atleast_1d(np.asarray(streams, dtype=np.uint64))
    return np.stack(np.broadcast_arrays(seed, stream), axis=1)


def checked_keys(seeds: Sequence[int]) -> Keys:
    """Return the keys (n, 2) of a list of at least one seed, after checking the seeds."""
    if not isinstance(seeds, Iterable) or not (given := list(seeds)):
        raise invalid("seeds", "a list of at least one seed", repr(seeds))
    return stream_keys([seed_number("seeds", seed) for seed in given])


def normals(keys: Keys, rounds: Ints, purpose: int, count: int) -> Floats:
    """Return standard normals (n, count). Row i belongs to keys[i] and rounds[i]."""
    out = np.empty((len(keys), count))
    draw(keys, rounds, int(purpose), True, out)
    return out


def uniforms(keys: Keys, rounds: Ints, purpose: int, count: int) -> Floats:
    """Return uniforms on (0, 1), (n, count). Row i belongs to keys[i] and rounds[i]."""
    out = np.empty((len(keys), count))
    draw(keys, rounds, int(purpose), False, out)
    return out


def normal_series(keys: Keys, first_round: int, length: int, purpose: int, count: int) -> Floats:
    """Return standard normals (n, length, count) for every key and `length` rounds from `first_round` on."""
    n = len(keys)
    rounds = np.tile(np.arange(first_round, first_round + length, dtype=np.int64), n)
    return normals(np.repeat(keys, length, axis=0), rounds, purpose, count).reshape(n, length, count)


def stochastic_matrices(keys: Keys, purpose: int, size: int) -> Floats:
    """Return one row-stochastic matrix per key, (n, size, size), with uniform entries divided by their row sums."""
    raw = uniforms(keys, np.zeros(len(keys), dtype=np.int64), purpose, size * size).reshape(-1, size, size)
    return np.ascontiguousarray(raw / raw.sum(axis=2, keepdims=True))


def orthogonal_matrices(keys: Keys, purpose: int, size: int) -> Floats:
    """Return one orthogonal matrix per key, (n, size, size), drawn from the uniform distribution."""
    raw = normals(keys, np.zeros(len(keys), dtype=np.int64), purpose, size * size).reshape(-1, size, size)
    factor, triangle = np.linalg.qr(raw)
    # After multiplication by the signs of the diagonal of R, the orthogonal factor is uniform and does not depend on
    # the signs that LAPACK chooses.
    return np.ascontiguousarray(factor * np.sign(np.einsum("bii->bi", triangle))[:, None, :])


_MULTIPLIER_0 = np.uint64(0xD2E7470EE14C6C93)
_MULTIPLIER_1 = np.uint64(0xCA5A826395121157)
_WEYL_0 = np.uint64(0x9E3779B97F4A7C15)
_WEYL_1 = np.uint64(0xBB67AE8584CAA73B)
_TO_53_BITS = np.uint64(11)
EXTRA = 7  # entries that `draw_one` needs in `scratch` beyond `count`, because it draws eight numbers at a time
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@kernel(AS_WRITTEN)
def _philox_round(key_0, key_1, c_0, c_1, c_2, c_3):  # type: ignore[no-untyped-def]
    """Return the counter after one round of Philox-4x64."""
    high_0, low_0 = multiply_high(_MULTIPLIER_0, c_0), _MULTIPLIER_0 * c_0
    high_1, low_1 = multiply_high(_MULTIPLIER_1, c_2), _MULTIPLIER_1 * c_2
    return high_1 ^ c_1 ^ key_0, low_1, high_0 ^ c_3 ^ key_1, low_0


@kernel(AS_WRITTEN)
def _two_blocks(key_0, key_1, block, now, purpose):  # type: ignore[no-untyped-def]
    """Return the words of two consecutive blocks.

    Neither block waits for the other's products, so this is faster than one block at a time.
    """
    a_0, a_1, a_2, a_3 = block, now, purpose, _ZERO
    b_0, b_1, b_2, b_3 = block + _ONE, now, purpose, _ZERO
    for _ in range(10):
        a_0, a_1, a_2, a_3 = _philox_round(key_0, key_1, a_0, a_1, a_2, a_3)
        b_0, b_1, b_2, b_3 = _philox_round(key_0, key_1, b_0, b_1, b_2, b_3)
        key_0 += _WEYL_0
        key_1 += _WEYL_1
    return a_0, a_1, a_2, a_3, b_0, b_1, b_2, b_3


@kernel(AS_WRITTEN)
def _uniform(word):  # type: ignore[no-untyped-def]
    """Return the midpoint of one of 2^53 equal intervals of (0, 1). Midpoints above 1/2 are rounded, the last to 1."""
    return (np.int64(word >> _TO_53_BITS) + 0.5) * (1.0 / 9007199254740992.0)


@kernel(AS_WRITTEN)
def draw_one(i, keys, now, purpose, as_normals, scratch, o, out):  # type: ignore[no-untyped-def]
    """Call `draw` for keys[i] and round `now`, with the result in out[o]. `scratch` has count + EXTRA entries."""
    count = out.shape[1]
    half = scratch.shape[0] // 2
    even, odd = scratch[:half], scratch[half:]  # draws with even and with odd index
    pairs = (count + 7) // 8 * 4
    for j in range(0, pairs, 4):
        word = _two_blocks(keys[i, 0], keys[i, 1], np.uint64(j // 2), np.uint64(now), np.uint64(purpose))
        even[j], odd[j] = _uniform(word[0]), _uniform(word[1])
        even[j + 1], odd[j + 1] = _uniform(word[2]), _uniform(word[3])
        even[j + 2], odd[j + 2] = _uniform(word[4]), _uniform(word[5])
        even[j + 3], odd[j + 3] = _uniform(word[6]), _uniform(word[7])
    if as_normals:
        to_normals(even, odd, pairs)  # includes the extra numbers, because four pairs take as long as one
    for j in range(count // 2):
        out[o, 2 * j], out[o, 2 * j + 1] = even[j], odd[j]
    if count % 2 == 1:
        out[o, count - 1] = even[count // 2]


@kernel(AS_WRITTEN)
def draw(keys, rounds, purpose, as_normals, out):  # type: ignore[no-untyped-def]
    """Write standard normals, or uniforms on (0, 1), to `out` (n, count). Row i belongs to keys[i] and rounds[i]."""
    scratch = np.empty(out.shape[1] + EXTRA)
    for i in range(out.shape[0]):
        draw_one(i, keys, rounds[i], purpose, as_normals, scratch, i, out)
