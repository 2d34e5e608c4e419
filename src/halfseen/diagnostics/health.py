"""The health of an agent: an answer, facts, findings about its model, and notes about what needs attention."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from halfseen.errors import invalid
from halfseen.reports.frames import data_frame
from halfseen.reports.tables import Table, html_block

LONG_SILENCE = 100  # a note is added after this many rounds without a reward, or with the same entry of y missing
ENOUGH_ROUNDS = 50  # a model is examined if the history has at least this many rounds
WIDTH = 80  # printed text wraps at this column

# The term, a text, and the explanation of the term. A term is explained if the text occurs in one of the findings.
_TERMS = (
    ("surprise", "surprise", "difference between an observation and its prediction, divided by its expected size"),
    ("hidden block", "hidden", "coordinates of the context that no sensor measures directly"),
    ("filtered context", "filtered", "estimate of the whole context from the current and all past observations"),
    (
        "explained share",
        "explain",
        "share of the variance of rewards around each arm's mean that is predicted in rounds left out of the fit",
    ),
    ("spectral radius", "spectral radius", "factor per round by which the context can grow; below 1 it stays bounded"),
    ("nats", "nats", "unit of AICc, which is the log-likelihood minus a penalty for the number of parameters"),
    ("heavy tails", "heavy", "more outliers (more than 4 robust sd from the median) than a normal distribution has"),
    ("sd", " sd", "standard deviation"),
    ("prediction interval", "interval", "range that contains a reward with the stated probability"),
    ("starved arm", "starved", "arm that may be the best but has too few rewards to tell"),
    (
        "lift",
        "lift over",
        "mean reward of the chooser's decisions minus that of the control arm or of uniform decisions",
    ),
    (
        "worth",
        "worth of",
        "explained share that is lost without a sensor, or gained by seeing a hidden feature; it can be more than all "
        "that is explained, because a fit without the sensor may predict rewards worse than the mean of each arm does",
    ),
)


class Verdict(StrEnum):
    """How serious a finding is.

    `FINE` means that the value is in its expected range. `LOOK` means that it is outside, but decisions may still be
    good. `BAD` means that decisions based on the model should not be trusted.
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


def terms(findings: Sequence[Finding]) -> dict[str, str]:
    """Return the terms that the findings use, with their explanations."""
    text = "\n".join(f"{finding.name}\n{finding.shown}\n{finding.sentence}" for finding in findings)
    return {term: meaning for term, used, meaning in _TERMS if used in text}


def printed(mark: str, text: str, width: int = WIDTH, hang: int = 0) -> str:
    """Return a text that wraps at `width` columns, with `mark` before its first line.

    The other lines are indented by `hang` columns more than the mark. A number and its percent sign stay together.
    """
    indent = " " * (len(mark) + hang)
    joined = text.replace(" %", "\N{NO-BREAK SPACE}%")
    wrapped = textwrap.fill(joined, width, initial_indent=mark, subsequent_indent=indent, break_on_hyphens=False)
    return wrapped.replace("\N{NO-BREAK SPACE}%", " %")


def findings_table(findings: tuple[Finding, ...]) -> Table:
    """Return a table with one row per finding, without their sentences."""
    return Table(
        [{"finding": f.name, "value": f.shown, "expected": f.expected, "verdict": str(f.verdict)} for f in findings]
    )


def findings_frame(findings: Sequence[Finding], library: str | None) -> Any:
    """Return a DataFrame with one row per finding, with the measured values as numbers."""
    names = ("name", "value", "expected", "verdict", "sentence")
    columns: dict[str, list[Any]] = {name: [getattr(finding, name) for finding in findings] for name in names}
    columns["value"] = [float(value) for value in columns["value"]]
    columns["verdict"] = [str(verdict) for verdict in columns["verdict"]]
    return data_frame({"finding": columns.pop("name"), **columns}, library)


@dataclass(frozen=True, repr=False)
class Health:
    """The result of `Agent.health` and `Fleet.health`.

    `print` shows the answer, the notes, the findings, an explanation of terms and the facts.

    Parameters
    ----------
    notes : tuple of str
        One sentence for each thing that needs attention. These include the sentences of findings with verdict "bad".
    facts : dict
        Facts about the agent by name, numbers or strings, such as "rounds" and "rewards".
    findings : tuple of Finding
        Results of the examination of the model, for agents with a history and a model (`adaptive`). For agents with
        guardrails, also the lift of the chooser over the control arm and over the holdback.
    answer : str
        Whether what is hidden matters for the decisions, and whether it can be recovered from what is observed. The
        answer begins with "Yes", "No" or "It cannot be told". It is empty if there are no findings.

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
    answer: str = ""

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

    def to_frame(self, library: str | None = None) -> Any:
        """Return the findings as a DataFrame with one row per finding.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of them that is installed.

        Returns
        -------
        DataFrame
            The columns are `finding`, `value` (a number), `expected`, `verdict` and `sentence`.

        Raises
        ------
        HalfseenError
            If the library is not installed.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
        >>> len(agent.health().to_frame())
        0
        """
        return findings_frame(self.findings, library)

    def _repr_html_(self) -> str:
        facts = Table([{"fact": name, "value": _text(fact)} for name, fact in self.facts.items()])
        return html_block(self.answer, self.heading, self.notes, self.table(), facts)

    def __str__(self) -> str:
        lines = [printed("", self.answer)] if self.answer else []
        lines += [printed("", self.heading), *(printed("* ", note) for note in self.notes)]
        lines += [printed("- ", str(finding)) for finding in self.findings]
        lines += printed_terms(self.findings)
        lines += ["facts:"] * bool(self.findings)
        lines += [printed("  ", f"{name}: {_text(fact)}", hang=2) for name, fact in self.facts.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def printed_terms(findings: Sequence[Finding]) -> list[str]:
    """Return a heading and one printed text per term, or an empty list if no terms are used."""
    lines = [printed("  ", f"{term}: {meaning}", hang=2) for term, meaning in terms(findings).items()]
    return ["terms:", *lines] if lines else []


def _text(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.4g}"
    if isinstance(fact, list | tuple):
        return ", ".join(map(_text, fact)) or "none"
    return str(fact)
