"""Measures how much faster two Dask workers are than one, and the overhead per slice.

    python -m benchmarks.two_workers

Two clusters on this machine, with one and with two worker processes, play the same experiment in turn, and the best
turn of each counts. The start of the workers is not included. Elapsed time is unreliable if the machine has other load.
So the processor time of the busiest worker is also given: a machine with one core per worker would need this time. One
and two plain processes without Dask are measured in the same way, as an upper limit for the gain of two workers.
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "HALFSEEN_QUIET"), "1"))

import argparse
import contextlib
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import distributed
import numpy as np
import psutil

from halfseen.experiments.engines.dask import RemoteDaskExecutor
from halfseen.experiments.engines.local import SerialExecutor
from halfseen.experiments.plan import Slice, experiment
from halfseen.experiments.play import play

AIM = 1.7


def play_slices(executor: Any, slices: list[Slice]) -> list[Any]:
    played = {id(task): outcome for task, outcome in executor.run(play, slices, lambda _: None)}
    return [played[id(task)] for task in slices]


class PlainProcesses:
    """A pool of processes that play slices without Dask."""

    def __init__(self, count: int) -> None:
        self.pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        self.pids = sorted({pid for _ in range(20) for pid in self.pool.map(_pid, [0.05] * count)})

    def run(self, function: Any, slices: list[Slice], on_progress: Any) -> Any:
        return zip(slices, self.pool.map(_play, slices), strict=True)


def _pid(seconds: float) -> int:
    time.sleep(seconds)  # so that every process of the pool gets a call
    return os.getpid()


def _play(task: Slice) -> Any:
    return play(task, lambda _: None)


def processor_seconds(processes: list[psutil.Process]) -> list[float]:
    return [sum(process.cpu_times()[:2]) for process in processes]


def main(rounds: int, repeats: int) -> None:
    plan = experiment(["kf-ts", "emkf-ts", "ts-pco"], "orbit", rounds, 80)
    slices = [Slice(plan.worlds[0], plan.agents, plan.seeds[start : start + 10], rounds) for start in range(0, 80, 10)]
    tiny = [Slice(plan.worlds[0], plan.agents[2:], (seed,), 1) for seed in range(80)]
    executors: dict[str, Any] = {"this process": SerialExecutor()}
    processes = {"this process": [psutil.Process()]}
    elapsed, busiest, per_slice = dict[str, float](), dict[str, float](), dict[str, float]()
    with contextlib.ExitStack() as stack:
        for count in (1, 2):
            plain = PlainProcesses(count)
            stack.callback(plain.pool.shutdown)
            name = f"{count} process{'es' * (count > 1)}"
            executors[name], processes[name] = plain, [psutil.Process(pid) for pid in plain.pids]
            name = f"{count} worker{'s' * (count > 1)}"
            cluster = distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", memory_limit=0
            )
            stack.enter_context(cluster)
            executors[name] = stack.enter_context(RemoteDaskExecutor(cluster.scheduler_address))
            executors[name].prepare(slices[:1])
            with distributed.Client(cluster, set_as_default=False) as client:
                processes[name] = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        played = {name: play_slices(executor, slices) for name, executor in executors.items()}
        for name, theirs in played.items():
            for mine, other in zip(played["this process"], theirs, strict=True):
                for agent, track in mine.items():
                    np.testing.assert_array_equal(track.regret, other[agent].regret, err_msg=name)
        for _ in range(repeats):
            for name, executor in executors.items():
                before, began = processor_seconds(processes[name]), time.perf_counter()
                play_slices(executor, slices)
                took = time.perf_counter() - began
                used = np.subtract(processor_seconds(processes[name]), before).max()
                elapsed[name], busiest[name] = min(elapsed.get(name, took), took), min(busiest.get(name, used), used)
                began = time.perf_counter()
                play_slices(executor, tiny)
                took = (time.perf_counter() - began) / len(tiny)
                per_slice[name] = min(per_slice.get(name, took), took)
    print(
        f"{len(slices)} slices of 10 seeds, {len(plan.agents)} agents, {rounds:,} rounds; load {os.getloadavg()[0]:.1f}"
    )
    for name in executors:
        print(
            f"{name:13s} {elapsed[name]:6.2f} s elapsed, {busiest[name]:6.2f} s of processor time of the busiest "
            f"process; {1e3 * per_slice[name]:5.1f} ms per slice of one round"
        )
    for one, two, note in (("1 process", "2 processes", "no Dask"), ("1 worker", "2 workers", f"aim: {AIM}")):
        by_clock, by_processor = (seconds[one] / seconds[two] for seconds in (elapsed, busiest))
        print(f"speed-up of {two}: {by_clock:.2f} in elapsed time, {by_processor:.2f} in processor time ({note})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000)  # the default of `halfseen run`
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.repeats)
