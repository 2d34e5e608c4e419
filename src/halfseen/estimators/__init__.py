"""The estimators: each file contains one way to estimate the context."""
