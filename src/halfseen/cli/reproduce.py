"""The command `halfseen reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfseen.cli.arguments import AGENTS_HELP, Cluster, FirstSeed, Jobs, Resume, split_numbers, split_specs
from halfseen.cli.experiment import play, play_map
from halfseen.cli.terminal import print_claims, print_map, print_results, print_written
from halfseen.errors import invalid

if TYPE_CHECKING:
    from halfseen.experiments.claim_map import MapPlan


def reproduce(
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Number of rounds.", show_default="10000, or 1000 with --quick")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of replications.", show_default="20, or 5 with --quick")
    ] = None,
    first_seed: FirstSeed = 0,
    noise: Annotated[
        list[str] | None,
        typer.Option(help="Noise levels ε of the figure, separated by commas.", show_default="0.01,0.1,1"),
    ] = None,
    agents: Annotated[list[str] | None, typer.Option(help=AGENTS_HELP, show_default="the paper's agents")] = None,
    draw_map: Annotated[
        bool, typer.Option("--map/--no-map", help="Test the claims in a grid of noise levels, the map.")
    ] = True,
    map_seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of replications of the map.", show_default="10, or 3 with --quick")
    ] = None,
    long: Annotated[
        bool,
        typer.Option("--long", help="Repeat the cells of the map in which a claim holds with six times the rounds."),
    ] = False,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Annotated[Path, typer.Option(help="Folder for the figure, the report and the data.")] = Path("results/paper"),
    resume: Resume = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run a small version in less than a minute. It is too short to judge the claims."),
    ] = False,
) -> None:
    """Run the paper's experiment, and write figures, data and a report that says in which settings each claim holds."""
    from halfseen.experiments.claim_map import MAP_SEEDS, QUICK_MAP_SEEDS, map_plan
    from halfseen.experiments.claims import evaluate_claims
    from halfseen.experiments.plan import seed_range
    from halfseen.experiments.reproduce import AGENTS, NOISE, paper_experiment, save_reproduction
    from halfseen.reports.files import check_folder

    check_folder(out)
    if long and not draw_map:
        raise invalid("long", "the map, which --long repeats", "--no-map")
    plan = paper_experiment(
        rounds=rounds,
        seeds=seeds,
        first_seed=first_seed,
        noise=NOISE if noise is None else split_numbers("noise", noise),
        agents=AGENTS if agents is None else split_specs(agents),
        quick=quick,
    )
    result = play(plan, jobs, cluster, out, resume)
    maps = []
    if draw_map:
        count = (QUICK_MAP_SEEDS if quick else MAP_SEEDS) if map_seeds is None else map_seeds
        maps = play_maps(map_plan(plan.rounds, seed_range(count, first_seed)), long, jobs, cluster, out)
    claims = evaluate_claims(result)
    print_results(result)
    print_claims(claims)
    for one in maps:
        print_map(one)
    print_written(save_reproduction(result, claims, out, maps))


def play_maps(plan: MapPlan, long: bool, jobs: int | None, cluster: str | None, out: Path) -> list[dict[str, Any]]:
    """Play the map. With `long`, repeat the cells in which a claim holds, with more rounds. Return the summaries."""
    from halfseen.experiments.claim_map import LONGER, long_plan

    first = play_map(plan, jobs, cluster, out)
    maps = [first.summary()]
    if long:
        repeated = long_plan(first, LONGER * plan.rounds)
        if repeated.slices():
            maps.append(play_map(repeated, jobs, cluster, out).summary(before=first))
    return maps
