"""Model health: a model and its arms are examined with data, which gives findings (docs/mathematics.md)."""
