"""The paper's experiment, and all that it leaves in a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from halfseen.experiments.claims import Claim, judge_claims
from halfseen.experiments.plan import Experiment, experiment, seed_range
from halfseen.experiments.report import reproduction_report, result_figure
from halfseen.experiments.result import Result, write_rounds
from halfseen.experiments.run import run_experiment
from halfseen.reports.files import staged, write_atomically, write_figure, write_json
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
    """The paper's worlds, one a noise level ε, with `orbit` beside them; `quick` asks for fewer rounds and seeds."""
    usual_rounds, usual_seeds = QUICK if quick else FULL
    worlds = [*[named("paper", noise=level) for level in noise], named("orbit")]
    return experiment(
        agents,
        worlds,
        usual_rounds if rounds is None else rounds,
        seed_range(usual_seeds if seeds is None else seeds, first_seed),
    )


def reproduce(
    *,
    rounds: int | None = None,
    seeds: int | None = None,
    noise: Sequence[float] = NOISE,
    agents: Sequence[str] = AGENTS,
    quick: bool = False,
    jobs: int = 1,
    cluster: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Result, list[Claim]]:
    """Run the paper's experiment and judge its claims; slices are kept in `out`, as by `run`."""
    plan = paper_experiment(rounds=rounds, seeds=seeds, noise=noise, agents=agents, quick=quick)
    result = run_experiment(plan, jobs=jobs, cluster=cluster, out=out, resume=resume, progress=progress)
    return result, judge_claims(result)


def save_reproduction(result: Result, claims: Sequence[Claim], folder: str | Path) -> list[Path]:
    """Write `regret.png`, `regret.svg`, `report.html`, `summary.json` and `rounds.parquet`; where they are."""
    with staged(folder) as stage:
        svg = write_figure(stage, "regret", result_figure(result))
        write_atomically(stage / "report.html", reproduction_report(result, claims, svg).encode())
        write_json(stage / "summary.json", result.summary | {"claims": [claim.as_dict() for claim in claims]})
        write_rounds(result, stage / "rounds.parquet")
        names = sorted(path.name for path in stage.iterdir())
    return [Path(folder) / name for name in names]
