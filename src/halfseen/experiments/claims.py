"""The paper's claims, each with its test, its figures and a verdict that follows from the data of the run.

The margins are the same for every run: a growth exponent counts as linear from 3/4 on, where it is nearer to 1 than to
the 1/2 of the paper's theorem; within 10 % of the oracle counts as close; time per round may grow no faster
than t^0.2, room enough for a logarithm (docs/decisions/0005-verdicts.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from halfseen.experiments.plan import CHUNK
from halfseen.experiments.result import Result
from halfseen.statistics.confidence_intervals import Estimate, relative_difference
from halfseen.statistics.growth import growth_exponent, slope

LINEAR, CLOSE, WORTHWHILE, CONSTANT = 0.75, 0.10, 0.05, 0.20
FEWEST_CHUNKS = 20  # timings below which a trend in them says nothing


class ClaimVerdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Evidence:
    """One figure for one claim, in one world."""

    world: str
    subject: str
    figure: Estimate
    verdict: ClaimVerdict


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the test used, what was found and what follows."""

    title: str
    paper: str
    test: str
    findings: tuple[Evidence, ...]
    measure: str = "figure"  # what the findings' figures are, for people
    form: str = ".2f"  # how to write them

    @property
    def verdict(self) -> ClaimVerdict:
        """Over all worlds of the paper's own setting."""
        return combine(f.verdict for f in self.findings if is_papers_own(f.world))

    @property
    def verdict_elsewhere(self) -> ClaimVerdict:
        """Over the worlds shown beside it."""
        return combine(f.verdict for f in self.findings if not is_papers_own(f.world))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict, "verdict_elsewhere": self.verdict_elsewhere}


def is_papers_own(world: str) -> bool:
    return world.startswith("paper ε=")


def combine(verdicts: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """All must hold; one that does not is enough to refute."""
    found = list(verdicts)
    if ClaimVerdict.FAILS in found:
        return ClaimVerdict.FAILS
    if found and all(verdict is ClaimVerdict.HOLDS for verdict in found):
        return ClaimVerdict.HOLDS
    return ClaimVerdict.UNDECIDED


def below(figure: Estimate, limit: float) -> ClaimVerdict:
    """Holds if the whole interval is below the limit, fails if the whole interval is not."""
    if figure.high < limit:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if figure.low >= limit else ClaimVerdict.UNDECIDED


def _negate(verdict: ClaimVerdict) -> ClaimVerdict:
    return {ClaimVerdict.HOLDS: ClaimVerdict.FAILS, ClaimVerdict.FAILS: ClaimVerdict.HOLDS}.get(verdict, verdict)


def better(difference: Estimate) -> ClaimVerdict:
    """Holds if the whole interval is below 0; fails if it rules out an advantage of 5 %."""
    if difference.high < 0:
        return ClaimVerdict.HOLDS
    return ClaimVerdict.FAILS if difference.low > -WORTHWHILE else ClaimVerdict.UNDECIDED


def evaluate_claims(result: Result) -> list[Claim]:
    """Test every claim of the paper whose agents took part in the run."""
    ours = [label for label in result.agents if label in ("emkf-ts", "emkf-ucb")]
    claims = [
        Claim(
            "EMKF-Bandit's regret is sub-linear",
            "Section 4: the proposed algorithms incur a sub-linear regret.",
            f"Growth exponent β of R(t) ∝ t^β late in the run: the slope of log(regret per round) on log t over the "
            f"blocks T/16…T/8…T/4…T/2…T, plus 1, with a 95 % jackknife interval over seeds. Sub-linear: the whole "
            f"interval below {LINEAR}, nearer to the 1/2 of the theorem than to 1.",
            _evidence(result, ours, lambda world, agent: _growth(result, world, agent), _sublinear),
            "growth exponent β",
        ),
        Claim(
            "EMKF-Bandit closely matches Thompson sampling on the true context",
            "Section 4: the regret closely matches that of the baseline that sees the latent context.",
            f"Paired difference of R(T) over seeds as a share of oracle-ts's mean, with 95 % interval. Close: the "
            f"whole interval below +{CLOSE:.0%}.",
            _evidence(result, ours, lambda w, a: _against(result, w, a, "oracle-ts"), lambda f: below(f, CLOSE)),
            "R(T) against oracle-ts",
            "+.1%",
        ),
        Claim(
            "EMKF-Bandit beats TS-PCO at every noise level",
            "Section 4: superior to TS-PCO, consistently over the range of noise levels.",
            f"Paired difference of R(T) over seeds as a share of ts-pco's mean, with 95 % interval. Better: the whole "
            f"interval below 0. Not better: the interval rules out an advantage of {WORTHWHILE:.0%}.",
            _evidence(result, ours, lambda w, a: _against(result, w, a, "ts-pco"), better),
            "R(T) against ts-pco",
            "+.1%",
        ),
        Claim(
            "TS-PCO suffers linear regret",
            "Section 4: without latent context reconstruction, TS-PCO suffers a linear regret.",
            f"The same growth exponent. Linear: the whole interval at or above {LINEAR}.",
            _evidence(
                result,
                [label for label in result.agents if label == "ts-pco"],
                lambda world, agent: _growth(result, world, agent),
                lambda figure: _negate(_sublinear(figure)),
            ),
            "growth exponent β",
        ),
        Claim(
            "The work per round is constant",
            "Section 1: the pipeline runs online with a constant computational cost in each iteration.",
            f"Slope of log(time per round) on log t over the last nine tenths of the rounds, in chunks of {CHUNK}, "
            f"with 95 % interval; time in units of what TS-PCO's fixed arithmetic takes in the same chunk, where it "
            f"takes part, so that a slow moment of the machine cancels. Constant: the whole interval below {CONSTANT}.",
            _evidence(result, ours, lambda w, a: _time_growth(result, w, a), lambda f: below(f, CONSTANT)),
            "exponent of the time",
        ),
    ]
    return [claim for claim in claims if claim.findings]


def _evidence(
    result: Result,
    agents: list[str],
    measure: Callable[[str, str], Estimate | None],
    judge: Callable[[Estimate], ClaimVerdict],
) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(world, agent, figure, judge(figure))
        for world in result.worlds
        for agent in agents
        if (figure := measure(world, agent)) is not None
    )


def _growth(result: Result, world: str, agent: str) -> Estimate:
    return growth_exponent(result.tracks[world, agent].regret)


def _sublinear(figure: Estimate) -> ClaimVerdict:
    return below(figure, LINEAR)


def _against(result: Result, world: str, agent: str, rival: str) -> Estimate | None:
    if rival not in result.agents:
        return None
    return relative_difference(result.total_regret(world, agent), result.total_regret(world, rival))


def _time_growth(result: Result, world: str, agent: str) -> Estimate:
    micros = result.microseconds_per_round(world, agent)
    if "ts-pco" in result.agents:
        micros = micros / result.microseconds_per_round(world, "ts-pco")
    ends = np.minimum(CHUNK * np.arange(1, len(micros) + 1), result.plan.rounds)
    late = ends > max(CHUNK, result.plan.rounds / 10)  # in the first chunk kernels may have been compiled
    if late.sum() < FEWEST_CHUNKS:
        return Estimate(np.nan, np.nan, np.nan)
    return slope(np.log(ends[late]), np.log(micros[late]))
