"""Prepares the data of a finished experiment for the pages, figures and tables of `halfseen.reports`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.agents.catalogue import FAMILY_OPTION, AgentSpec, split_spec
from halfseen.errors import invalid
from halfseen.experiments.claims import LINEAR, Claim
from halfseen.experiments.grid_summary import grid_lines, grid_options, grid_table
from halfseen.experiments.plan import Experiment
from halfseen.experiments.play import takes_fact
from halfseen.experiments.result import Result
from halfseen.experiments.theory import BOUND_DELTA
from halfseen.reports.commands import rerun_command
from halfseen.reports.figures import (
    REGRET_LABEL,
    arms_figure,
    cell_figure,
    draw_cumulative,
    grid_figure,
    regret_figure,
    render_figure,
    reward_figure,
    reward_label,
    theory_figure,
)
from halfseen.reports.files import write_atomically, write_figure
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, map_cells, rewards_markdown
from halfseen.worlds.named import NAMED, RECORDED
from halfseen.worlds.preparation import SCALE_ON
from halfseen.worlds.recorded import RecordedWorld
from halfseen.worlds.world import all_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REWARD_BASELINE = "random"  # the figure shows rewards minus the rewards of this agent


def result_figure(
    result: Result, *, agents: Sequence[str] | None = None, scale: str = "linear", axes: Axes | None = None
) -> Figure:
    """Plot cumulative and instantaneous regret, or rewards for recorded worlds.

    If `axes` are given, only the cumulative curves are drawn, into these axes. The result must then have one world.
    """
    if result.recorded and scale == "log":
        raise invalid("scale", "'linear', because rewards can be negative", "'log'")
    by_world = _by_world(result, "reward" if result.recorded else "regret", agents)
    if axes is None:
        return reward_figure(by_world, REWARD_BASELINE) if result.recorded else regret_figure(by_world, scale)
    (by_agent,) = by_world.values()
    baseline = REWARD_BASELINE if result.recorded and REWARD_BASELINE in by_agent else None
    label = reward_label(baseline is not None, REWARD_BASELINE) if result.recorded else REGRET_LABEL
    draw_cumulative(axes, by_agent, label, scale, baseline)
    figure = axes.get_figure()
    assert figure is not None
    return figure  # type: ignore[return-value]


def _by_world(result: Result, field: str, agents: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the array `field` of the trajectories, by world and agent."""
    return {
        world: {agent: getattr(result.tracks[world, agent], field) for agent in agents or result.agents}
        for world in result.worlds
    }


def result_grid_figure(result: Result) -> Figure:
    """Plot R(T), or the mean reward for recorded worlds, against the first option of a sweep."""
    option = grid_options(result)[0]
    return grid_figure(grid_lines(result, option), option, "mean reward" if result.recorded else "R(T)")


def write_simulated(result: Result, folder: Path) -> None:
    """Write `report.html` and the figure `regret`, and for a sweep also the figure `grid`. Figures are PNG and SVG."""
    regret_svg = write_figure(folder, "regret", result_figure(result))
    page = render(
        "simulated.html",
        summary=result.summary,
        worlds=world_settings(result.plan),
        agents=agent_settings(result.plan),
        command=run_command(result.plan),
        regret_svg=regret_svg,
        **_sweep(result, folder),
    )
    write_atomically(folder / "report.html", page.encode())


def _sweep(result: Result, folder: Path) -> dict[str, Any]:
    """Write the figure of a sweep, and return its table and its SVG for the page, which are empty without a sweep."""
    if not result.plan.grid:
        return {"grid": None, "grid_svg": b""}
    return {"grid": grid_table(result), "grid_svg": write_figure(folder, "grid", result_grid_figure(result))}


def reproduction_report(
    result: Result,
    claims: Sequence[Claim],
    regret_svg: bytes,
    maps: Sequence[dict[str, Any]] = (),
    map_svgs: Sequence[bytes] = (),
) -> str:
    """Render the report of the paper's experiment, with the summaries and figures of claim maps."""
    return render(
        "reproduction.html",
        summary=result.summary,
        claims=[_claim_row(claim) for claim in claims],
        overview=Table([{"claim": claim.title} | claim.verdicts for claim in claims]),
        linear=LINEAR,
        delta=BOUND_DELTA,
        worlds=world_settings(result.plan),
        agents=agent_settings(result.plan),
        command=reproduce_command(result.plan, maps),
        regret_svg=regret_svg,
        maps=[
            {
                "summary": one,
                "svg": svg,
                "panels": [map_cells(one, panel) for panel in one["panels"]],
                "curves": [render_figure(cell_figure(cell), "svg") for cell in one["cells"]],
            }
            for one, svg in zip(maps, map_svgs, strict=True)
        ],
        theory_svg=render_figure(theory_figure(result.summary), "svg"),
    )


def _claim_row(claim: Claim) -> dict[str, Any]:
    """Return a claim with its findings as a table, for the page."""
    findings = [
        {
            "world": finding.world,
            "agent": finding.subject,
            f"{claim.measure} [95 % interval]": f"{finding.figure:{claim.form}}",
            "verdict": finding.verdict,
        }
        for finding in claim.findings
    ]
    return {
        "title": claim.title,
        "paper": claim.paper,
        "test": claim.test,
        "findings": Table(findings),
    }


def write_recorded(result: Result, folder: Path) -> None:
    """Write `report.html`, `table.md`, the figure `reward` and one figure `arms` per world. Figures are PNG and SVG."""
    worlds = [world for world in result.plan.worlds if isinstance(world, RecordedWorld)]
    command, caveats = run_command(result.plan), list(dict.fromkeys(world.caveat for world in worlds))
    reward_svg = write_figure(folder, "reward", result_figure(result))
    details = {}
    for number, (world, arms) in enumerate(zip(worlds, _by_world(result, "arm").values(), strict=True)):
        label = re.sub(r"[^A-Za-z0-9]+", "-", world.name).strip("-") or str(number)
        name = "arms" if len(worlds) == 1 else f"arms-{label}"
        details[world.name] = {
            "about": world.about,
            "notes": world.notes,
            "settings": Table(
                [
                    {"": key, "value": _short_setting(value)}
                    for key, value in all_settings(world).items()
                    if key != "name"
                ]
            ),
            "arms_svg": write_figure(folder, name, arms_figure(arms, world.arm_names)),
        }
    page = render(
        "recorded.html",
        summary=result.summary,
        worlds=details,
        baseline=REWARD_BASELINE,
        caveats=caveats,
        agents=agent_settings(result.plan),
        command=command,
        reward_svg=reward_svg,
        **_sweep(result, folder),
    )
    write_atomically(folder / "report.html", page.encode())
    write_atomically(folder / "table.md", rewards_markdown(result.summary, command, caveats).encode())


def reproduce_command(plan: Experiment, maps: Sequence[dict[str, Any]] = ()) -> str | None:
    """Return the `halfseen reproduce` command that repeats the paper's experiment."""
    papers = [world for world in plan.worlds if world.name.startswith("paper ")]
    noise = [f"{own['process_var']:g}" for own in (w.settings() for w in papers) if own["observation_var"] == 0.0]
    map_seeds = str(len(maps[0]["seeds"])) if maps else None
    return rerun_command(
        ["reproduce", *([] if maps else ["--no-map"]), *(["--long"] if len(maps) > 1 else [])],
        rounds=plan.rounds,
        seeds=plan.seeds,
        options={"--noise": ",".join(noise) or None, "--agents": _labels(plan), "--map-seeds": map_seeds},
    )


def run_command(plan: Experiment) -> str | None:
    """Return the `halfseen run` command that repeats a run.

    Returns None if there is no such command, for example because the data did not come from a file, or because an agent
    is not part of the package.
    """
    words = ["run"]
    if not all(_has_command_label(spec) for spec in plan.agents):
        return None
    if all(world.name in {**NAMED, **RECORDED} and not world.is_own for world in plan.worlds):
        words += [world.name for world in plan.worlds]
    else:
        (world, *others) = plan.worlds
        if others or not isinstance(world, RecordedWorld) or not world.from_file:
            return None
        if world.scale_on != SCALE_ON or not world.intercept:  # the command has no options for these settings
            return None
        words += [world.source, "--observed", ",".join(world.columns["observed"])]
        words += ["--hidden", ",".join(world.columns["hidden"])] if world.hidden_names else []
        words += ["--time", *world.columns["time"]] if "time" in world.columns else []
        words += ["--rewards", ",".join(world.arm_names)]
        words += ["--reward-every", str(world.reward_every)] if world.reward_every > 1 else []
    return rerun_command(words, rounds=plan.rounds, seeds=plan.seeds, options={"--agents": _labels(plan)})


def _has_command_label(spec: AgentSpec) -> bool:
    """Return whether the label of an agent, given on a command line, names this agent with these options."""
    try:
        return not spec.is_own and split_spec(spec.label) == (spec.name, dict(spec.options))
    except ValueError:  # options that are arrays cannot be compared, and a user's own label may have another form
        return False


def _labels(plan: Experiment) -> str:
    return ",".join(spec.label for spec in plan.agents)


def world_settings(plan: Experiment) -> Table:
    """Return all settings of the worlds, with one row per world."""
    settings = {world.name: all_settings(world) for world in plan.worlds}
    names = list(dict.fromkeys(name for own in settings.values() for name in own if name != "name"))
    return Table(
        [
            {"world": world} | {name.replace("_", " "): _short_setting(own.get(name, "–")) for name in names}
            for world, own in settings.items()
        ]
    )


def agent_settings(plan: Experiment) -> Table:
    """Return one row per agent: its description, the facts that the worlds give it, and its other options."""
    rows = []
    for spec in plan.agents:
        entry, given = spec.entry, facts_from_worlds(plan, spec)
        options = {name: option.default for name, option in entry.options.items()} | dict(entry.defaults)
        free = {name: value for name, value in options.items() if name not in given} | dict(spec.options)
        rows.append(
            {
                "agent": spec.label,
                "description": entry.summary,
                "given by the world": ", ".join(given) or "nothing",
                "options": ", ".join(f"{name} = {_short_setting(value)}" for name, value in free.items()) or "–",
            }
        )
    return Table(rows)


def facts_from_worlds(plan: Experiment, spec: AgentSpec) -> list[str]:
    """Return the names of the facts that the worlds give to the agent, except facts that its options set."""
    entry = spec.entry
    facts = {"horizon"}.union(*(world.begin(plan.seeds[:1]).facts() for world in plan.worlds))
    if any(world.reward_family != "gaussian" for world in plan.worlds):
        facts.add(FAMILY_OPTION)
    return sorted(fact for fact in facts if takes_fact(entry, fact) and fact not in spec.options)


def _short_setting(value: Any) -> str:
    """Format a setting briefly. A matrix is shown as its shape; `summary.json` has the numbers."""
    if isinstance(value, float):
        return f"{value:g}"
    if value is None or isinstance(value, str | int):
        return str(value)
    shape = np.shape(value)
    return "×".join(map(str, shape)) + " numbers" if shape else type(value).__name__
