"""How a stream of decisions is doing: facts, and a sentence for each thing that wants a look."""

from __future__ import annotations

from dataclasses import dataclass

LONG = 100  # rounds of silence that are worth a note


@dataclass(frozen=True, repr=False)
class Health:
    """What `Agent.health` returns. Printed, it is the notes and then the facts."""

    notes: tuple[str, ...]
    facts: dict[str, object]

    @property
    def ok(self) -> bool:
        """Whether there is nothing to note."""
        return not self.notes

    def __str__(self) -> str:
        heading = "nothing wrong" if self.ok else f"{len(self.notes)} to look at"
        notes = [f"* {note}" for note in self.notes]
        return "\n".join([heading, *notes, *(f"  {name}: {_text(fact)}" for name, fact in self.facts.items())])

    def __repr__(self) -> str:
        return str(self)


def _text(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.4g}"
    if isinstance(fact, list | tuple):
        return ", ".join(map(_text, fact)) or "none"
    return str(fact)
