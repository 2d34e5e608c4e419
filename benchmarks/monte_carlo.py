"""Monte Carlo simulation of `kf-ts` and `emkf-ts` in `orbit` on one core, including the world.

The flops of a round are those of the world (Dx + ε, and μ_a·x for every arm), of the filter with a converged gain, of
the scores of all arms and of the update of one arm. `emkf-ts` also needs the sums of x̂x̂ᵀ, x̂'x̂'ᵀ and x̂'x̂ᵀ over the
steps from x̂ to x̂'. These are not counted: its refits every 200 rounds, the rounds after a refit until the gain has
converged again, and the random draws (36 normal variates per round).

The other contenders are NumPy for one stream, NumPy batched over streams, and JAX, which scans over rounds and uses
vmap over streams, jitted and in float64. For the comparison of results, all contenders are given the random draws of
`hs.run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job
from benchmarks.problem import ARMS, LATENT, OBSERVED, filter_flops, learn_flops, product_flops, score_flops, triangle
from halfseen.agents.catalogue import AgentSpec
from halfseen.components import Payoffs, StreamBatch
from halfseen.estimators.windowed_em import initial_transitions
from halfseen.experiments.plan import CHUNK
from halfseen.experiments.play import build_policy
from halfseen.kernels.choice import NORMAL
from halfseen.kernels.random import Purpose, normal_series, normals, stream_keys
from halfseen.worlds import named

SEEDS, ROUNDS, QUICK_ROUNDS, SLOW_ROUNDS, COMPARED = 64, 2000, 600, 400, 150
WINDOW = 200  # rounds between two refits of `emkf-ts`
HOLD_AFTER = 200  # rounds after which the gain in `orbit` has converged


def agent_flops(d: int, k: int, arms: int, *, learns_model: bool = False) -> int:
    """Return the flops of a round without the world."""
    refit = 4 * triangle(d) + product_flops(d, d) if learns_model else 0
    return filter_flops(d, k) + score_flops(d, arms) + learn_flops(d) + refit


def flops(d: int, k: int, arms: int, *, learns_model: bool) -> int:
    world = product_flops(d, d) + d + product_flops(arms, d) + 1
    return world + agent_flops(d, k, arms, learns_model=learns_model)


def agree(one: np.ndarray, other: np.ndarray) -> None:
    """Compare the decisions (streams, rounds) in the first rounds, and allow 5 % of the streams to differ.

    The random draws are the same, but a rounding error can change a decision and then all later decisions.
    """
    streams, rounds = len(other), min(other.shape[1], COMPARED)
    same = (one[:streams, :rounds] == other[:, :rounds]).mean(axis=1)
    assert (same == 1.0).mean() >= 0.95, f"only {(same == 1.0).sum()} of {streams} streams make the same decisions"


def job(agent: str, quick: bool = False) -> Job:
    seeds, rounds = SEEDS, QUICK_ROUNDS if quick else ROUNDS
    learns = agent == "emkf-ts"
    draws = draws_of(range(seeds), rounds)
    start = LearntStart.of(range(seeds)) if learns else None

    def ours() -> np.ndarray:
        return hs.run(agent, world="orbit", rounds=rounds, seeds=seeds).tracks["orbit", agent].arm

    def with_jax(module: Any, label: str, *, held: bool) -> Contender:
        name = f"{label}, vmap + scan" + (", gain held" if held else "")
        on_given_draws, on_own_draws = jax_compiled(draws, start, held=held)
        note = "generates its own random draws" + ("; gain held constant after 200 rounds" if held else "")
        return Contender(name, on_own_draws, seeds * rounds, note, on_given_draws, at_least=3.0)

    job = Job(
        f"Monte Carlo of {agent}, one core",
        "round",
        flops(LATENT, OBSERVED, ARMS, learns_model=learns),
        [
            Contender("halfseen", ours, seeds * rounds, f"`hs.run`, {seeds} seeds"),
            Contender(
                "NumPy loop",
                lambda: one_stream(draws.first(1, SLOW_ROUNDS), start),
                SLOW_ROUNDS,
                "one stream; random draws are given",
            ),
            Contender(
                "NumPy, batched",
                lambda: batched(draws, start),
                seeds * rounds,
                "random draws are given" if learns else "gain held constant after 200 rounds; random draws are given",
            ),
        ],
        agree,
        repeats=5,
        flop_limit=15.0,
    )
    job.enter("jax", "jax", lambda module, label: with_jax(module, label, held=False))
    if not learns:
        job.enter("jax", "jax", lambda module, label: with_jax(module, label, held=True))
    return job


def breakdown_job(quick: bool = False) -> Job:
    """Return the job that measures three parts of `hs.run`: simulating the world, filtering, and playing the arms.

    The rest of the time is spent on storing the trajectories. Every part is compared with the flops of a whole round.
    """
    agent = "kf-ts"
    total, seeds, world = QUICK_ROUNDS if quick else ROUNDS, tuple(range(SEEDS)), named("orbit")

    def whole() -> np.ndarray:
        return hs.run(agent, world="orbit", rounds=total, seeds=SEEDS).tracks["orbit", agent].arm

    def the_world() -> int:
        episodes = world.begin(seeds)
        return sum(len(episodes.advance(min(CHUNK, total - start)).contexts) for start in range(0, total, CHUNK))

    episodes = world.begin(seeds)
    chunks = [episodes.advance(min(CHUNK, total - start)) for start in range(0, total, CHUNK)]

    def played() -> tuple[float, float, np.ndarray]:
        """Return the seconds of filtering, the seconds of choosing and learning, and the arms (S, T)."""
        policy = build_policy(AgentSpec(agent), world, episodes, seeds, total)
        filtering = choosing = 0.0
        arms, clock, start = np.empty((SEEDS, total), dtype=np.int64), time.thread_time, 1
        for rounds in chunks:
            shape = rounds.reward_noise.T.shape
            payoffs = Payoffs(*(np.ascontiguousarray(one.swapaxes(0, 1)) for one in rounds[2:]), 1.0)
            features = np.empty((*shape, policy.estimator.dimension))
            first, chosen, rewards = np.full(SEEDS, start), np.empty(shape, dtype=np.int64), np.empty(shape)
            widths = policy.chooser.widths(policy.all_rows, first, policy.learner)
            began = clock()
            policy.estimator.observe_rounds(rounds.observations, first, None, features)
            filtered = clock()
            policy.learner.play_rounds(
                features, widths, NORMAL, policy.streams.keys, first, policy.active, payoffs, chosen, rewards
            )
            filtering, choosing = filtering + filtered - began, choosing + clock() - filtered
            arms[:, start - 1 : start - 1 + shape[1]] = chosen
            start += shape[1]
        return filtering, choosing, arms

    def all_rounds(count: int) -> None:
        assert count == total

    units = SEEDS * total
    return Job(
        f"Parts of the Monte Carlo of {agent}",
        "round",
        flops(LATENT, OBSERVED, ARMS, learns_model=False),
        [
            Contender("hs.run", whole, units, "the whole run"),
            Contender(
                "the world", the_world, units, "contexts, rewards, all draws except the agent's", check=all_rounds
            ),
            Contender("filter", played, units, "", lambda: played()[2], lambda one: one[0]),
            Contender(
                "choose and learn", played, units, "scores, draws, choice", lambda: played()[2], lambda one: one[1]
            ),
        ],
        np.testing.assert_array_equal,
        repeats=3,
    )


@dataclass(frozen=True)
class Draws:
    """The models and the standard normal draws of B streams and T rounds."""

    transition: np.ndarray  # D (B, d, d)
    arm_params: np.ndarray  # μ (B, K, d)
    process_std: float
    reward_std: float
    context: np.ndarray  # x_0 (B, d)
    process: np.ndarray  # (B, T, d)
    reward: np.ndarray  # (B, T)
    choice: np.ndarray  # (B, T, K)

    def first(self, streams: int, rounds: int) -> Draws:
        return replace(
            self,
            transition=self.transition[:streams],
            arm_params=self.arm_params[:streams],
            context=self.context[:streams],
            process=self.process[:streams, :rounds],
            reward=self.reward[:streams, :rounds],
            choice=self.choice[:streams, :rounds],
        )


@dataclass(frozen=True)
class LearntStart:
    """The initial D̂ (B, d, d) of `emkf-ts`. The initial Q̂ is I."""

    transition: np.ndarray

    @classmethod
    def of(cls, seeds: Sequence[int]) -> LearntStart:
        streams = StreamBatch(stream_keys(list(seeds)), OBSERVED, ARMS)
        return cls(initial_transitions(streams, LATENT, "orthogonal"))


def draws_of(seeds: Sequence[int], rounds: int) -> Draws:
    keys, episodes = stream_keys(list(seeds)), named("orbit").begin(list(seeds))
    return Draws(
        np.stack([model.transition for model in episodes.models]),
        episodes.arm_params,
        float(np.sqrt(episodes.models[0].process_cov[0, 0])),
        episodes.reward_std,
        normals(keys, np.zeros(len(keys), dtype=np.int64), Purpose.INITIAL_CONTEXT, LATENT),
        normal_series(keys, 1, rounds, Purpose.PROCESS_NOISE, LATENT),
        normal_series(keys, 1, rounds, Purpose.REWARD_NOISE, 1)[:, :, 0],
        normal_series(keys, 1, rounds, Purpose.CHOICE, ARMS),
    )


def one_stream(draws: Draws, start: LearntStart | None) -> np.ndarray:
    """Return the arms (1, T) of the first stream, vectorised only over arms. With a `start`, the model is learned."""
    D, mu, context = draws.transition[0], draws.arm_params[0], draws.context[0]
    rounds, (arms, d) = draws.process.shape[1], mu.shape
    A, z = np.eye(OBSERVED, d), draws.choice[0]
    D_hat, Q_hat = (D, draws.process_std**2 * np.eye(d)) if start is None else (start.transition[0], np.eye(d))
    x, P = np.zeros(d), np.eye(d)
    inverse, f = np.tile(np.eye(d), (arms, 1, 1)), np.zeros((arms, d))
    played, estimates = np.empty((1, rounds), dtype=np.int64), []
    for t in range(rounds):
        context = D @ context + draws.process_std * draws.process[0, t]
        x, P = D_hat @ x, D_hat @ P @ D_hat.T + Q_hat
        S = A @ P @ A.T
        S[np.diag_indices(OBSERVED)] *= 1 + 1e-9
        gain = np.linalg.solve(S, A @ P).T
        x, P = x + gain @ (A @ context - A @ x), P - gain @ A @ P
        image = inverse @ x
        arm = int(np.argmax((image * f).sum(axis=1) + np.sqrt(image @ x) * z[t]))
        reward = mu[arm] @ context + draws.reward_std * draws.reward[0, t]
        inverse[arm] -= np.outer(image[arm], image[arm]) / (1.0 + x @ image[arm])
        f[arm] += reward * x
        played[0, t] = arm
        if start is not None:
            estimates.append(x)
            if (t + 1) % WINDOW == 0:
                D_hat, Q_hat = (one[0] for one in refitted(np.array(estimates[-WINDOW:])[None]))
    return played


def batched(draws: Draws, start: LearntStart | None) -> np.ndarray:
    """Return the arms (B, T) of all streams, round by round. A gain that has converged is not computed again."""
    D, mu, context = draws.transition, draws.arm_params, draws.context
    (streams, rounds, d), k, arms = draws.process.shape, OBSERVED, mu.shape[1]
    rows, diagonal = np.arange(streams), np.arange(k)
    D_hat, Q_hat = (D, draws.process_std**2 * np.eye(d)) if start is None else (start.transition, np.eye(d))
    x, P = np.zeros((streams, d)), np.tile(np.eye(d), (streams, 1, 1))
    inverse, f = np.tile(np.eye(d), (streams, arms, 1, 1)), np.zeros((streams, arms, d))
    played, estimates = np.empty((streams, rounds), dtype=np.int64), np.empty((streams, WINDOW, d))
    gain = np.empty((streams, d, k))
    for t in range(rounds):
        context = (D @ context[:, :, None])[:, :, 0] + draws.process_std * draws.process[:, t]
        if start is not None or t < HOLD_AFTER:
            P = D_hat @ P @ D_hat.swapaxes(1, 2) + Q_hat
            S = P[:, :k, :k].copy()
            S[:, diagonal, diagonal] *= 1 + 1e-9
            gain = np.linalg.solve(S, P[:, :k]).swapaxes(1, 2)
            M = P - gain @ P[:, :k]
            if start is not None:  # Joseph's form, because the estimated model may be unstable
                noise = 1e-9 / (1 + 1e-9) * S[:, diagonal, diagonal]
                M = M - (M[:, :, :k] - gain * noise[:, None, :]) @ gain.swapaxes(1, 2)
            P = 0.5 * (M + M.swapaxes(1, 2))
        x = (D_hat @ x[:, :, None])[:, :, 0]
        x = x + (gain @ (context[:, :k] - x[:, :k])[:, :, None])[:, :, 0]
        image = (inverse.reshape(streams, arms * d, d) @ x[:, :, None]).reshape(streams, arms, d)
        spread = np.sqrt((image @ x[:, :, None])[:, :, 0])
        arm = np.argmax((image * f).sum(axis=2) + spread * draws.choice[:, t], axis=1)
        reward = (mu[rows, arm] * context).sum(axis=1) + draws.reward_std * draws.reward[:, t]
        image = image[rows, arm]
        scale = 1.0 / (1.0 + (x * image).sum(axis=1))
        inverse[rows, arm] -= (scale[:, None] * image)[:, :, None] * image[:, None, :]
        f[rows, arm] += reward[:, None] * x
        played[:, t] = arm
        if start is not None:
            estimates[:, t % WINDOW] = x
            if (t + 1) % WINDOW == 0:
                D_hat, Q_hat = refitted(estimates)
    return played


def refitted(estimates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return D̂ and Q̂ of the paper's Algorithm 1 from filtered means (B, n, d)."""
    a, b = estimates[:, :-1], estimates[:, 1:]
    d = a.shape[2]
    X, Psi = a.swapaxes(1, 2) @ a, b.swapaxes(1, 2) @ a
    ridge = 1e-6 * np.trace(X, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
    D = np.linalg.solve(X + ridge, Psi.swapaxes(1, 2)).swapaxes(1, 2)
    residual = b - a @ D.swapaxes(1, 2)
    return D, residual.swapaxes(1, 2) @ residual / a.shape[1] + 1e-9 * np.eye(d)


def jax_compiled(draws: Draws, start: LearntStart | None, *, held: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return two functions that play all rounds. The first uses the given draws, and the second uses JAX's own draws.

    The first returns the arms (B, T), which are compared with those of other contenders. The second is timed. With
    `held`, the gain is held constant after HOLD_AFTER rounds.
    """
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    (streams, rounds, d), arms = draws.process.shape, draws.arm_params.shape[1]
    k, process_std, reward_std = OBSERVED, draws.process_std, draws.reward_std
    eye = jnp.eye(d)

    def covariance_step(D: Any, Q: Any, P: Any) -> tuple[Any, Any]:
        P = D @ P @ D.T + Q
        noise = 1e-9 * jnp.diag(P)[:k]
        gain = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(P[:k, :k] + jnp.diag(noise)), True), P[:k]).T
        P = P - gain @ P[:k]
        if start is not None:  # Joseph's form, because the estimated model may be unstable
            P = P - (P[:, :k] - gain * noise) @ gain.T
            P = 0.5 * (P + P.T)
        return gain, P

    def play_round(model: Any, gain: Any, D: Any, state: Any, drawn: Any) -> tuple[Any, Any]:
        """Play a round: the world, the filtered mean, the choice and the update, given the gain."""
        D_true, mu = model
        context, x, C, m = state
        process, noise, z = drawn
        context = D_true @ context + process_std * process
        x = D @ x
        x = x + gain @ (context[:k] - x[:k])
        image = C @ x
        variances = image @ x
        arm = jnp.argmax(m @ x + jnp.sqrt(variances) * z)
        expected = mu @ context
        reward = expected[arm] + reward_std * noise
        g, scale = image[arm], 1.0 / (1.0 + variances[arm])
        C = C.at[arm].add(-scale * jnp.outer(g, g))
        m = m.at[arm].add(scale * (reward - m[arm] @ x) * g)
        return (context, x, C, m), (arm, expected.max() - expected[arm])

    def exact(model: Any, D: Any, Q: Any, carry: Any, drawn: Any) -> Any:
        def one(carry: Any, inputs: Any) -> Any:
            state, P = carry
            gain, P = covariance_step(D, Q, P)
            state, (arm, regret) = play_round(model, gain, D, state, inputs)
            return (state, P), (arm, regret, state[1])

        return jax.lax.scan(one, carry, drawn)

    def known(model: Any, _: Any, context: Any, drawn: Any) -> Any:
        D, Q = model[0], process_std**2 * eye
        carry = begin(context)
        if not held:
            return exact(model, D, Q, carry, drawn)[1][:2]
        windows = slice(None, HOLD_AFTER), slice(HOLD_AFTER, None)
        before, after = (jax.tree.map(lambda a, window=window: a[window], drawn) for window in windows)
        (state, P), first = exact(model, D, Q, carry, before)
        gain, _P = covariance_step(D, Q, P)
        second = jax.lax.scan(lambda state, inputs: play_round(model, gain, D, state, inputs), state, after)[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first[:2], second)

    def learnt(model: Any, D_start: Any, context: Any, drawn: Any) -> Any:
        def window(carry: Any, inputs: Any) -> Any:
            inner, D, Q = carry
            inner, (arm, regret, x) = exact(model, D, Q, inner, inputs)
            a, b = x[:-1], x[1:]
            X = a.T @ a
            D = jnp.linalg.solve(X + 1e-6 * jnp.trace(X) / d * eye, a.T @ b).T
            residual = b - a @ D.T
            return (inner, D, residual.T @ residual / len(a) + 1e-9 * eye), (arm, regret)

        folded = jax.tree.map(lambda a: a.reshape(rounds // WINDOW, WINDOW, *a.shape[1:]), drawn)
        arm, regret = jax.lax.scan(window, (begin(context), D_start, eye), folded)[1]
        return arm.ravel(), regret.ravel()

    def begin(context: Any) -> Any:
        return (context, jnp.zeros(d), jnp.tile(eye, (arms, 1, 1)), jnp.zeros((arms, d))), eye

    def with_own_draws(model: Any, D_start: Any, context: Any, key: Any) -> Any:
        keys = jax.random.split(key, 3)
        shapes = ((rounds, d), (rounds,), (rounds, arms))
        drawn = tuple(jax.random.normal(one, shape) for one, shape in zip(keys, shapes, strict=True))
        return stream(model, D_start, context, drawn)

    stream = known if start is None else learnt
    D_start = draws.transition if start is None else start.transition
    inputs = jax.device_put(((draws.transition, draws.arm_params), D_start, draws.context))
    random_keys = jax.random.split(jax.random.key(0), streams)
    given_draws, own_draws = jax.jit(jax.vmap(stream)), jax.jit(jax.vmap(with_own_draws))

    def on_given_draws() -> np.ndarray:
        played, regret = given_draws(*inputs, (draws.process, draws.reward, draws.choice))
        assert np.isfinite(regret).all(), "The regret that JAX computes is not finite."
        return np.asarray(played)

    return on_given_draws, lambda: jax.block_until_ready(own_draws(*inputs, random_keys))
