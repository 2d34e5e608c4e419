"""Selection of the dimension d of the context with AICc, the corrected information criterion of Akaike.

AICc = log-likelihood − pN/(N − p − 1), where p = 2kd + k(k + 1)/2 is the number of free parameters of a model of y, and
N is the number of observed entries. The correction matters because identification starts with little data. BIC is not
used, because it tends to choose a d that is too small, and this costs much more reward than a d that is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

HIDDEN_COORDINATES = (0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16)
PATIENCE = 3  # the search ends after this many dimensions in a row without an improvement
LEAST_GAIN = 6.0  # nats of AICc that a higher dimension must gain; if nothing is hidden, gains by chance are smaller

Fit = TypeVar("Fit")


def candidate_dimensions(observed: int) -> tuple[int, ...]:
    """Return the dimensions to fit, from k upwards in increasing steps."""
    return tuple(observed + hidden for hidden in HIDDEN_COORDINATES)


def free_parameters(latent: int, observed: int) -> int:
    """Return p, the number of free parameters of a model of y, up to a change of basis of the hidden coordinates."""
    return 2 * observed * latent + observed * (observed + 1) // 2


def aicc(log_likelihood: float, latent: int, observed: int, entries: int) -> float:
    """Return AICc, where higher is better, or −inf if the number of observed entries is too small."""
    p = free_parameters(latent, observed)
    freedom = entries - p - 1
    return log_likelihood - p * entries / freedom if freedom > 0 else float("-inf")


def search_dimension(
    dimensions: Iterable[int], fit: Callable[[int], Fit], score: Callable[[Fit, int], float]
) -> Fit | None:
    """Fit the dimensions in order and return the fit with the best score, or None if no score is finite.

    A fit replaces the best one before it if its score is higher by more than LEAST_GAIN. The search ends after PATIENCE
    fits in a row that do not replace the best one.
    """
    best: Fit | None = None
    best_score, without_gain = float("-inf"), 0
    for dimension in dimensions:
        fitted = fit(dimension)
        value = score(fitted, dimension)
        if value > best_score + LEAST_GAIN:
            best, best_score, without_gain = fitted, value, 0
        else:
            without_gain += 1
            if without_gain >= PATIENCE:
                break
    return best
