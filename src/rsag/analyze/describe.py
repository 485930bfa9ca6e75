"""What is said of a set of times beside any comparison, and the chapter's rule on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rsag.stats import coefficient_of_variation, quantile

MAX_CV = 0.05
"""The chapter gives a ratio only where neither side's coefficient of variation is above this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Median, linear P95 and P99, mean (microseconds), and the coefficient of variation (n-1)."""

    median_us: float
    p95_us: float
    p99_us: float
    mean_us: float
    cv: float


def describe(times_ns: Sequence[int]) -> Summary:
    """The summary of one arm's times: all at least 0, at least one of them."""
    return Summary(
        median_us=quantile(times_ns, 0.5) / 1e3,
        p95_us=quantile(times_ns, 0.95) / 1e3,
        p99_us=quantile(times_ns, 0.99) / 1e3,
        mean_us=sum(times_ns) / len(times_ns) / 1e3,
        cv=coefficient_of_variation(times_ns) if any(times_ns) else 0.0,
    )


def chapter_ratio(direct: Summary, other: Summary) -> float | None:
    """The ratio of the medians, or None ("unstable") where either side's CV is above 5 %."""
    return None if max(direct.cv, other.cv) > MAX_CV else other.median_us / direct.median_us


def payload_gbps(payload_bytes: int, latency_us: float) -> float:
    """10^9 bytes of logical payload per second; 0 for no payload, however fast."""
    return payload_bytes / (latency_us * 1e3) if payload_bytes else 0.0


def ring_gbps(payload_bytes: int, latency_us: float, world_size: int) -> float:
    """The bus bandwidth that a ring AllReduce of this payload would need for this latency, by nccl-tests' factor."""
    return payload_gbps(payload_bytes, latency_us) * 2 * (world_size - 1) / world_size
