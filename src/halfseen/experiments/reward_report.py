"""The report of agents on recorded data: one HTML page that carries all it shows."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from halfseen.experiments.figures import render_figure
from halfseen.experiments.html import escape, figure, page, section, table
from halfseen.experiments.reward_figures import BASE, arms_figure, reward_figure
from halfseen.experiments.reward_tables import agents_table, arms_table, verdicts
from halfseen.experiments.setting_tables import agents_settings
from halfseen.experiments.wording import count, plain
from halfseen.reports.table import Table
from halfseen.worlds.named import RECORDED
from halfseen.worlds.recorded import SCALE_ON, RecordedWorld

if TYPE_CHECKING:
    from halfseen.experiments.plan import Experiment
    from halfseen.experiments.result import Result

_CSS = ".rewards thead th { white-space: normal; vertical-align: bottom; }"
_HOW = (
    "A reward is averaged over the seeds first: the data are the same for all of them, and only the agents' own draws "
    "differ. Intervals are of a block bootstrap over time, t-values of the paired difference over time "
    "with Newey and West's standard error (Bartlett's kernel, automatic bandwidth), p-values Holm's over all "
    "comparisons of the table. Shares of oracle-ts, which is shown the full context, are given only where its mean "
    "reward is more than three standard errors above 0."
)


def render_reward_report(result: Result) -> str:
    """The whole page."""
    narrow = len(result.worlds) == 1
    what = f"Summed reward above that of {BASE}" if BASE in result.agents else "Summed reward"
    caption = f"Top: {what[0].lower()}{what[1:]}. Bottom: moving average of the reward of a round."
    plan = result.plan
    lead = (
        f"{count(plan.agents, 'agent')} played {', '.join(result.worlds)}, {plan.rounds:,} recorded rounds, with "
        f"{count(plan.seeds, 'seed')}. All of them started untrained."
    )
    body = [
        f'<p class="lead">{escape(lead)}</p>',
        *[f"<p><strong>{escape(caveat)}</strong></p>" for caveat in caveats(plan)],
        section("Reward", figure(render_figure(reward_figure(result), "svg"), caption, narrow=narrow)),
        *[_world(result, world) for world in plan.worlds if isinstance(world, RecordedWorld)],
        section("How to read the numbers", f"<p>{escape(_HOW)}</p>"),
        section("Settings", agents_settings(plan)),
        section("Versions, and how to run it again", _made_with(result), *_again(plan)),
    ]
    return page("Agents on recorded data", body, css=_CSS)


def caveats(plan: Experiment) -> list[str]:
    """What the numbers do not say, once."""
    return list(dict.fromkeys(world.caveat for world in plan.worlds if isinstance(world, RecordedWorld)))


def _world(result: Result, world: RecordedWorld) -> str:
    found = result.summary["worlds"][world.name]["rewards"]
    caption = f"{world.name}: share of the decisions that went to each arm, mean over seeds."
    return section(
        world.name,
        *([f"<p>{escape(world.about)}</p>"] if world.about else []),
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in verdicts(found)) + "</ul>",
        _table("What the agents earned, in the rewards' own units", agents_table(found, result.speeds(world.name))),
        figure(render_figure(arms_figure(result, world.name), "svg"), caption),
        _table("What every arm paid, and how often it was played", arms_table(found)),
        _facts(world),
    )


def _table(caption: str, content: Table) -> str:
    rows = [list(row.values()) for row in content.rows]
    return table(caption, content.columns, rows, numeric=range(1, len(content.columns)), name="rewards")


def _facts(world: RecordedWorld) -> str:
    rows = [[name, plain(value)] for name, value in world.settings().items() if name != "name"]
    return table("The data", ["", "value"], rows)


def _made_with(result: Result) -> str:
    versions = [f"{name} {version}" for name, version in result.summary["versions"].items()]
    return f"<p>{escape(', '.join(versions))}; {result.wall_seconds:.0f} s with {count(result.jobs, 'process')}.</p>"


def _again(plan: Experiment) -> list[str]:
    command = rerun_command(plan)
    return [] if command is None else [f"<pre>{escape(command)}</pre>"]


def rerun_command(plan: Experiment) -> str | None:
    """What to type to get these numbers again; None where a table was no file or the seeds do not follow each other."""
    first = plan.seeds[0]
    if plan.seeds != tuple(range(first, first + len(plan.seeds))):
        return None
    words = ["halfseen", "run"]
    if all(world.name in RECORDED for world in plan.worlds):
        words += [world.name for world in plan.worlds]
    else:
        (world, *others) = plan.worlds
        if others or not isinstance(world, RecordedWorld) or not world.from_file:
            return None
        if world.scale_on != SCALE_ON or not world.intercept:  # the command has no options for these
            return None
        words += [world.source, "--observed", ",".join(world.observed_names)]
        words += ["--hidden", ",".join(world.hidden_names)] if world.hidden_names else []
        words += ["--rewards", ",".join(world.arm_names)]
        words += ["--reward-every", str(world.reward_every)] if world.reward_every > 1 else []
    words += ["--rounds", str(plan.rounds), "--seeds", str(len(plan.seeds))]
    words += ["--first-seed", str(first)] if first else []
    return shlex.join([*words, "--agents", ",".join(spec.label for spec in plan.agents)])
