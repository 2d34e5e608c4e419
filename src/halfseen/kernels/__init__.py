"""Kernels: numerical functions that take arrays, return or change arrays, and are compiled with Numba.

Kernels do not check their input: the caller does. They do no input or output, and their random numbers are a function
of the keys they are given.

Every kernel works in canonical coordinates, A = [I_k 0], on C-contiguous float64 arrays and int64 indices. NaN in an
observation is a missing entry, so kernels are never compiled with the fast-math flags that assume there is no NaN.

Letters in docstrings: B streams or series, n rounds or rows, d latent and k observed coordinates, K arms, p features.
"""
