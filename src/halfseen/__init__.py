"""Contextual bandits whose context is partly hidden and moves over time.

`make` builds an agent, `LinearGaussianModel` and `fit` work with the model of the context, `run` and `leaderboard`
run experiments, `evaluate` uses logged decisions to estimate the mean reward of a policy, and `Fleet` and `Client`
serve many streams. Submodules are imported when one of their names is first used, so importing the package is fast.

Examples
--------
>>> import halfseen as hs
>>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
>>> decision = agent.decide([0.3, -1.2])
>>> decision.arm in ("low", "high")
True
>>> agent.learn(decision.id, 1.0)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfseen import worlds
    from halfseen.agents.agent import Agent
    from halfseen.agents.catalogue import AgentSpec, catalog, make, register
    from halfseen.agents.checks import check_agent
    from halfseen.agents.decision import Decision, Decisions
    from halfseen.agents.fleet import Fleet
    from halfseen.agents.forecast import Forecast
    from halfseen.agents.loading import load
    from halfseen.client import AsyncClient, Client, ServiceUnreachable
    from halfseen.diagnostics.health import Finding, Health, Verdict
    from halfseen.errors import HalfseenError, HalfseenWarning
    from halfseen.evaluation.evaluate import Evaluation, evaluate
    from halfseen.experiments.examine import Examination, examine
    from halfseen.experiments.leaderboard import Leaderboard, leaderboard
    from halfseen.experiments.result import Result
    from halfseen.experiments.run import run
    from halfseen.experiments.study import Study, study
    from halfseen.models.identification.maximum_likelihood import FitResult, fit
    from halfseen.models.linear_gaussian import LinearGaussianModel
    from halfseen.models.results import Belief
    from halfseen.models.tracker import Tracker
    from halfseen.service.errors import ServiceError

_MODULES = {
    "Agent": "agents.agent",
    "AgentSpec": "agents.catalogue",
    "AsyncClient": "client",
    "Belief": "models.results",
    "Client": "client",
    "Decision": "agents.decision",
    "Decisions": "agents.decision",
    "Evaluation": "evaluation.evaluate",
    "Examination": "experiments.examine",
    "Finding": "diagnostics.health",
    "FitResult": "models.identification.maximum_likelihood",
    "Fleet": "agents.fleet",
    "Forecast": "agents.forecast",
    "HalfseenError": "errors",
    "HalfseenWarning": "errors",
    "Health": "diagnostics.health",
    "Leaderboard": "experiments.leaderboard",
    "LinearGaussianModel": "models.linear_gaussian",
    "Result": "experiments.result",
    "Study": "experiments.study",
    "Tracker": "models.tracker",
    "ServiceError": "service.errors",
    "ServiceUnreachable": "client",
    "Verdict": "diagnostics.health",
    "catalog": "agents.catalogue",
    "check_agent": "agents.checks",
    "evaluate": "evaluation.evaluate",
    "examine": "experiments.examine",
    "fit": "models.identification.maximum_likelihood",
    "leaderboard": "experiments.leaderboard",
    "load": "agents.loading",
    "make": "agents.catalogue",
    "register": "agents.catalogue",
    "run": "experiments.run",
    "study": "experiments.study",
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
    "Forecast",
    "HalfseenError",
    "HalfseenWarning",
    "Health",
    "Leaderboard",
    "LinearGaussianModel",
    "Result",
    "ServiceError",
    "ServiceUnreachable",
    "Study",
    "Tracker",
    "Verdict",
    "__version__",
    "catalog",
    "check_agent",
    "evaluate",
    "examine",
    "fit",
    "leaderboard",
    "load",
    "make",
    "register",
    "run",
    "study",
    "worlds",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("halfseen")
    if name not in _MODULES:
        raise AttributeError(f"module 'halfseen' has no attribute '{name}'")
    module = _MODULES[name]
    if module is None:
        return importlib.import_module(f"halfseen.{name}")
    return getattr(importlib.import_module(f"halfseen.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
