"""Estimates of the context, computed from observations with the current model of an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from halfseen.agents.agent import Agent
from halfseen.errors import HalfseenError
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.kernels.random import Floats, Ints
from halfseen.models.linear_gaussian import LinearGaussianModel


@dataclass(frozen=True)
class ContextFilter:
    """A filter for the coordinates of the context.

    `filter` takes observations (n, k), the index of one of the `coordinates` and, optionally, the number of steps (n,)
    before each observation (by default 1). It returns the means (n,) and standard deviations (n,) of this coordinate.
    If the context cannot be estimated, `filter` is None and `why` gives the reason.
    """

    coordinates: tuple[str, ...] = ()
    filter: Callable[..., tuple[Floats, Floats]] | None = None
    why: str | None = None


def context_filter(agent: Agent, features: Sequence[str] | None) -> ContextFilter:
    """Return a filter with the current model of `agent`. `features` are the names of the observed features, if any."""
    k = agent.policy.streams.observed
    observed = tuple(features) if features is not None else tuple(f"feature {i}" for i in range(k))
    estimator = agent.policy.estimator
    centre, scale = np.zeros(k), np.ones(k)
    if isinstance(estimator, Adaptive):
        if not estimator.identified[0]:
            facts = agent.health().facts if agent.rounds else {}
            left = facts.get("rounds to the next", "some")
            return ContextFilter(why=f"There is no model yet. The agent will identify one after {left} more decisions.")
        if estimator.uses_raw_observation[0]:
            why = "The agent uses the raw observation, because filtering does not yet improve its predictions."
            return ContextFilter(why=why)
        subject = agent.subject()
        model = None if subject is None else subject.model
        centre, scale = estimator.centre[0].copy(), estimator.scale[0].copy()
    else:
        model = _filter_model(agent)
        if model is None:
            why = f"The agent '{agent.name}' has no belief about a hidden context. The agent 'adaptive' has one."
            return ContextFilter(why=why)
    if model is None:
        return ContextFilter(why="The current model cannot be used for filtering. See the model health below.")
    hidden = tuple(f"hidden {i + 1}" for i in range(model.latent - k))

    def filtered(
        ys: Floats, coordinate: int, elapsed: Ints | int = 1, model: LinearGaussianModel = model
    ) -> tuple[Floats, Floats]:
        result = model.filter((ys - centre) / scale, elapsed=elapsed)
        mean, var = result.means[:, coordinate], result.covs[:, coordinate, coordinate]
        if coordinate < k:
            mean, var = mean * scale[coordinate] + centre[coordinate], var * scale[coordinate] ** 2
        return mean, np.sqrt(np.maximum(0.0, var))

    return ContextFilter(observed + hidden, filtered)


def _filter_model(agent: Agent) -> LinearGaussianModel | None:
    """Return the model in the agent's state, in canonical coordinates, or None if the agent does not filter."""
    state = agent.state()
    try:
        D, Q, R = (state[f"estimator.{name}"][0] for name in ("transition", "process_cov", "observation_cov"))
        return LinearGaussianModel(transition=D, process_cov=0.5 * (Q + Q.T), observation_cov=R)
    except (KeyError, HalfseenError):
        return None
