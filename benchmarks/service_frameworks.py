"""Measures decisions and rewards per second with ordinary routes of Litestar or FastAPI.

python -m benchmarks.service_frameworks [SECONDS] [ROUNDS]

Services with different routes and the same engine run at the same time on SQLite, but only one of them is under load at
a time. Every round gives a ratio to `halfseen serve`. Requests per second of processor time are measured too, because
they depend less on other load of the machine. Needs the extra `service` and Litestar, which is in the extra `peers`.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path
from statistics import median, quantiles

import httpx
import psutil

from benchmarks.framework_routes import FRAMEWORKS
from benchmarks.service import CONNECTIONS, PATH, STREAM, decision_requests, drive, empty, request, started
from halfseen.reports.tables import Table

EMPTY = ("plain", "litestar", "fastapi")
SERVICES = ("halfseen serve", *FRAMEWORKS)
REWARDS = 5_000  # number of rewards to send per second of a round
Runs = dict[str, dict[str, list[tuple[float, float]]]]  # (requests/s, requests/s of processor time)


@contextlib.contextmanager
def served(name: str, folder: str) -> Iterator[tuple[int, psutil.Process]]:
    """Start a service. Yields its port and its process."""
    command = ["halfseen", "serve", "--port", "0", "--database"]
    if name in FRAMEWORKS:
        command = ["benchmarks.framework_routes", name]
    with started([*command, f"{folder}/{name}.db"], Path.cwd()) as process:
        assert process.stderr is not None
        found = None
        while not found:
            line = process.stderr.readline()
            if not line:
                raise RuntimeError(f"{name} did not start")
            found = re.search(r"http://127.0.0.1:(\d+)", line)
        yield int(found[1]), psutil.Process(process.pid)


def make_requests(port: int, route: str, stream: str, rewards: int) -> list[bytes]:
    """Return requests to a route for a new stream. The decisions to be rewarded are made here, in batches."""
    url, path = f"http://127.0.0.1:{port}/v1/streams", f"/v1/streams/{stream}/{route}"
    httpx.post(url, json={**STREAM, "name": stream}, timeout=60).raise_for_status()
    rows = decision_requests()
    if route == "decisions":
        return [request(path, row) for row in rows]
    ids: list[str] = []
    while len(ids) < rewards:
        reply = httpx.post(f"{url}/{stream}/decisions/batch", json={"decisions": rows}, timeout=60).raise_for_status()
        ids += [row["id"] for row in reply.json()["results"]]
    return [request(path, {"decision": decision, "value": 1.0}) for decision in ids]


def measure(seconds: float, rounds: int) -> Runs:
    """Run all rounds. The order of the services changes from round to round, and the first round is not counted."""
    runs: Runs = {"empty": {name: [] for name in EMPTY}}
    runs |= {route: {name: [] for name in SERVICES} for route in ("decisions", "rewards")}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ports = {name: stack.enter_context(empty(name)) for name in EMPTY}
        services = {name: stack.enter_context(served(name, folder)) for name in SERVICES}
        for number in range(rounds + 1):
            for route, names in runs.items():
                order = list(names)
                turn = number % len(order)
                for name in order[turn:] + order[:turn]:
                    if route == "empty":
                        rates = load(ports[name], [request(PATH, row) for row in decision_requests()], seconds)
                    else:
                        port, process = services[name]
                        requests = make_requests(port, route, f"{route}-{number}", int(REWARDS * seconds))
                        rates = load(port, requests, seconds, process, once=route == "rewards")
                    if number > 0:
                        names[name].append(rates)
    return runs


def load(
    port: int, requests: list[bytes], seconds: float, process: psutil.Process | None = None, *, once: bool = False
) -> tuple[float, float]:
    """Return the requests answered per second, and per second of processor time of `process`."""
    before = sum(process.cpu_times()[:2]) if process else nan
    done = drive(port, requests, connections=CONNECTIONS, seconds=60 if once else seconds, once=once)
    if done.refused:
        raise RuntimeError(f"{done.refused} requests were refused")
    return done.per_second, done.done / (sum(process.cpu_times()[:2]) - before) if process else nan


def summary(runs: Runs) -> list[dict[str, str]]:
    """Return medians over rounds, and medians and quartiles of the ratios to the first service in the same round."""
    rows = []
    for route, names in runs.items():
        first = next(iter(names.values()))
        for name, own in names.items():
            row = {"route": route, "service": name}
            for column, title in enumerate(("requests/s", "requests per processor second")):
                rates = [rates[column] for rates in own]
                ratios = [rate / other[column] for rate, other in zip(rates, first, strict=True)]
                low, middle, high = quantiles(ratios, n=4)
                known = not isnan(middle)
                row[title] = f"{median(rates):,.0f}" if known else ""
                row[f"{title}, ratio"] = f"{middle:.2f} ({low:.2f} to {high:.2f})" if known else ""
            rows.append(row)
    return rows


def main(arguments: list[str]) -> None:
    seconds = float(arguments[0]) if arguments else 2.0
    rounds = int(arguments[1]) if len(arguments) > 1 else 30
    runs = measure(seconds, rounds)
    print(Table(summary(runs)).markdown())
    print(f"\nOne worker, {CONNECTIONS} connections, SQLite; {rounds} rounds of {seconds:g} s each, in turn.")
    folder = Path("results/bench")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "service_frameworks.json").write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
