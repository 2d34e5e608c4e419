"""`halfseen evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.arguments import split_list, split_specs
from halfseen.cli.terminal import print_evaluation, print_written, progress


def evaluate(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="An exported journal (.ndjson, .parquet), or a table such as log.csv")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policies, separated by commas: uniform, always:ARM, logged, or agents with their options, such as "
            "adaptive:history=2000. May be given several times.",
            show_default="uniform and every arm alone",
        ),
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="Which stream, if the file holds several.", show_default="the only one")
    ] = None,
    observed: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a table: the columns that were seen, separated by commas.", show_default="all named observation…"
        ),
    ] = None,
    arms: Annotated[
        list[str] | None,
        typer.Option(help="The arms in their order: names or a count.", show_default="those of the log"),
    ] = None,
    missing: Annotated[
        float | None, typer.Option(help="What a round without a reward counts as.", show_default="it is left out")
    ] = None,
    intervals: Annotated[str, typer.Option(help="How intervals are found: hac or bootstrap.")] = "hac",
    seed: Annotated[int, typer.Option(min=0, help="Of agents, and of the bootstrap.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page, picture and data.", show_default="nothing is written")
    ] = None,
) -> None:
    """What other policies would have earned on logged decisions."""
    from halfseen.evaluation import evaluate as evaluation
    from halfseen.reports.files import check_folder

    if out is not None:
        check_folder(out)
    names = None if arms is None else split_list(arms)
    with progress(f"what was logged in {log}", doing="evaluating") as bar:
        found = evaluation.evaluate(
            log,
            None if policy is None else split_specs(policy),
            stream=stream,
            observed=None if observed is None else split_list(observed),
            arms=int(names[0]) if names and len(names) == 1 and names[0].isdigit() else names,
            missing=missing,
            intervals=intervals,
            seed=seed,
            progress=bar.update,
        )
    print_evaluation(found)
    if out is not None:
        print_written(found.save(out))
