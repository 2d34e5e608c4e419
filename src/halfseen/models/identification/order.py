"""How many hidden coordinates: the dimensions that are tried and the criterion by which one is chosen.

AICc = log-likelihood − pN/(N − p − 1), with p = 2kd + k(k+1)/2 free parameters of a model of y and N observed entries.
The correction matters because identification starts with little data. Too small a d is ruinous and too large is cheap,
so BIC, which errs on the small side, is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

HIDDEN_COORDINATES = (0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16)
PATIENCE = 3  # dimensions without an improvement after which no higher one is tried
LEAST_GAIN = 6.0  # nats that a higher dimension must gain: on data with nothing hidden, chance gives less

Fit = TypeVar("Fit")


def candidate_dimensions(observed: int) -> tuple[int, ...]:
    """The dimensions that are tried: k, then more in growing steps."""
    return tuple(observed + hidden for hidden in HIDDEN_COORDINATES)


def free_parameters(latent: int, observed: int) -> int:
    """p, the number of free parameters of a model of y, whatever the basis of its hidden coordinates."""
    return 2 * observed * latent + observed * (observed + 1) // 2


def aicc(log_likelihood: float, latent: int, observed: int, entries: int) -> float:
    """The score of a model of `latent` dimensions for so many observed entries; −inf where there are too few."""
    p = free_parameters(latent, observed)
    spare = entries - p - 1
    return log_likelihood - p * entries / spare if spare > 0 else float("-inf")


def search_dimension(
    dimensions: Iterable[int], fit: Callable[[int], Fit], score: Callable[[Fit, int], float]
) -> Fit | None:
    """The best scored fit. A higher dimension must gain LEAST_GAIN; the search ends after PATIENCE that do not."""
    best: Fit | None = None
    highest, waited = float("-inf"), 0
    for dimension in dimensions:
        fitted = fit(dimension)
        value = score(fitted, dimension)
        if value > highest + LEAST_GAIN:
            best, highest, waited = fitted, value, 0
        else:
            waited += 1
            if waited >= PATIENCE:
                break
    return best
