"""The examination of a model and its arms from a record: one file a question (docs/mathematics.md, "Model health")."""
