"""How many hidden coordinates: a ladder of dimensions and the score by which one is chosen.

AICc = log-likelihood − pN/(N − p − 1), with p = 2kd + k(k+1)/2 free numbers of a model of y and N numbers seen: the
correction matters because identification starts with little data. Too small a d is ruinous and too large is cheap,
so BIC, which errs on the small side, is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

STEPS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16)
PATIENCE = 3  # rungs without an improvement after which no higher one is tried
WORTH_A_RUNG = 6.0  # nats that a higher rung must gain: the luck of a fit on data without hidden coordinates is less

Fitted = TypeVar("Fitted")


def ladder(observed: int) -> tuple[int, ...]:
    """The dimensions that are tried: k, then more with growing steps."""
    return tuple(observed + step for step in STEPS)


def free_numbers(latent: int, observed: int) -> int:
    """p: how many numbers a model of y has, whatever the basis of its hidden coordinates."""
    return 2 * observed * latent + observed * (observed + 1) // 2


def aicc(log_likelihood: float, latent: int, observed: int, numbers: int) -> float:
    """The score of a model of `latent` dimensions for `numbers` seen entries; −inf where there are too few."""
    p = free_numbers(latent, observed)
    spare = numbers - p - 1
    return log_likelihood - p * numbers / spare if spare > 0 else float("-inf")


def climb(
    rungs: Iterable[int], fit_rung: Callable[[int], Fitted], score: Callable[[Fitted, int], float]
) -> tuple[Fitted, int] | None:
    """The best scored fit and its dimension, a higher one only if clearly better, until PATIENCE in a row are not."""
    best: tuple[Fitted, int] | None = None
    highest, waited = float("-inf"), 0
    for rung in rungs:
        fitted = fit_rung(rung)
        value = score(fitted, rung)
        if value > highest + WORTH_A_RUNG:
            best, highest, waited = (fitted, rung), value, 0
        else:
            waited += 1
            if waited >= PATIENCE:
                break
    return best
