"""The command `halfseen study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.arguments import Import, import_modules, split_list, split_specs
from halfseen.cli.terminal import print_study, print_written, progress


def study(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="A table with one row per decision, such as log.csv, or an exported journal."
        ),
    ],
    observed: Annotated[
        list[str] | None,
        typer.Option(
            help="The columns of the context, separated by commas.", show_default="every column without another meaning"
        ),
    ] = None,
    arm: Annotated[
        str | None, typer.Option(help="The column with the arm that was played.", show_default="arm")
    ] = None,
    reward: Annotated[str | None, typer.Option(help="The column with its reward.", show_default="reward")] = None,
    propensity: Annotated[
        str | None,
        typer.Option(help="The column with the probability with which it was chosen.", show_default="propensity"),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="The column with the time, by which rows are sorted.", show_default="time, or the only dates"
        ),
    ] = None,
    arms: Annotated[
        list[str] | None,
        typer.Option(help="All arms, if some were never played, or their number.", show_default="the arms in the log"),
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="The stream, if the file contains several.", show_default="the only stream")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policies to compare, separated by commas: uniform, always:ARM, or agents with their options. "
            "'logged' and 'adaptive' are always compared.",
            show_default="uniform, always:ARM for every arm, lag-ts and ts-pco",
        ),
    ] = None,
    missing: Annotated[
        float | None, typer.Option(help="Reward for rows without a reward.", show_default="such rows are left out")
    ] = None,
    reward_family: Annotated[
        str, typer.Option(help="The family of the rewards: gaussian (numbers), binary (0 to 1) or count.")
    ] = "gaussian",
    history: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Past rounds to which 'adaptive' fits its model.",
            show_default="3000, or more if there are more than 125 columns",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name of the stream in the journal.", show_default="the name of the file")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the agents.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, the table, the data and the journal.")] = Path(
        "study"
    ),
    modules: Import = None,
) -> None:
    """Tell from logged decisions whether hidden context matters, what would have earned most, and what to do next."""
    from halfseen.experiments.study import JOURNAL
    from halfseen.experiments.study import study as study_log
    from halfseen.experiments.study_journal import check_journal
    from halfseen.reports.files import check_folder

    check_folder(out)
    import_modules(modules)
    names = None if arms is None else split_list(arms)
    with progress(f"the log {log}", doing="replaying") as bar:
        result = study_log(
            log,
            observed=None if observed is None else split_list(observed),
            arm=arm,
            reward=reward,
            propensity=propensity,
            time=time,
            arms=int(names[0]) if names and len(names) == 1 and names[0].isdigit() else names,
            stream=stream,
            policy=None if policy is None else split_specs(policy),
            missing=missing,
            reward_family=reward_family,
            history=history,
            name=name,
            seed=seed,
            progress=bar.update,
        )
    written = result.save(out)
    print_study(result)
    print_written(written)
    if (journal := out / JOURNAL) in written:
        print(f"\nTo go on in the service: halfseen import {journal}")
    else:
        print(f"\nNo journal was written: {check_journal(result.log)}")
