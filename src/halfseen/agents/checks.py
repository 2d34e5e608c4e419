"""Checks that an agent does what experiments require and, for a triple of components, what fleets require."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from halfseen.agents.catalogue import CatalogueEntry, agent_spec
from halfseen.agents.plain import PlainEntry, decided_arm
from halfseen.agents.policy import Policy
from halfseen.components import StreamBatch
from halfseen.errors import HalfseenError, InvalidInput
from halfseen.kernels.random import Floats, stream_keys
from halfseen.reports.tables import Table
from halfseen.validation import at_least

_T = TypeVar("_T")
PASSED, NO, ACCEPTED = "passed", "no", "accepted"
_ROUNDS, _STREAMS = 60, 4
_LONGEST = 2 * _ROUNDS  # rounds of the longest check
_SEEDS, _LAGS = (7, 8, 9), (1, 3)  # seeds and lags (in rounds) of the check of late rewards
_OTHERS, _PENALTY = 2 * _SEEDS, -10.0  # in `_nothing_shared`: seeds of the other agents, and the reward of a punishment
_SHARED = (
    "expected the decisions of an agent that plays alone, got others after other agents had learnt (is state kept on "
    "the class, in a default argument or in the module?)"
)
_CLEAR = 0.7  # an agent prefers an arm if it plays the arm in at least this share of the second half of the rounds
_DEPENDS = 0.2  # decisions depend on observations if other observations change at least this share of arms
_DRAWS, _SIGMAS = 4000, 5.0  # number of draws, and how many standard errors a frequency may be off


class _Skipped(Exception):
    """Raised by a check of an optional ability that the agent lacks. The message says what the agent cannot do."""


class _Undecided(Exception):
    """Raised by a check that neither passed nor failed. The message says what could not be found out."""


def check_agent(agent: Any, *, observed: int = 3, arms: int = 4, **options: Any) -> Table:
    """Check that a user-defined agent does what experiments require.

    Parameters
    ----------
    agent : class, callable, tuple, AgentSpec or str
        The agent, as in `run`: a class or function that makes objects with `decide` and `learn`, a triple of
        components, or a name.
    observed : int, default 3
        Number of observed features with which the agent is checked.
    arms : int, default 4
        Number of arms with which the agent is checked, at least 2.
    **options
        Options of the agent.

    Returns
    -------
    Table
        One row per check, with the result "passed", "no" or "accepted". "no" is followed by what the agent cannot do,
        and is possible only for optional abilities. "accepted" means that the agent takes late rewards or missing
        entries without an error, but that its decisions did not show whether it handles them well. For example,
        the agent may learn too slowly for the few rounds of a check.

    Raises
    ------
    HalfseenError
        If a check fails. The message has one line per failed check. If the first check fails, no other check
        is run. If another check fails, the optional checks are not run.

    Examples
    --------
    >>> import halfseen as hs
    >>> class AlwaysFirst:
    ...     def decide(self, observation):
    ...         return 0
    ...     def learn(self, round, reward):
    ...         pass
    >>> print(hs.check_agent(AlwaysFirst))
    check                                                result
    decide returns an arm                                passed
    decide does not change the observation               passed
    the same seed gives the same decisions               passed
    two instances share no state                         passed
    other numbers of features and arms                   passed
    rewards that arrive late (optional)                  accepted: it could not be told whether it learns from them
    missing entries, as NaN (optional)                   accepted: its decisions hardly depend on observations
    propensities (optional)                              no: decide returns an arm without propensities
    sending to other processes, for jobs > 1 (optional)  ...
    """
    spec = agent_spec(agent)
    given = dict(spec.options) | options
    spec.entry.check_options(given)
    sizes = at_least("observed", observed, 1), at_least("arms", arms, 2)
    if isinstance(spec.entry, PlainEntry):
        checks = _PlainChecks(spec.entry, *sizes, given).checks()
    else:
        checks = _ComponentChecks(spec.entry, *sizes, given).checks()
    checks["sending to other processes, for jobs > 1 (optional)"] = lambda: _check_picklable(spec)
    rows: list[dict[str, str]] = []
    failures: list[str] = []
    for name, check in checks.items():
        if failures and (len(rows) == 1 or name.endswith("(optional)")):
            break  # other checks need valid arms, and optional checks need all required checks to pass
        result = PASSED
        try:
            check()
        except _Skipped as reason:
            result = f"{NO}: {reason}"
        except _Undecided as reason:
            result = f"{ACCEPTED}: {reason}"
        except Exception as error:
            result = f"failed: {_one_line(error)}"
            failures.append(f"{name}: {_one_line(error)}")
        rows.append({"check": name, "result": result})
    if failures:
        fails = "the first" if len(rows) == 1 else str(len(failures))
        raise InvalidInput("\n".join([f"'{spec.name}' fails {fails} of {len(checks)} checks", *failures]))
    return Table(rows)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, HalfseenError):
        return text
    if not text:
        text = type(error).__name__
    elif not isinstance(error, AssertionError):
        text = f"{type(error).__name__}: {text}"
    return text + "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def _check_picklable(spec: Any) -> None:
    try:
        pickle.dumps(spec)
    except Exception:
        raise _Skipped("it is not at the top level of a module") from None


class _PlainChecks:
    """The checks of an agent that is a class or a function. All of them play at most `_LONGEST` rounds."""

    def __init__(self, entry: PlainEntry, observed: int, arms: int, options: Mapping[str, Any]) -> None:
        self._entry, self._observed, self._arms, self._options = entry, observed, arms, options
        self._ordinary = _rounds(observed, arms, _LONGEST)
        self._propensities = False

    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "decide returns an arm": self._arms_are_valid,
            "decide does not change the observation": self._observation_is_unchanged,
            "the same seed gives the same decisions": self._same_seed,
            "two instances share no state": self._nothing_shared,
            "other numbers of features and arms": self._other_sizes,
            "rewards that arrive late (optional)": self._late_rewards,
            "missing entries, as NaN (optional)": self._missing,
            "propensities (optional)": self._offers_propensities,
        }

    def _make(self, observed: int | None = None, arms: int | None = None, seed: int = _SEEDS[0]) -> Any:
        sizes = {"observed": observed or self._observed, "arms": arms or self._arms}
        return self._entry.make(**sizes, seed=seed, rounds=_LONGEST, options=self._options)

    def _play(
        self,
        agent: Any,
        rounds: tuple[Floats, Floats] | None = None,
        *,
        seed: int = _SEEDS[0],
        arrive: Callable[[int], Sequence[int]] = lambda t: [t],
        between: Callable[[int], None] = lambda t: None,
    ) -> list[int]:
        """Play rounds and return the arms.

        `rounds` has the observations and the reward of every arm. `arrive(t)` returns the rounds whose rewards are
        learnt in round t. `between(t)` is called after `decide` and before `learn`.
        """
        ys, rewards = rounds or self._ordinary
        played: list[int] = []
        for t, y in enumerate(ys, start=1):
            try:
                arm, propensities = decided_arm(f"decide, round {t}", agent.decide(y.copy()), rewards.shape[1])
                self._propensities |= propensities is not None
                played.append(arm)
                between(t)
                for past in arrive(t):
                    agent.learn(past, float(rewards[past - 1, played[past - 1]]))
            except Exception as error:
                error.add_note(f"round {t}, seed {seed}")
                raise
        return played

    def _arms_are_valid(self) -> None:
        """Play with ordinary observations and rewards, for as many rounds as in the longest check."""
        self._play(self._make())
        self._changed = self._changed_by_observations(missing=False)

    def _observation_is_unchanged(self) -> None:
        agent, (ys, rewards) = self._make(), self._ordinary
        for t, y in enumerate(ys[:10], start=1):
            given = y.copy()
            arm, _ = decided_arm(f"decide, round {t}", agent.decide(given), self._arms)
            agent.learn(t, float(rewards[t - 1, arm]))
            assert (given == y).all(), "expected the same numbers in the array after decide, got others"

    def _same_seed(self) -> None:
        first, second = self._play(self._make()), self._play(self._make())
        if first != second:
            at = next(t for t, pair in enumerate(zip(first, second, strict=True), start=1) if pair[0] != pair[1])
            expected = "random draws that depend on the argument `seed` only"
            raise AssertionError(f"expected {expected}, got another arm in round {at} of a second run")

    def _nothing_shared(self) -> None:
        """Check that an agent plays the same arms whether or not other agents learn before and during its run.

        The other agents learn the opposite: they are punished when they play an arm that the agent played alone. Shared
        state may be read or reset when an agent is made. So the check plays one agent that was made before the others
        learn, and one that is made afterwards.
        """
        alone = self._play(self._make())

        def learn_opposite(agent: Any, t: int) -> None:
            arm, _ = decided_arm(f"decide, round {t}", agent.decide(self._ordinary[0][t - 1].copy()), self._arms)
            agent.learn(t, _PENALTY if arm == alone[t - 1] else 0.0)

        early = self._make()
        for seed in _OTHERS:
            other = self._make(seed=seed)
            for t in range(1, _LONGEST + 1):
                learn_opposite(other, t)
        for agent in (early, self._make()):
            beside = functools.partial(learn_opposite, self._make())
            assert self._play(agent, between=beside) == alone, _SHARED

    def _other_sizes(self) -> None:
        try:
            for observed, arms in ((1, 2), (self._observed + 2, self._arms + 3)):
                sizes = f"observed={observed} and arms={arms}"
                self._play(self._make(observed, arms), _rounds(observed, arms, _LONGEST))
            sizes = f"observed={self._observed} and arms=2"
            self._prompt = [share for better in (0, 1) for share in self._shares(0, better)]
        except Exception as error:
            raise AssertionError(f"with {sizes}: {_one_line(error)}") from None

    def _late_rewards(self) -> None:
        """Find out whether each reward is learnt for the arm of its own round.

        One of two arms pays 1 and the other 0. An agent that prefers the better arm when rewards arrive at once is
        expected to prefer it when they arrive a few rounds later. An agent that learns the reward of a round for the
        arm of a later round can take the reward of the better arm for that of the worse arm.
        """
        self._try(lambda: self._play(self._make(), arrive=lambda t: range(t - 4, t + 1) if t % 5 == 0 else ()))
        late = [self._try(functools.partial(self._shares, lag, better)) for lag in _LAGS for better in (0, 1)]
        if min(self._prompt) < _CLEAR:
            raise _Undecided("it could not be told whether it learns from them")
        if any(max(shares) <= 1 - _CLEAR for shares in late):
            raise _Skipped("it prefers the arm with the lower reward if rewards arrive late")
        if min(float(np.mean(shares)) for shares in late) < _CLEAR:
            raise _Undecided("it learns from rewards that arrive at once, but this was not seen with late ones")

    def _shares(self, lag: int, better: int) -> list[float]:
        """Return, per seed, how often the better of two arms is played if rewards arrive `lag` rounds late."""
        ys = 1.0 + 0.1 * np.random.default_rng(self._observed).normal(size=(_LONGEST, self._observed))
        rewards = np.tile(np.where(np.arange(2) == better, 1.0, 0.0), (_LONGEST, 1))

        def share(seed: int) -> float:
            agent = self._make(arms=2, seed=seed)
            played = self._play(agent, (ys, rewards), seed=seed, arrive=lambda t: [t - lag] if t > lag else ())
            return float(np.mean(np.array(played[_LONGEST // 2 :]) == better))

        return [share(seed) for seed in _SEEDS]

    def _missing(self) -> None:
        """Find out whether decisions still depend on the observations after rounds with missing entries.

        Two runs differ only in the observations after these rounds. If both play the same arms, although many arms
        differ when no entries are missing, then missing entries make the agent ignore its observations.
        """
        self._try(self._first_missing)
        changed_after_missing = self._try(lambda: self._changed_by_observations(missing=True))
        if self._changed < _DEPENDS:
            raise _Undecided("its decisions hardly depend on observations")
        if changed_after_missing == 0.0:
            raise _Skipped("after rounds with missing entries, its decisions no longer depend on the observation")

    def _changed_by_observations(self, missing: bool) -> float:
        """Return the share of arms that change if the sign of the observations in the last rounds is reversed."""
        return float(np.mean(self._after_missing(missing, 1.0) != self._after_missing(missing, -1.0)))

    def _first_missing(self) -> int:
        agent = self._make()
        decided_arm("decide", agent.decide(np.full(self._observed, np.nan)), self._arms)
        agent.learn(1, 1.0)
        return decided_arm("decide", agent.decide(np.zeros(self._observed)), self._arms)[0]

    def _after_missing(self, missing: bool, sign: float) -> np.ndarray[Any, Any]:
        """Play ordinary rounds, then rounds with observations multiplied by `sign`. Return the arms of the second part.

        If `missing`, entries are missing in the last two ordinary rounds. Afterwards the rewards of all arms are 0, so
        that runs with different signs differ only in their observations.
        """
        ys, rewards = (given.copy() for given in self._ordinary)
        if missing:
            ys[_ROUNDS - 2, 0] = np.nan
            ys[_ROUNDS - 1] = np.nan
        ys[_ROUNDS:] *= sign
        rewards[_ROUNDS:] = 0.0
        return np.array(self._play(self._make(), (ys, rewards))[_ROUNDS:])

    def _try(self, ability: Callable[[], _T]) -> _T:
        try:
            return ability()
        except Exception as error:
            raise _Skipped(_one_line(error)) from None

    def _offers_propensities(self) -> None:
        if not self._propensities:
            raise _Skipped("decide returns an arm without propensities")


class _ComponentChecks:
    """The checks of a triple of components, which works on a batch of streams."""

    def __init__(self, entry: CatalogueEntry, observed: int, arms: int, options: Mapping[str, Any]) -> None:
        self._entry, self._observed, self._arms, self._options = entry, observed, arms, options

    def checks(self) -> dict[str, Callable[[], None]]:
        return {
            "decide returns an arm": self._arms_are_valid,
            "features are new C-contiguous float64 arrays": self._features,
            "propensities are a distribution": self._distribution,
            "propensities equal frequencies": self._frequencies,
            "the same seed gives the same decisions": self._same_seed,
            "two instances share no state": self._nothing_shared,
            "a batch equals single streams": self._batch,
            "state_names contain all of the state": self._state,
            "only available arms are chosen": self._available,
            "missing entries, as NaN": self._missing,
            "arms can be added": self._added_arm,
            "replaced rewards, for provisional ones (optional)": self._replaced_rewards,
        }

    def _build(self, count: int = _STREAMS) -> Policy:
        return self._build_for(list(range(11, 11 + count)))

    def _build_for(self, seeds: list[int]) -> Policy:
        return self._entry.build(StreamBatch(stream_keys(seeds), self._observed, self._arms), self._options)

    def _play(self, policy: Policy, rounds: int = _ROUNDS, start: int = 0) -> list[list[int]]:
        """Play rounds, the same for all streams, and return the arms of every round."""
        ys, rewards = _rounds(self._observed, self._arms, start + rounds)
        played = []
        for y, reward in zip(ys[start:], rewards[start:], strict=True):
            choices = policy.decide(np.tile(y, (policy.streams.count, 1)), contexts=self._contexts(policy))
            policy.learn(choices.rounds, choices.features, choices.arms, reward[choices.arms])
            played.append(choices.arms.tolist())
        return played

    def _contexts(self, policy: Policy) -> Floats | None:
        return np.ones((policy.streams.count, policy.estimator.dimension)) if self._entry.reveals_context else None

    def _arms_are_valid(self) -> None:
        arms = np.array(self._play(self._build()))
        assert ((arms >= 0) & (arms < self._arms)).all(), f"expected arms from 0 to {self._arms - 1}, got {arms.max()}"

    def _features(self) -> None:
        policy = self._build()
        self._play(policy, 5)
        y, complete = np.ones((_STREAMS, self._observed)), True
        found = [
            policy.estimator.observe(policy.all_rows, y, policy.rounds + at, complete, self._contexts(policy))
            for at in (1, 2)
        ]
        shape = (_STREAMS, policy.estimator.dimension)
        for array in found:
            assert isinstance(array, np.ndarray), f"expected an array from observe, got {type(array).__name__}"
            got = f"{array.dtype} of shape {array.shape}"
            assert array.dtype == np.float64, f"expected float64 numbers from observe, got {got}"
            assert array.shape == shape, f"expected shape {shape} from observe, got {got}"
            assert array.flags.c_contiguous, "expected a C-contiguous array from observe, got another"
        assert not np.shares_memory(found[0], found[1]), (
            "expected a new array from every call of observe, got the same memory"
        )

    def _distribution(self) -> None:
        policy = self._build()
        for _ in range(3):
            self._play(policy, 10)
            choices = policy.decide(np.ones((_STREAMS, self._observed)), contexts=self._contexts(policy))
            shares = policy.propensities(choices)
            assert (shares >= 0).all(), f"expected probabilities of at least 0, got {shares.min()}"
            sums = shares.sum(axis=1)
            assert np.allclose(sums, 1.0, atol=1e-9), f"expected probabilities that sum to 1, got {sums.tolist()}"
            played = shares[np.arange(_STREAMS), choices.arms]
            assert (played > 0).all(), "expected a probability above 0 for the arm that was chosen, got 0"

    def _frequencies(self) -> None:
        """Compare the frequency of each arm with its probability, over many streams that differ only in their keys."""
        policy = self._build(_DRAWS)
        ys, rewards = _rounds(self._observed, self._arms, 8)
        for t, y in enumerate(ys):
            choices = policy.decide(np.tile(y, (_DRAWS, 1)), contexts=self._contexts(policy))
            shares = policy.propensities(choices)
            counts = np.bincount(choices.arms, minlength=self._arms)
            mean, error = shares.sum(axis=0), np.sqrt((shares * (1 - shares)).sum(axis=0))
            worst = int(np.argmax(np.abs(counts - mean) - _SIGMAS * error))
            assert abs(counts[worst] - mean[worst]) <= _SIGMAS * error[worst] + 1e-6 * _DRAWS, (
                f"expected arm {worst} in {mean[worst] / _DRAWS:.3f} of the decisions of round {t + 1}, got "
                f"{counts[worst] / _DRAWS:.3f}"
            )
            policy.learn(choices.rounds, choices.features, choices.arms, rewards[t][choices.arms])

    def _same_seed(self) -> None:
        assert self._play(self._build()) == self._play(self._build()), (
            "expected the same arms, got others: random numbers must come from halfseen.kernels.random"
        )

    def _nothing_shared(self) -> None:
        """Check that streams play the same arms alone and after other streams have learnt the opposite."""
        alone, early = self._play(self._build()), self._build()
        for _ in _OTHERS:
            other = self._build()
            for y, arms in zip(_rounds(self._observed, self._arms)[0], alone, strict=True):
                choices = other.decide(np.tile(y, (_STREAMS, 1)), contexts=self._contexts(other))
                rewards = np.where(choices.arms == arms, _PENALTY, 0.0)
                other.learn(choices.rounds, choices.features, choices.arms, rewards)
        for policy in (early, self._build()):
            assert self._play(policy) == alone, _SHARED

    def _batch(self) -> None:
        batch = np.array(self._play(self._build()))
        for row in range(_STREAMS):
            single = np.array(self._play(self._build_for([11 + row])))[:, 0]
            differ = np.flatnonzero(single != batch[:, row])
            where = f"round {differ[0] + 1} of stream {row} of a batch" if len(differ) else ""
            assert not where, f"expected the arms of a single stream, got another arm in {where}"

    def _state(self) -> None:
        policy, twin = self._build(), self._build()
        self._play(policy, 30)
        state = policy.state()
        for name, array in state.items():
            finite = array.dtype.kind != "f" or "rewards" in name or "observations" in name or np.isfinite(array).all()
            assert finite, f"expected finite numbers, got others in '{name}'"
        twin.restore(state)
        after = self._play(policy, 30, start=30)
        assert self._play(twin, 30, start=30) == after, "expected the same arms after `restore(state())`, got others"

    def _available(self) -> None:
        policy = self._build()
        available = np.ones((_STREAMS, self._arms), dtype=np.bool_)
        available[:, 0] = False
        for _ in range(20):
            choices = policy.decide(
                np.ones((_STREAMS, self._observed)), available=available, contexts=self._contexts(policy)
            )
            assert (choices.arms != 0).all(), "expected one of the available arms, got another"
            shares = policy.propensities(choices)[:, 0]
            assert (shares == 0).all(), f"expected probability 0 for an arm that is not available, got {shares.max()}"

    def _missing(self) -> None:
        policy = self._build()
        self._play(policy, 10)
        for missing in (slice(0, 1), slice(None)):
            y = np.ones((_STREAMS, self._observed))
            y[:, missing] = np.nan
            choices = policy.decide(y, contexts=self._contexts(policy))
            assert np.isfinite(choices.means).all(), "expected finite predictions if entries are missing, got others"
            policy.learn(choices.rounds, choices.features, choices.arms, np.ones(_STREAMS))

    def _added_arm(self) -> None:
        if self._entry.required:
            raise _Skipped("the parameters of its arms may be given")
        policy = self._build()
        self._play(policy, 10)
        policy.add_arm(None)
        choices = policy.decide(np.ones((_STREAMS, self._observed)), contexts=self._contexts(policy))
        got, expected = choices.means.shape, (_STREAMS, self._arms + 1)
        assert got == expected, f"expected predictions of shape {expected} after add_arm, got {got}"

    def _replaced_rewards(self) -> None:
        if not self._build().takes_provisional:
            raise _Skipped("the learner has no method replace_rewards, so rewards cannot be provisional")


def _ignore(_: object) -> None:
    """Ignore the argument."""


def _rounds(observed: int, arms: int, rounds: int = _ROUNDS) -> tuple[Floats, Floats]:
    """Return observations (n, k) and the reward of every arm (n, K). Every call returns the same numbers."""
    rng = np.random.default_rng([observed, arms])
    ys = rng.normal(size=(_LONGEST, observed))
    rewards = ys @ rng.normal(size=(observed, arms)) + 0.1 * rng.normal(size=(_LONGEST, arms))
    return ys[:rounds], rewards[:rounds]
