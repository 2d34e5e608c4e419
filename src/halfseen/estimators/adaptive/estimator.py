"""The estimator that learns its model from the history of the stream (docs/mathematics.md, "The adaptive agent")."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from halfseen.components import (
    LONGEST_GAP,
    MAX_COUNT,
    Estimator,
    IntegerBounds,
    Learner,
    Mask,
    State,
    Stateful,
    StreamBatch,
    observe_nothing,
)
from halfseen.errors import invalid
from halfseen.estimators.adaptive.candidate_models import CandidateModels
from halfseen.estimators.adaptive.history import BREAK, MISSING, History
from halfseen.estimators.adaptive.upgrade import upgrade_arrays
from halfseen.estimators.filter_bank import predicted
from halfseen.kernels.adaptive import (
    MAX_CONTEXT,
    filter_round,
    kalman_step,
    predict_ahead,
    refit_due,
    store_rewards,
    stored_features,
)
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import HYPERPARAMETERS, ArmFit, Calibrated, most_wild
from halfseen.models.identification.order import free_parameters
from halfseen.models.identification.selection import (
    FARTHEST_ZERO,
    PLAIN_NOISE,
    RECENT,
    IdentifiedModel,
    Origins,
    centre_and_scale,
    prefer_zero,
    rebuild_model,
    select_model,
)
from halfseen.validation import Integers, Words, at_least, check_finite, check_range

FIRST_ROUNDS_PER_FEATURE, LEAST_FIRST_ROUNDS = 6, 20  # rounds before the first identification
FIRST_ARM_FIT = 8  # rewards before the first fit of the arms
ORIGIN_ROUNDS = 10  # the mean observation of this many first rounds is called the start of the stream
SURPRISE_ROUNDS = 40  # rounds over which `surprise` is averaged
# If an identification happens n rounds after `regime_start`, the next is due GROWTH·n rounds after `regime_start`, or
# LATE_GROWTH·n if n is at least LATE, but not earlier than MIN_STEP rounds after this one. Once the history has as many
# rounds as a fit may use, the next is due half that many rounds later.
GROWTH, LATE_GROWTH, LATE, MIN_STEP = 1.3, 1.5, 1000, 10
ARM_FIT_GROWTH = 1.25  # the factor by which the number of rewards grows from one fit of the arms to the next
# A change is detected if `surprise` exceeds CHANGE_THRESHOLD and at least CHANGE_MIN_ROUNDS rounds are stored.
CHANGE_THRESHOLD, CHANGE_MIN_ROUNDS = 2.5, 300
ROUNDS_AFTER_CHANGE = 10  # a change is assumed to have happened this many rounds before its detection
# An entry is left out of all fits if it differs from both neighbours in time, in the same direction, by more than SPIKE
# standard deviations of the changes between neighbours.
SPIKE = 20.0
RECENT_CHANGE = 500  # `health` mentions a change for this many rounds

_REGIME_ARRAYS = (
    "regime_start",
    "gap_rounds",
    "start_sum",
    "start_count",
)  # `accept` changes these only if a change of the dynamics was detected when the model was made
_MODEL_ARRAYS = (  # the result of identification; the rest of the state follows from it and the history
    "latent_dims", "transition", "process_cov", "observation_cov", "centre", "scale", "shift", "origin_at_start",
    "uses_raw_observation", "uses_level", "is_robust", "learns_on_filtered", "identified", "identifications",
    "next_identification", "next_arm_fit", "detected_changes", "failed_identifications", *_REGIME_ARRAYS,
)  # fmt: skip


def first_rounds(observed: int) -> int:
    """Return the number of rounds before the first identification."""
    return max(LEAST_FIRST_ROUNDS, FIRST_ROUNDS_PER_FEATURE * observed)


def least_history(observed: int) -> int:
    """Return the smallest allowed value of the option `history`."""
    return 4 * first_rounds(observed)


class Adaptive(Estimator):
    """A Kalman filter whose model is identified from the history of the stream.

    The dynamics, the noise, the number of hidden coordinates and the units need not be known. During the first rounds
    the context is the observation, centred and scaled. After that, full EM on the stored history gives candidate
    models, and AICc and the evidence of the rewards choose between them. This identification is repeated at growing
    intervals. After each identification, contexts and arms are computed again from the history, as if the model had
    always been known. Rewards also update the belief about the context. If the innovations become much larger than the
    model predicts, the dynamics have changed: the history before the change is dropped and the model is learnt again.

    Parameters
    ----------
    latent : int or "auto"
        d, the dimension of the context. "auto" chooses it.
    history : int
        The largest number of past rounds to which the model and the arms are fitted.
    refit : "inline" or "manual"
        Whether identification happens in the round in which it is due, or when `Agent.refit()` is called. With
        "manual", no decision takes long, but all arms have the same prediction before the first refit.
    """

    coordinates = "none"
    scales_observations = True
    uses_time = True
    state_names = (
        "latent_dims", "transition", "process_cov", "observation_cov", "belief_mean", "centre", "scale", "shift",
        "origin_at_start", "start_sum", "start_count", "uses_raw_observation", "identified", "identifications",
        "next_identification", "next_arm_fit", "surprise", "regime_start", "gap_rounds", "detected_changes",
        "failed_identifications", "discarded_rewards", "regime_rewards", "learns_on_filtered", "uses_level",
        "wild_entries", "is_robust",
    )  # fmt: skip
    nested = ("candidates", "history")

    def __init__(
        self,
        streams: StreamBatch,
        *,
        latent: Annotated[int | str, Integers(1, 1_000)] = "auto",
        history: Annotated[int, Integers(1, 1_000_000)] = 9000,
        refit: Annotated[str, Words(("inline", "manual"))] = "inline",
    ) -> None:
        count, k = streams.count, streams.observed
        if isinstance(latent, str) and latent != "auto":
            raise invalid("latent", f"an integer of at least {k}, or 'auto'", repr(latent))
        self._latent = None if isinstance(latent, str) else at_least("latent", latent, k)
        if refit not in ("inline", "manual"):
            raise invalid("refit", "'inline' or 'manual'", repr(refit))
        self._inline, self._streams = refit == "inline", streams
        self._first = first_rounds(k)
        self.candidates = CandidateModels(streams, self._latent)
        max_dimension = self.candidates.max_dimension
        self.dimension = max_dimension + 1
        self.history = History(streams, at_least("history", history, least_history(k)), self.dimension)
        # The model and the features.
        self.latent_dims = np.full(count, k)  # d, the dimension of the model of each stream
        self.transition = np.zeros((count, max_dimension * max_dimension))
        self.process_cov = np.zeros((count, max_dimension * max_dimension))
        self.observation_cov = np.zeros((count, k * k))
        self.belief_mean = np.zeros((count, max_dimension))  # the filtered context; its covariance is `_cov`
        self.centre, self.scale = np.zeros((count, k)), np.ones((count, k))  # the model describes (y − centre)/scale
        self.shift = np.zeros((count, max_dimension))  # added to contexts, so that 0 is the origin of the features
        # Whether the origin is the mean of the first ORIGIN_ROUNDS observations since `regime_start`, not the centre.
        # If the origin is 0 in the units of y (`Calibrated.through_zero`), `origin_at_start` says which of the other
        # two is better.
        self.origin_at_start = np.ones(count, dtype=np.bool_)
        self.start_sum = np.zeros((count, k))  # sum of the first ORIGIN_ROUNDS observations
        self.start_count = np.zeros((count, k))  # for each entry, how many of these observations have it
        self.uses_raw_observation = np.ones(count, dtype=np.bool_)  # the context is y, without a filter
        self.uses_level = np.zeros(count, dtype=np.bool_)  # the model is a random walk observed with noise
        # Whether innovations are weighted. This begins with the first identification or, in a state that version 0.2.0
        # has saved, with the next identification.
        self.is_robust = np.zeros(count, dtype=np.bool_)
        self.wild_entries = np.zeros(count, dtype=np.int64)  # entries of y with a weight below WILD
        self.learns_on_filtered = np.zeros(count, dtype=np.bool_)  # arms learn on filtered, not on smoothed contexts
        self.surprise = np.ones(count)  # running mean of the squared standardised innovations; its expectation is 1
        # When the next identification and the next arm fit are due, and the results so far.
        self.identified = np.zeros(count, dtype=np.bool_)  # whether there is a model
        self.regime_start = np.zeros(count, dtype=np.int64)  # number of rounds before the last detected change
        self.gap_rounds = np.zeros(count, dtype=np.int64)  # rounds of gaps since `regime_start`
        self.identifications = np.zeros(count, dtype=np.int64)
        self.next_identification = np.full(count, self._first)  # due this many rounds after `regime_start`
        self.regime_rewards = np.zeros(count, dtype=np.int64)  # rewards since `regime_start`
        self.next_arm_fit = np.full(count, FIRST_ARM_FIT)  # due this many rewards after `regime_start`
        self.detected_changes = np.zeros(count, dtype=np.int64)
        self.failed_identifications = np.zeros(count, dtype=np.int64)  # failures in a row
        self.discarded_rewards = np.zeros(count, dtype=np.int64)  # rewards whose round was no longer in the history
        for row in range(count):
            self._use_raw_observation(row)

    def integer_bounds(self, state: State) -> IntegerBounds:
        rounds = np.asarray(state["rounds"])
        return {
            "latent_dims": (self._streams.observed, self.candidates.max_dimension),
            "regime_start": (0, np.maximum(rounds - 1, 0)),
            "gap_rounds": (0, rounds),
            "regime_rewards": (0, rounds),
            "discarded_rewards": (0, rounds),
        }

    def check_consistency(self, state: State) -> None:
        check_range("state 'arms'", state["arms"], 0, self._learner.arms - 1)
        check_range("state 'learner.latent_dims'", state["learner.latent_dims"], *2 * (state["latent_dims"],))

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self._streams = streams

    def bind_learner(self, learner: Learner) -> None:
        if not isinstance(learner, Calibrated):
            raise invalid("learner", "Calibrated, which can be refitted with the model", type(learner).__name__)
        self._learner = learner

    @property
    def _cov(self) -> Floats:
        """The covariance of the belief.

        The array belongs to the learner, which needs it to compute the noise of a reward.
        """
        return self._learner.belief_cov

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        # The reward of a round updates the belief only if it arrives before the next observation.
        self._update_beliefs(rows, self.history.stored_rounds[rows] - 1)
        early = rounds - self.regime_start[rows] <= ORIGIN_ROUNDS
        if np.count_nonzero(early):
            self.start_sum[rows[early]] += np.nan_to_num(observations[early])
            self.start_count[rows[early]] += ~np.isnan(observations[early])
        history, features = self.history, np.empty((len(rows), self.dimension))
        history.make_room(rows)
        filter_round(
            rows, observations, self.centre, self.scale, history.observations, history.rewards, history.features,
            history.stored_rounds, self.latent_dims, self.transition, self.process_cov, self.observation_cov,
            self.belief_mean, self._cov, self.shift, self.surprise, SURPRISE_ROUNDS, self.is_robust,
            self.wild_entries, features,
        )  # fmt: skip
        return features

    def pass_rounds(self, rows: Ints, rounds: Ints, missing: Ints) -> Ints:
        """Process short gaps as rounds in which nothing is seen. After a long gap another series begins."""
        long = missing > LONGEST_GAP
        observe_nothing(self, rows[~long], rounds[~long], missing[~long], self._streams.observed)
        if long.any():
            late = rows[long]
            self._update_beliefs(late, self.history.stored_rounds[late] - 1)
            self.history.pass_long_gap(late)
            predict_ahead(
                late, missing[long], self.latent_dims, self.transition, self.process_cov, self.belief_mean, self._cov
            )
        passed = np.where(long, 1, missing)
        for row, count in zip(rows[~long].tolist(), passed[~long].tolist(), strict=True):
            stored = int(self.history.stored_rounds[row])
            self.history.gaps[row, stored - count : stored] = MISSING
        self.gap_rounds[rows] += passed
        return rounds + passed

    def look_again(self, rows: Ints, observations: Floats, rounds: Ints, contexts: Floats | None) -> Floats:
        """Update the belief by another observation of the same moment, stored as a separate round in the history."""
        models, surprise = (self.transition[rows], self.process_cov[rows]), self.surprise[rows]
        for row, y in zip(rows.tolist(), observations, strict=True):
            d = int(self.latent_dims[row])
            self.transition[row, : d * d], self.process_cov[row] = np.eye(d).ravel(), 0.0
            if self.uses_raw_observation[row]:  # what is seen now replaces what was seen before
                self.process_cov[row, : d * d] = np.diag(~np.isnan(y)).ravel()
        features = self.observe(rows, observations, rounds, False, contexts)
        self.transition[rows], self.process_cov[rows] = models
        self.surprise[rows] = surprise  # two observations of one moment say nothing about the dynamics
        return features

    def forecast(self, row: int, horizon: int) -> tuple[Floats, Floats]:
        model, p, rows = self.parameters(row), self.dimension, np.array([row])
        d = len(model.D)
        before = self.belief_mean[rows], self._cov[rows]
        self._update_beliefs(rows, self.history.stored_rounds[rows] - 1)  # use the last reward, as `observe` will do
        mean, cov = self.belief_mean[row, :d].copy(), self._cov[row, : d * d].reshape(d, d).copy()
        self.belief_mean[rows], self._cov[rows] = before
        means, covs = np.zeros((horizon, p)), np.zeros((horizon, p, p))
        means[:, 0] = 1.0
        means[:, 1 : d + 1], covs[:, 1 : d + 1, 1 : d + 1] = predicted(model.D, model.Q, mean, cov, horizon)
        means[:, 1:] += self.shift[row]
        return means, covs

    def _features(self, rows: Ints) -> Floats:
        features = np.empty((len(rows), self.dimension))
        features[:, 0] = 1.0
        features[:, 1:] = self.belief_mean[rows] + self.shift[rows]
        return features

    def _update_beliefs(self, rows: Ints, positions: Ints) -> None:
        """Update beliefs with the rewards at `positions` of the history, which are measurements of the context."""
        arms, rewards = self.history.arms, self.history.rewards
        self._learner.update_context(
            rows, positions, arms, rewards, self.belief_mean, self.shift, self.uses_raw_observation
        )

    def features_of(self, rows: Ints, rounds: Ints, features: Floats) -> Floats:
        stored = np.empty((len(rows), self.dimension))
        stored_features(rows, rounds, self.history.dropped_rounds, self.history.features, stored)
        return stored

    def update_from_rewards(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        history = self.history
        store_rewards(
            rows, rounds, arms, rewards, history.dropped_rounds, history.features, history.arms, history.rewards,
            self.regime_rewards, self.discarded_rewards,
        )  # fmt: skip

    def replace_rewards(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        """Replace those rewards in the history that the next fit will use. The belief is not changed."""
        positions = self.history.positions(rows, rounds)
        used = positions >= self.history.stored_rounds[rows] - self.history.rounds
        used &= self.history.has_features(rows, positions)
        stored = self.features_of(rows, rounds, features)
        stored[~used] = np.nan
        np.add.at(self.discarded_rewards, rows[~used], 1)
        self.history.rewards[rows[used], positions[used]] = rewards[used]
        return stored

    def _use_raw_observation(self, row: int, *, through_zero: bool = False) -> None:
        """Use y as the context, with the centre and scale of the stored history, as before the first identification."""
        k = self._streams.observed
        count = int(self.history.stored_rounds[row])
        self.latent_dims[row], self.uses_raw_observation[row], self.uses_level[row] = k, True, False
        self.transition[row] = self.process_cov[row] = self.observation_cov[row] = 0.0
        self.process_cov[row, : k * k] = np.eye(k).ravel()
        self.observation_cov[row] = (PLAIN_NOISE * np.eye(k)).ravel()
        self.belief_mean[row], self.shift[row] = 0.0, 0.0
        if count:
            ys = without_spikes(self.history.observations[row, :count])
            self.centre[row], self.scale[row] = centre_and_scale(ys)
            scaled = np.nan_to_num((ys - self.centre[row]) / self.scale[row])
            self.shift[row, :k] = self._origins(row, ys).shift(through_zero=through_zero)
            self.belief_mean[row, :k] = scaled[-1]
            variances = np.where(np.isnan(ys[-1]), 1.0, PLAIN_NOISE / (1.0 + PLAIN_NOISE))
            self._cov[row] = 0.0
            self._cov[row, : k * k] = np.diag(variances).ravel()
            self.history.features[row, :count] = 0.0
            self.history.features[row, :count, 0] = 1.0
            self.history.features[row, :count, 1 : k + 1] = scaled + self.shift[row, :k]
            self._learner.latent_dims[row] = k

    def _start_gap(self, row: int) -> Floats:
        """Return the difference between the centre and the start of the stream, in units of the scale."""
        observed = self.start_count[row] > 0
        start = self.start_sum[row] / np.maximum(self.start_count[row], 1)
        return np.asarray(np.where(observed, (self.centre[row] - start) / self.scale[row], 0.0))

    def _origins(self, row: int, ys: Floats) -> Origins:
        """Return the possible origins of contexts. The mean of a feature that never changes counts as 0."""
        zero_gap = np.where(np.nanmax(ys, axis=0, initial=-np.inf) > np.nanmin(ys, axis=0, initial=np.inf), 1.0, 0.0)
        zero_gap *= self.centre[row] / self.scale[row]
        near = bool((np.abs(zero_gap) <= FARTHEST_ZERO).all())
        return Origins(self._start_gap(row), zero_gap if near else None, bool(self.origin_at_start[row]))

    # ------------------------------------------------------------------ when to refit

    def due_for_refit(self, rows: Ints) -> Ints:
        return rows[self._refit_due(rows)] if self._inline else rows[:0]

    def _refit_due(self, rows: Ints) -> Mask:
        return self._due(rows)[0]

    def _change_detected(self, rows: Ints) -> Mask:
        return self._due(rows)[1]

    def _due(self, rows: Ints) -> tuple[Mask, Mask]:
        """Return for each stream whether a refit is due, and whether a change of the dynamics is detected."""
        due, changed, history = np.empty(len(rows), np.bool_), np.empty(len(rows), np.bool_), self.history
        refit_due(
            rows, history.dropped_rounds, history.stored_rounds, self.regime_start + self.gap_rounds,
            self.next_identification, self.regime_rewards, self.next_arm_fit, self.surprise, CHANGE_THRESHOLD,
            self.identified, CHANGE_MIN_ROUNDS, changed, due,
        )  # fmt: skip
        return due, changed

    def refit(self, rows: Ints, learner: Learner) -> None:
        """Do what is due for the streams: identification, or only a fit of the arms. Never raises."""
        for row in map(int, rows):
            if self._change_detected(np.array([row]))[0]:
                self._restart(row)
            elif self._age(row) >= self.next_identification[row]:
                self._identify(row)
            else:
                self._fit_arms(row)

    def refit_now(self, row: int) -> None:
        """Identify the model, whether this is due or not.

        If identification is not yet possible or fails, only fit the arms.
        """
        if self._change_detected(np.array([row]))[0]:
            self._restart(row)
        elif self._age(row) < self._first or not self._identify(row):
            self._fit_arms(row)

    def _age(self, row: int) -> int:
        """Return the number of rounds since `regime_start`, without the rounds of gaps."""
        rounds = self.history.dropped_rounds[row] + self.history.stored_rounds[row]
        return int(rounds - self.regime_start[row] - self.gap_rounds[row])

    def window(self, row: int) -> tuple[Floats, Ints, Floats, slice]:
        """Return observations, arms, rewards and positions of the stored rounds that are used for fitting."""
        count = int(self.history.stored_rounds[row])
        window = slice(max(0, count - self.history.rounds), count)
        return (
            self.history.observations[row, window],
            self.history.arms[row, window],
            self.history.rewards[row, window],
            window,
        )

    def parameters(self, row: int) -> Parameters:
        """Return the current model of (y − centre)/scale. Its initial state has mean 0 and covariance I."""
        d, k = int(self.latent_dims[row]), self._streams.observed
        D, Q = (matrix[row, : d * d].reshape(d, d).copy() for matrix in (self.transition, self.process_cov))
        R = self.observation_cov[row, : k * k].reshape(k, k).copy()
        return Parameters(D, Q, R, np.zeros(d), np.eye(d))

    def _fit_arms(self, row: int) -> None:
        """Fit the arms to the history. Before the first identification, also update centre, scale and origin."""
        ys, arms, rewards, window = self.window(row)
        learner, through_zero = self._learner, bool(self._learner.through_zero[row])
        rewards = learner.without_wild(row, self.history.features[row, window], arms, rewards)
        identified = bool(self.identified[row])
        if not identified:
            self._use_raw_observation(row)
            k = self._streams.observed
            contexts = self.history.features[row, window, 1 : k + 1] - self.shift[row, :k]
            reward_history, origins = learner.reward_history(arms, rewards), self._origins(row, ys)
            through_zero = reward_history.count >= FIRST_ARM_FIT and prefer_zero(contexts, origins, reward_history)
            if through_zero:
                self._use_raw_observation(row, through_zero=True)
        d = int(self.latent_dims[row])
        features = self.history.features[row, window, : d + 1]
        arm_fit = learner.fit(row, features, arms, rewards, warm=identified, through_zero=through_zero)
        if arm_fit is not None:
            learner.use_fit(row, d, arm_fit, through_zero=through_zero)
            self._fit_other(row, ys, features, arms, rewards, arm_fit, warm=identified)
        self._schedule_arm_fit(row)

    def _fit_other(
        self, row: int, ys: Floats, features: Floats, arms: Ints, rewards: Floats, arm_fit: ArmFit | None, *, warm: bool
    ) -> None:
        """Also fit the arms under the other origin.

        If 0 is not in use, the other origin is 0. If 0 is in use, the other origin is the centre or the start of the
        stream, as `origin_at_start` says.
        """
        learner, k = self._learner, self._streams.observed
        through_zero, origins = not learner.through_zero[row], self._origins(row, ys)
        if through_zero and origins.zero_gap is None:
            arm_fit = None
            shift = np.zeros(k)
        else:
            shift = origins.shift(through_zero=through_zero) - self.shift[row, :k]
        learner.fit_other(row, features, arms, rewards, arm_fit, through_zero=through_zero, shift=shift, warm=warm)

    def _schedule_arm_fit(self, row: int) -> None:
        self.next_arm_fit[row] = max(int(np.ceil(self.regime_rewards[row] * ARM_FIT_GROWTH)), FIRST_ARM_FIT)

    def _restart(self, row: int) -> None:
        """Drop the model and the history before a change of the dynamics."""
        seen = np.flatnonzero(self.history.gaps[row, : self.history.stored_rounds[row]] == 0)
        self.history.drop_oldest(row, int(seen[-ROUNDS_AFTER_CHANGE]) if len(seen) > ROUNDS_AFTER_CHANGE else 0)
        self.regime_start[row] = self.history.dropped_rounds[row]
        self._count_gap_rounds(row)
        self.detected_changes[row] += 1
        ys = self.history.observations[row, : self.history.stored_rounds[row]]
        self.start_sum[row], self.start_count[row] = np.nansum(ys, axis=0), (~np.isnan(ys)).sum(axis=0)
        self.candidates.reset(row)
        self.identified[row], self.origin_at_start[row], self.surprise[row] = False, True, 1.0
        self.is_robust[row] = False
        self.next_identification[row] = self._first
        self.regime_rewards[row] = self.history.reward_count(row)
        self._use_raw_observation(row)
        self._learner.use_fit(row, self._streams.observed, None)
        self._fit_arms(row)

    def _count_gap_rounds(self, row: int) -> None:
        """Count the rounds of gaps in the history, which begins at `regime_start`."""
        self.gap_rounds[row] = np.count_nonzero(self.history.gaps[row, : self.history.stored_rounds[row]])

    # ------------------------------------------------------------------ identification

    def _scaled(self, row: int, ys: Floats, window: slice) -> Floats:
        """Return observations (n, k) in the units of the model, with infinite entries where another series begins."""
        y = np.ascontiguousarray((ys - self.centre[row]) / self.scale[row])
        y[self.history.gaps[row, window] == BREAK] = np.inf
        return y

    def _identify(self, row: int) -> bool:
        """Identify a model from the history and use it. Returns False if identification fails."""
        ys, arms, rewards, window = self.window(row)
        ys = without_spikes(ys)
        rewards = self._learner.without_wild(row, self.history.features[row, window], arms, rewards)
        full = len(ys) >= self.history.rounds
        age = self._age(row)
        later = int(age * (GROWTH if age < LATE else LATE_GROWTH))
        rounds = self.history.rounds - int(np.count_nonzero(self.history.gaps[row, window]))  # without gaps
        self.next_identification[row] = max(age + rounds // 2 if full else later, age + MIN_STEP)
        centre, scale = centre_and_scale(ys)
        before = self.centre[row].copy(), self.scale[row].copy()
        self.centre[row], self.scale[row] = centre, scale
        y = self._scaled(row, ys, window)
        fits = self.candidates.fit(row, y, scale)
        level = self.candidates.fit_level(row, y, scale, in_use=bool(self.uses_level[row]))
        reward_history = self._learner.reward_history(arms, rewards)
        try:
            chosen = select_model(
                y,
                fits,
                origins=self._origins(row, ys),
                rewards=reward_history if reward_history.count >= FIRST_ARM_FIT else None,
                noisy=self.candidates.is_noisy,
                level=level,
            )
        except np.linalg.LinAlgError:
            chosen = None
        self.identifications[row] += 1
        if chosen is None or not _is_bounded(chosen):
            self.centre[row], self.scale[row] = before
            self.failed_identifications[row] += 1
            return False
        self._use_model(row, chosen, window, ys, y, arms, rewards)
        return True

    def _use_model(
        self, row: int, found: IdentifiedModel, window: slice, ys: Floats, y: Floats, arms: Ints, rewards: Floats
    ) -> None:
        """Continue with a new model of y = (ys − centre)/scale as if it had always been known."""
        model, learner = found.model, self._learner
        d, k = len(model.D), self._streams.observed
        if found.candidate >= 0:
            before = bool(self.uses_raw_observation[row]), bool(self.uses_level[row])
            in_use, as_before = not (found.plain or found.level), before == (found.plain, found.level)
            self.candidates.choose(row, found.candidate, as_before=as_before, in_use=in_use)
        self.latent_dims[row], self.uses_raw_observation[row], self.identified[row] = d, found.plain, True
        self.failed_identifications[row], self.uses_level[row], self.is_robust[row] = 0, found.level, True
        self.origin_at_start[row], self.learns_on_filtered[row] = found.origin_at_start, found.learns_on_filtered
        for array, matrix in ((self.transition, model.D), (self.process_cov, model.Q)):
            array[row] = 0.0
            array[row, : d * d] = matrix.ravel()
        self.observation_cov[row, : k * k] = model.R.ravel()
        self.shift[row] = 0.0
        self.shift[row, :d] = found.shift
        learner.smooth_cov[row] = 0.0
        learner.smooth_cov[row, : d * d] = found.smooth_cov.ravel()
        self._schedule_arm_fit(row)
        arm_fit = learner.fit(row, found.features, arms, rewards, warm=False, through_zero=found.through_zero)
        self._recompute_beliefs(row, found, window, y, arm_fit)
        self._fit_other(row, ys, found.features, arms, rewards, arm_fit, warm=False)

    def _recompute_beliefs(
        self, row: int, found: IdentifiedModel, window: slice, y: Floats, arm_fit: ArmFit | None
    ) -> None:
        """Set features, beliefs and arms to what they would be if the model had been used since the first round."""
        d = len(found.model.D)
        self.belief_mean[row], self._cov[row], self.surprise[row] = 0.0, 0.0, 1.0
        self.history.features[row] = 0.0
        self.history.features[row, window, : d + 1] = found.features
        self._learner.use_fit(row, d, arm_fit, through_zero=found.through_zero)
        self._replay_rewards(row, found, window, y)
        # The decision of the last round is based on the belief after the replay. But if the last round already has a
        # reward, the arms were fitted to the features of that round, so these features are kept.
        if np.isnan(self.history.rewards[row, window.stop - 1]):
            self.history.features[row, window.stop - 1] = self._features(np.array([row]))[0]

    def _replay_rewards(self, row: int, found: IdentifiedModel, window: slice, y: Floats) -> None:
        """Filter the last RECENT rounds again, with their rewards as additional measurements of the context."""
        d, n, rows, weights = len(found.model.D), len(y), np.array([row]), np.empty(self._streams.observed)
        start, cov = n, found.end_cov
        if self._learner.fitted[row] and not found.plain:
            start, cov = max(0, n - RECENT), found.recent_cov
        self.belief_mean[row, :d] = found.filtered[start]
        self._cov[row, : d * d] = (0.5 * (cov + cov.T)).ravel()
        for t in range(start, n):
            if t > start:
                self._update_beliefs(rows, np.array([window.start + t - 1]))
            if np.isinf(y[t, 0]):  # another series begins
                self.belief_mean[row, :d], self._cov[row, : d * d] = found.model.m0, found.model.P0.ravel()
                continue
            kalman_step(
                row, d, self.transition, self.process_cov, self.observation_cov, self.belief_mean, self._cov, y[t],
                bool(self.is_robust[row]), weights,
            )  # fmt: skip

    # ------------------------------------------------------------------ models from another process

    def is_refit_due(self, row: int) -> bool:
        return bool(self._refit_due(np.array([row]))[0])

    def _model_arrays(self) -> dict[str, tuple[Stateful, str]]:
        """Return a mapping from the name of every array in `model` to the owner and the attribute name of the array."""
        owners = (
            (self, "", _MODEL_ARRAYS),
            (self.candidates, "", CandidateModels.state_names),
            (self._learner, "learner.", HYPERPARAMETERS),
        )
        return {f"{prefix}{name}": (owner, name) for owner, prefix, names in owners for name in names}

    def model(self, row: int) -> State:
        return {key: getattr(owner, name)[row].copy() for key, (owner, name) in self._model_arrays().items()}

    def accept(self, row: int, model: State) -> None:
        model = upgrade_arrays(model, "")
        given = {key: np.asarray(model.get(key)) for key in self._model_arrays()}
        for prefix in ("", "other_"):
            key = f"learner.{prefix}noise_var"
            given[key] = self._noise_of_all_arms(given[key], given[f"learner.{prefix}pooled_noise_var"])
        for key, mine in self.model(row).items():
            if given[key].dtype != mine.dtype or given[key].shape != mine.shape:
                raise invalid(f"model '{key}'", f"{mine.dtype} {mine.shape}", f"{given[key].dtype} {given[key].shape}")
        rounds = {"rounds": self.history.dropped_rounds[[row]] + self.history.stored_rounds[[row]]}
        for key, (owner, name) in self._model_arrays().items():
            if given[key].dtype.kind == "i":
                check_range(f"model '{key}'", given[key], *owner.integer_bounds(rounds).get(name, (0, MAX_COUNT)))
            elif given[key].dtype.kind == "f":
                check_finite(f"model '{key}'", given[key])
        check_range("model 'learner.latent_dims'", given["learner.latent_dims"], *2 * (given["latent_dims"],))
        restarted = int(given["regime_start"]) > int(self.regime_start[row])
        if restarted:
            self.history.drop_oldest(row, max(0, int(given["regime_start"]) - int(self.history.dropped_rounds[row])))
            self.regime_rewards[row] = self.history.reward_count(row)
            self._count_gap_rounds(row)
        _, arms, rewards, window = self.window(row)
        rewards = self._learner.without_wild(row, self.history.features[row, window], arms, rewards)
        for key, (owner, name) in self._model_arrays().items():
            if key != "gap_rounds" and (restarted or key not in _REGIME_ARRAYS):
                getattr(owner, name)[row] = given[key]
        self._fold_history(row, rewards)

    def _noise_of_all_arms(self, noise: NDArray[np.generic], pooled: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the noise variances of a model, with the pooled variance for arms that were added after its fit."""
        added = self._learner.arms - noise.size
        if noise.ndim == 1 and added > 0 and pooled.size == 1:
            return np.append(noise, np.full(added, pooled))
        return noise

    def _fold_history(self, row: int, rewards: Floats) -> None:
        """Compute beliefs and arms again from the stored history, with the current model and hyperparameters."""
        ys, arms, _, window = self.window(row)
        learner, k = self._learner, self._streams.observed
        through_zero, fixed = bool(learner.through_zero[row]), {"warm": True, "fixed_hyperparameters": True}
        other = {"through_zero": not through_zero, "shift": learner.other_shift[row].copy(), **fixed}
        if not self.identified[row]:
            fitted = bool(learner.fitted[row])
            self._use_raw_observation(row, through_zero=through_zero)
            features = self.history.features[row, window, : k + 1]
            arm_fit = learner.fit(row, features, arms, rewards, through_zero=through_zero, **fixed) if fitted else None
            learner.use_fit(row, k, arm_fit, through_zero=through_zero)
            learner.fit_other(row, features, arms, rewards, arm_fit, **other)
            return
        y = self._scaled(row, without_spikes(ys), window)
        found = rebuild_model(
            self.parameters(row),
            y,
            shift=self.shift[row, : self.latent_dims[row]].copy(),
            plain=bool(self.uses_raw_observation[row]),
            through_zero=through_zero,
            origin_at_start=bool(self.origin_at_start[row]),
            learns_on_filtered=bool(self.learns_on_filtered[row]),
        )
        arm_fit = None
        if learner.fitted[row]:
            arm_fit = learner.fit(row, found.features, arms, rewards, through_zero=through_zero, **fixed)
        self._recompute_beliefs(row, found, window, y, arm_fit)
        learner.fit_other(row, found.features, arms, rewards, arm_fit, **other)

    # ------------------------------------------------------------------ health

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        notes, facts = [], self._facts(row)
        if not self.identified[row] and self._age(row) > self.next_identification[row]:
            notes.append(
                "no model has been identified yet although one is due; until refit() is called the agent decides on "
                "the raw observation"
            )
        if not self._learner.fitted[row] and self.regime_rewards[row] > self.next_arm_fit[row]:
            notes.append(
                "no reward has been learnt yet although a fit of the arms is due; until refit() is called arms are "
                "chosen uniformly at random"
            )
        if self.failed_identifications[row]:
            failed = int(self.failed_identifications[row])
            notes.append(f"identification failed {failed} times in a row; the last model is still used")
        if self.detected_changes[row] and self._age(row) < RECENT_CHANGE:
            start = int(self.regime_start[row]) + 1
            notes.append(f"the dynamics have changed; the model is learnt again from round {start} on")
        if self.discarded_rewards[row]:
            discarded = int(self.discarded_rewards[row])
            notes.append(f"rewards discarded because their round was no longer in the history: {discarded}")
        numbers = int(np.isfinite(self.history.observations[row, : self.history.stored_rounds[row]]).sum())
        needed = 0 if self._latent is None else 2 * free_parameters(self._latent, self._streams.observed)
        if self.identified[row] and numbers < needed:
            notes.append(f"latent={self._latent} has too many parameters for {numbers} observed numbers")
        return facts, notes + self.history.notes(row)

    def _facts(self, row: int) -> dict[str, object]:
        candidate = int(self.candidates.chosen_candidate[row])
        best = self.candidates.dimensions[candidate] if candidate >= 0 else None
        return {
            "rounds kept": int(self.history.stored_rounds[row]),
            "identifications": int(self.identifications[row]),
            "rounds to the next": max(0, int(self.next_identification[row]) - self._age(row)),
            "hidden coordinates": int(self.latent_dims[row]) - self._streams.observed,
            "dimension that fits the observations best": best,
            "context": "the observation itself" if self.uses_raw_observation[row] else "filtered",
            "surprise (1 is as expected)": float(self.surprise[row]),
            "changes of the dynamics noticed": int(self.detected_changes[row]),
            "entries far from their prediction": int(self.wild_entries[row]),
        }


def without_spikes(ys: Floats) -> Floats:
    """Return observations (n, k) with NaN in place of spikes.

    A spike is an entry far above, or far below, both the entry before and the entry after it.

    The spikes of a feature are kept if the feature has few values. They are also kept if there are many of them,
    because they are then not errors.
    """
    kept = ys
    for i, column in enumerate(ys.T):
        observed = np.flatnonzero(~np.isnan(column))
        if len(observed) < 3:
            continue
        steps = np.diff(column[observed])
        typical = np.median(np.abs(steps)) / 0.6745
        if not typical > 0.0:
            continue
        before, after = np.append(steps[0], steps), np.append(-steps, steps[-1])
        far = (np.minimum(np.abs(before), np.abs(after)) > SPIKE * typical) & (before * np.sign(after) > 0.0)
        if 0 < int(far.sum()) <= most_wild(len(observed)):
            kept = kept.copy() if kept is ys else kept
            kept[observed[far], i] = np.nan
    return kept


def _is_bounded(found: IdentifiedModel) -> bool:
    """Return whether contexts and covariances under the model stay within limits, so that no variance overflows."""
    covs = (found.model.Q, found.recent_cov, found.end_cov, found.smooth_cov)
    return bool(
        all((np.abs(cov) <= MAX_CONTEXT * MAX_CONTEXT).all() for cov in covs)
        and (np.abs(found.filtered) <= MAX_CONTEXT).all()
        and (np.abs(found.features) <= MAX_CONTEXT).all()
    )
