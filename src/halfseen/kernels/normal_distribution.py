"""Density and distribution function of the standard normal for a whole quadrature panel, without branches or calls.

The loops are straight sums and products, which compilers turn into vector instructions, and the polynomials are written
so that few of these wait for each other: many times quicker than `math.erfc` and `math.exp` called one by one.
Relative errors are below 5e-14 (tests/kernels/test_tails.py).
"""

from __future__ import annotations

import math

from halfseen.kernels.arrays import Float, Matrix, Vector
from halfseen.kernels.compiling import FUSED, kernel

END = 9.0  # beyond ±END a density is 0 and a distribution function 0 or 1: tails of 1e-19 are not seen
_PEAK = 1.0 / math.sqrt(2.0 * math.pi)


@kernel(FUSED)
def _bell(t: Float) -> Float:
    """exp(−t²/2), |t| ≤ END: the 32nd power of the Taylor series of exp(−v) around v = 0.6328125, v = t²/64."""
    v = 0.6328125 - t * t * 0.015625
    v2 = v * v
    v4 = v2 * v2
    v8 = v4 * v4
    p = (v + 1.0) + (v * (1 / 6.0) + 0.5) * v2
    p += ((v * (1 / 120.0) + 1 / 24.0) + (v * (1 / 5040.0) + 1 / 720.0) * v2) * v4
    q = (v * (1 / 362880.0) + 1 / 40320.0) + (v * (1 / 39916800.0) + 1 / 3628800.0) * v2
    r = (v * (1 / 6227020800.0) + 1 / 479001600.0) + (v * (1 / 1307674368000.0) + 1 / 87178291200.0) * v2
    p += (q + r * v4 + (v * (1 / 355687428096000.0) + 1 / 20922789888000.0) * v8) * v8
    p *= 0.5310959910353452  # exp(−0.6328125)
    p *= p
    p *= p
    p *= p
    p *= p
    return p * p


@kernel(FUSED)
def _mills(t: Float) -> Float:
    """Q(t) exp(t²/2), Q the upper tail, 0 ≤ t ≤ END.

    (t + 4) times it is a polynomial in u, which runs from 1 at t = 0 to −1 at t = END: its Chebyshev interpolant of
    degree 18.
    """
    r = 1.0 / (t + 4.0)
    u = r * (104.0 / 9.0) - 17.0 / 9.0
    u2 = u * u
    u4 = u2 * u2
    u8 = u4 * u4
    a = (u * 0.6275217633664049 + 0.9849745962470156) + (u * 0.08809464873442566 + 0.28530166828999454) * u2
    b = (u * -0.0002643295696420049 + 0.015058823959532163) + (u * -4.698371193705654e-05 - 0.0006736780889283231) * u2
    c = (u * 2.847843071070824e-06 + 3.258385424044861e-05) + (u * -6.621406842704776e-08 - 1.9938495549802994e-06) * u2
    d = (u * -9.755742786709513e-09 + 1.3494965107958328e-07) + (
        u * 1.7747592401543727e-09 - 7.818495137862078e-09
    ) * u2
    e = (u * -1.2790367595459285e-10 + 4.978286788651799e-11) + u2 * 6.739834421559384e-11
    return ((a + b * u4) + ((c + d * u4) + e * u8) * u8) * r


@kernel(FUSED)
def _centre(t: Float) -> Float:
    """P(|z| < t) for t ≤ 0.5 as its Taylor series: 1 − 2Q(t) would lose the digits of a small number."""
    v = t * t * -0.5
    v2 = v * v
    v4 = v2 * v2
    p = (v * (1 / 3.0) + 1.0) + (v * (1 / 42.0) + 0.1) * v2
    q = (v * (1 / 1320.0) + 1 / 216.0) + (v * (1 / 75600.0) + 1 / 9360.0) * v2
    p += (q + ((v * (1 / 6894720.0) + 1 / 685440.0) + v2 * (1 / 76204800.0)) * v4) * v4
    return p * t * (2.0 * _PEAK)


@kernel(FUSED)
def normals(begin: float, offsets: Vector, inverse: float, half: bool, a: int, density: Matrix, lower: Matrix) -> None:
    """Density and distribution function of z at (begin + offset)·inverse for every offset, in row `a`.

    If `half`, those of |z|, at points that are not negative. The density is multiplied by `inverse`.
    """
    peak, sides = _PEAK * inverse, 1.0
    if half:
        peak, sides = 2.0 * peak, 2.0
    for i in range(offsets.shape[0]):
        z = (begin + offsets[i]) * inverse
        t = z if z > 0.0 else -z
        inside = t if t < END else END
        bell = _bell(inside)
        bell = bell if t < END else 0.0
        tail = bell * _mills(inside)
        density[a, i] = bell * peak
        lower[a, i] = 1.0 - sides * tail if z > 0.0 else tail
    if half:
        for i in range(offsets.shape[0]):
            z = (begin + offsets[i]) * inverse
            z = z if z > 0.0 else 0.0
            lower[a, i] = lower[a, i] if z > 0.5 else _centre(z)
