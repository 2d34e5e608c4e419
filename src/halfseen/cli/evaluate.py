"""The command `halfseen evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.arguments import Import, TimeColumn, import_modules, split_list, split_specs
from halfseen.cli.terminal import print_evaluation, print_written, progress


def evaluate(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="An exported journal (.ndjson, .parquet) or a table such as log.csv.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policies, separated by commas: uniform, always:ARM, logged, or agents with their options, such as "
            "adaptive:history=2000. Can be given several times.",
            show_default="uniform and always:ARM for every arm",
        ),
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="The stream, if the file contains several.", show_default="the only stream")
    ] = None,
    observed: Annotated[
        list[str] | None,
        typer.Option(
            help="For a table: the observed columns, separated by commas.",
            show_default="those that begin with 'observation'",
        ),
    ] = None,
    arms: Annotated[
        list[str] | None,
        typer.Option(help="The names of the arms in order, or their number.", show_default="the arms in the log"),
    ] = None,
    missing: Annotated[
        float | None, typer.Option(help="Reward for rounds without a reward.", show_default="such rounds are left out")
    ] = None,
    intervals: Annotated[str, typer.Option(help="Method for confidence intervals: hac or bootstrap.")] = "hac",
    estimators: Annotated[
        list[str] | None,
        typer.Option(
            help="Estimators of the table and the figure, separated by commas: dr, snips, ips, dm, switch_dr, "
            "clipped_dr, mrdr.",
            show_default="dr,snips,ips",
        ),
    ] = None,
    propensities: Annotated[
        str | None,
        typer.Option(help="Where propensities come from: logged or estimated.", show_default="logged if there are any"),
    ] = None,
    reward_family: Annotated[
        str, typer.Option(help="The family of the rewards: gaussian (numbers), binary (0 to 1) or count.")
    ] = "gaussian",
    time: TimeColumn = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the agents and of the bootstrap.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page, figure and data.", show_default="nothing is written")
    ] = None,
    modules: Import = None,
) -> None:
    """Estimate from logged decisions what other policies would have earned."""
    from halfseen.evaluation.estimators import SHOWN
    from halfseen.evaluation.evaluate import evaluate as evaluate_log
    from halfseen.reports.files import check_folder

    if out is not None:
        check_folder(out)
    import_modules(modules)
    names = None if arms is None else split_list(arms)
    with progress(f"the log {log}", doing="evaluating") as bar:
        evaluation = evaluate_log(
            log,
            None if policy is None else split_specs(policy),
            stream=stream,
            observed=None if observed is None else split_list(observed),
            arms=int(names[0]) if names and len(names) == 1 and names[0].isdigit() else names,
            missing=missing,
            intervals=intervals,
            estimators=SHOWN if estimators is None else split_list(estimators),
            propensities=propensities,
            reward_family=reward_family,
            time=time,
            seed=seed,
            progress=bar.update,
        )
    print_evaluation(evaluation)
    if out is not None:
        print_written(evaluation.save(out))
