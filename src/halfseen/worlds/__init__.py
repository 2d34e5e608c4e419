"""Worlds: simulated and recorded sources of contexts, observations and rewards."""

from halfseen.worlds.generated import GeneratedWorld, generated
from halfseen.worlds.linear_gaussian import FixedWorld, RandomWorld, linear_gaussian
from halfseen.worlds.named import NAMED, RECORDED, named, register
from halfseen.worlds.recorded import RecordedWorld, recorded
from halfseen.worlds.world import World

__all__ = [
    "NAMED",
    "RECORDED",
    "FixedWorld",
    "GeneratedWorld",
    "RandomWorld",
    "RecordedWorld",
    "World",
    "generated",
    "linear_gaussian",
    "named",
    "recorded",
    "register",
]
