"""Kernels: numerical functions that take arrays, return or change arrays, and are compiled with Numba.

Kernels do not check their arguments: the caller does. They perform no I/O. Random numbers depend only on keys that the
caller passes.

Every kernel works in canonical coordinates, in which the observation matrix is A = [I_k 0], on C-contiguous float64
arrays and int64 indices. NaN in an observation is a missing entry, so kernels are never compiled with the fast-math
flags that assume there is no NaN.

Letters in docstrings: B is the number of streams or series, n of rounds or rows, d of latent coordinates, k of observed
coordinates, K of arms, and p of features.
"""
