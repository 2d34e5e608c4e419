"""From observations to a model."""
