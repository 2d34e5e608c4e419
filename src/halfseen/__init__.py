"""halfseen: decisions when you see only half of the context.

Contextual bandits whose context is partly hidden and moves over time. Names load when first used, so importing the
package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfseen import worlds
    from halfseen.agent import Agent
    from halfseen.beliefs import Belief
    from halfseen.catalogue import catalog, load, make
    from halfseen.decision import Decision
    from halfseen.errors import HalfseenError, HalfseenWarning
    from halfseen.experiments.examine import Examination, examine
    from halfseen.experiments.leaderboard import Leaderboard, leaderboard
    from halfseen.experiments.result import Result
    from halfseen.experiments.run import run
    from halfseen.experiments.specs import AgentSpec
    from halfseen.health import Finding, Health, Verdict
    from halfseen.identify.em import FitResult, fit
    from halfseen.model import LinearGaussianModel
    from halfseen.service.client import AsyncClient, Client, ServiceUnreachable
    from halfseen.service.errors import ServiceError

_HOMES = {
    "Agent": "agent",
    "AgentSpec": "experiments.specs",
    "AsyncClient": "service.client",
    "Belief": "beliefs",
    "Client": "service.client",
    "Decision": "decision",
    "Examination": "experiments.examine",
    "Finding": "health",
    "FitResult": "identify.em",
    "HalfseenError": "errors",
    "HalfseenWarning": "errors",
    "Health": "health",
    "Leaderboard": "experiments.leaderboard",
    "LinearGaussianModel": "model",
    "Result": "experiments.result",
    "ServiceError": "service.errors",
    "ServiceUnreachable": "service.client",
    "Verdict": "health",
    "catalog": "catalogue",
    "examine": "experiments.examine",
    "fit": "identify.em",
    "leaderboard": "experiments.leaderboard",
    "load": "catalogue",
    "make": "catalogue",
    "run": "experiments.run",
    "worlds": None,
}

__all__ = [
    "Agent",
    "AgentSpec",
    "AsyncClient",
    "Belief",
    "Client",
    "Decision",
    "Examination",
    "Finding",
    "FitResult",
    "HalfseenError",
    "HalfseenWarning",
    "Health",
    "Leaderboard",
    "LinearGaussianModel",
    "Result",
    "ServiceError",
    "ServiceUnreachable",
    "Verdict",
    "__version__",
    "catalog",
    "examine",
    "fit",
    "leaderboard",
    "load",
    "make",
    "run",
    "worlds",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("halfseen")
    if name not in _HOMES:
        raise AttributeError(f"module 'halfseen' has no attribute '{name}'")
    home = _HOMES[name]
    if home is None:
        return importlib.import_module(f"halfseen.{name}")
    return getattr(importlib.import_module(f"halfseen.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
