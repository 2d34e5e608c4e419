"""Estimates of the memory and work of one stream of an agent, computed before the agent is made.

The letters are those of docs/mathematics.md: k observed features, K arms, features of length p, contexts of dimension
d, n rounds. Memory is estimated for the time when histories are full. Work is counted in floating-point operations,
for the most expensive round and the most expensive identification. A processor core does about 1e9 operations per
second. When a stored history is filtered, the filter is assumed to converge within SETTLING rounds, as
it does if no entry is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from halfseen.agents.catalogue import component_entry
from halfseen.estimators.adaptive.candidate_models import NOISY_STEPS, SLOW_STEPS, SPAN
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.estimators.blup import Blup
from halfseen.estimators.emkf import Emkf
from halfseen.estimators.hmm import PASSES, STARTS, STEPS, Hmm
from halfseen.estimators.kalman import Kalman
from halfseen.estimators.lagged import Lagged
from halfseen.estimators.latent_states import LatentStates
from halfseen.estimators.observed import ObservedWithPropensity
from halfseen.estimators.revealed import Revealed
from halfseen.estimators.smoothed_em import SmoothedEm
from halfseen.learners.calibrated import COLD_ITERATIONS, Calibrated
from halfseen.learners.generalised_linear import GeneralisedLinear, QuasiLikelihood
from halfseen.learners.known import Known, KnownByState
from halfseen.learners.measurement_error import MeasurementError
from halfseen.models.identification.order import candidate_dimensions
from halfseen.models.identification.selection import ITERATIONS, TRIAL_ITERATIONS

SETTLING = 100  # rounds after which the covariance of a filter no longer changes
DECISION_BYTES = 800  # memory of a decision that waits for its reward, without its features
AGENT_BYTES = 6_000  # memory of an agent without its arrays
_NUMBER = 8  # bytes of a stored number


class StreamCost(NamedTuple):
    """The estimated cost of one stream."""

    agent_bytes: float  # the agent with full histories
    pending_bytes: float  # `max_pending` decisions that wait for their rewards
    decision_operations: float  # the most expensive round, including the work of accepting a model
    identification_operations: float  # the most expensive identification


class _EstimatorCost(NamedTuple):
    features: int  # p
    numbers: float  # stored in memory
    decision: float = 0.0  # operations
    identification: float = 0.0  # operations


def stream_cost(name: str, observed: int, arms: int, options: Mapping[str, Any], max_pending: int) -> StreamCost:
    """Estimate the cost of one stream of a catalogued agent.

    The options must be within their bounds. An option that `make` would refuse for another reason is replaced by its
    default.
    """
    entry = component_entry(name)
    values = {option: parameter.default for option, parameter in entry.options.items()}
    values |= dict(entry.defaults) | dict(options)
    estimator = _ESTIMATORS.get(entry.estimator, _observed)(observed, arms, values)
    p = estimator.features
    numbers, operations = _LEARNERS.get(entry.learner_for(values), _ridge)(p, arms)
    given = sum(math.prod(_shape(value)) for value in options.values())
    return StreamCost(
        AGENT_BYTES + _NUMBER * (estimator.numbers + numbers + given),
        max_pending * (DECISION_BYTES + _NUMBER * p),
        estimator.decision + operations + 1e4 * arms,  # the last term is for the propensities
        estimator.identification,
    )


# ---------------------------------------------------------------------- estimators


def _shape(value: Any) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError:  # rows of different lengths
        return ()


def _integer(value: Any, default: int) -> int:
    return int(value) if isinstance(value, int | np.integer) else default


def _observed(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    return _EstimatorCost(k, k)


def _with_propensity(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    return _EstimatorCost(k + 1, 0)


def _revealed(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    return _EstimatorCost(_integer(options["latent"], k), 0)


def _lagged(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    p = k * (_integer(options["lags"], 0) + 1)
    return _EstimatorCost(p, p)


def _blup(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    running = isinstance(options["context_cov"], str)
    d = k if running else max((k, *_shape(options["context_cov"])[-1:]))
    numbers = k * k + 2 * k * d + d * d + (2 * k * k if running else 0)
    # For an eigendecomposition and a pseudo-inverse. Fewer operations are counted than LAPACK does, because LAPACK does
    # more operations per second than compiled loops.
    return _EstimatorCost(d, numbers, 6 * k**3 + 2 * d * d * k)


def _filter(k: int, d: int) -> tuple[float, float]:
    """Return how many numbers a Kalman filter stores, and the operations per round before it converges."""
    return 3 * d * d + d * k + k * k + d, 4 * d**3 + 4 * d * d * k + k**3


def _kalman(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    model = options["model"]
    d = _integer(getattr(model, "latent", k), k)
    numbers, operations = _filter(k, d)
    return _EstimatorCost(
        d, numbers + 4 * d * d + k * k + k * d, operations
    )  # the added numbers are the given model and its canonical form


def _emkf(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    d = max(k, _integer(options["latent"], k))
    numbers, operations = _filter(k, d)
    return _EstimatorCost(d, numbers + 2 * d * d, operations + 4 * d**3)  # the last term is for the M-step, by LAPACK


def _smoothed_em(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    d = max(k, _integer(options["latent"], k))
    n, iterations = _integer(options["window"], max(200, 5 * d)), _integer(options["iterations"], 1)
    numbers, operations = _filter(k, d)
    return _EstimatorCost(d, numbers + d * d + n * k, (iterations + 1) * n * (operations + 8 * d**3))


def _hmm(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    M = _integer(options["states"], 1)
    n = _integer(options["warm_up"], max(50, 10 * M)) << _integer(options["restarts"], 0)
    per_round = 2 * M**4 + 4 * M**3 * k
    numbers = n * k + M**3 + 2 * M * M * (k + 1) + 2 * M * k
    return _EstimatorCost(M, numbers, n * (8 * STARTS * STEPS * M * k + PASSES * per_round))


def _latent_states(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    S, n = max((1, *_shape(options["state_transition"])[-1:])), _integer(options["memory"], 1)
    # A late reward changes all later beliefs. The time per belief is mostly the overhead of calling NumPy.
    return _EstimatorCost(S, 2 * n * S + S * S, n * (30 * S * S + 5e4))


def _adaptive(k: int, K: int, options: Mapping[str, Any]) -> _EstimatorCost:
    latent, n = options["latent"], _integer(options["history"], 1)
    regular = candidate_dimensions(k) if isinstance(latent, str) else (max(k, latent),)
    candidates = len(regular) + len(NOISY_STEPS) + len(SLOW_STEPS) + 1  # the 1 is for a random walk
    d = max(regular)
    p = d + 1
    squares = sum(one * one for one in regular) + (len(NOISY_STEPS) + len(SLOW_STEPS) + 1) * d * d
    numbers = 2 * squares + 2 * d * d + 2 * candidates * k + k * k + 1.5 * n * (k + p + 2)
    refitted = min(candidates, 2 * SPAN + 1 + len(NOISY_STEPS) + 2 * len(SLOW_STEPS) + 1)
    filter_and_smooth = min(n, SETTLING) * 12 * d**3 + n * 12 * d * d
    fit_arms = 3 * K * p**3 + n * p * p
    decision = 4 * d**3 + filter_and_smooth + fit_arms  # an accepted model is applied to the stored history
    em = refitted * (ITERATIONS + TRIAL_ITERATIONS) * filter_and_smooth
    return _EstimatorCost(p, numbers, decision, em + (2 * refitted + 8) * COLD_ITERATIONS * fit_arms)


_ESTIMATORS: dict[Callable[..., Any], Callable[[int, int, Mapping[str, Any]], _EstimatorCost]] = {
    Adaptive: _adaptive,
    Blup: _blup,
    Emkf: _emkf,
    Hmm: _hmm,
    Kalman: _kalman,
    Lagged: _lagged,
    LatentStates: _latent_states,
    ObservedWithPropensity: _with_propensity,
    Revealed: _revealed,
    SmoothedEm: _smoothed_em,
}

# ---------------------------------------------------------------------- learners: numbers in memory, operations


def _ridge(p: int, K: int) -> tuple[float, float]:
    return K * (p * (p + 1) / 2 + p + 1) + p * (p + 1), 4 * K * p * p


def _generalised_linear(p: int, K: int) -> tuple[float, float]:
    numbers, operations = _ridge(p + 1, K)
    return numbers + 4 * K, operations


def _quasi_likelihood(p: int, K: int) -> tuple[float, float]:
    numbers, operations = _generalised_linear(p, K)
    return 2 * numbers, 2 * operations


def _known(p: int, K: int) -> tuple[float, float]:
    return K * p, 2 * K * p


def _measurement_error(p: int, K: int) -> tuple[float, float]:
    k = p - 1
    return K * (2 * k * k + 2 * k) + k * k, 4 * K * k**3  # all arms are estimated again at the end of the burn-in


def _calibrated(p: int, K: int) -> tuple[float, float]:
    return K * (2 * p * p + 5 * p + 3) + 5 * p * p, 12 * K * p * p  # including the second fit, under another origin


_LEARNERS: dict[Callable[..., Any], Callable[[int, int], tuple[float, float]]] = {
    Calibrated: _calibrated,
    GeneralisedLinear: _generalised_linear,
    QuasiLikelihood: _quasi_likelihood,
    Known: _known,
    KnownByState: _known,
    MeasurementError: _measurement_error,
}
