"""The linear-Gaussian model of the context, with filtering, smoothing and identification from observations."""
