"""A numerical soak: every catalogued agent in random systems with extreme inputs and options.

Each case plays one agent on random data and checks every decision and, now and then, every covariance. A case follows
from the seed, the name of the agent and its number alone, so the line that a failure prints repeats it:

    PYTHONPATH=tests python -m contracts.numerical_soak --rounds 1e7
    PYTHONPATH=tests python -m contracts.numerical_soak --seed 1 --agent kf-ts --case 17
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import halfseen as hs
from halfseen.components import Choices
from halfseen.learners.ridge import full_matrices
from halfseen.validation import LIMIT

# Agents whose rounds take milliseconds, because they identify a model. They play the smallest number of rounds.
SLOW_AGENTS = ("adaptive", "adaptive-ts", "adaptive-ids", "em-rts-ts")
SLOW_SHARE = 0.01  # of all rounds, per slow agent
SINGLE_SHARE = 0.15  # of the cases of a fast agent, that single agents play; fleets play the others
LARGEST_NUMBER = LIMIT  # of options
PROBABILITY_ERROR = 1e-9  # of the sum of the propensities of a decision
# Smallest eigenvalue of a covariance relative to its largest entry. A filtered covariance is a difference of two
# predicted ones, and its rounding error is relative to them.
EIGENVALUE_ERROR = 1e-9


MAX_FAULTS = 10  # of one agent, after which its soak ends


class Fault(AssertionError):
    """A decision or a covariance is invalid."""


@dataclass
class Case:
    """One agent, its options and the data that it is given."""

    agent: str
    seed: int
    number: int
    rng: np.random.Generator = field(repr=False)
    streams: int = 0  # 0 for a single agent
    rounds: int = 0
    observed: int = 0
    latent: int = 0
    arms: int = 0
    observations_kind: str = ""
    missing_kind: str = ""
    rewards_kind: str = ""
    delivery: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    observations: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)  # (T, B, k)
    contexts: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)  # (T, B, d)
    rewards: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)  # (T, B), before the effect of the arm

    @property
    def command(self) -> str:
        options = f"--seed {self.seed} --agent {self.agent} --case {self.number}"
        return f"PYTHONPATH=tests python -m contracts.numerical_soak {options}"

    def contexts_argument(self, t: int, b: slice | int) -> dict[str, np.ndarray]:
        """Return the keyword argument with the true contexts of round t, if the agent needs them."""
        if not hs.catalog()[self.agent].reveals_context:
            return {}
        return {"context" if isinstance(b, int) else "contexts": self.contexts[t, b]}

    def reward(self, t: int, b: Any, arms: Any) -> Any:
        """Return the reward of `arms` in round t, within the limit."""
        rewards = np.clip(self.rewards[t, b] * (1.0 - 0.5 * (arms % 3)), -LIMIT, LIMIT)
        family = self.options.get("reward_family")
        if family == "binary":
            return np.clip(rewards, 0.0, 1.0)
        return np.abs(rewards) if family == "count" else rewards


@dataclass
class Result:
    """The soak of one agent. `refused` counts the rewards that it refused, by the argument that its message names."""

    agent: str
    cases: int = 0
    rounds: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        refused = f", {sum(self.refused.values()):,} calls refused" if self.refused else ""
        said = f"{self.agent}: {self.rounds:,} rounds in {self.cases} cases, {self.seconds:.0f} s{refused}"
        return "\n".join([f"{said}, {len(self.faults)} faults", *self.faults])


# ------------------------------------------------------------------ random data


def _magnitude(rng: np.random.Generator, extreme: bool) -> float:
    return float(10.0 ** (rng.uniform(-150, 100) if extreme else rng.uniform(-4, 4)))


def _transition(rng: np.random.Generator, d: int) -> np.ndarray:
    """Return a transition matrix whose powers are bounded, though they may first grow to large numbers."""
    kind = rng.choice(["rotation", "non-normal", "rank one", "zero", "random walk", "fast decay"])
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    if kind == "rotation":
        return rotation * rng.choice([0.5, 0.9, 0.999, 1.0])
    if kind == "non-normal":
        return rotation @ (np.triu(rng.normal(size=(d, d)) * 10.0, 1) + np.diag(rng.uniform(-0.9, 0.9, d))) @ rotation.T
    if kind == "rank one":
        return np.outer(rotation[0], rotation[0]) * 0.95
    if kind == "zero":
        return np.zeros((d, d))
    return np.eye(d) if kind == "random walk" else rotation * 1e-8


def _covariance(rng: np.random.Generator, size: int, unit: float) -> np.ndarray:
    """Return a covariance: regular, zero, rank-deficient or nearly singular, with standard deviations near `unit`."""
    kind = rng.choice(["regular", "zero", "rank one", "nearly singular", "diagonal"])
    if kind == "zero":
        return np.zeros((size, size))
    root = rng.normal(size=(size, 1 if kind == "rank one" else size))
    if kind == "nearly singular":
        root[:] = root[:, :1] + 1e-9 * root
    if kind == "diagonal":
        root = np.diag(10.0 ** rng.uniform(-6, 2, size))
    cov = (root * unit) @ (root * unit).T
    return 0.5 * (cov + cov.T)


def _simulate(case: Case, units: np.ndarray) -> None:
    """Set the contexts and the observations of the case, before entries are removed."""
    rng, T, B, d, k = case.rng, case.rounds, max(1, case.streams), case.latent, case.observed
    D, noise = _transition(rng, d), rng.choice([0.0, 1e-12, 1.0])
    x, contexts = rng.normal(size=(B, d)), np.empty((T, B, d))
    for t in range(T):
        x = np.clip(x @ D.T + noise * rng.normal(size=(B, d)), -1e6, 1e6)
        contexts[t] = x
    ys = contexts[..., :k] + rng.choice([0.0, 1.0]) * rng.normal(size=(T, B, k))
    kind = case.observations_kind
    if kind == "constant":
        ys[:] = rng.normal(size=k)
    elif kind == "zero":
        ys[:] = 0.0
    elif kind == "duplicated":
        ys[:] = ys[..., :1]
    elif kind == "nearly duplicated":
        ys[:] = ys[..., :1] * (1.0 + 1e-13 * rng.normal(size=ys.shape))
    elif kind == "growing":  # doubles again and again, but stays bounded
        ys *= 2.0 ** (np.arange(T) % 60)[:, None, None]
    elif kind == "spikes":
        ys *= np.where(rng.uniform(size=ys.shape) < 0.02, 10.0 ** rng.uniform(0, 60), 1.0)
    elif kind == "offset":
        ys += 1e9
    elif kind == "jumps":
        ys += 1e5 * (rng.uniform(size=(T, 1, 1)) < 0.01).cumsum(axis=0)
    elif kind == "alternating":
        ys[:] = (-1.0) ** np.arange(T)[:, None, None]
    with np.errstate(over="ignore", under="ignore"):
        case.observations = np.clip(ys * units[:k], -LIMIT, LIMIT)
        case.contexts = np.clip(contexts * np.resize(units, d), -LIMIT, LIMIT)
    if case.observations_kind == "limits":
        case.observations = rng.choice([-LIMIT, LIMIT, 0.0, 5e-324], size=ys.shape)


def _remove(case: Case) -> None:
    rng, ys, T = case.rng, case.observations, case.rounds
    if case.missing_kind == "entries":
        ys[rng.uniform(size=ys.shape) < 0.2] = np.nan
    elif case.missing_kind == "rows":
        ys[rng.uniform(size=ys.shape[:2]) < 0.3] = np.nan
    elif case.missing_kind == "a sensor":
        ys[..., rng.integers(case.observed)] = np.nan
    elif case.missing_kind == "a long gap":
        ys[T // 3 : T // 3 + T // 2] = np.nan
    elif case.missing_kind == "nearly all":
        ys[rng.uniform(size=ys.shape) < 0.98] = np.nan
    elif case.missing_kind == "all":
        ys[:] = np.nan


def _draw_rewards(case: Case, extreme: bool) -> None:
    rng, shape = case.rng, (case.rounds, max(1, case.streams))
    noise, kind = rng.normal(size=shape), case.rewards_kind
    unit = _magnitude(rng, extreme)
    if kind == "constant":
        noise[:] = 1.0
    elif kind == "zero":
        noise[:] = 0.0
    elif kind == "binary":
        noise = (noise > 0.0).astype(float)
    elif kind == "spikes":
        noise *= np.where(rng.uniform(size=shape) < 0.02, 1e30, 1.0)
    elif kind == "offset":
        noise += 1e9
    elif kind == "limits":
        noise, unit = rng.choice([-LIMIT, LIMIT, 0.0, 5e-324], size=shape), 1.0
    elif kind == "linear":
        seen = np.nan_to_num(case.observations) / np.maximum(np.abs(np.nan_to_num(case.observations)).max(), 1e-300)
        noise = seen.sum(axis=2) + 0.1 * noise
    case.rewards = noise * unit


def _draw_model(case: Case, units: np.ndarray) -> hs.LinearGaussianModel:
    """Return a model with the units of the observations, or with others."""
    rng, d, k = case.rng, case.latent, case.observed
    wide = np.clip(np.resize(units, d), 1e-50, 1e50)
    if rng.uniform() < 0.3:
        wide = np.ones(d)
    unit = np.outer(wide, wide)
    D = _transition(rng, d) * np.outer(wide, 1.0 / wide)
    A = np.eye(k, d)
    if rng.uniform() < 0.3 and (wide == 1.0).all():
        A = np.linalg.qr(rng.normal(size=(d, d)))[0][:k]
    return hs.LinearGaussianModel(
        transition=np.clip(D, -LIMIT, LIMIT),
        process_cov=_covariance(rng, d, 1.0) * unit,
        observation_cov=_covariance(rng, k, 1.0) * unit[:k, :k],
        observation=A,
        initial_mean=rng.normal(size=d) * wide,
        initial_cov=_covariance(rng, d, rng.choice([1.0, 1e6])) * unit,
    )


def _draw_options(case: Case, units: np.ndarray, extreme: bool) -> dict[str, Any]:
    """Return the options that the agent requires, and some of the others, at their extremes where they have any."""
    rng, d, k, known = case.rng, case.latent, case.observed, hs.catalog()[case.agent].options
    positive = [1.0 / LARGEST_NUMBER, 1e-12, 1.0, 1e12, LARGEST_NUMBER] if extreme else [0.01, 1.0, 100.0]
    square = float(np.clip(units.max() ** 2, 1.0 / LARGEST_NUMBER, LARGEST_NUMBER))  # so that rewards are learnt
    states = int(rng.integers(1, 5))
    choices: dict[str, list[Any]] = {
        "regularisation": [*positive, square, square],
        "noise_std": [0.0, *positive],
        "delta": [1.0 / LARGEST_NUMBER, 0.1, 1.0 - 1e-16],
        "horizon": [1, 10_000, 10**9],
        "arm_norm": [0.0, *positive],
        "bonus": [0.0, *positive],
        "foresight": [0.0, *positive],
        "window": [None, 5 * d, 5 * d + 1],
        "iterations": [1, 5],
        "initial_transition": ["stochastic", "orthogonal", _transition(rng, d)],
        "initial_process_var": [*positive, square],
        "observation_cov": [0.0, 1.0, square, _covariance(rng, k, 1.0), np.diag(units[:k].clip(1e-100, 1e49) ** 2)],
        "context_cov": ["running", _covariance(rng, d, 1.0), 1e50 * _covariance(rng, d, 1.0)],
        "states": [states],
        "warm_up": [None, 5 * states],
        "restarts": [0, 2],
        "forgetting": [0.51, 0.6, 1.0],
        "variance_floor": positive,
        "burn_in": [1, 100],
        "safety": [1e-12, 0.1, 1.0 - 1e-12],
        "minimum_probability": ["decaying", 1.0 / LARGEST_NUMBER, 0.1, 1.0],
        "lags": [0, 2],
        "memory": [1, 50, 200],
        "history": [200, 400],
        "state_std": positive,
        "width": [0.0, *positive],
    }
    if case.agent.endswith("-ucb"):
        choices["width"] += ["horizon", "self-normalised"]
    elif "delta" in known:
        choices["width"] += ["theory"]
    if case.agent.startswith("adaptive"):
        choices["latent"] = ["auto", k, k + 1]
        choices["refit"] = ["manual"] if not case.streams else ["inline"]
    options = {name: values[rng.integers(len(values))] for name, values in choices.items() if name in known}
    required = {
        "latent": lambda: d,
        "model": lambda: _draw_model(case, units),
        "arm_params": lambda: rng.uniform(-1.0, 1.0, size=(case.arms, d)) * rng.choice(positive),
        "state_rewards": lambda: rng.uniform(-1.0, 1.0, size=(case.arms, states)) * rng.choice(positive),
        "state_transition": lambda: rng.dirichlet(np.full(states, rng.choice([0.01, 1.0])), size=states),
    }
    for name in hs.catalog()[case.agent].required:
        options[name] = required[name]()
    keep = rng.uniform(size=len(options)) < 0.5
    drawn = {
        name: value
        for (name, value), kept in zip(options.items(), keep, strict=True)
        if kept or name in (*hs.catalog()[case.agent].required, "history", "refit", "latent")
    }
    guarded = np.random.default_rng([case.seed, *case.agent.encode(), case.number, 1])
    if guarded.uniform() < 0.3:  # no control arm, because it would have to be available in every round
        drawn |= {"floor": guarded.choice([0.0, 1e-300, 0.05]), "holdback": guarded.choice([0.0, 1e-12, 0.3, 1.0])}
    if "reward_family" in known:
        drawn["reward_family"] = str(guarded.choice(["gaussian", "binary", "count"]))
    return drawn


def draw_case(agent: str, seed: int, number: int, most: float = np.inf) -> Case:
    """Return case `number` of an agent, of at most `most` rounds. It depends on nothing else than the arguments."""
    rng = np.random.default_rng([seed, *agent.encode(), number])
    case = Case(agent, seed, number, rng)
    slow = agent in SLOW_AGENTS
    adaptive = agent.startswith("adaptive")
    single = rng.uniform() < (0.9 if adaptive else SINGLE_SHARE)
    case.streams = 0 if single else int(rng.choice([2, 8] if slow else [16, 128, 512]))
    case.rounds = int(
        rng.choice([1000, 4000] if adaptive else [300, 1000])
        if single
        else (800 if adaptive else 1600 if slow else 16_384) // case.streams
    )
    case.streams = min(case.streams, int(min(most, 1e6) // 20))
    case.rounds = int(min(case.rounds, most // max(1, case.streams)))
    case.observed, case.arms = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 6]))
    case.latent = case.observed + int(rng.integers(0, 3))
    kinds = ["system", "constant", "zero", "duplicated", "nearly duplicated", "growing", "spikes", "offset", "jumps"]
    case.observations_kind = str(rng.choice([*kinds, "alternating", "limits", "system", "system"]))
    case.missing_kind = str(
        rng.choice(["none", "none", "entries", "rows", "a sensor", "a long gap", "nearly all", "all"])
    )
    case.rewards_kind = str(
        rng.choice(["normal", "linear", "constant", "zero", "binary", "spikes", "offset", "limits"])
    )
    case.delivery = str(rng.choice(["at once", "late", "some never", "mixed"]))
    extreme = rng.uniform() < 0.5
    units = np.array([_magnitude(rng, extreme) for _ in range(case.latent)])
    if rng.uniform() < 0.5:
        units[:] = units[0]
    _simulate(case, units)
    _remove(case)
    _draw_rewards(case, extreme and rng.uniform() < 0.7)
    case.options = _draw_options(case, units, rng.uniform() < 0.5)
    return case


# ------------------------------------------------------------------ checks


def check_choices(choices: Choices, propensities: np.ndarray, played: str) -> None:
    """Raise Fault if an entry of `choices` is not finite, or if propensities are not probabilities that sum to 1."""
    for name in ("means", "variances"):
        if not np.isfinite(getattr(choices, name)).all():
            raise Fault(f"{played}: {name} are not finite: {getattr(choices, name)[:2]}")
    if (choices.variances < 0.0).any():
        raise Fault(f"{played}: a variance is negative: {choices.variances.min()}")
    if not ((propensities >= 0.0) & (propensities <= 1.0)).all():
        raise Fault(f"{played}: propensities are not probabilities: {propensities[:2]}")
    if not (np.abs(propensities.sum(axis=1) - 1.0) <= PROBABILITY_ERROR).all():
        worst = np.abs(propensities.sum(axis=1) - 1.0).argmax()
        detail = [getattr(choices, name)[worst].tolist() for name in ("means", "variances", "widths")]
        raise Fault(f"{played}: propensities sum to {propensities.sum(axis=1)[worst]!r}: {detail}")
    if not propensities[np.arange(len(propensities)), choices.arms].all():
        raise Fault(f"{played}: an arm with propensity 0 was chosen")
    if not choices.available[np.arange(len(propensities)), choices.arms].all():
        raise Fault(f"{played}: an arm that is not available was chosen")


def check_covariance(name: str, matrices: np.ndarray, played: str) -> None:
    """Raise Fault if matrices (..., n, n) are not finite, symmetric and positive semi-definite up to rounding."""
    if not np.isfinite(matrices).all():
        raise Fault(f"{played}: {name} is not finite")
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    scale = np.abs(flat).max(axis=(1, 2), keepdims=True, initial=0.0)
    unit = flat / np.where(scale > 0.0, scale, 1.0)
    if (np.abs(unit - unit.swapaxes(1, 2)) > 1e-12).any():
        raise Fault(f"{played}: {name} is not symmetric")
    lowest = np.linalg.eigvalsh(unit)[:, 0] if unit.shape[-1] else np.zeros(1)
    if lowest.min() < -EIGENVALUE_ERROR:
        worst = lowest.argmin()
        raise Fault(f"{played}: {name} has an eigenvalue of {lowest[worst]:g} × {scale.flat[worst]:g}")


def check_state(agent: str, policy: Any, played: str) -> None:
    """Check the covariances and all other numbers of a state that must be finite."""
    state = policy.state()
    for name in ("estimator.cov", "estimator.process_cov", "estimator.window_start_cov"):
        if name in state and not agent.startswith("adaptive"):
            check_covariance(name, state[name], played)
    if "learner.cov_packed" in state:
        covs = full_matrices(state["learner.cov_packed"], state["learner.mean"].shape[-1])
        check_covariance("learner.cov_packed", covs, played)
    if "learner.gram" in state:
        check_covariance("learner.gram", state["learner.gram"], played)
    if agent.startswith("adaptive"):
        for row in range(policy.streams.count):
            d = int(state["learner.latent_dims"][row])
            for name, size, count in (
                ("estimator.process_cov", d, 1),
                ("estimator.observation_cov", policy.streams.observed, 1),
                ("learner.belief_cov", d, 1),
                ("learner.smooth_cov", d, 1),
                ("learner.prior_cov", d + 1, 1),
                ("learner.second_moment", d + 1, 1),
                ("learner.cov", d + 1, policy.learner.arms),
            ):
                packed = state[name][row, : count * size * size]
                check_covariance(name, packed.reshape(count, size, size), played)
    with_gaps = ("observations", "window_observations", "first_observations", "rewards")  # NaN where missing
    for name, array in state.items():
        if array.dtype.kind == "f" and not name.endswith(with_gaps) and not np.isfinite(array).all():
            raise Fault(f"{played}: {name} is not finite")


# ------------------------------------------------------------------ playing


def play_fleet(case: Case, refused: Counter[str]) -> None:
    rng, B = case.rng, case.streams
    fleet = hs.Fleet(case.agent, observed=case.observed, arms=case.arms, max_pending=40, **case.options)
    fleet.add(B)
    late: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for t in range(case.rounds):
        played = f"round {t + 1}"
        mask = None
        if rng.uniform() < 0.2:
            mask = rng.uniform(size=(B, case.arms)) < 0.3
            mask[np.arange(B), rng.integers(case.arms, size=B)] = True
        decisions = fleet.decide(case.observations[t], available=mask, **case.contexts_argument(t, slice(None)))
        for choices in decisions._parts:
            check_choices(choices, fleet._policy.propensities(choices), played)
        rewards = case.reward(t, slice(None), decisions.indices)
        keep = rng.uniform(size=B) < (0.7 if case.delivery in ("some never", "mixed") else 1.0)
        due = t + (int(rng.integers(1, 30)) if case.delivery in ("late", "mixed") else 0)
        late.setdefault(due, []).append((decisions.ids[keep], rewards[keep]))
        for ids, values in late.pop(t, []):
            try:
                fleet.learn(ids, values)
            except hs.HalfseenError as error:
                refused[str(error).partition(":")[0]] += 1
                for one, value in zip(ids[:8], values[:8], strict=True):
                    _learn_or_refuse(fleet.learn, [one], [value], refused)
        if t % max(1, case.rounds // 4) == 0 or t == case.rounds - 1:
            check_state(case.agent, fleet._policy, played)
        if t == case.rounds // 2:
            fleet = _saved_and_loaded(fleet)


def _learn_or_refuse(learn: Any, decision: Any, reward: Any, refused: Counter[str], **options: Any) -> None:
    try:
        learn(decision, reward, **options)
    except hs.HalfseenError as error:
        refused[str(error).partition(":")[0]] += 1


def _saved_and_loaded(one: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        one.save(Path(folder) / "saved.hs")
        return hs.load(Path(folder) / "saved.hs")


def play_single(case: Case, refused: Counter[str]) -> None:
    """Play one agent through everything that only single agents can do."""
    rng, T = case.rng, case.rounds
    agent = hs.make(
        case.agent, observed=case.observed, arms=case.arms, seed=case.number, max_pending=60, **case.options
    )
    params = next((name for name in ("arm_params", "state_rewards") if name in case.options), None)
    arms, rewards = [], []
    refit_every = int(rng.choice([T // 8, T // 3]))
    for t in range(T):
        played = f"round {t + 1}"
        active = agent.active_arms
        available = None
        if rng.uniform() < 0.2:
            available = rng.choice(active, size=rng.integers(1, len(active) + 1), replace=False).tolist()
        decision = agent.decide(case.observations[t, 0], available=available, **case.contexts_argument(t, 0))
        if not np.isfinite(decision.expected).all():
            raise Fault(f"{played}: expected rewards are not finite")
        check_choices(decision._choices, decision.propensities[None], played)
        value = float(case.reward(t, 0, decision.index))
        arms.append(decision.arm)
        rewards.append(np.nan)
        draw = rng.uniform()
        if case.delivery == "at once" or draw < 0.4:
            rewards[-1] = value
            _learn_or_refuse(agent.learn, decision, value, refused)
        elif draw < 0.55:
            _learn_or_refuse(agent.learn, decision, -value, refused, provisional=True)
        elif draw < 0.6:
            agent.give_up(decision)
        if agent.pending and rng.uniform() < 0.4:
            waiting = int(rng.choice(agent.pending))
            late = float(case.reward(waiting - 1, 0, waiting))
            _learn_or_refuse(agent.learn, waiting, late, refused, provisional=bool(rng.uniform() < 0.3))
        if len(agent.pending) > 5 and rng.uniform() < 0.02:
            _learn_or_refuse(agent.learn_many, agent.pending[:5], case.rewards[:5, 0], refused)
        if rng.uniform() < 3 / T:
            agent.add_arm(params=None if params is None else rng.normal(size=np.shape(case.options[params])[1]))
        if rng.uniform() < 3 / T and len(agent.active_arms) > 1:
            agent.retire_arm(int(rng.choice(agent.active_arms)))
        if t % refit_every == refit_every - 1 and agent.policy.can_refit:
            agent.refit()
            check_state(case.agent, agent.policy, f"{played}, after refit")
        if t % max(1, T // 4) == 0 or t == T - 1:
            check_state(case.agent, agent.policy, played)
        if t in (T // 3, 2 * T // 3):
            agent = _saved_and_loaded(agent)
    agent.health()
    twin = hs.make(case.agent, observed=case.observed, arms=case.arms, seed=case.number, max_pending=60, **case.options)
    try:
        for arm in agent._added:
            twin.add_arm(params=arm["params"])
        n = min(T, 200)
        contexts = {"contexts": case.contexts[:n, 0]} if case.contexts_argument(0, 0) else {}
        twin.fold(case.observations[:n, 0], arms[:n], rewards[:n], **contexts)
    except hs.HalfseenError as error:
        refused[str(error).partition(":")[0]] += 1
    check_state(case.agent, twin.policy, "after fold")


def play(case: Case, refused: Counter[str]) -> int:
    """Play a case and return its number of rounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (play_fleet if case.streams else play_single)(case, refused)
    return case.rounds * max(1, case.streams)


def rounds_per_agent(total: float, agents: list[str]) -> dict[str, float]:
    """Divide the rounds: one hundredth for each slow agent, and the rest equally between the fast ones."""
    slow = [name for name in agents if name in SLOW_AGENTS]
    fast = max(1, len(agents) - len(slow))
    rest = (1.0 - SLOW_SHARE * len(slow)) / fast if len(slow) < len(agents) else 0.0
    return {name: total * (SLOW_SHARE if name in slow else rest) for name in agents}


def soak(total: float, seed: int, agents: list[str] | None = None) -> Iterator[Result]:
    """Play cases until every agent has its share of `total` rounds. Yields the result of one agent after another."""
    for agent, share in rounds_per_agent(total, agents or list(hs.catalog())).items():
        result, start = Result(agent), time.monotonic()
        while result.rounds < share:
            try:
                result.rounds += attempt(agent, seed, result.cases, result.refused)
            except Fault as fault:
                result.faults.append(str(fault))
                if len(result.faults) == MAX_FAULTS:
                    break
            result.cases += 1
        result.seconds = time.monotonic() - start
        yield result


def attempt(agent: str, seed: int, number: int, refused: Counter[str], most: float = np.inf) -> int:
    """Play one case and return its number of rounds. Raise Fault with a description of the case if anything fails."""
    case = draw_case(agent, seed, number, most)
    try:
        return play(case, refused)
    except Exception as error:
        raise Fault(f"{type(error).__name__}: {error}\n  {case}\n  repeat with: {case.command}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description="Soak all catalogued agents in extreme inputs and options.")
    parser.add_argument("--rounds", type=float, default=1e6, help="of all agents together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", action="append", choices=list(hs.catalog()))
    parser.add_argument("--case", type=int, help="play only this case of --agent")
    given = parser.parse_args()
    if given.case is not None:
        print(f"{attempt(given.agent[0], given.seed, given.case, Counter()):,} rounds without a fault")
        return
    total, faults, began = 0, 0, time.monotonic()
    for result in soak(given.rounds, given.seed, given.agent):
        total, faults = total + result.rounds, faults + len(result.faults)
        print(result, flush=True)
    print(f"{total:,} rounds in {time.monotonic() - began:.0f} s, {faults} faults")
    raise SystemExit(faults > 0)


if __name__ == "__main__":
    main()
