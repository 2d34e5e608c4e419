"""Tests of the paper's claims. Every verdict is computed from the data of the run.

The margins are the same for every run. A growth exponent of at least 3/4 counts as linear, because it is nearer to 1
than to the 1/2 of the paper's theorem. Regret within 10 % of the oracle's regret counts as close. The time per round
counts as constant if it grows more slowly than t^0.2, which tolerates logarithmic growth
(docs/decisions/0005-verdicts.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from halfseen.experiments.plan import CHUNK
from halfseen.experiments.result import Result
from halfseen.kernels.random import Floats
from halfseen.statistics.confidence_intervals import Estimate, relative_difference
from halfseen.statistics.growth import slope

LINEAR, CLOSE, WORTHWHILE, CONSTANT = 0.75, 0.10, 0.05, 0.20
FEWEST_CHUNKS = 20  # with fewer timed chunks, the trend of the time per round is not estimated


class ClaimVerdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Evidence:
    """One estimate for one claim in one world, with its verdict."""

    world: str
    subject: str
    figure: Estimate
    verdict: ClaimVerdict


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the test of the claim, and the findings in every world."""

    title: str
    paper: str
    test: str
    findings: tuple[Evidence, ...]
    measure: str = "figure"  # heading for the estimates in the findings
    form: str = ".2f"  # format specification of the estimates

    @property
    def verdicts(self) -> dict[str, ClaimVerdict]:
        """The verdict in each world, over all agents that the claim is about."""
        worlds = dict.fromkeys(finding.world for finding in self.findings)
        return {world: combine(f.verdict for f in self.findings if f.world == world) for world in worlds}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"verdicts": self.verdicts}


def combine(verdicts: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """Return FAILS if one verdict is FAILS, HOLDS if all are HOLDS, and UNDECIDED otherwise."""
    given = list(verdicts)
    if ClaimVerdict.FAILS in given:
        return ClaimVerdict.FAILS
    if given and all(verdict is ClaimVerdict.HOLDS for verdict in given):
        return ClaimVerdict.HOLDS
    return ClaimVerdict.UNDECIDED


def below(figure: Estimate, limit: float) -> ClaimVerdict:
    """Return HOLDS if the whole interval is below the limit, FAILS if none of it is, and UNDECIDED otherwise."""
    if figure.high < limit:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if figure.low >= limit else ClaimVerdict.UNDECIDED


def _negate(verdict: ClaimVerdict) -> ClaimVerdict:
    return {ClaimVerdict.HOLDS: ClaimVerdict.FAILS, ClaimVerdict.FAILS: ClaimVerdict.HOLDS}.get(verdict, verdict)


def better(difference: Estimate) -> ClaimVerdict:
    """Return HOLDS if the whole interval is below 0, and FAILS if the interval excludes an advantage of 5 % or more."""
    if difference.high < 0:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if difference.low > -WORTHWHILE else ClaimVerdict.UNDECIDED


class Regrets(Protocol):
    """The regrets from which claims are tested, by world and agent. A `Result` has these members."""

    @property
    def agents(self) -> tuple[str, ...]: ...

    @property
    def worlds(self) -> tuple[str, ...]: ...

    def total_regret(self, world: str, agent: str) -> Floats: ...

    def growth_exponent(self, world: str, agent: str) -> Estimate: ...


def evaluate_claims(result: Result) -> list[Claim]:
    """Test every claim of the paper whose agents are part of the run."""
    work = Claim(
        "The work per round is constant",
        "Section 1: the pipeline runs online with a constant computational cost in each iteration.",
        f"The slope of log(time per round) on log t over the last nine tenths of the rounds, in chunks of "
        f"{CHUNK}, has a 95 % interval. If ts-pco is part of the run, the time is divided by the time of ts-pco "
        f"in the same chunk, because the work of ts-pco is constant and varies only with the speed of the "
        f"machine. The work is constant if the whole interval is below {CONSTANT}.",
        _evidence(result, _subjects(result), lambda w, a: _time_growth(result, w, a), lambda f: below(f, CONSTANT)),
        "growth exponent of the time",
    )
    return regret_claims(result) + ([work] if work.findings else [])


def _subjects(regrets: Regrets) -> list[str]:
    return [label for label in regrets.agents if label in ("emkf-ts", "emkf-ucb")]


def regret_claims(regrets: Regrets) -> list[Claim]:
    """Test every claim about regret whose agents are in `regrets`."""
    ours = _subjects(regrets)
    claims = [
        Claim(
            "EMKF-Bandit's regret is sub-linear",
            "Section 4: the proposed algorithms incur a sub-linear regret.",
            f"The growth exponent β of R(t) ∝ t^β late in the run is 1 plus the slope of log(regret per round) on "
            f"log t over the blocks T/16…T/8…T/4…T/2…T. It has a 95 % jackknife interval over seeds. The regret is "
            f"sub-linear if the whole interval is below {LINEAR}, nearer to the 1/2 of the theorem than to 1.",
            _evidence(regrets, ours, regrets.growth_exponent, _sublinear),
            "growth exponent β",
        ),
        Claim(
            "EMKF-Bandit closely matches Thompson sampling on the true context",
            "Section 4: the regret closely matches that of the baseline that sees the latent context.",
            f"The paired difference of R(T) over seeds, relative to the mean of oracle-ts, has a 95 % interval. The "
            f"match is close if the whole interval is below +{CLOSE:.0%}.",
            _evidence(regrets, ours, lambda w, a: relative_regret(regrets, w, a, "oracle-ts"), _close),
            "R(T) relative to oracle-ts",
            "+.1%",
        ),
        Claim(
            "EMKF-Bandit beats TS-PCO",
            "Section 4: superior to TS-PCO, consistently over the range of noise levels.",
            f"The paired difference of R(T) over seeds, relative to the mean of ts-pco, has a 95 % interval. "
            f"EMKF-Bandit is better if the whole interval is below 0, and not better if the interval excludes an "
            f"advantage of {WORTHWHILE:.0%} or more.",
            _evidence(regrets, ours, lambda w, a: relative_regret(regrets, w, a, "ts-pco"), better),
            "R(T) relative to ts-pco",
            "+.1%",
        ),
        Claim(
            "TS-PCO suffers linear regret",
            "Section 4: without latent context reconstruction, TS-PCO suffers a linear regret.",
            f"The growth exponent β is computed as for EMKF-Bandit. The regret is linear if the whole interval is at "
            f"or above {LINEAR}.",
            _evidence(
                regrets,
                [label for label in regrets.agents if label == "ts-pco"],
                regrets.growth_exponent,
                lambda figure: _negate(_sublinear(figure)),
            ),
            "growth exponent β",
        ),
    ]
    return [claim for claim in claims if claim.findings]


def _evidence(
    regrets: Regrets,
    agents: list[str],
    measure: Callable[[str, str], Estimate | None],
    judge: Callable[[Estimate], ClaimVerdict],
) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(world, agent, figure, judge(figure))
        for world in regrets.worlds
        for agent in agents
        if (figure := measure(world, agent)) is not None
    )


def _sublinear(figure: Estimate) -> ClaimVerdict:
    return below(figure, LINEAR)


def _close(figure: Estimate) -> ClaimVerdict:
    return below(figure, CLOSE)


def relative_regret(regrets: Regrets, world: str, agent: str, rival: str) -> Estimate | None:
    """Return (R(T) of the agent − R(T) of the rival) / R(T) of the rival, or None if the rival was not played."""
    if rival not in regrets.agents:
        return None
    return relative_difference(regrets.total_regret(world, agent), regrets.total_regret(world, rival))


def _time_growth(result: Result, world: str, agent: str) -> Estimate:
    micros = result.microseconds_per_round(world, agent)
    if "ts-pco" in result.agents:
        micros = micros / result.microseconds_per_round(world, "ts-pco")
    ends = np.minimum(CHUNK * np.arange(1, len(micros) + 1), result.plan.rounds)
    late = ends > max(CHUNK, result.plan.rounds / 10)  # kernels may have been compiled in the first chunk
    if late.sum() < FEWEST_CHUNKS:
        return Estimate(np.nan, np.nan, np.nan)
    return slope(np.log(ends[late]), np.log(micros[late]))
