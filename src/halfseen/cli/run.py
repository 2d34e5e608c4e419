"""The command `halfseen run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.arguments import (
    AGENTS_HELP,
    Cluster,
    FirstSeed,
    Grid,
    HiddenColumns,
    Import,
    Jobs,
    ObservedColumns,
    Resume,
    RewardColumns,
    RewardEvery,
    RewardFamily,
    TimeColumn,
    import_modules,
    resolve_worlds,
    split_grid,
    split_specs,
)
from halfseen.cli.experiment import play
from halfseen.cli.terminal import print_results, print_written


def run(
    worlds: Annotated[
        list[str],
        typer.Argument(metavar="WORLD", help="Worlds, such as orbit paper:noise=0.5, or a table, such as data.csv."),
    ],
    agents: Annotated[list[str] | None, typer.Option(help=AGENTS_HELP, show_default="six agents")] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of rounds.", show_default="10000, or all rounds of a recorded world"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of replications.", show_default="20, or 10 in a recorded world")
    ] = None,
    first_seed: FirstSeed = 0,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figure and the data.", show_default="nothing is written")
    ] = None,
    resume: Resume = False,
    observed: ObservedColumns = None,
    hidden: HiddenColumns = None,
    rewards: RewardColumns = None,
    reward_every: RewardEvery = None,
    reward_family: RewardFamily = None,
    time: TimeColumn = None,
    grid: Grid = None,
    modules: Import = None,
) -> None:
    """Play agents in worlds, which may be simulated or recorded."""
    from halfseen.experiments.plan import defaults_for, experiment, seed_range
    from halfseen.reports.files import check_folder, staged

    if out is not None:
        check_folder(out)
    import_modules(modules)
    resolved = resolve_worlds(
        worlds,
        observed=observed,
        hidden=hidden,
        rewards=rewards,
        reward_every=reward_every,
        reward_family=reward_family,
        time=time,
    )
    count = defaults_for(resolved).seeds if seeds is None else seeds
    specs = None if agents is None else split_specs(agents)
    plan = experiment(specs, resolved, rounds, seed_range(count, first_seed), split_grid(grid))
    result = play(plan, jobs, cluster, out, resume)
    print_results(result)
    if out is not None:
        with staged(out) as stage:
            result.save(stage)
            names = sorted(path.name for path in stage.iterdir())
        print_written([out / name for name in names])
