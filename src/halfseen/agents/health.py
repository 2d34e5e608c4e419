"""How one stream is doing: what its pending decisions, its parts and an examination of its history have to say."""

from __future__ import annotations

from collections.abc import Sequence

from halfseen.agents.arms import Arm
from halfseen.agents.pending import PendingDecisions
from halfseen.agents.policy import Policy
from halfseen.diagnostics.examination_data import ExaminationSubject, first_examined_round
from halfseen.diagnostics.findings import brief_findings
from halfseen.diagnostics.health import LONG_SILENCE, Health, Verdict


def stream_health(
    policy: Policy,
    pending: PendingDecisions,
    arms: Sequence[Arm],
    ages: Sequence[int],
    subject: ExaminationSubject | None,
) -> Health:
    """Facts, notes and findings of a policy of one stream; `ages` are the rounds that each arm has been there for."""
    facts, notes = pending.health()
    policy_facts, policy_notes = policy.health(0)
    active = policy.active[0]
    facts |= {"arms": len(arms), "arms retired": len(arms) - int(active.sum())} | policy_facts
    notes += policy_notes
    unrewarded = policy.learner.arms_without_reward(0)
    if unrewarded is not None:
        never = [index for index in unrewarded if active[index]]
        facts["arms never rewarded"] = [arms[index] for index in never]
        old = [arms[index] for index in never if ages[index] >= max(LONG_SILENCE, 20 * len(arms))]
        if old and pending.rewarded:
            notes.append(f"in many rounds these arms have never been rewarded: {', '.join(map(str, old))}")
    findings = brief_findings(subject)
    if (first := first_examined_round(policy.estimator, 0)) is not None:
        facts["findings"] = f"from round {first} on"
    notes += [finding.sentence for finding in findings if finding.verdict is Verdict.BAD]
    return Health(tuple(notes), facts, findings)
