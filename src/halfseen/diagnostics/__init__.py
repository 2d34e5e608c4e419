"""Model health: the examination of a model and its arms from data, and its findings (docs/mathematics.md)."""
