"""Worlds: simulated and recorded sources of contexts, observations and rewards."""

from halfseen.worlds.linear_gaussian import FixedWorld, RandomWorld, linear_gaussian
from halfseen.worlds.named import NAMED, RECORDED, named
from halfseen.worlds.recorded import RecordedWorld, recorded
from halfseen.worlds.world import World

__all__ = [
    "NAMED",
    "RECORDED",
    "FixedWorld",
    "RandomWorld",
    "RecordedWorld",
    "World",
    "linear_gaussian",
    "named",
    "recorded",
]
