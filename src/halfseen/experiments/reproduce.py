"""The paper's experiment and the files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from halfseen.experiments.claims import Claim
from halfseen.experiments.plan import Experiment, experiment, seed_range
from halfseen.experiments.report import reproduction_report
from halfseen.experiments.result import Result
from halfseen.reports.files import staged, write_atomically, write_json
from halfseen.worlds import named

AGENTS = ("oracle-ts", "kf-ts", "emkf-ts", "emkf-ucb", "em-rts-ts", "ts-pco", "bayes")
NOISE = (0.01, 0.1, 1.0)
FULL, QUICK = (10_000, 20), (1_000, 5)  # rounds and seeds


def paper_experiment(
    *,
    rounds: int | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
    noise: Sequence[float] = NOISE,
    agents: Sequence[str] = AGENTS,
    quick: bool = False,
) -> Experiment:
    """Return the paper's experiment: one world per noise level ε, and `orbit`. `quick` uses fewer rounds and seeds."""
    default_rounds, default_seeds = QUICK if quick else FULL
    worlds = [*[named("paper", noise=level) for level in noise], named("orbit")]
    return experiment(
        agents,
        worlds,
        default_rounds if rounds is None else rounds,
        seed_range(default_seeds if seeds is None else seeds, first_seed),
    )


def save_reproduction(result: Result, claims: Sequence[Claim], folder: str | Path) -> list[Path]:
    """Write `regret.png`, `regret.svg`, `report.html`, `summary.json` and `rounds.parquet`, and return their paths."""
    with staged(folder) as stage:
        result.save(stage)
        svg = (stage / "regret.svg").read_bytes()
        write_atomically(stage / "report.html", reproduction_report(result, claims, svg).encode())
        write_json(stage / "summary.json", result.summary | {"claims": [claim.as_dict() for claim in claims]})
        names = sorted(path.name for path in stage.iterdir())
    return [Path(folder) / name for name in names]
