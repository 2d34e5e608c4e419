"""Every kernel, compiled ahead of its first use: in parallel, for the argument types the package calls it with."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from halfseen.compiler import CACHE, QUIET
from halfseen.errors import HalfseenError

# Per group, to be compiled in one process because its kernels share what they call, the arguments of each kernel:
# f float64, i int64, j int32, u uint64, b bool; with a digit, a C-contiguous array of so many dimensions; longest first
GROUPS: tuple[dict[str, str], ...] = (
    {
        "kernels.kalman.advance_gain": "i1 f3 f3 f3 f3 f3 b1 b2",
        "kernels.series.filter_series": "f2 f2 f2 f1 f2 f3",
        "kernels.tracking.exact_round": "f1 f3 f3 f3 f2 f2 b f2 f1 f1",
        "kernels.tracking.steady_round": "f1 f2 f1 f1",
        "kernels.kalman.advance_mean": "i1 i1 f3 f3 f2 f2",
        "kernels.kalman.advance_means": "i1 f3 f3 f2 f3 i i f3",
    },
    {
        "kernels.evidence.fit_arms": "f3 f2 f1 f1 f1 f2 f f2 f3 i f",
        "kernels.evidence.first_hyperparameters": "f3 f2 f1 f1 f1 f2",
        "kernels.evidence.arm_sums": "f2 i1 f1 f3 f2 f1 f1",
        "kernels.sequential.predict_in_turn": "f2 i1 f1 f1 f2 f f1 f1",
    },
    {
        "kernels.belief.hear": "i1 i1 i2 f2 f1 i1 f2 f2 f2 f2 f2 f2 f2 f2",
        "kernels.belief.credit_packed": "i1 i1 f2 f2 f2 i1 f1 f1",
        "kernels.belief.amend_packed": "i1 i1 f2 f2 f2 i1 f1",
        "kernels.belief.score_packed": "i1 i1 f2 f2 f2 f2 f2",
        "kernels.belief.reuse_packed": "i1 i1 f2 f2 f2 f2",
        "kernels.belief.noise_packed": "i1 i1 f2 f2 f2 f2 f2",
        "kernels.belief.noise_of": "i1 i1 i1 f2 f2 f2 f2 f1",
    },
    {
        "kernels.smoother.smooth_series": "f2 f2 f3 i2 f3 f3 i",
    },
    {
        "kernels.moments.noise_moment": "f2 f2 f2 i1 f3",
        "kernels.moments.state_moments": "f2 i1 f3 f3",
        "kernels.moments.maximise": "f2 f2 f2 i",
    },
    {
        "kernels.hidden_markov.filter_and_learn": "i1 f2 i1 f f f2 f3 f3 f3 f4 f3 f4 f4",
        "kernels.hidden_markov.fit_start": "f2 i f f f1 f2 f2 f2 f3 f2 f3 f3",
        "kernels.hidden_markov.log_likelihood": "f2 f2 f2 f2",
    },
    {
        "kernels.belief.advance": "i1 i1 f2 f2 f2 f2 f2 f2 f1",
        "kernels.belief.open_round": "i1 f2 f2 f2 f3 f2 f3 i1 i1 f2 f2 f2 f2 f2 f2 f1 i f2",
    },
    {
        "kernels.measurement_error.learn_corrected": "i1 f4 f4 f3 i1 f3 f3 i f f2 i1 f1",
        "kernels.measurement_error.estimate_arms": "i1 f4 f4 f3 i1 i f f3",
        "kernels.measurement_error.score_seen": "i1 f3 f2 f2",
    },
    {
        "kernels.choice.pick": "f2 f2 f2 i f2 b2 i1",
        "randomness.draw": "u2 i1 i b f2",
        "kernels.regression.score_arms": "i1 f3 f3 f2 f2 f2",
        "kernels.checks.survey": "f2",
        "kernels.rounds.score_and_pick": "i1 f3 f3 f2 f2 i u2 i1 i b2 f3 i1",
        "kernels.rounds.begin_round": "i1 f2 i1 i1",
        "kernels.regression.learn_rewards": "i1 f3 f3 f2 f2 i1 f1",
        "kernels.regression.amend_rewards": "i1 f3 f3 f2 i1 f1",
        "kernels.rounds.play_rounds": "f3 f3 f2 f2 f2 i u2 i1 i b2 f2 f2 f i2 f2",
    },
    {
        "kernels.choice.win_probabilities": "f2 f2 f2 i b2 f2",
    },
    {
        "kernels.information.lowest_ratio": "f2 f2 f2 f2 b2 f2",
        "kernels.information.draw": "f2 f2 i1",
    },
    {
        "kernels.clusters.k_means": "f2 f2 i f2 i1",
    },
    {
        "kernels.latent_states.open_rounds": "i1 i1 f2 f3 f3 f3 i1 f2",
        "kernels.latent_states.hear_rewards": "i1 i1 f1 f2 f1 f3 f3 f3 i1 i1",
    },
    {
        "kernels.regression.score_known": "i1 f3 f2 f2",
        "kernels.windowed.gather_pairs": "i1 i1 f2 f2 f2 f3 f3",
        "kernels.windowed.gather_ahead": "f3 i i b f2 f2 f3 f3",
        "kernels.simulation.move_contexts": "f3 f3 f2",
        "kernels.linalg._above": "f2 f1",
        "kernels.linalg.all_below": "f3 i f1 b2",
        "kernels.record.regrets": "f2 i1 f1",
        "kernels.record.distances": "f2 f2 f1",
    },
    {
        "kernels.waiting.enter_all": "i1 j1",
        "kernels.waiting.open_decisions": "i1 i1 i1 f2 i i1 j1 j1 f2 j2 j1 j2 j1 i",
        "kernels.waiting.find_decisions": "i1 i1 j1 b1 i1",
        "kernels.waiting.close_decisions": "i1 i1 j1 j2 j1 j2 j1 i i1 i2",
        "kernels.waiting.forget_streams": "i1 i1 j1 j2 j1 j2 j1 i",
        "kernels.waiting.chains": "i1 j2 j2 i1",
    },
)


def kernels() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Every kernel that Python calls, by name, with the types of its arguments."""
    return {name: (_kernel(name), _types(letters)) for group in GROUPS for name, letters in group.items()}


def _kernel(name: str) -> Any:
    module, function = name.rsplit(".", 1)
    return getattr(importlib.import_module(f"halfseen.{module}"), function)


def _types(letters: str) -> tuple[Any, ...]:
    from numba import types

    scalars = {"f": types.float64, "i": types.int64, "j": types.int32, "u": types.uint64, "b": types.boolean}
    return tuple(
        types.Array(scalars[one[0]], int(one[1]), "C") if len(one) > 1 else scalars[one] for one in letters.split()
    )


class Direct:
    """A kernel whose `call` takes its arguments as they are: a quarter of the time of a small kernel is a look at them.

    They must be of the types in GROUPS, which nothing checks: only for arrays that this package has made.
    """

    __slots__ = ("_name", "call")

    def __init__(self, name: str) -> None:
        self._name = name
        self.call: Callable[..., Any] = self._first

    def _first(self, *arguments: Any) -> Any:
        letters = next(group[self._name] for group in GROUPS if self._name in group)
        kernel = _kernel(self._name)
        self.call = kernel.compile(_types(letters)) if hasattr(kernel, "compile") else kernel  # NUMBA_DISABLE_JIT
        return self.call(*arguments)


def missing() -> list[str]:
    """The kernels that are not in the cache and would be compiled when first used."""
    return [
        name
        for name, (kernel, signature) in kernels().items()
        if kernel._cache.load_overload(signature, kernel.targetctx) is None
    ]


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    return Path(__file__).parent if CACHE is None else CACHE


def _compile(group: int) -> int:
    """Compile a group, or load what is compiled already; how many kernels it has."""
    for name, letters in GROUPS[group].items():
        _kernel(name).compile(_types(letters))
    return len(GROUPS[group])


def compile_all(jobs: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Compile every kernel in `jobs` processes (as many as there are processors); `progress` hears kernels done, all.

    Each process takes the next group when it has finished one. What is compiled already is only looked at.
    """
    total, done = sum(map(len, GROUPS)), 0
    progress(done, total)
    workers = min(jobs or _processors(), len(GROUPS))
    quiet = os.environ.setdefault(QUIET, "warmup")  # for the processes, which have nothing to say of their own
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            for finished in as_completed([pool.submit(_compile, group) for group in range(len(GROUPS))]):
                done += finished.result()
                progress(done, total)
    except BrokenProcessPool:
        raise HalfseenError("warmup: a process that compiled ended early; want memory for all, or fewer jobs") from None
    finally:
        if quiet == "warmup":
            del os.environ[QUIET]


def _processors() -> int:
    affinity: Sequence[int] | set[int] = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return len(affinity)
