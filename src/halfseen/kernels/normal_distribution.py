"""The density and distribution function of the standard normal at many points, for quadrature.

Loops of sums and products without branches compile to vector instructions, and the polynomials are written so that few
operations depend on each other. This is many times faster than calls of `math.erfc` and `math.exp`. Relative errors are
below 5e-14 (tests/kernels/test_normal_distribution.py).
"""

from __future__ import annotations

import math

from halfseen.kernels.arrays import Float, Matrix, Vector
from halfseen.kernels.compiling import FUSED, kernel

CUTOFF = 9.0  # beyond ±CUTOFF the density is set to 0 and the distribution function to 0 or 1, with an error of 1e-19
_PEAK = 1.0 / math.sqrt(2.0 * math.pi)


@kernel(FUSED)
def _exp_half_square(t: Float) -> Float:
    """Return exp(−t²/2), |t| ≤ CUTOFF, as the 32nd power of exp(−t²/64): a Taylor series around t²/64 = 0.6328125."""
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
    """Return Q(t) exp(t²/2) for 0 ≤ t ≤ CUTOFF, where Q is the upper tail probability.

    (t + 4) times this function is approximated by its Chebyshev interpolant of degree 18 in u, which is 1 at t = 0 and
    −1 at t = CUTOFF.
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
def _central_probability(t: Float) -> Float:
    """Return P(|z| < t) for t ≤ 0.5 by its Taylor series, because 1 − 2Q(t) is inaccurate for small t."""
    v = t * t * -0.5
    v2 = v * v
    v4 = v2 * v2
    p = (v * (1 / 3.0) + 1.0) + (v * (1 / 42.0) + 0.1) * v2
    q = (v * (1 / 1320.0) + 1 / 216.0) + (v * (1 / 75600.0) + 1 / 9360.0) * v2
    p += (q + ((v * (1 / 6894720.0) + 1 / 685440.0) + v2 * (1 / 76204800.0)) * v4) * v4
    return p * t * (2.0 * _PEAK)


@kernel(FUSED)
def normals(begin: float, offsets: Vector, inverse: float, half: bool, a: int, density: Matrix, lower: Matrix) -> None:
    """Write the density and distribution function of z ~ N(0, 1) to row `a` of density and lower (K, n).

    The points are (begin + offset)·inverse for all offsets (n,), and the density is multiplied by `inverse`. With
    `half` the distribution is that of |z|, at points that are not negative.
    """
    peak, sides = _PEAK * inverse, 1.0
    if half:
        peak, sides = 2.0 * peak, 2.0
    for i in range(offsets.shape[0]):
        z = (begin + offsets[i]) * inverse
        t = z if z > 0.0 else -z
        inside = t if t < CUTOFF else CUTOFF
        bell = _exp_half_square(inside)
        bell = bell if t < CUTOFF else 0.0
        tail = bell * _mills(inside)
        density[a, i] = bell * peak
        lower[a, i] = 1.0 - sides * tail if z > 0.0 else tail
    if half:
        for i in range(offsets.shape[0]):
            z = (begin + offsets[i]) * inverse
            z = z if z > 0.0 else 0.0
            lower[a, i] = lower[a, i] if z > 0.5 else _central_probability(z)
