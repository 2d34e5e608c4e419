"""How long things took: the last few thousand of them."""

from __future__ import annotations

from collections import deque

_KEPT = 4_096


class Latencies:
    """Seconds, kept for quantiles."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_KEPT)
        self.count, self.total = 0, 0.0

    def add(self, seconds: float) -> None:
        self._last.append(seconds)
        self.count += 1
        self.total += seconds

    def summary(self) -> dict[str, float]:
        """How many there were, their sum, and quantiles of the last ones."""
        ordered = sorted(self._last)
        found = {"count": float(self.count), "sum": self.total}
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            found[name] = ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
        return found
