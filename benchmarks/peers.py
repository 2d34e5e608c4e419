"""Peers of a job: those that are installed take part, the others are named."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.harness import Contender

# What `make bench` installs beside us, by package.
PACKAGES = (
    "bayesianbandits",
    "contextualbandits",
    "dynamax",
    "filterpy",
    "jax",
    "mabwiser",
    "pykalman",
    "river",
    "simdkalman",
    "statsmodels",
    "vowpalwabbit",
)


def versions() -> dict[str, str]:
    """The version of every peer that is installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class Entrants:
    """Contenders of a job, ours first; `absent` has a line for each peer that could not be entered."""

    def __init__(self, *contenders: Contender) -> None:
        self.contenders: list[Contender] = list(contenders)
        self.absent: list[str] = []

    def enter(self, package: str, module: str, make: Callable[[Any, str], Contender]) -> None:
        """Add what `make(module, "package version")` returns, if the package is there and can be set up."""
        try:
            label = f"{package} {version(package)}"
            loaded = importlib.import_module(module)
        except (ImportError, PackageNotFoundError):
            self.absent.append(f"{package}: not installed")
            return
        try:
            self.contenders.append(make(loaded, label))
        except Exception as error:
            self.absent.append(f"{label}: failed: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}")

    def cannot(self, package: str, why: str) -> None:
        """A peer that has nothing for this job."""
        self.absent.append(f"{package}: {why}")
