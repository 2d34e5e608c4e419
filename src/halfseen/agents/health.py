"""How one stream is doing: what its pending decisions, its parts and an examination of its history have to say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.agents.pending import PendingDecisions
from halfseen.agents.policy import Policy
from halfseen.diagnostics.examined import Subject, measure
from halfseen.diagnostics.findings import findings
from halfseen.diagnostics.health import LONG, Finding, Health, Verdict
from halfseen.diagnostics.kept_history import enough_from, kept_subject


def stream_health(policy: Policy, pending: PendingDecisions, arms: Sequence[Arm], ages: Sequence[int]) -> Health:
    """Facts, notes and findings of a policy of one stream; `ages` are the rounds that each arm has been there for."""
    facts, notes = pending.health()
    told, remarks = policy.health(0)
    active = policy.active[0]
    facts |= {"arms": len(arms), "arms retired": len(arms) - int(active.sum())} | told
    notes += remarks
    unrewarded = policy.learner.unrewarded(0)
    if unrewarded is not None:
        never = [place for place in unrewarded if active[place]]
        facts["arms never rewarded"] = [arms[place] for place in never]
        old = [arms[place] for place in never if ages[place] >= max(LONG, 20 * len(arms))]
        if old and pending.rewarded:
            notes.append(f"in many rounds these arms have never been rewarded: {', '.join(map(str, old))}")
    found = _findings(subject_of(policy, arms))
    if (later := enough_from(policy.estimator, 0)) is not None:
        facts["findings"] = f"from round {later} on"
    notes += [finding.sentence for finding in found if finding.verdict is Verdict.BAD]
    return Health(tuple(notes), facts, found)


def subject_of(policy: Policy, arms: Sequence[Arm]) -> Subject | None:
    """The model in force and the kept history, for an examination; None where there is no history or no model."""
    retired = [place for place in range(len(arms)) if not policy.active[0, place]]
    names = [arm if isinstance(arm, str) else f"arm {arm}" for arm in arms]
    return kept_subject(policy.estimator, 0, names, retired)


def _findings(subject: Subject | None) -> tuple[Finding, ...]:
    try:
        return () if subject is None else findings(measure(subject, thoroughly=False))
    except np.linalg.LinAlgError:  # a model so far off that nothing can be computed with it; facts still tell
        return ()
