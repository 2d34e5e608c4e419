"""Compiled numerics: arrays in, arrays out; no random numbers but those of given keys, no input or output.

Nothing is said about bad data here: whoever calls has looked at it.

Every kernel works in canonical coordinates, A = [I_k 0], on float64 C-contiguous arrays and int64 indices.
NaN in an observation means "not seen", so the fast-math flags never include the no-NaN ones.
"""
