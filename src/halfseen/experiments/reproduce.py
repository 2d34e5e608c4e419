"""The paper's experiment and the files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from halfseen.experiments.claims import Claim
from halfseen.experiments.plan import Experiment, experiment, seed_range
from halfseen.experiments.report import reproduction_report
from halfseen.experiments.result import Result
from halfseen.reports.figures import map_figure
from halfseen.reports.files import staged, write_atomically, write_figure, write_json
from halfseen.worlds import named

# Besides the paper's noise levels, the figure shows a world with noisy sensors in which several of the claims hold.
NOISY_SENSORS = {"noise": 0.001, "sensor_noise": 0.1}
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
    """Return the experiment of the paper's figure. `quick` uses fewer rounds and seeds.

    The worlds are the paper's world at every noise level ε, the paper's world with `NOISY_SENSORS`, and `orbit`.
    """
    default_rounds, default_seeds = QUICK if quick else FULL
    worlds = [*[named("paper", noise=level) for level in noise], named("paper", **NOISY_SENSORS), named("orbit")]
    return experiment(
        agents,
        worlds,
        default_rounds if rounds is None else rounds,
        seed_range(default_seeds if seeds is None else seeds, first_seed),
    )


def save_reproduction(
    result: Result, claims: Sequence[Claim], folder: str | Path, maps: Sequence[dict[str, Any]] = ()
) -> list[Path]:
    """Write the report, the figures and the data, and return the paths of the files.

    The files are `regret.png`, `regret.svg`, `report.html`, `summary.json` and `rounds.parquet`. `maps` are summaries
    of claim maps with different numbers of rounds. A figure of each map is also written. For 10,000 rounds it is
    `map-10000.png` and `map-10000.svg`.
    """
    with staged(folder) as stage:
        result.save(stage)
        svg = (stage / "regret.svg").read_bytes()
        map_svgs = [write_figure(stage, f"map-{one['rounds']}", map_figure(one)) for one in maps]
        report = reproduction_report(result, claims, svg, maps, map_svgs)
        write_atomically(stage / "report.html", report.encode())
        extra = {"claims": [claim.as_dict() for claim in claims], "maps": list(maps)}
        write_json(stage / "summary.json", result.summary | extra)
        names = sorted(path.name for path in stage.iterdir())
    return [Path(folder) / name for name in names]
