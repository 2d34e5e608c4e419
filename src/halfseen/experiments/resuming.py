"""Whether a folder may be gone on with."""

from __future__ import annotations

from typing import Any

from halfseen.errors import invalid
from halfseen.experiments.cache import SliceStore
from halfseen.experiments.plan import Experiment


def check_resumable(store: SliceStore, plan: Experiment) -> None:
    """Refuse to go on in a folder that holds something, but no slice of this experiment. A new one is all right."""
    folder = store.folder.parent
    if not folder.exists() or not any(folder.iterdir()):
        return
    there = [subject for path in sorted(store.others([])) if (subject := store.subject_of(path)) is not None]
    wanted = "the folder of a run of this one that was cut short, or no resume"
    if not there:
        raise invalid("resume", f"no slice of this experiment in '{folder}'", wanted)
    ours = [store.subject(plan.of_world(world)) for world in plan.worlds]
    raise invalid("resume", f"another experiment ({_difference(there, ours)}) in '{folder}'", wanted)


def _difference(there: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """The first thing that another experiment has otherwise."""
    first, mine = there[0], ours[0]
    if first["rounds"] != mine["rounds"]:
        return f"of {first['rounds']} rounds"
    if first["agents"] != mine["agents"]:
        names = [", ".join(agent["name"] for agent in one["agents"]) for one in (first, mine)]
        return f"of {names[0]}" if names[0] != names[1] else "of agents with other options"
    if not any(one["world"] == other["world"] for one in there for other in ours):
        return f"of the world '{first['world'].get('name', first['world']['type'])}'"
    if first["versions"] != mine["versions"]:
        name = next(name for name, version in mine["versions"].items() if first["versions"].get(name) != version)
        return f"played with {name} {first['versions'].get(name)}"
    return "played by other code" if first["source"] != mine["source"] else "of other seeds"
