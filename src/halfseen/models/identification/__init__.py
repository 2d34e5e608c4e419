"""Identification of a linear-Gaussian model from observations."""
