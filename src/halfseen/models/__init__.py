"""The linear-Gaussian model, filtering and smoothing, and identification from observations."""
