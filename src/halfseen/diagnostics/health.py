"""How a stream of decisions is doing: facts, findings, and a sentence for each thing that wants a look."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from halfseen.errors import invalid
from halfseen.reports.tables import Table

LONG = 100  # rounds of silence that are worth a note
ENOUGH_ROUNDS = 50  # of a kept history, to examine a model by


class Verdict(StrEnum):
    """What a finding comes to."""

    FINE = "fine"
    LOOK = "look"  # worth knowing; decisions may still be good
    BAD = "bad"  # do not trust what rests on it


@dataclass(frozen=True)
class Finding:
    """One thing that was examined: a number, the range it should be in, a verdict, and what it means."""

    name: str
    value: float
    shown: str  # the value as it is to be read
    expected: str  # the range it should be in; "–" where any value is in order
    verdict: Verdict
    sentence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.shown}, {self.verdict}: {self.sentence}"


def findings_table(findings: tuple[Finding, ...]) -> Table:
    """One row a finding, without the sentences."""
    return Table(
        [{"finding": f.name, "value": f.shown, "expected": f.expected, "verdict": str(f.verdict)} for f in findings]
    )


@dataclass(frozen=True, repr=False)
class Health:
    """What `Agent.health` returns. Printed, it is the notes, then what was found out about the model, then the facts.

    The sentence of a finding that is bad is a note too.
    """

    notes: tuple[str, ...]
    facts: dict[str, object]
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is nothing to note."""
        return not self.notes

    @property
    def heading(self) -> str:
        """How many notes there are or, if there are none, which findings are worth a look all the same."""
        if self.notes:
            return f"{len(self.notes)} to look at"
        look = [finding.name for finding in self.findings if finding.verdict is Verdict.LOOK]
        return f"nothing bad; worth a look: {', '.join(look)}" if look else "nothing wrong"

    def finding(self, name: str) -> Finding | None:
        """A finding by its name, None if it was not made; an error where there are no findings at all."""
        if not self.findings:
            wanted = f"an agent with a model and a kept history (adaptive) of at least {ENOUGH_ROUNDS} rounds"
            raise invalid("finding", f"'{name}' from a health without findings", wanted)
        return next((finding for finding in self.findings if finding.name == name), None)

    def table(self) -> Table:
        """One row a finding."""
        return findings_table(self.findings)

    def __str__(self) -> str:
        notes = [f"* {note}" for note in self.notes]
        found = [f"- {finding}" for finding in self.findings]
        facts = [f"  {name}: {_text(fact)}" for name, fact in self.facts.items()]
        return "\n".join([self.heading, *notes, *found, *facts])

    def __repr__(self) -> str:
        return str(self)


def _text(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.4g}"
    if isinstance(fact, list | tuple):
        return ", ".join(map(_text, fact)) or "none"
    return str(fact)
