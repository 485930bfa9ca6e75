"""One case's rows of all ranks, checked and merged: the critical rank's times, cycle by cycle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rsag.records.latency import ArmRole, LatencyPlan, Reason, ReasonCode, RoundRow, cycle_order
from rsag.stats import round_value

Rows = Mapping[int, Sequence[RoundRow]]
"""The rounds of one case, rank by rank."""

Order = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Times in ns without the warm-up, as [arm][cycle], one round after the other.

    `positions` says as which of its cycle an arm ran, from 0. `wrong` counts wrong elements over ranks, per arm.
    `held_down` is the share of the time that a device's clocks were held down, by rank and cause.
    """

    num_rounds: int
    maxima: tuple[tuple[int, ...], ...]
    minima: tuple[tuple[int, ...], ...]
    positions: tuple[tuple[int, ...], ...]
    wrong: tuple[int, ...]
    held_down: dict[tuple[int, str], float] = field(default_factory=dict)

    def values(self, reference: int, arm: int) -> list[float]:
        """Each round's log-ratio of `arm` over `reference`."""
        length = len(self.maxima[arm]) // self.num_rounds
        return [
            round_value(self.maxima[reference][start : start + length], self.maxima[arm][start : start + length])
            for start in range(0, length * self.num_rounds, length)
        ]


def merge(plan: LatencyPlan, orders: Sequence[Order], rows: Rows) -> Samples:
    """The rows of all ranks as one; `orders` are those of the rounds. The rows have no flaw that `find_flaw` knows.

    A round that not every rank has written is left out: the run ended in it.
    """
    rounds = list(zip(*rows.values()))
    num_arms = len(plan.arms)
    maxima: list[list[int]] = [[] for _ in range(num_arms)]
    minima: list[list[int]] = [[] for _ in range(num_arms)]
    positions: list[list[int]] = [[] for _ in range(num_arms)]
    for order, ranks in zip(orders, rounds):
        for arm in range(num_arms):
            cycles = list(zip(*(row.ns[arm] for row in ranks)))[plan.warmup_cycles :]
            maxima[arm] += map(max, cycles)
            minima[arm] += map(min, cycles)
            positions[arm] += [cycle.index(arm) for cycle in order[plan.warmup_cycles :]]
    return Samples(
        num_rounds=len(rounds),
        maxima=tuple(map(tuple, maxima)),
        minima=tuple(map(tuple, minima)),
        positions=tuple(map(tuple, positions)),
        wrong=tuple(sum(row.wrong[arm] for own in rows.values() for row in own) for arm in range(num_arms)),
        held_down={
            (rank, cause): sum(row.held_down_us.get(cause, 0) for row in own) / max(sum(row.took_us for row in own), 1)
            for rank, own in rows.items()
            for cause in dict.fromkeys(cause for row in own for cause in row.held_down_us)
        },
    )


def orders_of(plan: LatencyPlan, seed: int, case: int, num_rounds: int) -> list[Order]:
    """In which order the arms of each round ran, from the plan."""
    return [cycle_order(plan, seed, case, number) for number in range(num_rounds)]


# --------------------------------------------------------------------------------------------------------------- flaws


def find_flaw(plan: LatencyPlan, rows: Rows, world_size: int) -> Reason | None:
    """Why nothing can be said from these rows: a rank or a round is missing, or a time is none. Else None."""
    absent = [rank for rank in range(world_size) if not rows.get(rank)]
    if absent:
        return Reason(code=ReasonCode.NO_RECORDS, message=f"no rounds of rank {', '.join(map(str, absent))}")
    for rank, own in rows.items():
        numbers = [row.round for row in own]
        if numbers != list(range(len(own))):
            missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
            what = f"rounds {', '.join(map(str, missing))} are missing" if missing else f"rounds {numbers} out of turn"
            return Reason(code=ReasonCode.NO_RECORDS, message=f"rank {rank}: {what}")
    counts = {rank: len(own) for rank, own in rows.items()}
    shortest = min(counts, key=lambda rank: counts[rank])
    if max(counts.values()) > counts[shortest] + 1:
        message = f"rank {shortest} has {counts[shortest]} rounds, another {max(counts.values())}"
        return Reason(code=ReasonCode.NO_RECORDS, message=message)
    bad = next(_bad_times(plan, rows), None)
    return None if bad is None else Reason(code=ReasonCode.BAD_TIMES, message=bad)


def _bad_times(plan: LatencyPlan, rows: Rows) -> Iterator[str]:
    num_cycles = plan.warmup_cycles + 2 * plan.blocks
    shape = [num_cycles] * len(plan.arms)
    for rank, own in rows.items():
        for row in own:
            where = f"rank {rank}, round {row.round}"
            if not (
                shape == [*map(len, row.ns)] and len(row.started_us) == num_cycles and len(row.wrong) == len(shape)
            ):
                yield f"{where}: not the plan's {len(shape)} arms of {num_cycles} cycles"
                continue
            for arm, times in zip(plan.arms, row.ns):
                least = 0 if arm.role is ArmRole.NULL else 1  # an empty graph may be faster than the clock can tell
                odd = next((time for time in times if type(time) is not int or time < least), None)
                if odd is not None:
                    yield f"{where}: {odd} ns for {arm.composition or 'the null arm'}"
            if any(later < earlier for earlier, later in itertools.pairwise(row.started_us)):
                yield f"{where}: the clock ran backwards"
