"""A small model with simulated rounds, in which any catalogued agent can be made and tested."""

from __future__ import annotations

import numpy as np

import halfseen as hs

OBSERVED, LATENT, ARMS = 3, 5, 4


def small_model(seed: int = 0, observed: int = OBSERVED, latent: int = LATENT) -> hs.LinearGaussianModel:
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(latent, latent)))[0]
    root = 0.4 * rng.normal(size=(latent, latent))
    return hs.LinearGaussianModel(
        transition=0.93 * rotation,
        process_cov=root @ root.T + 0.1 * np.eye(latent),
        observation_cov=np.diag(rng.uniform(0.1, 0.6, size=observed)),
        initial_mean=rng.normal(size=latent),
        initial_cov=1.7 * np.eye(latent),
    )


def arm_params(seed: int = 0, arms: int = ARMS, latent: int = LATENT) -> np.ndarray:
    return np.random.default_rng([seed, 1]).normal(size=(arms, latent))


def state_rewards(seed: int = 0, arms: int = ARMS) -> np.ndarray:
    """Return the expected reward of every arm in each of three states."""
    return np.random.default_rng([seed, 3]).normal(size=(arms, 3))


STATE_TRANSITION = np.array([[0.9, 0.07, 0.03], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])


def small_options(name: str) -> dict[str, object]:
    """Return the options an agent requires, and values other than 0 and 1 for some of its hyperparameters."""
    required = {
        "model": small_model(),
        "arm_params": arm_params(),
        "latent": LATENT,
        "state_rewards": state_rewards(),
        "state_transition": STATE_TRANSITION,
    }
    hyperparameters = {
        "regularisation": 2.3,
        "states": 3,
        "warm_up": 12,
        "restarts": 1,
        "state_std": 1.7,
        "memory": 90,
        "window": 5 * LATENT,
        "observation_cov": 0.3,
        "burn_in": 14,
        "minimum_probability": 0.07,
    }
    entry = hs.catalog()[name]
    if "reward_family" in entry.options and entry.options["reward_family"].default != "gaussian":
        hyperparameters["reward_family"] = "gaussian"  # the rewards of most tests are any numbers
    return {
        **{option: required[option] for option in entry.required},
        **{option: value for option, value in hyperparameters.items() if option in entry.options},
    }


def make_small(name: str, seed: int = 0, **options: object) -> hs.Agent:
    return hs.make(name, observed=OBSERVED, arms=ARMS, seed=seed, **(small_options(name) | options))


def context_argument(agent: hs.Agent, context: np.ndarray) -> dict[str, np.ndarray]:
    """Return the keyword argument `context` of `Agent.decide` if the agent decides on the true context."""
    return {"context": context} if agent.policy.estimator.reveals_context else {}


def contexts_argument(name: str, contexts: np.ndarray) -> dict[str, np.ndarray]:
    """Return the keyword argument `contexts` of `Agent.fold` and `Fleet.decide` if the agent needs it."""
    return {"contexts": contexts} if hs.catalog()[name].reveals_context else {}


def simulate_rounds(rounds: int, seed: int = 0, missing: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate contexts (n, d), observations (n, k) and reward noise (n,) from the small model."""
    rng, model = np.random.default_rng([seed, 2]), small_model()
    x, contexts, observations = rng.normal(size=LATENT), [], []
    for _ in range(rounds):
        x = model.transition @ x + rng.multivariate_normal(np.zeros(LATENT), model.process_cov)
        contexts.append(x)
        observations.append(x[:OBSERVED] + rng.multivariate_normal(np.zeros(OBSERVED), model.observation_cov))
    ys = np.array(observations)
    ys[rng.uniform(size=ys.shape) < missing] = np.nan
    return np.array(contexts), ys, 0.5 * rng.normal(size=rounds)


def play_rounds(
    agent: hs.Agent, contexts: np.ndarray, ys: np.ndarray, noise: np.ndarray
) -> tuple[list[int], list[float]]:
    """Let an agent play simulated rounds with immediate rewards, and return the arms and the rewards."""
    params, arms, rewards = arm_params(), [], []
    for x, y, omega in zip(contexts, ys, noise, strict=True):
        decision = agent.decide(y, **context_argument(agent, x))
        rewards.append(float(params[decision.index] @ x + omega))
        arms.append(decision.index)
        agent.learn(decision.id, rewards[-1])
    return arms, rewards


def assert_same_state(one: hs.Agent, other: hs.Agent) -> None:
    first, second = one.state(), other.state()
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def state_bytes(agent: hs.Agent) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in agent.state().items()}
