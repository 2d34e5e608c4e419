"""Verdicts on synthetic results for which the correct verdict is known."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from experiments.synthetic import fabricate, power

from halfseen.experiments.claims import Claim, ClaimVerdict, Evidence, below, better, combine, evaluate_claims
from halfseen.statistics.confidence_intervals import Estimate

HOLDS, FAILS, UNDECIDED = ClaimVerdict.HOLDS, ClaimVerdict.FAILS, ClaimVerdict.UNDECIDED
SUBLINEAR, CLOSE, BEATS, LINEAR, CONSTANT = range(5)
AGENTS = ["oracle-ts", "emkf-ts", "ts-pco"]


def only_verdict(claim: Claim) -> ClaimVerdict:
    """Return the verdict that is the same in all worlds."""
    (verdict,) = set(claim.verdicts.values())
    return verdict


def verdict_of(number: int, exponents: dict[str, float], *, seeds: int = 6, spread: float = 0.0) -> ClaimVerdict:
    """Return the verdict on a claim if regret grows with the given exponents, plus or minus `spread` between seeds."""

    def regret(world: str, agent: str, seed: int) -> np.ndarray:
        exponent = exponents[agent] + spread * (-1) ** seed
        return power(exponent, scale=1000.0 / 2000.0**exponent)  # the same R(T) in every seed

    claim = evaluate_claims(fabricate(AGENTS, regret, seeds=seeds))[number]
    return only_verdict(claim)  # both worlds have the same regret


@pytest.mark.parametrize(
    ("exponent", "spread", "sublinear", "linear"),
    [
        (0.5, 0.01, HOLDS, FAILS),
        (1.0, 0.001, FAILS, HOLDS),
        (1.3, 0.01, FAILS, HOLDS),
        (0.74, 0.1, UNDECIDED, UNDECIDED),
    ],
)
def test_growth(exponent: float, spread: float, sublinear: ClaimVerdict, linear: ClaimVerdict) -> None:
    exponents = dict.fromkeys(AGENTS, exponent)
    assert verdict_of(SUBLINEAR, exponents, spread=spread) is sublinear
    assert verdict_of(LINEAR, exponents, spread=spread) is linear


def test_measured_growth_equals_true_growth() -> None:
    claim = evaluate_claims(fabricate(["emkf-ts"], lambda *_: power(0.62)))[SUBLINEAR]
    assert [finding.figure.value for finding in claim.findings] == pytest.approx([0.62, 0.62], abs=0.01)


@pytest.mark.parametrize(
    ("ours", "variation", "close", "beats"),
    [
        (0.8, 0.01, HOLDS, HOLDS),
        (1.0, 0.005, HOLDS, FAILS),  # equal regret, which excludes an advantage of 5 %
        (1.3, 0.01, FAILS, FAILS),
        (1.05, 0.4, UNDECIDED, UNDECIDED),
    ],
)
def test_paired_differences(ours: float, variation: float, close: ClaimVerdict, beats: ClaimVerdict) -> None:
    def regret(world: str, agent: str, seed: int) -> np.ndarray:
        return power(0.5, scale=ours + variation * (-1) ** seed if agent == "emkf-ts" else 1.0)

    claims = evaluate_claims(fabricate(AGENTS, regret, seeds=8))
    assert only_verdict(claims[CLOSE]) is close
    assert only_verdict(claims[BEATS]) is beats


def test_variation_shared_by_all_agents_cancels() -> None:
    def regret(world: str, agent: str, seed: int) -> np.ndarray:
        shared = 1.0 + 5.0 * seed
        return power(0.5, scale=shared - (0.5 if agent == "emkf-ts" else 0.0))

    finding = evaluate_claims(fabricate(AGENTS, regret))[BEATS].findings[0]
    assert finding.verdict is HOLDS
    assert finding.figure.value == pytest.approx(-0.5 / 13.5)


def test_with_one_seed_claims_on_regret_are_undecided() -> None:
    claims = evaluate_claims(fabricate(AGENTS, lambda *_: power(0.5), seeds=1))
    assert [only_verdict(claim) for claim in claims[:CONSTANT]] == [UNDECIDED] * 4
    assert all(math.isnan(finding.figure.low) for claim in claims[:CONSTANT] for finding in claim.findings)


@pytest.mark.parametrize(
    ("exponent", "verdict"),
    [(0.0, HOLDS), (-0.3, HOLDS), (0.5, FAILS)],
)
def test_time_per_round(exponent: float, verdict: ClaimVerdict) -> None:
    def seconds(ends: np.ndarray) -> np.ndarray:
        return ends**exponent * np.where(np.arange(len(ends)) % 2, 1.01, 0.99)

    result = fabricate(["emkf-ts"], lambda *_: power(0.5, rounds=8000), rounds=8000, seconds=seconds)
    assert only_verdict(evaluate_claims(result)[-1]) is verdict


def test_a_slower_machine_does_not_count_as_growth() -> None:
    """If ts-pco is part of the run, times are divided by the times of ts-pco."""
    result = fabricate(["emkf-ts", "ts-pco"], lambda *_: power(0.5, rounds=8000), rounds=8000, seconds=lambda t: t**0.5)
    assert only_verdict(evaluate_claims(result)[-1]) is HOLDS


def test_with_few_timings_the_claim_on_time_is_undecided() -> None:
    result = fabricate(["emkf-ts"], lambda *_: power(0.5), seconds=lambda t: t**0.5)
    assert only_verdict(evaluate_claims(result)[-1]) is UNDECIDED


def test_claims_without_their_agents_are_left_out() -> None:
    titles = [claim.title for claim in evaluate_claims(fabricate(["ts-pco"], lambda *_: power(1.0)))]
    assert titles == ["TS-PCO suffers linear regret"]
    assert evaluate_claims(fabricate(["random"], lambda *_: power(1.0))) == []


def test_every_world_has_a_verdict() -> None:
    def regret(world: str, agent: str, seed: int) -> np.ndarray:
        return power(1.0 if world == "orbit" else 0.5)

    claim = evaluate_claims(fabricate(["emkf-ts"], regret))[SUBLINEAR]
    assert claim.verdicts == {"paper ε=0.1": HOLDS, "orbit": FAILS}


def test_a_verdict_counts_for_both_agents() -> None:
    def regret(world: str, agent: str, seed: int) -> np.ndarray:
        return power(1.0 if (world, agent) == ("orbit", "emkf-ucb") else 0.5)

    claim = evaluate_claims(fabricate(["emkf-ts", "emkf-ucb"], regret))[SUBLINEAR]
    assert claim.verdicts == {"paper ε=0.1": HOLDS, "orbit": FAILS}


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([UNDECIDED, FAILS, HOLDS], FAILS),
        ([], UNDECIDED),
    ],
)
def test_combine(parts: list[ClaimVerdict], whole: ClaimVerdict) -> None:
    assert combine(parts) is whole


def test_an_interval_that_starts_at_the_limit_fails() -> None:
    assert below(Estimate(1.0, 0.9, 1.1), 0.9) is FAILS
    assert below(Estimate(1.0, 0.9, 1.1), 1.1) is UNDECIDED
    assert better(Estimate(-0.02, -0.04, 0.0)) is FAILS
    assert better(Estimate(-0.02, -0.06, 0.0)) is UNDECIDED


def test_as_plain_data() -> None:
    claim = Claim("title", "paper", "test", (Evidence("orbit", "emkf-ts", Estimate(1.0, 0.5, 1.5), FAILS),))
    plain = json.loads(json.dumps(claim.as_dict()))
    assert plain["verdicts"] == {"orbit": "does not hold"}
    assert plain["findings"][0]["figure"] == {"value": 1.0, "low": 0.5, "high": 1.5}
