"""The Box–Muller transform of two uniforms into two normals, with the same digits on every processor.

It uses additions, multiplications, a division and a square root, which all processors round alike. The logarithms and
sines of C libraries differ in the last digit. There are no branches, so the compiler can vectorise the loop.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import AS_WRITTEN, bits_of, double_of, kernel

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # 32 bits, so that its product with an integer below 2²¹ is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_ONE = 1023 << 52  # the bits of 1.0. The exponent starts at bit 52.
_FROM_ROOT_HALF = _ONE - int(np.float64(math.sqrt(0.5)).view(np.int64))
_INTEGERS = 2.0**52  # a float from 2⁵² to 2⁵³ is an integer, and its lowest bits are this integer minus 2⁵²
_INTEGERS_BITS = 1075 << 52


@kernel(AS_WRITTEN)
def _log(u):  # type: ignore[no-untyped-def]
    """Return log u = e log 2 + 2 artanh s, where u = 2ᵉ m with √½ ≤ m < √2 and s = (m − 1)/(m + 1)."""
    bits = bits_of(u)
    biased = (bits + _FROM_ROOT_HALF) >> 52
    e = double_of(biased | _INTEGERS_BITS) - (_INTEGERS + 1023.0)
    f = double_of(bits - ((biased - 1023) << 52)) - 1.0
    s = f / (2.0 + f)
    z = s * s  # < 0.03, so the terms that are left out are below 2⁻⁵⁵ of 2 artanh s
    rest = 2 / 19
    rest = rest * z + 2 / 17
    rest = rest * z + 2 / 15
    rest = rest * z + 2 / 13
    rest = rest * z + 2 / 11
    rest = rest * z + 2 / 9
    rest = rest * z + 2 / 7
    rest = rest * z + 2 / 5
    rest = rest * z + 2 / 3
    # 2s = f − sf, where f is exact.
    return e * _LN2_HIGH + (f - (s * (f - z * rest) - e * _LN2_LOW))


@kernel(AS_WRITTEN)
def _cos_sin(u):  # type: ignore[no-untyped-def]
    """Return cos 2πu and sin 2πu for 0 < u < 1, by the series at the nearest multiple of π/2."""
    near = u * 4.0 + 1.5 * _INTEGERS  # rounds 4u to an integer
    quarters = bits_of(near)
    angle = (u - (near - 1.5 * _INTEGERS) * 0.25) * (2.0 * math.pi)
    z = angle * angle  # ≤ (π/4)², so the terms that are left out are below 2⁻⁵³
    sine = -1 / 1307674368000
    sine = sine * z + 1 / 6227020800
    sine = sine * z - 1 / 39916800
    sine = sine * z + 1 / 362880
    sine = sine * z - 1 / 5040
    sine = sine * z + 1 / 120
    sine = sine * z - 1 / 6
    sine = angle + angle * (z * sine)
    cosine = 1 / 20922789888000
    cosine = cosine * z - 1 / 87178291200
    cosine = cosine * z + 1 / 479001600
    cosine = cosine * z - 1 / 3628800
    cosine = cosine * z + 1 / 40320
    cosine = cosine * z - 1 / 720
    cosine = cosine * z + 1 / 24
    cosine = cosine * z - 1 / 2
    cosine = 1.0 + z * cosine
    odd = quarters & 1 != 0
    along, across = (sine, cosine) if odd else (cosine, sine)
    # Bit 63 is the sign. The cosine is negative after one and two quarter turns, the sine after two and three.
    return double_of(bits_of(along) ^ ((quarters + 1 & 2) << 62)), double_of(bits_of(across) ^ ((quarters & 2) << 62))


@kernel(AS_WRITTEN)
def to_normals(first, second, n):  # type: ignore[no-untyped-def]
    """Replace the uniforms on (0, 1) in first[:n] and second[:n] by independent standard normals."""
    for j in range(n):
        radius = math.sqrt(-2.0 * _log(first[j]))
        along, across = _cos_sin(second[j])
        first[j], second[j] = radius * along, radius * across
