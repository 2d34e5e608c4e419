"""A round of the estimator that is told nothing: filter, hear, remember. Identification is in adaptive.py."""

from __future__ import annotations

import numpy as np

from halfseen.components import Estimator, Learner, Limits, State, Streams
from halfseen.errors import invalid
from halfseen.estimators.adaptive.candidate_models import Rungs
from halfseen.estimators.adaptive.history import History
from halfseen.kernels.belief import hear, open_round
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import Calibrated
from halfseen.models.identification.selection import PLAIN_NOISE, units
from halfseen.validation import at_least, refuse_outside

FIRST_ROUNDS_A_FEATURE, LEAST_FIRST_ROUNDS = 6, 20  # rounds before the first identification
FIRST_TICK = 8  # rewards at which the arms' hyperparameters are found for the first time
ORIGIN_ROUNDS = 10  # whose mean is where the stream began
MEMORY = 40  # rounds of mean surprise


class AdaptiveRound(Estimator):
    """Filters with the model in force, which at first is none, and keeps all that identification looks at."""

    estimates = "nothing"  # its coordinates are its own
    state_names = (
        "sizes", "transition", "process_cov", "observation_cov", "x", "centre", "scale", "shift", "from_first",
        "first_sum", "first_count", "plain", "identified", "epochs", "next_epoch", "next_tick", "surprise", "began",
        "changes", "failures", "forgotten", "unheard", "on_filtered",
    )  # fmt: skip
    parts = ("rungs", "history")

    def __init__(
        self, streams: Streams, *, latent: int | str = "auto", history: int = 9000, refit: str = "inline"
    ) -> None:
        count, k = streams.count, streams.observed
        if isinstance(latent, str) and latent != "auto":
            raise invalid("latent", repr(latent), f"an integer of at least {k}, or 'auto'")
        self._latent = None if isinstance(latent, str) else at_least("latent", latent, k)
        if refit not in ("inline", "manual"):
            raise invalid("refit", repr(refit), "'inline' or 'manual'")
        self._inline, self._streams = refit == "inline", streams
        self._first = max(LEAST_FIRST_ROUNDS, FIRST_ROUNDS_A_FEATURE * k)
        self.rungs = Rungs(streams, self._latent)
        most = self.rungs.most
        self.dimension = most + 1
        self.history = History(streams, at_least("history", history, 4 * self._first), self.dimension)
        self.sizes = np.full(count, k)
        self.transition, self.process_cov = np.zeros((count, most * most)), np.zeros((count, most * most))
        self.observation_cov = np.zeros((count, k * k))
        self.x = np.zeros((count, most))
        self.centre, self.scale = np.zeros((count, k)), np.ones((count, k))
        self.shift = np.zeros((count, most))
        self.from_first = np.ones(count, dtype=np.bool_)
        self.on_filtered = np.zeros(count, dtype=np.bool_)  # arms learn on filtered contexts, not on smoothed ones
        self.first_sum, self.first_count = np.zeros((count, k)), np.zeros((count, k))
        self.epochs = np.zeros(count, dtype=np.int64)
        self.plain, self.identified = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        self.next_epoch, self.next_tick = np.full(count, self._first), np.full(count, FIRST_TICK)
        self.surprise, self.began = np.ones(count), np.zeros(count, dtype=np.int64)
        self.changes, self.failures = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self.forgotten, self.unheard = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        for row in range(count):
            self._filter_plainly(row)

    def limits(self, state: State) -> Limits:
        rounds = np.asarray(state["offset"]) + np.asarray(state["count"])
        return {"sizes": (self._streams.observed, self.rungs.most), "began": (0, rounds)}

    def agree(self, state: State) -> None:
        refuse_outside("state 'arm'", state["arm"], 0, self._learner.arms - 1)

    def meet(self, learner: Learner) -> None:
        if not isinstance(learner, Calibrated):
            raise invalid("learner", type(learner).__name__, "Calibrated: it is refitted with the model")
        self._learner = learner
        self._share_covariances()

    def _share_covariances(self) -> None:
        """The covariance of the belief is one array: the filter's, and that by which the learner judges a reward."""
        self._cov = self._learner.belief_cov

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        self._share_covariances()
        self._hear(rows)
        early = rounds - self.began[rows] <= ORIGIN_ROUNDS
        if early.any():
            self.first_sum[rows[early]] += np.nan_to_num(observations[early])
            self.first_count[rows[early]] += ~np.isnan(observations[early])
        history, features = self.history, np.empty((len(rows), self.dimension))
        history.make_room(rows)
        open_round(
            rows, observations, self.centre, self.scale, history.ys, history.reward, history.belief, history.count,
            self.sizes, self.transition, self.process_cov, self.observation_cov, self.x, self._cov, self.shift,
            self.surprise, MEMORY, features,
        )  # fmt: skip
        return features

    def _features(self, rows: Ints) -> Floats:
        features = np.empty((len(rows), self.dimension))
        features[:, 0] = 1.0
        features[:, 1:] = self.x[rows] + self.shift[rows]
        return features

    def _hear(self, rows: Ints) -> None:
        """The rewards of the round that ends now, as a sensor of its context. Those that come later are not heard."""
        listens = self._learner.fitted[rows] & ~self.plain[rows]
        if listens.any():
            self._sense(rows[listens], self.history.count[rows[listens]] - 1)

    def _sense(self, rows: Ints, slots: Ints) -> None:
        learner, history = self._learner, self.history
        hear(
            rows, slots, history.arm, history.reward, learner.origin, self.sizes, learner.mean, learner.cov,
            learner.slopes, learner.noise_var, learner.smooth_cov, self.x, self._cov, self.shift,
        )  # fmt: skip

    def features_of(self, rows: Ints, rounds: Ints, features: Floats) -> Floats:
        slots = self.history.slots(rows, rounds)
        known = self.history.belief[rows, np.maximum(slots, 0)]
        known[~self.history.remembers(rows, slots)] = np.nan
        return known

    def reward(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        slots = self.history.slots(rows, rounds)
        kept = self.history.remembers(rows, slots)
        if not kept.all():
            np.add.at(self.forgotten, rows[~kept], 1)
            rows, slots, arms, rewards = rows[kept], slots[kept], arms[kept], rewards[kept]
        np.add.at(self.unheard, rows, 1)
        self.history.arm[rows, slots] = arms
        self.history.reward[rows, slots] = rewards

    def replace(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        """Rounds that the next fit will not look at stay as they are. What was heard of the context stays heard."""
        slots = self.history.slots(rows, rounds)
        kept = self.history.remembers(rows, slots) & (slots >= self.history.count[rows] - self.history.rounds)
        known = self.features_of(rows, rounds, features)
        known[~kept] = np.nan
        np.add.at(self.forgotten, rows[~kept], 1)
        self.history.reward[rows[kept], slots[kept]] = rewards[kept]
        return known

    def _filter_plainly(self, row: int) -> None:
        """y in running units is the context: what is done until there is enough to identify a model from."""
        k = self._streams.observed
        count = int(self.history.count[row])
        self.sizes[row], self.plain[row] = k, True
        self.transition[row] = self.process_cov[row] = self.observation_cov[row] = 0.0
        self.process_cov[row, : k * k] = np.eye(k).ravel()
        self.observation_cov[row] = (PLAIN_NOISE * np.eye(k)).ravel()
        self.x[row], self.shift[row] = 0.0, 0.0
        if count:
            ys = self.history.ys[row, :count]
            self.centre[row], self.scale[row] = units(ys)
            scaled = np.nan_to_num((ys - self.centre[row]) / self.scale[row])
            self.shift[row, :k] = self._first_gap(row)
            self.x[row, :k] = scaled[-1]
            variances = np.where(np.isnan(ys[-1]), 1.0, PLAIN_NOISE / (1.0 + PLAIN_NOISE))
            self._cov[row] = 0.0
            self._cov[row, : k * k] = np.diag(variances).ravel()
            self.history.belief[row, :count] = 0.0
            self.history.belief[row, :count, 0] = 1.0
            self.history.belief[row, :count, 1 : k + 1] = scaled + self.shift[row, :k]
            self._learner.sizes[row] = k

    def _first_gap(self, row: int) -> Floats:
        """From where the stream began to its centre, in units."""
        known = self.first_count[row] > 0
        began = self.first_sum[row] / np.maximum(self.first_count[row], 1)
        return np.asarray(np.where(known, (self.centre[row] - began) / self.scale[row], 0.0))
