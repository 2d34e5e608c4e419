"""The commands `halfseen agents` and `halfseen worlds`."""

from __future__ import annotations

from halfseen.cli.terminal import print_table


def agents() -> None:
    """List the agents of the catalogue."""
    from halfseen.agents.catalogue import CATALOG

    print_table(CATALOG.table(), "Agents", optional=("learner", "estimator", "chooser", "requires"))


def worlds() -> None:
    """List the named worlds."""
    from halfseen.worlds.named import world_table

    print_table(world_table(), "Worlds")
