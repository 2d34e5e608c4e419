"""The estimator that is told nothing: it keeps a history, and learns from it the model it filters with.

docs/mathematics.md, "The adaptive agent". The first rounds are taken as they come, in running units. From then on
full EM on the kept history, at rounds that are further and further apart, gives the dynamics, the noise and the number
of hidden coordinates; contexts and arms are then folded anew, so that the state is what it would be had the model been
known all along. A model that no longer predicts is dropped, and with it the history before the change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from halfseen.components import MAX_COUNT, Estimator, IntegerBounds, Learner, Mask, State, Stateful, StreamBatch
from halfseen.errors import invalid
from halfseen.estimators.adaptive.candidate_models import CandidateModels
from halfseen.estimators.adaptive.history import History
from halfseen.kernels.adaptive import filter_round, kalman_step, update_context
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import HYPERPARAMETERS, ArmFit, Calibrated, RewardHistory
from halfseen.models.identification.order import free_parameters
from halfseen.models.identification.selection import (
    PLAIN_NOISE,
    RECENT,
    IdentifiedModel,
    centre_and_scale,
    rebuild_model,
    select_model,
)
from halfseen.validation import at_least, check_range

FIRST_ROUNDS_PER_FEATURE, LEAST_FIRST_ROUNDS = 6, 20  # rounds before the first identification
FIRST_ARM_FIT = 8  # rewards at which the arms' hyperparameters are found for the first time
ORIGIN_ROUNDS = 10  # whose mean is where the stream began
MEMORY = 40  # rounds of mean surprise
GROWTH, LATE_GROWTH, LEAST_STEP = 1.3, 1.5, 10  # from one identification to the next
LATE = 1000  # rounds
ARM_FIT_GROWTH = 1.25  # of the rewards at which the arms' hyperparameters are found again
CHANGE_THRESHOLD, CHANGE_MIN_ROUNDS = 2.5, 300  # the mean surprise that is a change, rounds of history it takes
KEPT_AT_CHANGE = 10  # rounds before the detection that are taken to be after the change
RECENT_CHANGE = 500  # rounds for which `health` speaks of a change

_RESTARTED = ("regime_start", "start_sum", "start_count")  # which identification moves only when it starts again
_MODEL_ARRAYS = (  # what identification decides; all other state is folded from the history
    "latent_dims", "transition", "process_cov", "observation_cov", "centre", "scale", "shift", "origin_at_start",
    "uses_raw_observation", "learns_on_filtered", "identified", "identifications", "next_identification",
    "next_arm_fit", "detected_changes", "failed_identifications", *_RESTARTED,
)  # fmt: skip


class Adaptive(Estimator):
    """`latent` is d, or "auto"; `history` how many rounds are kept; `refit` is "inline" or "manual".

    Inline, identification is part of the round in which it falls due. With "manual" it waits for `Agent.refit()`, and
    so do the hyperparameters of the arms: no decision takes long, and before the first refit all arms look the same.
    """

    coordinates = "none"  # its coordinates are its own
    state_names = (
        "latent_dims", "transition", "process_cov", "observation_cov", "belief_mean", "centre", "scale", "shift",
        "origin_at_start", "start_sum", "start_count", "uses_raw_observation", "identified", "identifications",
        "next_identification", "next_arm_fit", "surprise", "regime_start", "detected_changes",
        "failed_identifications", "discarded_rewards", "regime_rewards", "learns_on_filtered",
    )  # fmt: skip
    parts = ("candidates", "history")

    def __init__(
        self, streams: StreamBatch, *, latent: int | str = "auto", history: int = 9000, refit: str = "inline"
    ) -> None:
        count, k = streams.count, streams.observed
        if isinstance(latent, str) and latent != "auto":
            raise invalid("latent", f"an integer of at least {k}, or 'auto'", repr(latent))
        self._latent = None if isinstance(latent, str) else at_least("latent", latent, k)
        if refit not in ("inline", "manual"):
            raise invalid("refit", "'inline' or 'manual'", repr(refit))
        self._inline, self._streams = refit == "inline", streams
        self._first = max(LEAST_FIRST_ROUNDS, FIRST_ROUNDS_PER_FEATURE * k)
        self.candidates = CandidateModels(streams, self._latent)
        max_dimension = self.candidates.max_dimension
        self.dimension = max_dimension + 1
        self.history = History(streams, at_least("history", history, 4 * self._first), self.dimension)
        # The model, and what the features are made with.
        self.latent_dims = np.full(count, k)  # d, the dimension of the model
        self.transition = np.zeros((count, max_dimension * max_dimension))
        self.process_cov = np.zeros((count, max_dimension * max_dimension))
        self.observation_cov = np.zeros((count, k * k))
        self.belief_mean = np.zeros(
            (count, max_dimension)
        )  # the filtered context; its covariance is the learner's `belief_cov`
        self.centre, self.scale = np.zeros((count, k)), np.ones((count, k))  # of the units that y is filtered in
        self.shift = np.zeros((count, max_dimension))  # added to contexts: from the centre to the origin of features
        self.origin_at_start = np.ones(count, dtype=np.bool_)  # that origin is where the stream began, not its centre
        self.start_sum = np.zeros((count, k))  # of each entry over the first ORIGIN_ROUNDS rounds since `regime_start`
        self.start_count = np.zeros((count, k))  # how often it was seen in them
        self.uses_raw_observation = np.ones(
            count, dtype=np.bool_
        )  # the context is the observation itself, not a filtered one
        self.learns_on_filtered = np.zeros(
            count, dtype=np.bool_
        )  # arms learn on filtered contexts, not on smoothed ones
        self.surprise = np.ones(count)  # running mean of the squared standardised prediction errors; 1 is as expected
        # When identification and the arms' hyperparameters are due, and what came of it so far.
        self.identified = np.zeros(count, dtype=np.bool_)
        self.regime_start = np.zeros(count, dtype=np.int64)  # rounds before the last change of the dynamics
        self.identifications = np.zeros(count, dtype=np.int64)  # identifications so far
        self.next_identification = np.full(
            count, self._first
        )  # rounds since `regime_start` at which the next identification is due
        self.regime_rewards = np.zeros(count, dtype=np.int64)  # rewards that came since `regime_start`
        self.next_arm_fit = np.full(
            count, FIRST_ARM_FIT
        )  # `regime_rewards` at which the hyperparameters are found again
        self.detected_changes = np.zeros(count, dtype=np.int64)  # changes of the dynamics that were detected
        self.failed_identifications = np.zeros(
            count, dtype=np.int64
        )  # identifications that failed since the last that did not
        self.discarded_rewards = np.zeros(
            count, dtype=np.int64
        )  # rewards that came when their round was no longer kept
        for row in range(count):
            self._use_raw_observation(row)

    def integer_bounds(self, state: State) -> IntegerBounds:
        rounds = state["rounds"] if "rounds" in state else state["dropped_rounds"] + state["stored_rounds"]
        return {"latent_dims": (self._streams.observed, self.candidates.max_dimension), "regime_start": (0, rounds)}

    def check_consistency(self, state: State) -> None:
        check_range("state 'arms'", state["arms"], 0, self._learner.arms - 1)

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self._streams = streams

    def bind_learner(self, learner: Learner) -> None:
        if not isinstance(learner, Calibrated):
            raise invalid("learner", "Calibrated: it is refitted with the model", type(learner).__name__)
        self._learner = learner

    @property
    def _cov(self) -> Floats:
        """The covariance of the belief is one array: the filter's, and that by which the learner judges a reward."""
        return self._learner.belief_cov

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        self._update_from_last_reward(rows)
        early = rounds - self.regime_start[rows] <= ORIGIN_ROUNDS
        if early.any():
            self.start_sum[rows[early]] += np.nan_to_num(observations[early])
            self.start_count[rows[early]] += ~np.isnan(observations[early])
        history, features = self.history, np.empty((len(rows), self.dimension))
        history.make_room(rows)
        filter_round(
            rows, observations, self.centre, self.scale, history.observations, history.rewards, history.features,
            history.stored_rounds, self.latent_dims, self.transition, self.process_cov, self.observation_cov,
            self.belief_mean, self._cov, self.shift, self.surprise, MEMORY, features,
        )  # fmt: skip
        return features

    def _features(self, rows: Ints) -> Floats:
        features = np.empty((len(rows), self.dimension))
        features[:, 0] = 1.0
        features[:, 1:] = self.belief_mean[rows] + self.shift[rows]
        return features

    def _update_from_last_reward(self, rows: Ints) -> None:
        """The rewards of the round that ends now, as a sensor of its context. Those that come later are not heard."""
        listens = self._learner.fitted[rows] & ~self.uses_raw_observation[rows]
        if listens.any():
            self._update_beliefs(rows[listens], self.history.stored_rounds[rows[listens]] - 1)

    def _update_beliefs(self, rows: Ints, slots: Ints) -> None:
        learner, history = self._learner, self.history
        update_context(
            rows, slots, history.arms, history.rewards, learner.reward_origin, self.latent_dims, learner.mean,
            learner.cov, learner.slopes, learner.noise_var, learner.smooth_cov, self.belief_mean, self._cov, self.shift,
        )  # fmt: skip

    def features_of(self, rows: Ints, rounds: Ints, features: Floats) -> Floats:
        slots = self.history.positions(rows, rounds)
        known = self.history.features[rows, np.maximum(slots, 0)]
        known[~self.history.has_features(rows, slots)] = np.nan
        return known

    def update_from_rewards(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        slots = self.history.positions(rows, rounds)
        in_history = self.history.has_features(rows, slots)
        if not in_history.all():
            np.add.at(self.discarded_rewards, rows[~in_history], 1)
            rows, slots, arms, rewards = rows[in_history], slots[in_history], arms[in_history], rewards[in_history]
        np.add.at(self.regime_rewards, rows, 1)
        self.history.arms[rows, slots] = arms
        self.history.rewards[rows, slots] = rewards

    def replace_rewards(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        """Rounds that the next fit will not look at stay as they are. What was heard of the context stays heard."""
        slots = self.history.positions(rows, rounds)
        in_window = self.history.has_features(rows, slots) & (
            slots >= self.history.stored_rounds[rows] - self.history.rounds
        )
        known = self.features_of(rows, rounds, features)
        known[~in_window] = np.nan
        np.add.at(self.discarded_rewards, rows[~in_window], 1)
        self.history.rewards[rows[in_window], slots[in_window]] = rewards[in_window]
        return known

    def _use_raw_observation(self, row: int) -> None:
        """y in running units is the context: what is done until there is enough to identify a model from."""
        k = self._streams.observed
        count = int(self.history.stored_rounds[row])
        self.latent_dims[row], self.uses_raw_observation[row] = k, True
        self.transition[row] = self.process_cov[row] = self.observation_cov[row] = 0.0
        self.process_cov[row, : k * k] = np.eye(k).ravel()
        self.observation_cov[row] = (PLAIN_NOISE * np.eye(k)).ravel()
        self.belief_mean[row], self.shift[row] = 0.0, 0.0
        if count:
            ys = self.history.observations[row, :count]
            self.centre[row], self.scale[row] = centre_and_scale(ys)
            scaled = np.nan_to_num((ys - self.centre[row]) / self.scale[row])
            self.shift[row, :k] = self._start_gap(row)
            self.belief_mean[row, :k] = scaled[-1]
            variances = np.where(np.isnan(ys[-1]), 1.0, PLAIN_NOISE / (1.0 + PLAIN_NOISE))
            self._cov[row] = 0.0
            self._cov[row, : k * k] = np.diag(variances).ravel()
            self.history.features[row, :count] = 0.0
            self.history.features[row, :count, 0] = 1.0
            self.history.features[row, :count, 1 : k + 1] = scaled + self.shift[row, :k]
            self._learner.latent_dims[row] = k

    def _start_gap(self, row: int) -> Floats:
        """From where the stream began to its centre, in units."""
        known = self.start_count[row] > 0
        began = self.start_sum[row] / np.maximum(self.start_count[row], 1)
        return np.asarray(np.where(known, (self.centre[row] - began) / self.scale[row], 0.0))

    # ------------------------------------------------------------------ when to refit

    def due_for_refit(self, rows: Ints) -> Ints:
        return rows[self._refit_due(rows)] if self._inline else rows[:0]

    def _refit_due(self, rows: Ints) -> Mask:
        age = self.history.dropped_rounds[rows] + self.history.stored_rounds[rows] - self.regime_start[rows]
        due = (age >= self.next_identification[rows]) | (self.regime_rewards[rows] >= self.next_arm_fit[rows])
        above_threshold = self.surprise[rows] > CHANGE_THRESHOLD  # seldom: the rest of the question is then not asked
        return np.asarray(due | self._change_detected(rows) if above_threshold.any() else due)

    def _change_detected(self, rows: Ints) -> Mask:
        return np.asarray(
            (self.surprise[rows] > CHANGE_THRESHOLD)
            & self.identified[rows]
            & (self.history.stored_rounds[rows] >= CHANGE_MIN_ROUNDS)
        )

    def refit(self, rows: Ints, learner: Learner) -> None:
        """Whatever is due for the streams: identification, or only the arms' hyperparameters. Never raises."""
        for row in map(int, rows):
            if self._change_detected(np.array([row]))[0]:
                self._restart(row)
            elif self._age(row) >= self.next_identification[row]:
                self._identify(row)
            else:
                self._fit_hyperparameters(row)

    def refit_now(self, row: int) -> None:
        """Identify now, whether it is due or not; where that is too early or fails, the arms' hyperparameters only."""
        if self._change_detected(np.array([row]))[0]:
            self._restart(row)
        elif self._age(row) < self._first or not self._identify(row):
            self._fit_hyperparameters(row)

    def _age(self, row: int) -> int:
        return int(self.history.dropped_rounds[row] + self.history.stored_rounds[row] - self.regime_start[row])

    def window(self, row: int) -> tuple[Floats, Ints, Floats, slice]:
        """The observations, arms and rewards of the rounds that fits use, and the slots of the history they lie in."""
        count = int(self.history.stored_rounds[row])
        window = slice(max(0, count - self.history.rounds), count)
        return (
            self.history.observations[row, window],
            self.history.arms[row, window],
            self.history.rewards[row, window],
            window,
        )

    def parameters(self, row: int) -> Parameters:
        """The model in force, in running units; it starts from 0 with covariance I."""
        d, k = int(self.latent_dims[row]), self._streams.observed
        D, Q = (matrix[row, : d * d].reshape(d, d).copy() for matrix in (self.transition, self.process_cov))
        R = self.observation_cov[row, : k * k].reshape(k, k).copy()
        return Parameters(D, Q, R, np.zeros(d), np.eye(d))

    def _fit_hyperparameters(self, row: int) -> None:
        """New hyperparameters for the arms; before the first identification, new units as well."""
        _, arms, rewards, window = self.window(row)
        if not self.identified[row]:
            self._use_raw_observation(row)
        size = int(self.latent_dims[row])
        features = self.history.features[row, window, : size + 1]
        found = self._learner.fit(row, features, arms, rewards, warm=bool(self.identified[row]))
        if found is not None:
            self._learner.use_fit(row, size, found)
        self._schedule_arm_fit(row)

    def _schedule_arm_fit(self, row: int) -> None:
        self.next_arm_fit[row] = max(int(np.ceil(self.regime_rewards[row] * ARM_FIT_GROWTH)), FIRST_ARM_FIT)

    def _restart(self, row: int) -> None:
        """The model has stopped predicting: what was before the change is forgotten."""
        self.history.drop_oldest(row, max(0, int(self.history.stored_rounds[row]) - KEPT_AT_CHANGE))
        self.regime_start[row] = self.history.dropped_rounds[row]
        self.detected_changes[row] += 1
        ys = self.history.observations[row, : self.history.stored_rounds[row]]
        self.start_sum[row], self.start_count[row] = np.nansum(ys, axis=0), (~np.isnan(ys)).sum(axis=0)
        self.candidates.reset(row)
        self.identified[row], self.origin_at_start[row], self.surprise[row] = False, True, 1.0
        self.next_identification[row] = self._first
        self.regime_rewards[row] = self.history.reward_count(row)
        self._use_raw_observation(row)
        self._learner.use_fit(row, self._streams.observed, None)
        self._fit_hyperparameters(row)

    # ------------------------------------------------------------------ identification

    def _identify(self, row: int) -> bool:
        ys, arms, rewards, window = self.window(row)
        full = len(ys) >= self.history.rounds
        age = self._age(row)
        later = int(age * (GROWTH if age < LATE else LATE_GROWTH))
        self.next_identification[row] = age + self.history.rounds // 2 if full else max(later, age + LEAST_STEP)
        centre, scale = centre_and_scale(ys)
        before = self.centre[row].copy(), self.scale[row].copy()
        self.centre[row], self.scale[row] = centre, scale
        y = np.ascontiguousarray((ys - centre) / scale)
        fits = self.candidates.fit(row, y, scale)
        reward_history = RewardHistory(arms, rewards, self._learner.arms)
        gap, preferred = self._start_gap(row), bool(self.origin_at_start[row])
        try:
            found = select_model(
                y,
                fits,
                start_gap=gap,
                origin_at_start=preferred,
                rewards=reward_history if reward_history.count >= FIRST_ARM_FIT else None,
                noisy=self.candidates.is_noisy,
            )
        except np.linalg.LinAlgError:
            found = None
        self.identifications[row] += 1
        if found is None:
            self.centre[row], self.scale[row] = before
            self.failed_identifications[row] += 1
            return False
        self._use_model(row, found, window, y, arms, rewards)
        return True

    def _use_model(
        self, row: int, found: IdentifiedModel, window: slice, y: Floats, arms: Ints, rewards: Floats
    ) -> None:
        """Go on as if the model found had been known all along."""
        model, learner = found.model, self._learner
        d, k = len(model.D), self._streams.observed
        if found.candidate >= 0:
            self.candidates.choose(row, found.candidate, as_before=bool(self.uses_raw_observation[row]) == found.plain)
        self.latent_dims[row], self.uses_raw_observation[row], self.identified[row] = d, found.plain, True
        self.failed_identifications[row] = 0
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
        self._fold_under(row, found, window, y, learner.fit(row, found.features, arms, rewards, warm=False))

    def _fold_under(self, row: int, found: IdentifiedModel, window: slice, y: Floats, arms: ArmFit | None) -> None:
        """Beliefs and arms as they would be had the model been in force from the first round kept."""
        d = len(found.model.D)
        self.belief_mean[row], self._cov[row], self.surprise[row] = 0.0, 0.0, 1.0
        self.history.features[row] = 0.0
        self.history.features[row, window, : d + 1] = found.features
        self._learner.use_fit(row, d, arms)
        self._replay_rewards(row, found, window, y)
        if np.isnan(self.history.rewards[row, window.stop - 1]):  # a reward there was fitted on what it was found with
            self.history.features[row, window.stop - 1] = self._features(np.array([row]))[0]

    def _replay_rewards(self, row: int, found: IdentifiedModel, window: slice, y: Floats) -> None:
        """Filter the last rounds once more, now with their rewards as a sensor."""
        d, n, rows = len(found.model.D), len(y), np.array([row])
        start, cov = n, found.end_cov
        if self._learner.fitted[row] and not found.plain:
            start, cov = max(0, n - RECENT), found.recent_cov
        self.belief_mean[row, :d] = found.filtered[start]
        self._cov[row, : d * d] = (0.5 * (cov + cov.T)).ravel()
        for t in range(start, n):
            if t > start:
                self._update_beliefs(rows, np.array([window.start + t - 1]))
            kalman_step(
                row, d, self.transition, self.process_cov, self.observation_cov, self.belief_mean, self._cov, y[t]
            )

    # ------------------------------------------------------------------ a model from elsewhere

    def is_refit_due(self, row: int) -> bool:
        return bool(self._refit_due(np.array([row]))[0])

    def _model_arrays(self) -> dict[str, tuple[Stateful, str]]:
        """Where each array lies that identification decides on, by the name it travels under."""
        holders = (
            (self, "", _MODEL_ARRAYS),
            (self.candidates, "", CandidateModels.state_names),
            (self._learner, "learner.", HYPERPARAMETERS),
        )
        return {f"{prefix}{name}": (holder, name) for holder, prefix, names in holders for name in names}

    def model(self, row: int) -> State:
        return {key: getattr(holder, name)[row].copy() for key, (holder, name) in self._model_arrays().items()}

    def accept(self, row: int, model: State) -> None:
        given = {key: np.asarray(model.get(key)) for key in self._model_arrays()}
        given["learner.noise_var"] = self._noise_of_all(given)
        for key, mine in self.model(row).items():
            if given[key].dtype != mine.dtype or given[key].shape != mine.shape:
                raise invalid(f"model '{key}'", f"{mine.dtype} {mine.shape}", f"{given[key].dtype} {given[key].shape}")
        bounds = {name: getattr(self.history, name)[row : row + 1] for name in ("dropped_rounds", "stored_rounds")}
        for key, (holder, name) in self._model_arrays().items():
            if given[key].dtype.kind == "i":
                check_range(f"model '{key}'", given[key], *holder.integer_bounds(bounds).get(name, (0, MAX_COUNT)))
        restarted = int(given["regime_start"]) > int(self.regime_start[row])
        if restarted:
            self.history.drop_oldest(row, max(0, int(given["regime_start"]) - int(self.history.dropped_rounds[row])))
            self.regime_rewards[row] = self.history.reward_count(row)
        for key, (holder, name) in self._model_arrays().items():
            if restarted or key not in _RESTARTED:
                getattr(holder, name)[row] = given[key]
        self._fold_history(row)

    def _noise_of_all(self, model: State) -> NDArray[np.generic]:
        """The noise of every arm there is now: of those that came since, what is said of an arm without a reward."""
        noise, pooled = model["learner.noise_var"], model["learner.pooled_noise_var"]
        missing = self._learner.arms - noise.size
        return (
            np.append(noise, np.full(missing, pooled))
            if noise.ndim == 1 and missing > 0 and pooled.size == 1
            else noise
        )

    def _fold_history(self, row: int) -> None:
        """Beliefs and arms of the kept history under the model and the hyperparameters in force."""
        ys, arms, rewards, window = self.window(row)
        if not self.identified[row]:
            self._use_raw_observation(row)
            features = self.history.features[row, window, : self._streams.observed + 1]
            arm_fit = self._learner.fit(row, features, arms, rewards, warm=True, fixed_hyperparameters=True)
            self._learner.use_fit(row, self._streams.observed, arm_fit if self._learner.fitted[row] else None)
            return
        y = np.ascontiguousarray((ys - self.centre[row]) / self.scale[row])
        found = rebuild_model(
            self.parameters(row),
            y,
            shift=self.shift[row, : self.latent_dims[row]].copy(),
            plain=bool(self.uses_raw_observation[row]),
            origin_at_start=bool(self.origin_at_start[row]),
            learns_on_filtered=bool(self.learns_on_filtered[row]),
        )
        arm_fit = None
        if self._learner.fitted[row]:
            arm_fit = self._learner.fit(row, found.features, arms, rewards, warm=True, fixed_hyperparameters=True)
        self._fold_under(row, found, window, y, arm_fit)

    # ------------------------------------------------------------------ health

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        notes, facts = [], self._facts(row)
        if not self.identified[row] and self._age(row) > self.next_identification[row]:
            notes.append("no model yet, and one is due: the observation itself is the context until it is refitted")
        if not self._learner.fitted[row] and self.regime_rewards[row] > self.next_arm_fit[row]:
            notes.append("rewards have come and none was learnt yet: arms are chosen by lot until it is refitted")
        if self.failed_identifications[row]:
            failed = int(self.failed_identifications[row])
            notes.append(f"identification failed {failed} times in a row; the model before was kept")
        if self.detected_changes[row] and self._age(row) < RECENT_CHANGE:
            notes.append(
                f"the dynamics changed and were learnt anew, last from round {int(self.regime_start[row]) + 1} on"
            )
        if self.discarded_rewards[row]:
            notes.append(
                f"{int(self.discarded_rewards[row])} rewards came after their round was forgotten and taught nothing"
            )
        numbers = int(np.isfinite(self.history.observations[row, : self.history.stored_rounds[row]]).sum())
        wanted = 0 if self._latent is None else 2 * free_parameters(self._latent, self._streams.observed)
        if self.identified[row] and numbers < wanted:
            notes.append(f"latent={self._latent} asks for more than {numbers} numbers can support yet")
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
        }
