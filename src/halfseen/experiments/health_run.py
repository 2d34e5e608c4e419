"""An adaptive agent played through a world, recorded or simulated, and then examined by all that the world knows."""

from __future__ import annotations

from collections.abc import Callable

from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import make
from halfseen.diagnostics.health import ENOUGH_ROUNDS
from halfseen.errors import invalid
from halfseen.experiments.examine import Examination, examine
from halfseen.worlds.recorded import RecordedWorld
from halfseen.worlds.world import World

ROUNDS = 3000  # of a world without an end
ALL_RECORDED = "whole record"  # what the context of a recorded world is: there may be more to it


def examine_world(
    world: World, *, rounds: int | None = None, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> tuple[Agent, Examination]:
    """Let `adaptive` live through the world; the agent as it then is, and its examination.

    The examination knows what every arm would have paid and, of a recorded world, the hidden columns.
    `progress` hears of rounds done and rounds in all.
    `adaptive` has an intercept of its own: a constant 1 in the world's observations is left out.
    """
    if isinstance(world, RecordedWorld):
        world = world.without_intercept()
    total = (world.length or ROUNDS) if rounds is None else rounds
    if world.length is not None and total > world.length:
        raise invalid("rounds", str(total), f"at most {world.length}: '{world.name}' has no more")
    if total < ENOUGH_ROUNDS:
        raise invalid("rounds", f"{total} in '{world.name}'", f"at least {ENOUGH_ROUNDS} to examine a model by")
    told = world.begin([seed]).advance(total)
    recorded = isinstance(world, RecordedWorld)
    names = list(world.arm_names) if isinstance(world, RecordedWorld) else None
    agent = make("adaptive", observed=world.observed, arms=names or world.arms, seed=seed)
    paid = told.expected[:, 0] + told.reward_noise
    waiting: list[int] = []
    for t in range(total):
        decision = agent.decide(told.observations[t, 0])
        waiting.append(decision.index)
        if len(waiting) == world.reward_every:
            first = t + 1 - len(waiting)
            ids = list(agent.pending)[-len(waiting) :]
            agent.learn_many(ids, [float(paid[first + i, arm]) for i, arm in enumerate(waiting)])
            waiting = []
        if progress is not None and (t % 50 == 49 or t + 1 == total):
            progress(t + 1, total)
    k = world.observed
    found = examine(
        agent,
        rewards=paid,
        contexts=told.contexts[:, 0],
        contexts_name=ALL_RECORDED if recorded else "true context",
        hidden=told.contexts[:, 0, k:] if recorded and world.latent > k else None,
        sensors=list(world.observed_names) if isinstance(world, RecordedWorld) else None,
        hidden_names=list(world.hidden_names) if isinstance(world, RecordedWorld) and world.latent > k else None,
        title=f"Model health: {world.name}",
    )
    return agent, found
