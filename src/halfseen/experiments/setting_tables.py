"""What was played, by whom and where: the settings of an experiment as tables of a page."""

from __future__ import annotations

from halfseen.agents.catalogue import CATALOG, AgentSpec
from halfseen.experiments.html import table
from halfseen.experiments.plan import Experiment
from halfseen.experiments.play import asks_for
from halfseen.experiments.wording import count, plain


def settings_tables(plan: Experiment) -> list[str]:
    """All that defines the experiment, as pieces of a page."""
    names = list(dict.fromkeys(name for world in plan.worlds for name in world.settings() if name != "name"))
    worlds = [[w.name, *[plain(w.settings().get(name, "–")) for name in names]] for w in plan.worlds]
    return [
        f"<p>{plan.rounds:,} rounds; {count(plan.seeds, 'seed')} ({plan.seeds[0]} to {plan.seeds[-1]}).</p>",
        table("The worlds", ["world", *[name.replace("_", " ") for name in names]], worlds),
        agents_settings(plan),
    ]


def agents_settings(plan: Experiment) -> str:
    """What every agent was told, and its options."""
    return table(
        "The agents",
        ["agent", "context", "told by the world", "options"],
        [_agent_row(spec, told_by_the_worlds(plan, spec)) for spec in plan.agents],
    )


def told_by_the_worlds(plan: Experiment, spec: AgentSpec) -> list[str]:
    """The facts that the agent's options ask for and that were not given with it."""
    entry = CATALOG[spec.name]
    facts = {"horizon"}.union(*(world.begin(plan.seeds[:1]).facts() for world in plan.worlds))
    return sorted(fact for fact in facts if asks_for(entry, fact) and fact not in spec.options)


def _agent_row(spec: AgentSpec, told: list[str]) -> list[str]:
    """What the agent was told by the world, and the options in force for the rest."""
    entry = CATALOG[spec.name]
    free = {name: option.default for name, option in entry.options.items() if name not in told}
    options = free | {name: value for name, value in entry.defaults.items() if name not in told} | dict(spec.options)
    return [
        spec.label,
        entry.summary,
        ", ".join(told) or "nothing",
        ", ".join(f"{name} = {plain(value)}" for name, value in options.items()) or "–",
    ]
