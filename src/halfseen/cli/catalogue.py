"""`halfseen agents` and `halfseen worlds`: lists of what there is to choose from."""

from __future__ import annotations

from halfseen.cli.terminal import print_table


def agents() -> None:
    """List the agents."""
    from halfseen.agents.catalogue import CATALOG

    print_table(CATALOG.table(), "Agents", least_worth=("learner", "estimator", "chooser", "requires"))


def worlds() -> None:
    """List the named worlds."""
    from halfseen.worlds.named import world_table

    print_table(world_table(), "Worlds")
