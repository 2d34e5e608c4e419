"""The health of a stream of decisions: facts, findings, and a note for each thing that needs attention."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from halfseen.errors import invalid
from halfseen.reports.tables import Table

LONG_SILENCE = 100  # rounds without a reward that are worth a note
ENOUGH_ROUNDS = 50  # of a history, to examine a model with


class Verdict(StrEnum):
    """The verdict of a finding."""

    FINE = "fine"
    LOOK = "look"  # worth knowing; decisions may still be good
    BAD = "bad"  # do not trust what rests on it


@dataclass(frozen=True)
class Finding:
    """One result of an examination: a number, the range it should be in, a verdict, and what it means."""

    name: str
    value: float
    shown: str  # the value as it is to be read
    expected: str  # the range it should be in; "–" where any value is in order
    verdict: Verdict
    sentence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.shown}, {self.verdict}: {self.sentence}"


def findings_table(findings: tuple[Finding, ...]) -> Table:
    """One row per finding, without the sentences."""
    return Table(
        [{"finding": f.name, "value": f.shown, "expected": f.expected, "verdict": str(f.verdict)} for f in findings]
    )


@dataclass(frozen=True, repr=False)
class Health:
    """The result of `Agent.health`. Printed, it shows the notes, then the findings about the model, then the facts.

    The sentence of a bad finding is a note too.
    """

    notes: tuple[str, ...]
    facts: dict[str, object]
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no notes."""
        return not self.notes

    @property
    def heading(self) -> str:
        """How many notes there are or, if there are none, which findings are worth a look all the same."""
        if self.notes:
            return f"{len(self.notes)} to look at"
        look = [finding.name for finding in self.findings if finding.verdict is Verdict.LOOK]
        return f"nothing bad; worth a look: {', '.join(look)}" if look else "nothing wrong"

    def finding(self, name: str) -> Finding | None:
        """A finding by its name; None if there is none of that name. Raises where there are no findings at all."""
        if not self.findings:
            wanted = f"an agent with a model and a kept history (adaptive) of at least {ENOUGH_ROUNDS} rounds"
            raise invalid("finding", wanted, f"'{name}' from a health without findings")
        return next((finding for finding in self.findings if finding.name == name), None)

    def table(self) -> Table:
        """One row per finding."""
        return findings_table(self.findings)

    def __str__(self) -> str:
        notes = [f"* {note}" for note in self.notes]
        findings = [f"- {finding}" for finding in self.findings]
        facts = [f"  {name}: {_text(fact)}" for name, fact in self.facts.items()]
        return "\n".join([self.heading, *notes, *findings, *facts])

    def __repr__(self) -> str:
        return str(self)


def _text(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.4g}"
    if isinstance(fact, list | tuple):
        return ", ".join(map(_text, fact)) or "none"
    return str(fact)
