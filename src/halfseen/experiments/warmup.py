"""Compiles all kernels in parallel, before they are first used.

Numba infers the argument types of a kernel from a call. The warm-up therefore runs small tasks that together call all
kernels as users do. Several processes run the tasks. Once a process has compiled a kernel, the other
processes load it from the cache. The first tasks are therefore chosen to need different kernels.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np

from halfseen import kernels
from halfseen.errors import HalfseenError, HalfseenWarning
from halfseen.kernels.compiling import KERNELS, QUIET, cache_folder

_OBSERVED, _LATENT, _ARMS, _ROUNDS = 2, 3, 3, 40
_POLL_SECONDS = 0.2


def all_kernels() -> list[str]:
    """Return the names of all kernels."""
    for module in iter_modules(kernels.__path__, f"{kernels.__name__}."):
        import_module(module.name)
    return list(KERNELS)


def missing_kernels() -> list[str]:
    """Return the names of the kernels that are not in the cache of compiled kernels."""
    folder = cache_folder()
    compiled = {path.name.split("-")[0] for path in folder.glob("*/*.nbi")} if folder else set()
    return [name for name in all_kernels() if name.removeprefix("kernels.") not in compiled]


def compile_missing(jobs: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Compile the missing kernels in `jobs` processes, by default one per processor.

    `progress` is called with the number of compiled kernels and the total number of kernels.
    """
    total = len(all_kernels())
    workers = min(jobs or _processors(), len(_TASKS))
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            running = {pool.submit(_run, name) for name in _TASKS}
            while running:
                progress(total - len(missing_kernels()), total)
                done, running = wait(running, timeout=_POLL_SECONDS)
                for future in done:
                    if future.exception() is not None:
                        pool.shutdown(cancel_futures=True)
                    future.result()
    except BrokenProcessPool:
        raise HalfseenError(
            "A process that compiled kernels ended early. There may be too little memory. Try fewer jobs."
        ) from None
    progress(total - len(missing_kernels()), total)


def _processors() -> int:
    affinity: Sequence[int] | set[int] = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return len(affinity)


def _run(name: str) -> None:
    """Run a task in a worker process without output, because the parent shows one progress bar for all processes."""
    os.environ[QUIET] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)
        _TASKS[name]()


# ---------------------------------------------------------------------- tasks


def _observations() -> Any:
    ys = np.random.default_rng(0).normal(size=(_ROUNDS, _OBSERVED))
    ys[7, 1] = np.nan
    return ys


def _required_options(required: Sequence[str]) -> dict[str, Any]:
    """Return values for the required options of an agent."""
    from halfseen.models.linear_gaussian import LinearGaussianModel

    facts: dict[str, Any] = {
        "model": LinearGaussianModel(
            transition=0.9 * np.eye(_LATENT), process_cov=np.eye(_LATENT), observation_cov=np.full(_OBSERVED, 0.5)
        ),
        "latent": _LATENT,
        "arm_params": np.eye(_ARMS, _LATENT),
        "state_rewards": np.eye(_ARMS, 2),
        "state_transition": np.array([[0.9, 0.1], [0.2, 0.8]]),
    }
    return {name: facts[name] for name in required}


def _options(name: str) -> dict[str, Any]:
    from halfseen.agents.catalogue import CATALOG

    short = {"window": 5 * _LATENT, "warm_up": 8, "restarts": 1, "burn_in": 6}  # so that few rounds are enough
    entry = CATALOG[name]
    optional = {option: value for option, value in short.items() if option in entry.options}
    return _required_options(entry.required) | optional


def _play(*agents: str) -> None:
    """Play agents with missing entries, a gap and provisional rewards, save and load them, and play fleets of them."""
    from halfseen.agents.catalogue import CATALOG, make, split_spec
    from halfseen.agents.fleet import Fleet
    from halfseen.agents.loading import load
    from halfseen.components import LONGEST_GAP

    for spec in agents:
        name, given = split_spec(spec)
        options = _options(name) | given
        ys, contexts = _observations(), np.ones((_ROUNDS, _LATENT))
        agent = make(name, observed=_OBSERVED, arms=_ARMS, seed=0, **options)
        revealed = CATALOG[name].reveals_context
        for t, y in enumerate(ys):
            decision = agent.decide(y, **({"context": contexts[t]} if revealed else {}))
            decision.propensities  # noqa: B018 (computed on first access)
            agent.learn(decision.id, float(t % 3))
        if agent.policy.can_refit:
            agent.refit()
        if not revealed:
            agent.observe(ys[0], elapsed=LONGEST_GAP + 2)
        if agent.policy.takes_provisional:
            decision = agent.decide(ys[0], **({"context": contexts[0]} if revealed else {}))
            agent.learn(decision.id, 1.0, provisional=True)
            agent.learn(decision.id, 2.0)
        with tempfile.TemporaryDirectory() as folder:
            agent.save(Path(folder) / "agent")
            load(Path(folder) / "agent")
        fleet = Fleet(name, observed=_OBSERVED, arms=_ARMS, **options)
        fleet.add(["a", "b"], seeds=[1, 2])
        for y in ys[:3]:
            decisions = fleet.decide(np.stack([y, y]), **({"contexts": contexts[:2]} if revealed else {}))
            fleet.learn(decisions.ids[:1], [1.0])
        fleet.remove(["a"])
        fleet.agent("b")


def _filter() -> None:
    model = _required_options(["model"])["model"]
    model.smooth(_observations())
    model.smooth(_observations(), elapsed=2)
    tracker = model.tracker()
    for y in np.tile(_observations(), (4, 1)):
        tracker.step(y)
    for y in np.zeros((100, _OBSERVED)):
        tracker.step(y)


def _fit() -> None:
    from halfseen.models.identification.maximum_likelihood import fit

    fit(_observations(), latent=_LATENT, observation_cov="full", max_iterations=32)


def _experiment() -> None:
    from halfseen.experiments.run import run

    run(["kf-ts", "emkf-ts"], world="paper", rounds=_ROUNDS, seeds=2)


# Tasks that run at the same time in two processes have no large kernel in common.
_TASKS: dict[str, Callable[[], None]] = {
    "fit": _fit,
    "ridge": partial(_play, "ts-pco", "kf-ts", "emkf-ts"),
    "adaptive": partial(_play, "adaptive", "adaptive-ts"),
    "rivals": partial(_play, "hmm-ts", "meb", "mts", "bayes"),
    "filter": _filter,
    "experiment": _experiment,
    "others": partial(_play, "adaptive-ids", "em-rts-ts", "blup-ts", "lag-ts", "oracle-ts", "random", "kf-ucb"),
    "families": partial(_play, "glm-ucb:reward_family=count", "adaptive:reward_family=count"),
}
