"""The posterior over the states of a known Markov chain, from rewards that may come late (docs/mathematics.md, "mTS").

Of each of the last W rounds two vectors are kept, in the slot t mod W: the log of the belief before its reward, and
the log-likelihood of its reward in every state, 0 until it comes. A late reward changes the vectors of its own round,
and the belief of every round after it is worked out again: the result does not depend on when rewards came.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels._types import Index, Matrix, Stack, Vector


def _normalise(logs: Matrix) -> Matrix:
    """Logs (n, S) less the log of the sum of what they are logs of."""
    logs = logs - logs.max(axis=1, keepdims=True)
    return np.asarray(logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))


def _move(before: Matrix, evidence: Matrix, log_F: Stack) -> Matrix:
    """log Σ_i exp(before_i + evidence_i) F_ij for every j, both beliefs (n, S) summing to 1."""
    paths = _normalise(before + evidence)[:, :, None] + log_F
    highest = paths.max(axis=1)
    return _normalise(highest + np.log(np.exp(paths - highest[:, None]).sum(axis=1)))


def open_rounds(
    rows: Index, rounds: Index, log_start: Matrix, log_F: Stack, beliefs: Stack, evidence: Stack, newest: Index
) -> Matrix:
    """The beliefs with which rounds t (n,) begin, as probabilities (n, S)."""
    W = beliefs.shape[1]
    here, last = rounds % W, (rounds - 1) % W
    moved = _move(beliefs[rows, last], evidence[rows, last], log_F[rows])
    opened = np.where((rounds == 1)[:, None], log_start[rows], moved)
    beliefs[rows, here], evidence[rows, here], newest[rows] = opened, 0.0, rounds
    return np.asarray(np.exp(opened))


def hear_rewards(
    rows: Index,
    rounds: Index,
    rewards: Vector,
    expected: Matrix,
    std: Vector,
    log_F: Stack,
    beliefs: Stack,
    evidence: Stack,
    newest: Index,
    forgotten: Index,
) -> None:
    """Take in rewards (n,) of `rounds` (n,), of which `expected` (n, S) was the mean in every state."""
    W = beliefs.shape[1]
    kept = newest[rows] - rounds < W
    np.add.at(forgotten, rows[~kept], 1)
    rows, rounds = rows[kept], rounds[kept]
    gap = np.minimum(np.abs(rewards[kept, None] - expected[kept]) / std[rows, None], 1e140)
    np.subtract.at(evidence, (rows, rounds % W), 0.5 * gap * gap)
    late = rounds < newest[rows]
    for row in np.unique(rows[late]):
        for t in range(rounds[late & (rows == row)].min(), newest[row]):
            before, known = beliefs[row, [t % W]], evidence[row, [t % W]]
            beliefs[row, (t + 1) % W] = _move(before, known, log_F[[row]])[0]
