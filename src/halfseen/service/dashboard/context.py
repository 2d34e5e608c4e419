"""The context as the model in force of an agent estimates it from observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from halfseen.agents.agent import Agent
from halfseen.errors import HalfseenError
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.kernels.random import Floats
from halfseen.models.linear_gaussian import LinearGaussianModel


@dataclass(frozen=True)
class ContextFilter:
    """From observations (n, k) to mean (n,) and standard deviation (n,) of one of the `coordinates`.

    Without a `filter` the agent has no Gaussian belief, and `why` says why.
    """

    coordinates: tuple[str, ...] = ()
    filter: Callable[[Floats, int], tuple[Floats, Floats]] | None = None
    why: str | None = None


def context_filter(agent: Agent, features: Sequence[str] | None) -> ContextFilter:
    """The model in force of `agent`, whose observed entries may have names."""
    k = agent.policy.streams.observed
    seen = tuple(features) if features is not None else tuple(f"entry {i}" for i in range(k))
    estimator = agent.policy.estimator
    centre, scale = np.zeros(k), np.ones(k)
    if isinstance(estimator, Adaptive):
        if not estimator.identified[0]:
            facts = agent.health().facts if agent.rounds else {}
            left = facts.get("rounds to the next", "some")
            return ContextFilter(why=f"No model yet: the agent looks for one after {left} more decisions.")
        if estimator.uses_raw_observation[0]:
            return ContextFilter(why="The agent uses each observation as it is: so far, filtering would not pay.")
        subject = agent.subject()
        model = None if subject is None else subject.model
        centre, scale = estimator.centre[0].copy(), estimator.scale[0].copy()
    else:
        model = _filter_model(agent)
        if model is None:
            return ContextFilter(why=f"'{agent.name}' keeps no belief about a hidden context. 'adaptive' does.")
    if model is None:
        return ContextFilter(why="The model in force cannot be filtered with; model health says more.")
    hidden = tuple(f"hidden {i + 1}" for i in range(model.latent - k))

    def filtered(ys: Floats, coordinate: int, model: LinearGaussianModel = model) -> tuple[Floats, Floats]:
        result = model.filter((ys - centre) / scale)
        mean, var = result.means[:, coordinate], result.covs[:, coordinate, coordinate]
        if coordinate < k:
            mean, var = mean * scale[coordinate] + centre[coordinate], var * scale[coordinate] ** 2
        return mean, np.sqrt(np.maximum(0.0, var))

    return ContextFilter(seen + hidden, filtered)


def _filter_model(agent: Agent) -> LinearGaussianModel | None:
    """The matrices of a filter in canonical coordinates, as they are in the agent's state; None if it has no filter."""
    state = agent.state()
    try:
        D, Q, R = (state[f"estimator.{name}"][0] for name in ("transition", "process_cov", "observation_cov"))
        return LinearGaussianModel(transition=D, process_cov=0.5 * (Q + Q.T), observation_cov=R)
    except (KeyError, HalfseenError):
        return None
