"""The posterior over the states of a known Markov chain, from rewards that may come late (docs/mathematics.md, "mTS").

Of each of the last W rounds two vectors are kept, in the slot t mod W: the log of the belief before its reward, and
the log-likelihood of its reward in every state, 0 until it comes. A late reward changes the vectors of its own round,
and the belief of every round after it is worked out again: the result does not depend on when rewards came.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler.decorators import AS_WRITTEN, helper, kernel

# Sums in the order written, as a state must be the same wherever it is worked out.


@helper("f1", AS_WRITTEN)
def _normalise(logs):  # type: ignore[no-untyped-def]
    highest = -np.inf
    for value in logs:
        highest = max(highest, value)
    total = 0.0
    for value in logs:
        total += math.exp(value - highest)
    for s in range(logs.shape[0]):
        logs[s] -= highest + math.log(total)


@helper("f1 f1 f2 f1 f1", AS_WRITTEN)
def _move(before, evidence, log_F, after, known):  # type: ignore[no-untyped-def]
    """after_j = log Σ_i exp(before_i + evidence_i) F_ij, both beliefs summing to 1."""
    S = before.shape[0]
    for s in range(S):
        known[s] = before[s] + evidence[s]
    _normalise(known)
    for j in range(S):
        highest = -np.inf
        for i in range(S):
            highest = max(highest, known[i] + log_F[i, j])
        total = 0.0
        for i in range(S):
            total += math.exp(known[i] + log_F[i, j] - highest)
        after[j] = highest + math.log(total)
    _normalise(after)


@kernel("i1 i1 f2 f3 f3 f3 i1 f2", AS_WRITTEN)
def open_rounds(rows, rounds, log_start, log_F, beliefs, evidence, newest, out):  # type: ignore[no-untyped-def]
    """The beliefs with which rounds t (n,) begin, as probabilities in `out` (n, S)."""
    W, S = beliefs.shape[1], beliefs.shape[2]
    known = np.empty(S)
    for n in range(rows.shape[0]):
        b, t = rows[n], rounds[n]
        here, last = t % W, (t - 1) % W
        if t == 1:
            for s in range(S):
                beliefs[b, here, s] = log_start[b, s]
        else:
            _move(beliefs[b, last], evidence[b, last], log_F[b], beliefs[b, here], known)
        newest[b] = t
        for s in range(S):
            evidence[b, here, s] = 0.0
            out[n, s] = math.exp(beliefs[b, here, s])


@kernel("i1 i1 f1 f2 f1 f3 f3 f3 i1 i1", AS_WRITTEN)
def hear_rewards(rows, rounds, rewards, expected, std, log_F, beliefs, evidence, newest, forgotten):  # type: ignore[no-untyped-def]
    """Take in rewards (n,) of `rounds` (n,), of which `expected` (n, S) was the mean in every state."""
    W, S = beliefs.shape[1], beliefs.shape[2]
    known = np.empty(S)
    for n in range(rows.shape[0]):
        b = rows[n]
        if newest[b] - rounds[n] >= W:
            forgotten[b] += 1
            continue
        for s in range(S):
            gap = min(abs(rewards[n] - expected[n, s]) / std[b], 1e140)
            evidence[b, rounds[n] % W, s] -= 0.5 * gap * gap
        for t in range(rounds[n], newest[b]):
            _move(beliefs[b, t % W], evidence[b, t % W], log_F[b], beliefs[b, (t + 1) % W], known)
