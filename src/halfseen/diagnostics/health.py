"""The health of an agent: facts, findings about its model, and notes about what needs attention."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from halfseen.errors import invalid
from halfseen.reports.tables import Table

LONG_SILENCE = 100  # a note is added after this many rounds without a reward, or without one entry of y
ENOUGH_ROUNDS = 50  # a model is examined if the history has at least this many rounds


class Verdict(StrEnum):
    """How serious a finding is.

    `FINE` means that the value is in its expected range. `LOOK` means that it is not, but decisions may still be good.
    `BAD` means that decisions based on the model should not be trusted.
    """

    FINE = "fine"
    LOOK = "look"
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """One result of an examination of a model.

    Parameters
    ----------
    name : str
        Name of the finding, such as "spectral radius".
    value : float
        The number that was measured.
    shown : str
        The number as text, with its unit.
    expected : str
        The range in which the number should be, "–" if every value is acceptable.
    verdict : Verdict
        "fine", "look" or "bad".
    sentence : str
        What the number means.

    Examples
    --------
    >>> import halfseen as hs
    >>> print(hs.Finding("starved arms", 0, "0", "0", hs.Verdict.FINE, "every arm is known well enough"))
    starved arms: 0, fine: every arm is known well enough
    """

    name: str
    value: float
    shown: str
    expected: str
    verdict: Verdict
    sentence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.shown}, {self.verdict}: {self.sentence}"


def findings_table(findings: tuple[Finding, ...]) -> Table:
    """Return a table with one row per finding, without their sentences."""
    return Table(
        [{"finding": f.name, "value": f.shown, "expected": f.expected, "verdict": str(f.verdict)} for f in findings]
    )


@dataclass(frozen=True, repr=False)
class Health:
    """The result of `Agent.health` and `Fleet.health`.

    `print` shows the notes, then the findings, then the facts.

    Parameters
    ----------
    notes : tuple of str
        One sentence for each thing that needs attention. The notes include the sentences of bad findings.
    facts : dict
        Facts about the agent by name, numbers or strings, such as "rounds" and "rewards".
    findings : tuple of Finding
        Results of the examination of the model. Only agents with a history and a model (`adaptive`) have findings.

    Examples
    --------
    >>> import halfseen as hs
    >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
    >>> health = agent.health()
    >>> health.ok, health.heading
    (True, 'nothing wrong')
    >>> health.facts["rounds"]
    0
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
        """One line: the number of notes or, if there are none, the findings with the verdict "look"."""
        if self.notes:
            return f"{len(self.notes)} note{'s' * (len(self.notes) != 1)}"
        look = [finding.name for finding in self.findings if finding.verdict is Verdict.LOOK]
        return f"nothing bad; worth a look: {', '.join(look)}" if look else "nothing wrong"

    def finding(self, name: str) -> Finding | None:
        """Return the finding with this name, or None if there is no such finding.

        Raises
        ------
        HalfseenError
            If there are no findings at all, because the agent has no model or its history is too short.
        """
        if not self.findings:
            expected = f"an agent with a model and a history of at least {ENOUGH_ROUNDS} rounds, such as 'adaptive'"
            raise invalid("finding", expected, f"'{name}' without any findings")
        return next((finding for finding in self.findings if finding.name == name), None)

    def table(self) -> Table:
        """Return a table with one row per finding: name, value, expected range and verdict."""
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
