"""Which of a few known states is the world in? The posterior from rewards alone (Hong et al., 2020)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import MAX_COUNT, Estimator, IntegerBounds, Learner, State, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.known import Known
from halfseen.validation import at_least, stack_for_streams

IMPOSSIBLE = 1e-300  # the least probability, so that its logarithm is a number


class LatentStates(Estimator):
    """c_t = P_t, the probabilities of S states before the reward of round t; y_t is not looked at.

    P_1 is `state_prior` (uniform if not given), P ∝ P·N(r; m(a, s), σ²) with a reward, σ being `state_std`, and
    P ← FᵀP from round to round, F_ij = `state_transition` the probability of j after i. What arms pay in a state is
    the learner's to know. Rewards older than the last `memory` rounds are forgotten.

    Of each remembered round two vectors are stored, in the slot t mod `memory`: the log of the belief before its
    reward, and the log-likelihood of its reward in every state, 0 until it comes. After a late reward the beliefs of
    all later rounds are computed again, so the result does not depend on when rewards came.
    """

    coordinates = "none"
    state_names = ("log_beliefs", "log_likelihoods", "last_round", "discarded_rewards")
    per_stream = ("_std", "_log_F", "_log_start")

    def __init__(
        self,
        streams: StreamBatch,
        *,
        state_transition: ArrayLike,
        state_std: ArrayLike = 1.0,
        state_prior: ArrayLike | None = None,
        memory: int = 200,
    ) -> None:
        count, S = streams.count, np.shape(state_transition)[-1] if np.ndim(state_transition) >= 2 else 0
        if S == 0:
            raise invalid("state_transition", "a matrix, states by states", f"shape {np.shape(state_transition)}")
        F = _distributions("state_transition", state_transition, count, (S, S))
        start = np.full(S, 1.0 / S) if state_prior is None else state_prior
        self.dimension = S
        self._std = stack_for_streams("state_std", state_std, count, ())
        if not self._std.min() > 0.0:
            raise invalid("state_std", "a finite number above 0", f"{self._std.min():g}")
        self._log_F = np.log(np.maximum(F, IMPOSSIBLE))
        self._log_start = np.log(np.maximum(_distributions("state_prior", start, count, (S,)), IMPOSSIBLE))
        self.log_beliefs = np.zeros((count, at_least("memory", memory, 1), S))
        self.log_likelihoods = np.zeros_like(self.log_beliefs)
        self.last_round = np.zeros(count, dtype=np.int64)
        self.discarded_rewards = np.zeros(count, dtype=np.int64)

    def integer_bounds(self, state: State) -> IntegerBounds:
        rounds = state.get("rounds")
        return {"last_round": (0, MAX_COUNT) if rounds is None else (rounds, rounds)}

    def bind_learner(self, learner: Learner) -> None:
        if not isinstance(learner, Known):
            raise invalid("learner", "one that knows what every arm pays in every state", type(learner).__name__)
        self._learner = learner

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        memory = self.log_beliefs.shape[1]
        slot, last = rounds % memory, (rounds - 1) % memory
        moved = _transition(self.log_beliefs[rows, last], self.log_likelihoods[rows, last], self._log_F[rows])
        belief = np.where((rounds == 1)[:, None], self._log_start[rows], moved)
        self.log_beliefs[rows, slot], self.log_likelihoods[rows, slot], self.last_round[rows] = belief, 0.0, rounds
        return np.asarray(np.exp(belief))

    def update_from_rewards(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        memory = self.log_beliefs.shape[1]
        remembered = self.last_round[rows] - rounds < memory
        np.add.at(self.discarded_rewards, rows[~remembered], 1)
        rows, rounds, arms = rows[remembered], rounds[remembered], arms[remembered]
        gap = np.minimum(
            np.abs(rewards[remembered, None] - self._learner.arm_params[rows, arms]) / self._std[rows, None], 1e140
        )
        np.subtract.at(self.log_likelihoods, (rows, rounds % memory), 0.5 * gap * gap)
        late = rounds < self.last_round[rows]
        for row in np.unique(rows[late]):
            for t in range(rounds[late & (rows == row)].min(), self.last_round[row]):
                slot = [t % memory]
                belief = _transition(self.log_beliefs[row, slot], self.log_likelihoods[row, slot], self._log_F[[row]])
                self.log_beliefs[row, (t + 1) % memory] = belief[0]

    def replace_rewards(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        memory = self.log_beliefs.shape[1]
        kept = self.last_round[rows] - rounds < memory
        self.log_likelihoods[rows[kept], rounds[kept] % memory] = 0.0
        self.update_from_rewards(rows, rounds, arms, rewards, learner)
        return features

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        forgotten = int(self.discarded_rewards[row])
        notes = [f"{forgotten} rewards came later than the {self.log_beliefs.shape[1]} rounds that are remembered"]
        return {"rewards too late to count": forgotten}, notes if forgotten else []


def _distributions(argument: str, value: ArrayLike, count: int, shape: tuple[int, ...]) -> Floats:
    table = stack_for_streams(argument, value, count, shape)
    sums = table.sum(axis=-1)
    if table.min() < 0.0 or (np.abs(sums - 1.0) > 1e-6).any():
        raise invalid(
            argument, "probabilities that sum to 1", f"entries from {table.min():g}, sums from {sums.min():g}"
        )
    return table


def _normalise(logs: Floats) -> Floats:
    """Logs (n, S) less the log of the sum of what they are logs of."""
    logs = logs - logs.max(axis=1, keepdims=True)
    return np.asarray(logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))


def _transition(before: Floats, evidence: Floats, log_F: Floats) -> Floats:
    """log Σ_i exp(before_i + evidence_i) F_ij for every j, both beliefs (n, S) summing to 1."""
    paths = _normalise(before + evidence)[:, :, None] + log_F
    highest = paths.max(axis=1)
    return _normalise(highest + np.log(np.exp(paths - highest[:, None]).sum(axis=1)))
