"""What is odd about one arm's times. None of it changes an outcome: the gate is exact whatever the noise looks like.

Every criterion asks for a size that matters *and* for more than chance would give, so that a reason is worth reading.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from types import MappingProxyType

from rsag.records.latency import Reason, ReasonCode

MAX_SKEW = 0.10
MIN_SHARE_SKEWED = 0.05
MAX_DRIFT = 0.05
OUTLIER = 3.0
MIN_SHARE_OUTLIERS = 0.01
MAX_ORDER_EFFECT = 0.05
MIN_SHARE_HELD_DOWN = 0.01
LEAST_GAP, LEAST_SHARE, LEAST_CYCLES = 0.05, 0.15, 40
STANDARD_ERRORS, LEAST_PER_PLACE = 4.5, 12


def diagnose(
    maxima: Sequence[int],
    minima: Sequence[int],
    positions: Sequence[int],
    held_down: Mapping[tuple[int, str], float] = MappingProxyType({}),
) -> tuple[Reason, ...]:
    """The oddities of one arm, from maxima and minima over ranks and position in the cycle, cycle by cycle.

    `held_down` is of the whole case: the share of the time that a device's clocks were held down, by rank and cause.
    """
    found = (
        (ReasonCode.SKEW, skew(maxima, minima)),
        (ReasonCode.DRIFT, drift(maxima)),
        (ReasonCode.OUTLIERS, outliers(maxima)),
        (ReasonCode.BIMODAL, bimodal(maxima)),
        (ReasonCode.ORDER_EFFECT, order_effect(maxima, positions)),
        (ReasonCode.THROTTLED, throttled(held_down)),
    )
    return tuple(Reason(code=code, message=message) for code, message in found if message is not None)


def skew(maxima: Sequence[int], minima: Sequence[int]) -> str | None:
    """Cycles in which ranks differ by more than 10 %, where they are at least 5 % of all."""
    num_skewed = sum(high - low > MAX_SKEW * high for high, low in zip(maxima, minima))
    if num_skewed < MIN_SHARE_SKEWED * len(maxima):
        return None
    return f"ranks differ by more than 10 % in {num_skewed} of {len(maxima)} cycles"


def drift(times: Sequence[int]) -> str | None:
    """A trend beyond 5 %: Theil and Sen's slope over the medians of up to 32 equal stretches, if Kendall's S agrees.

    S must be three of its standard deviations from 0 (Kendall 1938), which four stretches or fewer cannot reach.
    """
    length = -(-len(times) // 32)
    heights = [math.log(median(times[start : start + length])) for start in range(0, len(times), length)]
    n = len(heights)
    slopes = [(heights[j] - heights[i]) / (j - i) for i, j in itertools.combinations(range(n), 2)]
    if not slopes:
        return None
    trend = math.expm1(median(slopes) * (len(times) - 1) / length)
    score = sum((slope > 0) - (slope < 0) for slope in slopes)
    if abs(trend) <= MAX_DRIFT or abs(score) <= 3 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18):
        return None
    return f"{trend:+.0%} from the first cycle to the last"


def outliers(times: Sequence[int]) -> str | None:
    """Times beyond three medians, where they are at least 1 % of all."""
    middle = median(times)
    far = [time for time in times if time > OUTLIER * middle]
    if not far or len(far) < MIN_SHARE_OUTLIERS * len(times):
        return None
    return f"{len(far)} of {len(times)} cycles beyond 3 medians, the longest {max(far) / middle:.0f}"


def bimodal(times: Sequence[int]) -> str | None:
    """Two states: the best split leaves two groups 5 % apart, and further than that of evenly spread times would.

    Apart is Ashman, Bird & Zepf's D (1994) of the logarithms: 2.7 for a bell cut in halves, 3.5 for a uniform
    distribution, and by chance 8.5 / sqrt(n) more in 1 % of its samples. Outliers are left out, and each group holds at
    least 15 % of the rest.
    """
    middle = median(times)
    logs = sorted(math.log(time) for time in times if time <= OUTLIER * middle)
    if len(logs) < LEAST_CYCLES:
        return None
    cut = _best_split(logs)
    low, high = logs[:cut], logs[cut:]
    if min(len(low), len(high)) < LEAST_SHARE * len(logs):
        return None
    gap = fmean(high) - fmean(low)
    spread = math.sqrt((_variance(low) + _variance(high)) / 2)
    if gap < math.log1p(LEAST_GAP) or gap <= (3.5 + 8.5 / math.sqrt(len(logs))) * spread:
        return None
    return f"two states, {len(high)} of {len(logs)} cycles {math.expm1(gap):.0%} slower than the others"


def _best_split(ordered: Sequence[float]) -> int:
    """Where two means fit best: the cut that leaves the least squares within, and the most between."""
    n, total = len(ordered), sum(ordered)
    sums = list(itertools.accumulate(ordered))

    def between(cut: int) -> float:
        left = sums[cut - 1]
        return left**2 / cut + (total - left) ** 2 / (n - cut)

    return max(range(1, n), key=between)


def _variance(values: Sequence[float]) -> float:
    centre = fmean(values)
    return fmean((value - centre) ** 2 for value in values)


def order_effect(times: Sequence[int], positions: Sequence[int]) -> str | None:
    """Two places in the cycle whose medians differ by more than 5 %, and by more than 4.5 standard errors.

    The error of a median is taken from the median absolute deviation, as if the middle were a bell's.
    """
    places = list(_by_position(times, positions))
    if len(places) < 2:
        return None
    (least, one, fastest), (most, other, slowest) = min(places), max(places)
    effect = most - least
    if effect <= math.log1p(MAX_ORDER_EFFECT) or effect <= STANDARD_ERRORS * math.hypot(one, other):
        return None
    return f"place {slowest + 1} in the cycle is {math.expm1(effect):.0%} slower than place {fastest + 1}"


def _by_position(times: Sequence[int], positions: Sequence[int]) -> Iterator[tuple[float, float, int]]:
    """The median of each position's log times, that median's standard error, and the position."""
    groups: dict[int, list[float]] = {}
    for time, position in zip(times, positions):
        groups.setdefault(position, []).append(math.log(time))
    for position, logs in groups.items():
        if len(logs) >= LEAST_PER_PLACE:
            centre = median(logs)
            deviation = 1.4826 * median(abs(value - centre) for value in logs)
            yield centre, math.sqrt(math.pi / 2 / len(logs)) * deviation, position


def throttled(held_down: Mapping[tuple[int, str], float]) -> str | None:
    """Clocks held down for at least 1 % of the time, on the rank where that was longest."""
    if not held_down:
        return None
    (rank, cause), share = max(held_down.items(), key=lambda found: found[1])
    if share < MIN_SHARE_HELD_DOWN:
        return None
    ranks = {rank for (rank, _), own in held_down.items() if own >= MIN_SHARE_HELD_DOWN}
    others = f", and on {len(ranks) - 1} more" if len(ranks) > 1 else ""
    return f"clocks held down for {share:.0%} of the time on rank {rank}{others} ({cause})"
