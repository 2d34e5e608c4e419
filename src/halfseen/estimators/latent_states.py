"""The belief over the states of a known hidden Markov chain, computed from rewards."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import LONGEST_GAP, Estimator, IntegerBounds, Learner, State, StreamBatch, observe_nothing
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.known import Known
from halfseen.validation import Arrays, Integers, at_least, stack_for_streams

MIN_PROBABILITY = 1e-300  # so that every logarithm is finite


class LatentStates(Estimator):
    """The belief over the states of a known hidden Markov chain, computed from rewards.

    The feature c_t is P_t, the probabilities of S states before the reward of round t. The observation y_t is not used.
    A reward r of arm a updates the belief by Bayes' rule, P ∝ P·N(r; m(a, s), σ²), where m(a, s) is the expected reward
    in state s, which the learner knows. From round to round, P ← FᵀP. Rewards that arrive
    `memory` or more rounds late are discarded.

    Two vectors are stored for each of the last `memory` rounds, at index t mod `memory`: the log of the belief before
    the reward, and the log-likelihood of the reward in every state, which is 0 before the reward arrives. After a late
    reward, the beliefs of all later rounds are computed again, so that the order in which rewards arrive does not
    matter.

    Parameters
    ----------
    state_transition : array_like
        F, where F_ij is the probability that state j follows state i.
    state_std : float
        σ, the standard deviation of the rewards.
    state_prior : array_like, optional
        P_1. The default is uniform.
    memory : int
        A reward is discarded if it arrives this many rounds late, or later.

    References
    ----------
    Hong, Kveton, Zaheer, Chow, Ahmed, Ghavamzadeh & Boutilier (2020). Non-stationary latent bandits.
    """

    coordinates = "none"
    uses_time = True
    state_names = ("log_beliefs", "log_likelihoods", "last_round", "discarded_rewards")
    per_stream = ("_std", "_log_F", "_log_start")

    def __init__(
        self,
        streams: StreamBatch,
        *,
        state_transition: Annotated[ArrayLike, Arrays(1_000)],
        state_std: Annotated[ArrayLike, Arrays(1, axes=0)] = 1.0,
        state_prior: Annotated[ArrayLike | None, Arrays(1_000, axes=1)] = None,
        memory: Annotated[int, Integers(1, 1_000_000)] = 200,
    ) -> None:
        count, S = streams.count, np.shape(state_transition)[-1] if np.ndim(state_transition) >= 2 else 0
        if S == 0:
            raise invalid("state_transition", "a square matrix", f"shape {np.shape(state_transition)}")
        F = _distributions("state_transition", state_transition, count, (S, S))
        start = np.full(S, 1.0 / S) if state_prior is None else state_prior
        self.dimension = S
        self._std = stack_for_streams("state_std", state_std, count, ())
        if not self._std.min() > 0.0:
            raise invalid("state_std", "a finite number above 0", f"{self._std.min():g}")
        self._log_F = np.log(np.maximum(F, MIN_PROBABILITY))
        self._log_start = np.log(np.maximum(_distributions("state_prior", start, count, (S,)), MIN_PROBABILITY))
        self.log_beliefs = np.zeros((count, at_least("memory", memory, 1), S))
        self.log_likelihoods = np.zeros_like(self.log_beliefs)
        self.last_round = np.zeros(count, dtype=np.int64)
        self.discarded_rewards = np.zeros(count, dtype=np.int64)

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"last_round": (state["rounds"], state["rounds"]), "discarded_rewards": (0, state["rounds"])}

    def bind_learner(self, learner: Learner) -> None:
        if not isinstance(learner, Known):
            raise invalid(
                "learner", "a learner that knows the reward of every arm in every state", type(learner).__name__
            )
        self._learner = learner

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        memory = self.log_beliefs.shape[1]
        index, last = rounds % memory, (rounds - 1) % memory
        predicted = _transition(self.log_beliefs[rows, last], self.log_likelihoods[rows, last], self._log_F[rows])
        belief = np.where((rounds == 1)[:, None], self._log_start[rows], predicted)
        self.log_beliefs[rows, index], self.log_likelihoods[rows, index], self.last_round[rows] = belief, 0.0, rounds
        return np.asarray(np.exp(belief))

    def pass_rounds(self, rows: Ints, rounds: Ints, missing: Ints) -> Ints:
        """Process rounds without a reward. Long gaps are shortened to LONGEST_GAP."""
        missing = np.minimum(missing, LONGEST_GAP)
        observe_nothing(self, rows, rounds, missing, 0)
        return rounds + missing

    def update_from_rewards(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        memory = self.log_beliefs.shape[1]
        stored = self.last_round[rows] - rounds < memory
        np.add.at(self.discarded_rewards, rows[~stored], 1)
        rows, rounds, arms = rows[stored], rounds[stored], arms[stored]
        gap = np.minimum(
            np.abs(rewards[stored, None] - self._learner.arm_params[rows, arms]) / self._std[rows, None], 1e140
        )
        np.subtract.at(self.log_likelihoods, (rows, rounds % memory), 0.5 * gap * gap)
        late = rounds < self.last_round[rows]
        for row in np.unique(rows[late]):
            for t in range(rounds[late & (rows == row)].min(), self.last_round[row]):
                index = [t % memory]
                belief = _transition(self.log_beliefs[row, index], self.log_likelihoods[row, index], self._log_F[[row]])
                self.log_beliefs[row, (t + 1) % memory] = belief[0]

    def replace_rewards(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        memory = self.log_beliefs.shape[1]
        stored = self.last_round[rows] - rounds < memory
        self.log_likelihoods[rows[stored], rounds[stored] % memory] = 0.0
        self.update_from_rewards(rows, rounds, arms, rewards, learner)
        return features

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        discarded, memory = int(self.discarded_rewards[row]), self.log_beliefs.shape[1]
        notes = [f"rewards discarded because they arrived {memory} or more rounds late: {discarded}"]
        return {"rewards too late to count": discarded}, notes if discarded else []


def _distributions(argument: str, value: ArrayLike, count: int, shape: tuple[int, ...]) -> Floats:
    table = stack_for_streams(argument, value, count, shape)
    sums = table.sum(axis=-1)
    if table.min() < 0.0 or (np.abs(sums - 1.0) > 1e-6).any():
        raise invalid(
            argument,
            "probabilities that sum to 1",
            f"a smallest entry of {table.min():g} and a smallest sum of {sums.min():g}",
        )
    return table


def _normalise(logs: Floats) -> Floats:
    """Normalise distributions (n, S) that are given by their logarithms."""
    logs = logs - logs.max(axis=1, keepdims=True)
    return np.asarray(logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))


def _transition(log_belief: Floats, log_likelihood: Floats, log_F: Floats) -> Floats:
    """Return the log belief (n, S) of the next round, log Σ_i exp(log_belief_i + log_likelihood_i) F_ij, normalised."""
    paths = _normalise(log_belief + log_likelihood)[:, :, None] + log_F
    highest = paths.max(axis=1)
    return _normalise(highest + np.log(np.exp(paths - highest[:, None]).sum(axis=1)))
