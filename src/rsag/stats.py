"""The few statistics that ranks and judge share, in the standard library: both must come to the same decision.

The unit is the *round* (fresh buffers, fresh captures); placement is then noise instead of bias. A case is looked at a
few times fixed beforehand, and each look spends a part of the 5 %: no stopping rule whatever can exceed their sum
(Bonferroni over looks).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from statistics import median


@dataclass(frozen=True, slots=True)
class Look:
    """After so many rounds the data are looked at, at the price of this error."""

    rounds: int
    error: float


LOOKS = (Look(12, 0.010), Look(20, 0.015), Look(40, 0.025))
ERROR = sum(look.error for look in LOOKS)
"""Of all looks together, 5 %: what a single comparison may cost, and all comparisons of a run after Holm."""
PRECISE = 0.02
"""Half-width of a log-ratio's interval at which there is nothing more to learn."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Hodges-Lehmann estimate and exact signed-rank interval of a centre, on the log scale."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


# ------------------------------------------------------------------------------------------------------- signed rank


@lru_cache(maxsize=256)
def _ways(n: int) -> tuple[int, ...]:
    """In how many of the 2^n sign patterns each value of the signed-rank sum comes up (Wilcoxon 1945)."""
    ways = [1]
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for value, count in enumerate(ways):
            longer[value + rank] += count
        ways = longer
    return tuple(ways)


@lru_cache(maxsize=256)
def num_dropped(n: int, error: float) -> int:
    """Walsh averages to leave out on each side for a two-sided interval of n values with at most `error`."""
    ways, limit = _ways(n), error / 2 * 2**n
    below = dropped = 0
    while dropped < len(ways) and below + ways[dropped] <= limit:
        below += ways[dropped]
        dropped += 1
    return dropped


def interval(values: Sequence[float], error: float) -> Interval:
    """The exact interval for the centre of symmetry of `values` (Hodges & Lehmann 1963).

    Infinite where so few values cannot support so small an error.
    """
    walsh = sorted((one + other) / 2 for index, one in enumerate(values) for other in values[: index + 1])
    dropped = num_dropped(len(values), error)
    if dropped == 0:
        return Interval(median(walsh), -math.inf, math.inf)
    return Interval(median(walsh), walsh[dropped - 1], walsh[-dropped])


def signed_rank_p(values: Sequence[float]) -> float:
    """Exact two-sided p-value for a centre of 0; zeros are left out, ties are broken against the evidence.

    Mean ranks would not do: on 1, 1, -1 they give less than the 1.0 that its sign patterns give.
    """
    nonzero = [value for value in values if value]
    smaller = min(_largest_rank_sum(nonzero, sign) for sign in (-1, 1))
    p: float = 2 * sum(_ways(len(nonzero))[: smaller + 1]) / 2 ** len(nonzero)
    return min(1.0, p)


def p_at_look(values: Sequence[float], looks: Sequence[Look] = LOOKS) -> float:
    """`signed_rank_p` of the values of a look, paid for like that look; 1 for a number that no look has.

    It is the p-value times the error of all looks over that of this one: at most the former where the look's interval
    leaves 0 out, and comparable between looks.
    """
    error = next((look.error for look in looks if look.rounds == len(values)), None)
    if error is None:
        return 1.0
    return min(1.0, signed_rank_p(values) * sum(look.error for look in looks) / error)


def _largest_rank_sum(values: Sequence[float], sign: int) -> int:
    """The rank sum of the values of this sign, whose ranks among equals are the higher ones."""
    ordered = sorted(values, key=lambda value: (abs(value), value * sign > 0))
    return sum(rank for rank, value in enumerate(ordered, start=1) if value * sign > 0)


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of all pairwise means: robust as a median, nearly as efficient as a mean."""
    return median((one + other) / 2 for index, one in enumerate(values) for other in values[: index + 1])


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that control the chance of any false finding among all of them (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return adjusted


# ------------------------------------------------------------------------------------------------------ blocks, rounds


def balanced_order(num_arms: int, num_blocks: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """The order of arms in each cycle: a block is a random permutation and its mirror image.

    Drift, autocorrelation and position then only flip a block's sign with the coin, whatever their shape.
    """
    coin = random.Random(seed)
    cycles: list[tuple[int, ...]] = []
    for _ in range(num_blocks):
        arms = list(range(num_arms))
        coin.shuffle(arms)
        cycles += [tuple(arms), tuple(reversed(arms))]
    return tuple(cycles)


def round_value(reference: Sequence[float], other: Sequence[float]) -> float:
    """One number for a round: the Hodges-Lehmann centre of its blocks' log-ratios of per-cycle maxima over ranks.

    Cycles come in mirrored pairs, which are averaged first. Times in any unit, all above 0.
    """
    ratios = [math.log(b / a) for a, b in zip(reference, other)]
    return hodges_lehmann([(first + second) / 2 for first, second in zip(ratios[0::2], ratios[1::2])])


# --------------------------------------------------------------------------------------------------------- the decision


class Stop(str, Enum):
    """Why a case was not looked at again."""

    DIRECTION = "direction"  # the interval excludes 1, and would after Bonferroni's correction for the family
    EQUIVALENT = "equivalent"  # it lies inside the margin of the plan
    PRECISE = "precise"  # it is within 2 % and still holds 1
    BUDGET = "budget"  # the last look


@dataclass(frozen=True, slots=True)
class Decision:
    """What a look at one arm against the reference came to; `stop` is None where there must be another look."""

    rounds: int
    interval: Interval
    stop: Stop | None


def decide(
    values: Sequence[float],
    margin: float | None,
    looks: Sequence[Look] = LOOKS,
    *,
    precisely: bool = False,
    family: int = 1,
) -> Decision:
    """The decision on the rounds' values so far, as of the last look that they suffice for.

    It stops at the first look whose interval lies inside +-`margin` (log scale), or excludes 0 with a p-value that is
    small enough for `family` comparisons at once, or is precise and holds 0. With `precisely` a direction must be
    precise as well. The looks are paid for, so going on costs no validity.
    """
    decision: Decision | None = None
    for look in looks:
        if len(values) < look.rounds:
            break
        own = values[: look.rounds]
        found = interval(own, look.error)
        claimable = p_at_look(own, looks) * family <= sum(each.error for each in looks)
        enough = look is looks[-1] or (claimable and (not precisely or found.half_width <= PRECISE))
        decision = Decision(look.rounds, found, _why_stop(found, margin, last=look is looks[-1], enough=enough))
        if decision.stop is not None:
            return decision
    if decision is None:
        return Decision(len(values), Interval(hodges_lehmann(values), -math.inf, math.inf), None)
    return decision


def _why_stop(found: Interval, margin: float | None, *, last: bool, enough: bool) -> Stop | None:
    """`enough`: a direction is a reason to stop."""
    if margin is not None and -margin < found.low and found.high < margin:
        return Stop.EQUIVALENT
    if found.low > 0 or found.high < 0:
        return Stop.DIRECTION if enough else None
    if found.half_width <= PRECISE:
        return Stop.PRECISE
    return Stop.BUDGET if last else None


# --------------------------------------------------------------------------------------------------------- descriptions


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation between order statistics (Hyndman & Fan's type 7, numpy's default)."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def coefficient_of_variation(values: Sequence[float]) -> float:
    """Standard deviation (n-1) over mean; 0 for a single value.

    Not by `statistics.stdev`, whose last digit is another since Python 3.11: verdicts are compared across Pythons.
    """
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) * (value - mean) for value in values)
    return math.sqrt(squares / (len(values) - 1)) / mean
