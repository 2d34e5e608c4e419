"""Two uniforms made into two normals (Box and Muller, 1958) by additions, multiplications, a division and a root.

Those are rounded alike by every processor, so a draw has the same digits everywhere; the logarithms and sines of C
libraries differ in the last. There is no branch either, so pairs are worked out several at a time.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler.decorators import AS_WRITTEN, inline, kernel
from halfseen.compiler.intrinsics import bits_of, double_of

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # 32 bits: a whole number of them below 2²¹ is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_ONE = 1023 << 52  # the bits of 1.0; the exponent is above bit 52
_FROM_ROOT_HALF = _ONE - int(np.float64(math.sqrt(0.5)).view(np.int64))
_WHOLE = 2.0**52  # from here on doubles are whole numbers, and their last bits are the number
_WHOLE_BITS = 1075 << 52


@inline("f -> f", AS_WRITTEN)
def _log(u):  # type: ignore[no-untyped-def]
    """log u of a positive, normal u = 2ᵉ m with √½ ≤ m < √2: e log 2 + 2 artanh s, where s = (m − 1)/(m + 1)."""
    bits = bits_of(u)
    biased = (bits + _FROM_ROOT_HALF) >> 52
    e = double_of(biased | _WHOLE_BITS) - (_WHOLE + 1023.0)
    f = double_of(bits - ((biased - 1023) << 52)) - 1.0
    s = f / (2.0 + f)
    z = s * s  # < 0.03: the first term left out of 2 artanh s − 2s is below 2⁻⁵⁵ of the whole
    rest = 2 / 19
    rest = rest * z + 2 / 17
    rest = rest * z + 2 / 15
    rest = rest * z + 2 / 13
    rest = rest * z + 2 / 11
    rest = rest * z + 2 / 9
    rest = rest * z + 2 / 7
    rest = rest * z + 2 / 5
    rest = rest * z + 2 / 3
    # 2s = f − sf, of which f is exact
    return e * _LN2_HIGH + (f - (s * (f - z * rest) - e * _LN2_LOW))


@inline("f -> f f", AS_WRITTEN)
def _turn(u):  # type: ignore[no-untyped-def]
    """cos 2πu and sin 2πu, for 0 < u < 1: those of what is left beside the nearest quarter turn, by their series."""
    near = u * 4.0 + 1.5 * _WHOLE  # rounded to a whole number
    quarters = bits_of(near)
    angle = (u - (near - 1.5 * _WHOLE) * 0.25) * (2.0 * math.pi)
    z = angle * angle  # ≤ (π/4)²: what the series leave out is below 2⁻⁵³
    # over 15!, 13! and so on
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
    # bit 63 is the sign: minus for cos after one and two quarters, for sin after two and three
    return double_of(bits_of(along) ^ ((quarters + 1 & 2) << 62)), double_of(bits_of(across) ^ ((quarters & 2) << 62))


@kernel("f1 f1 i", AS_WRITTEN)
def to_normals(first, second, n):  # type: ignore[no-untyped-def]
    """Uniforms on (0, 1), first[:n] and second[:n], into as many independent standard normals, in their place."""
    for j in range(n):
        radius = math.sqrt(-2.0 * _log(first[j]))
        along, across = _turn(second[j])
        first[j], second[j] = radius * along, radius * across
