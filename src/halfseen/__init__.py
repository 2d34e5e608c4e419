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
    from halfseen.catalogue import catalog, make
    from halfseen.decision import Decision
    from halfseen.errors import HalfseenError, HalfseenWarning
    from halfseen.experiments.evaluate import Evaluation, evaluate
    from halfseen.experiments.examine import Examination, examine
    from halfseen.experiments.leaderboard import Leaderboard, leaderboard
    from halfseen.experiments.result import Result
    from halfseen.experiments.run import run
    from halfseen.experiments.specs import AgentSpec
    from halfseen.fleet.decisions import Decisions
    from halfseen.fleet.fleet import Fleet, load
    from halfseen.health import Finding, Health, Verdict
    from halfseen.identify.em import FitResult, fit
    from halfseen.model import LinearGaussianModel
    from halfseen.service.client import AsyncClient, Client, ServiceUnreachable
    from halfseen.service.errors import ServiceError
    from halfseen.tracker import Tracker

_HOMES = {
    "Agent": "agent",
    "AgentSpec": "experiments.specs",
    "AsyncClient": "service.client",
    "Belief": "beliefs",
    "Client": "service.client",
    "Decision": "decision",
    "Decisions": "fleet.decisions",
    "Evaluation": "experiments.evaluate",
    "Examination": "experiments.examine",
    "Finding": "health",
    "FitResult": "identify.em",
    "Fleet": "fleet.fleet",
    "HalfseenError": "errors",
    "HalfseenWarning": "errors",
    "Health": "health",
    "Leaderboard": "experiments.leaderboard",
    "LinearGaussianModel": "model",
    "Result": "experiments.result",
    "Tracker": "tracker",
    "ServiceError": "service.errors",
    "ServiceUnreachable": "service.client",
    "Verdict": "health",
    "catalog": "catalogue",
    "evaluate": "experiments.evaluate",
    "examine": "experiments.examine",
    "fit": "identify.em",
    "leaderboard": "experiments.leaderboard",
    "load": "fleet.fleet",
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
    "Decisions",
    "Evaluation",
    "Examination",
    "Finding",
    "FitResult",
    "Fleet",
    "HalfseenError",
    "HalfseenWarning",
    "Health",
    "Leaderboard",
    "LinearGaussianModel",
    "Result",
    "ServiceError",
    "ServiceUnreachable",
    "Tracker",
    "Verdict",
    "__version__",
    "catalog",
    "evaluate",
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
