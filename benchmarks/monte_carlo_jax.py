"""`kf-ts` and `emkf-ts` in JAX: one stream written as a scan over rounds, vmapped over streams, jitted, float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.monte_carlo_draws import WINDOW, Draws, LearntStart
from benchmarks.monte_carlo_numpy import HOLD_AFTER
from benchmarks.settings import OBSERVED


def compiled(draws: Draws, start: LearntStart | None, *, held: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two ways to play: on the draws handed over, arms (B, T); and on draws of its own, which is what is timed."""
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
        if start is not None:  # Joseph's form: a model learnt on the way may be unstable, and P must not suffer
            P = P - (P[:, :k] - gain * noise) @ gain.T
            P = 0.5 * (P + P.T)
        return gain, P

    def play_round(model: Any, gain: Any, D: Any, state: Any, drawn: Any) -> tuple[Any, Any]:
        """World, mean, choice and learning, with the gain of this round."""
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
        before, after = (jax.tree.map(lambda a, part=part: a[part], drawn) for part in _parts())
        (state, P), first = exact(model, D, Q, carry, before)
        gain, _P = covariance_step(D, Q, P)
        rest = jax.lax.scan(lambda state, inputs: play_round(model, gain, D, state, inputs), state, after)[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first[:2], rest)

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
    told = jax.device_put(((draws.transition, draws.arm_params), D_start, draws.context))
    random_keys = jax.random.split(jax.random.key(0), streams)
    on_handed, on_own = jax.jit(jax.vmap(stream)), jax.jit(jax.vmap(with_own_draws))

    def handed() -> np.ndarray:
        played, regret = on_handed(*told, (draws.process, draws.reward, draws.choice))
        assert np.isfinite(regret).all(), "not a number in what JAX computes"
        return np.asarray(played)

    return handed, lambda: jax.block_until_ready(on_own(*told, random_keys))


def _parts() -> tuple[slice, slice]:
    return slice(None, HOLD_AFTER), slice(HOLD_AFTER, None)
