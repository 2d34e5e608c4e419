"""Summaries of the rewards that agents earned on recorded data.

The reward of every arm is known, so regret against the best arm of each round could be computed. But most of that
regret would be noise that no agent could predict. The summary therefore reports the mean reward per round, its ratio
to the mean reward of Thompson sampling on the full context, and paired differences between agents. The data are the
same for all seeds and only the agents' own draws differ, so rewards are averaged over seeds first, and intervals
express the variation over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.agents.catalogue import AgentSpec
from halfseen.statistics.confidence_intervals import holm, percentile_interval
from halfseen.statistics.time_series import block_bootstrap, block_length, hac_mean

if TYPE_CHECKING:
    from halfseen.experiments.result import Result
    from halfseen.worlds.recorded import RecordedWorld

FULL_CONTEXT, PREFERRED_REFERENCE = "oracle-ts", "adaptive"
_CLEARLY_POSITIVE = 3.0  # a ratio to a mean is reported only if the mean is more than this many standard errors above 0


def reference_agent(agents: Sequence[AgentSpec]) -> str:
    """Return the label of the agent with which all other agents are compared.

    It is `adaptive` if `adaptive` is among the agents. Otherwise it is the first agent that neither sees the full
    context nor plays at random. If there is no such agent, it is the first agent.
    """
    labels = [spec.label for spec in agents]
    if PREFERRED_REFERENCE in labels:
        return PREFERRED_REFERENCE
    fair = (spec.label for spec in agents if not spec.entry.reveals_context and spec.name != "random")
    return next(fair, labels[0])


def reward_summary(result: Result, world: RecordedWorld) -> dict[str, Any]:
    """Summarise the rewards of every agent and of every arm in one world.

    The entry of an agent has its mean reward, the ratio to the mean reward of `oracle-ts`, and the difference between
    the reference agent and this agent.
    """
    means = {agent: result.tracks[world.name, agent].reward.mean(axis=0) for agent in result.agents}
    rounds = result.plan.rounds
    arms = world.rewards[:rounds]
    reference = reference_agent(result.plan.agents)
    block = max(block_length(series) for series in means.values())
    resampled = block_bootstrap(np.stack(list(means.values()), axis=1), block)
    resampled_means = dict(zip(means, resampled.T, strict=True))
    differences = {agent: hac_mean(means[reference] - means[agent]) for agent in means if agent != reference}
    adjusted = dict(zip(differences, holm([difference.p_value for difference in differences.values()]), strict=True))
    full = means.get(FULL_CONTEXT)
    shares_are_meaningful = full is not None and hac_mean(full).t > _CLEARLY_POSITIVE
    entries: dict[str, Any] = {}
    for agent, series in means.items():
        earned = result.tracks[world.name, agent].reward
        mean = float(series.mean())
        entry: dict[str, Any] = {
            "reward_mean": mean,
            "reward_interval": percentile_interval(mean, resampled_means[agent]).as_dict(),
            "reward_hac": hac_mean(series).as_dict(),
            "reward_by_seed": earned.mean(axis=1).tolist(),
            "share_of_full_context": None,
            "reference_less_this": None,
            "share_of_arms": _arm_frequencies(result.tracks[world.name, agent].arm, world.arms),
        }
        if full is not None and shares_are_meaningful:
            share = percentile_interval(
                mean / float(full.mean()), resampled_means[agent] / resampled_means[FULL_CONTEXT]
            )
            entry["share_of_full_context"] = share.as_dict()
        if agent != reference:
            entry["reference_less_this"] = differences[agent].as_dict() | {
                "p_holm": adjusted[agent],
                "interval": percentile_interval(
                    differences[agent].value, resampled_means[reference] - resampled_means[agent]
                ).as_dict(),
            }
        entries[agent] = entry
    best = int(np.argmax(arms.mean(axis=0)))
    return {
        "reference": reference,
        "best_fixed_arm": world.arm_names[best],
        "reference_less_best_fixed_arm": hac_mean(means[reference] - arms[:, best]).as_dict(),
        "block_length": block,
        "agents": entries,
        "arms": {
            name: {"reward_mean": float(rewards.mean()), "reward_hac": hac_mean(rewards).as_dict()}
            for name, rewards in zip(world.arm_names, arms.T, strict=True)
        },
    }


def _arm_frequencies(arms: Any, count: int) -> list[float]:
    """Return the share of rounds in which each arm was played, over all seeds."""
    return [float(share) for share in np.bincount(arms.ravel(), minlength=count) / arms.size]
