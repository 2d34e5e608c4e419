"""Model health: the examination of a model and its arms with data, and the findings (docs/mathematics.md)."""
