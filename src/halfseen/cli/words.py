"""What several commands take apart or say in the same way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from halfseen.errors import invalid

if TYPE_CHECKING:
    from halfseen.experiments.plan import Experiment


def split_list(given: Sequence[str]) -> list[str]:
    """The parts of comma lists, empty ones left out."""
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def split_specs(given: Sequence[str]) -> list[str]:
    """Agents out of comma lists. A part that starts with `key=` is a further option of the agent before it."""
    specs: list[str] = []
    for part in split_list(given):
        if specs and "=" in part.partition(":")[0]:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def split_numbers(argument: str, given: Sequence[str]) -> list[float]:
    """Numbers out of comma lists."""
    numbers = []
    for part in (part.strip() for text in given for part in text.split(",")):
        try:
            numbers.append(float(part))
        except ValueError:
            raise invalid(argument, f"'{part}'", "numbers separated by commas") from None
    return numbers


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def size_of(plan: Experiment) -> str:
    counts = {"agent": len(plan.agents), "world": len(plan.worlds), "seed": len(plan.seeds), "round": plan.rounds}
    return " × ".join(f"{count:,} {word}{'s' * (count > 1)}" for word, count in counts.items())
