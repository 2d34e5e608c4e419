"""Agents × worlds → rounds → regret, tables, figures, report."""
