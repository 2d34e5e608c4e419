"""The command `halfseen reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.arguments import AGENTS_HELP, Cluster, FirstSeed, Jobs, Resume, split_numbers, split_specs
from halfseen.cli.experiment import play
from halfseen.cli.terminal import print_claims, print_results, print_written


def reproduce(
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Number of rounds.", show_default="10000, or 1000 with --quick")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of replications.", show_default="20, or 5 with --quick")
    ] = None,
    first_seed: FirstSeed = 0,
    noise: Annotated[
        list[str] | None, typer.Option(help="Noise levels ε, separated by commas.", show_default="0.01,0.1,1")
    ] = None,
    agents: Annotated[list[str] | None, typer.Option(help=AGENTS_HELP, show_default="the paper's agents")] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Annotated[Path, typer.Option(help="Folder for the figure, the report and the data.")] = Path("results/paper"),
    resume: Resume = False,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version within seconds.")] = False,
) -> None:
    """Run the paper's experiment, and write its figure, its data and a report with a verdict on every claim."""
    from halfseen.experiments.claims import evaluate_claims
    from halfseen.experiments.reproduce import AGENTS, NOISE, paper_experiment, save_reproduction
    from halfseen.reports.files import check_folder

    check_folder(out)
    plan = paper_experiment(
        rounds=rounds,
        seeds=seeds,
        first_seed=first_seed,
        noise=NOISE if noise is None else split_numbers("noise", noise),
        agents=AGENTS if agents is None else split_specs(agents),
        quick=quick,
    )
    result = play(plan, jobs, cluster, out, resume)
    claims = evaluate_claims(result)
    print_results(result)
    print_claims(claims)
    print_written(save_reproduction(result, claims, out))
