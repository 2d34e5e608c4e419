"""Where rewards come from."""

from halfseen.worlds.linear_gaussian import FixedWorld, RandomWorld, linear_gaussian
from halfseen.worlds.named import NAMED, named
from halfseen.worlds.world import World

__all__ = ["NAMED", "FixedWorld", "RandomWorld", "World", "linear_gaussian", "named"]
