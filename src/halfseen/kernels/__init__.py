"""Compiled numerics: arrays in, arrays out; no random numbers, no input or output, no exceptions about data.

Every kernel works in canonical coordinates, A = [I_k 0], on float64 C-contiguous arrays and int64 indices.
NaN in an observation means "not seen", so the fast-math flags never include the no-NaN ones.
"""
