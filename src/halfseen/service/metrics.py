"""The metrics of the service for Prometheus, and the latencies that the dashboard shows."""

from __future__ import annotations

import os
from collections import deque
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.multiprocess import MultiProcessCollector

# The environment variable that makes prometheus_client store metrics in files, so that processes can add them up.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_WINDOW = 4_096  # number of recent latencies from which quantiles are computed
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds
disable_created_metrics()  # the "_created" series would double the number of series, and multiprocess mode lacks them


class Latencies:
    """Durations in seconds, as a histogram for Prometheus and as quantiles of recent values for the dashboard."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self.count, self.total = 0, 0.0

    def add(self, seconds: float) -> None:
        self._histogram.observe(seconds)
        self._recent.append(seconds)
        self.count += 1
        self.total += seconds

    def summary(self) -> dict[str, float]:
        ordered = sorted(self._recent)
        summary = {"count": float(self.count), "sum": self.total}
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            summary[name] = ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
        return summary


class Metrics:
    """The metrics of an engine and its requests. With several workers, the registry sums the metrics of all workers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = None if FOLDER_VARIABLE in os.environ else self.registry
        if own is None:
            MultiProcessCollector(self.registry)
        counter = partial(Counter, namespace="halfseen", registry=own)
        gauge = partial(Gauge, namespace="halfseen", registry=own, multiprocess_mode="livesum")
        histogram = partial(Histogram, namespace="halfseen", registry=own, buckets=_BOUNDS)

        # Looking up the labels takes longer than counting, so the labelled metrics are cached.
        self.requests = cache(counter("requests", "Requests answered.", ["route", "status"]).labels)
        self.request_seconds = cache(histogram("request_seconds", "Time from request to reply.", ["route"]).labels)

        self.decides = counter("decides", "Decisions made.")
        self.rewards = counter("rewards", "Rewards accepted.")
        self.refused = counter("refused", "Decisions and rewards refused.")
        self.busy = counter("busy", "Decisions and rewards refused because too many were waiting.")
        self.commits = counter("commits", "Transactions, including those that failed.")
        self.stalls = counter("stalls", "Transactions that were not answered in time.")
        self.events = counter("events", "Events added to the journal.")
        self.loads = counter("loads", "Streams loaded into memory.")
        self.loads_without_snapshot = counter("loads_without_snapshot", "Streams folded from their first event.")
        self.evictions = counter("evictions", "Streams removed from memory to make room for others.")
        self.snapshots = counter("snapshots", "Snapshots saved.")
        self.snapshot_errors = counter("snapshot_errors", "Snapshots that could not be saved.")
        self.models_accepted = counter("models_accepted", "Identified models that streams have accepted.")
        self.models_skipped = counter("models_skipped", "Accepted models of older versions that were skipped.")
        self.identifications_failed = counter("identifications_failed", "Identifications that gave no model.")
        tasks = ("sweep", "tidy", "identification")
        self.task_errors = {task: counter(f"{task}_errors", f"Errors of the task '{task}'.") for task in tasks}

        self.ready = gauge("ready", "1 if the database answered last time, else 0.", multiprocess_mode="liveall")
        self.waiting_rows = gauge("waiting_rows", "Decisions and rewards that wait for their commit.")
        self.resident_streams = gauge("resident_streams", "Streams in memory.")
        self.resident_bytes = gauge("resident_bytes", "Memory of the streams.")

        self.latencies = {
            "decide": Latencies(histogram("decide_seconds", "Time from a request for decisions to their commit.")),
            "reward": Latencies(histogram("reward_seconds", "Time from a request with rewards to their commit.")),
            "commit": Latencies(histogram("commit_seconds", "Duration of a transaction.")),
        }
