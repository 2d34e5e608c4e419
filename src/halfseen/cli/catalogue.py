"""The commands `halfseen agents` and `halfseen worlds`."""

from __future__ import annotations

from halfseen.cli.arguments import Import, import_modules
from halfseen.cli.terminal import print_table


def agents(modules: Import = None) -> None:
    """List the agents of the catalogue."""
    import_modules(modules)
    from halfseen.agents.catalogue import CATALOG

    print_table(CATALOG.table(), "Agents", optional=("learner", "estimator", "chooser", "requires"))


def worlds(modules: Import = None) -> None:
    """List the named worlds."""
    import_modules(modules)
    from halfseen.worlds.named import world_table

    print_table(world_table(), "Worlds")
