"""Request counts and latencies, in the text format that Prometheus reads."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_WINDOW = 4_096  # latencies that quantiles are computed from
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds


class Latencies:
    """Durations in seconds: their number, their sum, and quantiles of the most recent ones."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self.count, self.total = 0, 0.0

    def add(self, seconds: float) -> None:
        self._recent.append(seconds)
        self.count += 1
        self.total += seconds

    def summary(self) -> dict[str, float]:
        ordered = sorted(self._recent)
        summary = {"count": float(self.count), "sum": self.total}
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            summary[name] = ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
        return summary


class RequestMetrics:
    """Requests by route and status, with a histogram of latencies for decisions and rewards."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self._buckets: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def count(self, route: str, status: int) -> None:
        self.requests[route, status] = self.requests.get((route, status), 0) + 1

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request and add its latency to the histogram of its route."""
        self.count(route, status)
        buckets = self._buckets.get(route)
        if buckets is None:
            buckets = self._buckets[route] = [0] * (len(_BOUNDS) + 1)
            self._sums[route] = 0.0
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._sums[route] += seconds

    def prometheus_text(self, measurements: Mapping[str, Any]) -> str:
        """All metrics, with the measurements of the engine. They are those of one worker, which the label names."""
        worker = f'worker="{os.getpid()}"'
        lines = ["# HELP halfseen_requests_total Requests answered.", "# TYPE halfseen_requests_total counter"]
        for (route, status), number in sorted(self.requests.items()):
            lines.append(f'halfseen_requests_total{{route="{route}",status="{status}",{worker}}} {number}')
        name = "halfseen_request_seconds"
        lines += [f"# HELP {name} Time from the request's headers to its reply.", f"# TYPE {name} histogram"]
        for route, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, number in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
                total += number
                lines.append(f'{name}_bucket{{route="{route}",le="{bound}",{worker}}} {total}')
            lines.append(f'{name}_sum{{route="{route}",{worker}}} {self._sums[route]}')
            lines.append(f'{name}_count{{route="{route}",{worker}}} {total}')
        for key, number in sorted(measurements["counts"].items()):
            lines += [f"# TYPE halfseen_{key}_total counter", f"halfseen_{key}_total{{{worker}}} {number}"]
        for key, value in sorted(measurements.items()):
            if isinstance(value, int | float):
                lines += [f"# TYPE halfseen_{key} gauge", f"halfseen_{key}{{{worker}}} {value}"]
        for key, summary in sorted(measurements["latencies"].items()):
            name = f"halfseen_{key}_seconds"
            lines.append(f"# TYPE {name} summary")
            for statistic, value in summary.items():
                if statistic.startswith("p"):
                    lines.append(f'{name}{{quantile="{int(statistic[1:]) / 100:g}",{worker}}} {value}')
                else:
                    lines.append(f"{name}_{statistic}{{{worker}}} {value}")
        return "\n".join(lines) + "\n"
