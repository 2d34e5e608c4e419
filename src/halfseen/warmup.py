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
from halfseen.linker import NAMED, types_of

# The arguments of each kernel that Python calls, in the letters of `types_of`.
KERNELS: dict[str, str] = {
    "kernels.belief.advance": "i i f2 f2 f2 f2 f2 f1",
    "kernels.belief.amend_packed": "i1 i1 f2 f2 f2 i1 f1",
    "kernels.belief.credit_packed": "i1 i1 f2 f2 f2 i1 f1 f1",
    "kernels.belief.hear": "i1 i1 i2 f2 f1 i1 f2 f2 f2 f2 f2 f2 f2 f2",
    "kernels.belief.noise_of": "i1 i1 i1 f2 f2 f2 f2 f1",
    "kernels.belief.noise_packed": "i1 i1 f2 f2 f2 f2 f2",
    "kernels.belief.open_round": "i1 f2 f2 f2 f3 f2 f3 i1 i1 f2 f2 f2 f2 f2 f2 f1 i f2",
    "kernels.belief.reuse_packed": "i1 i1 f2 f2 f2 f2",
    "kernels.belief.score_packed": "i1 i1 f2 f2 f2 f2 f2",
    "kernels.checks.survey": "f2",
    "kernels.choice.pick": "f2 f2 f2 i f2 b2 i1",
    "kernels.choice.win_probabilities": "f2 f2 f2 i b2 f2",
    "kernels.evidence.arm_sums": "f2 i1 f1 f3 f2 f1 f1",
    "kernels.evidence.first_hyperparameters": "f3 f2 f1 f1 f1 f2",
    "kernels.evidence.fit_arms": "f3 f2 f1 f1 f1 f2 f f2 f3 i f",
    "kernels.hidden_markov.filter_and_learn": "i1 f2 i1 f f f2 f3 f3 f3 f4 f3 f4 f4",
    "kernels.hidden_markov.fit_start": "f2 i f f f1 f2 f2 f2 f3 f2 f3 f3",
    "kernels.hidden_markov.log_likelihood": "f2 f2 f2 f2",
    "kernels.information.draw": "f2 f2 i1",
    "kernels.information.lowest_ratio": "f2 f2 f2 f2 b2 f2",
    "kernels.kalman.advance_gain": "i1 f3 f3 f3 f3 f3 b1 b2",
    "kernels.kalman.advance_mean": "i1 i1 f3 f3 f2 f2",
    "kernels.kalman.advance_means": "i1 f3 f3 f2 f3 i i f3",
    "kernels.latent_states.hear_rewards": "i1 i1 f1 f2 f1 f3 f3 f3 i1 i1",
    "kernels.latent_states.open_rounds": "i1 i1 f2 f3 f3 f3 i1 f2",
    "kernels.linalg._above": "f2 f1",
    "kernels.linalg.all_below": "f3 i f1 b2",
    "kernels.measurement_error.estimate_arms": "i1 f4 f4 f3 i1 i f f3",
    "kernels.measurement_error.learn_corrected": "i1 f4 f4 f3 i1 f3 f3 i f f2 i1 f1",
    "kernels.measurement_error.score_seen": "i1 f3 f2 f2",
    "kernels.moments.maximise": "f2 f2 f2 i",
    "kernels.moments.noise_moment": "f2 f2 f2 i1 f3",
    "kernels.moments.state_moments": "f2 i1 f3 f3",
    "kernels.record.distances": "f2 f2 f1",
    "kernels.record.regrets": "f2 i1 f1",
    "kernels.regression.amend_rewards": "i1 f3 f3 f2 i1 f1",
    "kernels.regression.learn_rewards": "i1 f3 f3 f2 f2 i1 f1",
    "kernels.regression.score_arms": "i1 f3 f3 f2 f2 f2",
    "kernels.regression.score_known": "i1 f3 f2 f2",
    "kernels.rounds.begin_round": "i1 f2 i1 i1",
    "kernels.rounds.play_rounds": "f3 f3 f2 f2 f2 i u2 i1 i b2 f2 f2 f i2 f2",
    "kernels.rounds.score_and_pick": "i1 f3 f3 f2 f2 i u2 i1 i b2 f3 i1",
    "kernels.sequential.predict_in_turn": "f2 i1 f1 f1 f2 f f1 f1",
    "kernels.series.filter_series": "f2 f2 f2 f1 f2 f3",
    "kernels.simulation.move_contexts": "f3 f3 f2",
    "kernels.smoother.smooth_series": "f2 f2 f3 i2 f3 f3 i",
    "kernels.tracking.exact_round": "f1 f3 f3 f3 f2 f2 b f2 f1 f1",
    "kernels.tracking.steady_round": "f1 f2 f1 f1",
    "kernels.waiting.chains": "i1 j2 j2 i1",
    "kernels.waiting.close_decisions": "i1 i1 j1 j2 j1 j2 j1 i i1 i2",
    "kernels.waiting.enter_all": "i1 j1",
    "kernels.waiting.find_decisions": "i1 i1 j1 b1 i1",
    "kernels.waiting.forget_streams": "i1 i1 j1 j2 j1 j2 j1 i",
    "kernels.waiting.open_decisions": "i1 i1 i1 f2 i i1 j1 j1 f2 j2 j1 j2 j1 i",
    "kernels.windowed.gather_ahead": "f3 i i b f2 f2 f3 f3",
    "kernels.windowed.gather_pairs": "i1 i1 f2 f2 f2 f3 f3",
    "randomness.draw": "u2 i1 i b f2",
}


def kernels() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """All that is compiled on its own, by name, with the types of its arguments: kernels, and what they share."""
    called = {name: (_kernel(name), types_of(letters)) for name, letters in KERNELS.items()}
    return called | {name: (one.dispatcher, one.signature.args) for name, one in NAMED.items()}


def _kernel(name: str) -> Any:
    module, function = name.rsplit(".", 1)
    return getattr(importlib.import_module(f"halfseen.{module}"), function)


class Direct:
    """A kernel whose `call` takes its arguments as they are: a quarter of the time of a small kernel is a look at them.

    They must be of the types in KERNELS, which nothing checks: only for arrays that this package has made.
    """

    __slots__ = ("_name", "call")

    def __init__(self, name: str) -> None:
        self._name = name
        self.call: Callable[..., Any] = self._first

    def _first(self, *arguments: Any) -> Any:
        kernel, signature = _kernel(self._name), types_of(KERNELS[self._name])
        self.call = kernel.compile(signature) if hasattr(kernel, "compile") else kernel  # NUMBA_DISABLE_JIT
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


def _compile(name: str) -> None:
    """Compile a kernel, unless it is in the cache."""
    kernel, signature = kernels()[name]
    kernel.compile(signature)


def compile_all(jobs: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Compile every kernel in `jobs` processes (as many as there are processors); `progress` hears kernels done, all.

    Each process takes the next when it has finished one, the longest first. What is compiled already is only looked at.
    """
    everything = kernels()
    names = sorted(everything, key=lambda name: -len(everything[name][0].py_func.__code__.co_code))
    progress(0, len(names))
    workers = min(jobs or _processors(), len(names))
    quiet = os.environ.setdefault(QUIET, "warmup")  # for the processes, which have nothing to say of their own
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            for done, finished in enumerate(as_completed([pool.submit(_compile, name) for name in names]), 1):
                finished.result()
                progress(done, len(names))
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
