"""How a fleet is doing: counts over its streams."""

from __future__ import annotations

from halfseen.diagnostics.health import LONG, Health
from halfseen.kernels.random import Ints


def summarise(rounds: Ints, rewarded: Ints, waiting: Ints, missed: Ints, silent: Ints, max_pending: int) -> Health:
    """Of B streams: rounds (B,), rewards and the round of the last (B, 2), what waits (B,), gaps (B, k), twice."""
    since = rounds - rewarded[:, 1]
    dropped = rounds - rewarded[:, 0] - waiting
    quiet, losing = int((since >= LONG).sum()), int((dropped > 0).sum())
    blind = int((silent >= LONG).any(axis=1).sum())
    facts: dict[str, object] = {
        "streams": len(rounds),
        "rounds": int(rounds.sum()),
        "rounds of the youngest and of the oldest stream": [int(rounds.min()), int(rounds.max())]
        if len(rounds)
        else [],
        "rewards": int(rewarded[:, 0].sum()),
        "decisions waiting": int(waiting.sum()),
        "decisions dropped": int(dropped.sum()),
        "share of entries not seen": float(missed.sum() / max(1, int(rounds.sum()) * missed.shape[1])),
        "streams without a reward in their last decisions": quiet,
        "streams with an entry not seen for long": blind,
    }
    notes = []
    if quiet:
        notes.append(f"in {quiet} of {len(rounds)} streams no reward has come in the last {LONG} decisions or more")
    if losing:
        notes.append(
            f"{int(dropped.sum())} decisions of {losing} streams can no longer be rewarded: more than {max_pending} "
            "were waiting"
        )
    if blind:
        notes.append(
            f"in {blind} of {len(rounds)} streams an entry has not been seen in the last {LONG} rounds or more"
        )
    return Health(tuple(notes), facts)
