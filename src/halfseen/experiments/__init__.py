"""Experiments: play agents in worlds, and summarise their regret and rewards in tables, figures and reports."""
