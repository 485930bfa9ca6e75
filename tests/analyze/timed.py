"""Rounds by hand: what ranks write down of a machine whose times are known, to be spoilt one at a time."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from statistics import median

from rsag.analyze.latency import TimingRow
from rsag.plan import make_plan
from rsag.records.latency import (
    ArmRole,
    Case,
    Clock,
    Gate,
    LatencyPlan,
    LookRow,
    Order,
    RoundRow,
    TimedArm,
    cycle_order,
)
from rsag.records.plan import Backend, Experiment, Plan
from rsag.reduction import DType, ReduceOp
from rsag.stats import LOOKS, decide, round_value
from rsag.units import MIB

Records = dict[int, list[TimingRow]]
TimeOf = Callable[[int, int, int, int], int]
"""Nanoseconds of (rank, round, arm, cycle), the warm-up's cycles first."""

ARMS = (
    TimedArm(role=ArmRole.DIRECT, composition="all_reduce"),
    TimedArm(role=ArmRole.CANDIDATE, composition="rs_ag_in_place"),
    TimedArm(role=ArmRole.CONTROL, composition="all_reduce"),
    TimedArm(role=ArmRole.NULL, composition=""),
)
DIRECT, CANDIDATE, CONTROL, NULL = range(4)
CASE = Case(bytes=MIB, dtype=DType.FLOAT32, op=ReduceOp.SUM, clock=Clock.CPU, calls=1)


def timing(
    *,
    arms: Sequence[TimedArm] = ARMS,
    cases: Sequence[Case] = (CASE,),
    margin: float | None = None,
    gate: Gate = Gate.ROUNDS,
    max_rounds: int = 40,
    precisely: bool = False,
) -> LatencyPlan:
    """Two blocks a round behind two cycles of warm-up."""
    return LatencyPlan(
        cases=tuple(cases),
        arms=tuple(arms),
        blocks=2,
        warmup_cycles=2,
        max_rounds=max_rounds,
        gate=gate,
        order=Order.BALANCED,
        margin=margin,
        precisely=precisely,
        claimable=True,
        wire_cases=tuple(cases),
    )


def plan_of(timing: LatencyPlan, *, world_size: int = 2, backend: Backend = Backend.GLOO) -> Plan:
    return make_plan(
        world_size=world_size, backend=backend, experiments=(Experiment.LATENCY, Experiment.WIRE), latency=timing
    )


def around(*factors: float, noise: float = 0.02, rank_factors: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> TimeOf:
    """100 us times each arm's factor, with noise that all ranks share."""

    def time_of(rank: int, round_number: int, arm: int, cycle: int) -> int:
        coin = random.Random(f"{round_number} {arm} {cycle}")
        return max(round(100_000 * factors[arm] * rank_factors[rank] * math.exp(coin.gauss(0, noise))), 0)

    return time_of


SLOWER = around(1.0, 1.2, 1.0, 0.001)
ALIKE = around(1.0, 1.0, 1.0, 0.001)


def records(plan: Plan, time_of: TimeOf = SLOWER, *, num_rounds: int | None = None, case: int = 0) -> Records:
    """One case's rounds on every rank, until the rule stops it, it is out of rounds, or `num_rounds` are written."""
    timed = plan.latency
    assert timed is not None
    own: Records = {rank: [] for rank in range(plan.world_size)}
    for number in range(timed.max_rounds if num_rounds is None else num_rounds):
        for rank, rows in own.items():
            rows.append(_round(plan, timed, time_of, rank, number, case))
        if number + 1 in [look.rounds for look in LOOKS] or number + 1 == timed.max_rounds:
            look = _look(timed, own, case)
            own[0].append(look)
            if not look.went_on:
                break
    return own


def _round(plan: Plan, timed: LatencyPlan, time_of: TimeOf, rank: int, number: int, case: int) -> RoundRow:
    order = cycle_order(timed, plan.seed, case, number)
    num_arms, num_cycles = len(timed.arms), len(order)
    return RoundRow(
        case=case,
        round=number,
        start_ns=10**9 * number,
        ns=tuple(tuple(time_of(rank, number, arm, cycle) for cycle in range(num_cycles)) for arm in range(num_arms)),
        started_us=tuple(1000 * cycle for cycle in range(num_cycles)),
        wrong=(0,) * num_arms,
    )


def _look(timed: LatencyPlan, own: Records, case: int) -> LookRow:
    rounds = [[row for row in rows if isinstance(row, RoundRow)] for rows in own.values()]

    def maxima(number: int, arm: int) -> list[int]:
        return [max(times) for times in zip(*(rows[number].ns[arm] for rows in rounds))][timed.warmup_cycles :]

    num_rounds = len(rounds[0])
    margin = None if timed.margin is None else math.log1p(timed.margin)
    stops = tuple(
        decide(
            [round_value(maxima(number, timed.reference(arm)), maxima(number, arm)) for number in range(num_rounds)],
            margin,
            precisely=timed.precisely,
            family=timed.num_comparisons(one.role),
        ).stop
        if one.role in (ArmRole.CANDIDATE, ArmRole.CONTROL)
        else None
        for arm, one in enumerate(timed.arms)
    )
    asked = [stop for stop, one in zip(stops, timed.arms) if one.role is ArmRole.CANDIDATE]
    return LookRow(case=case, rounds=num_rounds, stops=stops, went_on=num_rounds < timed.max_rounds and None in asked)


# ------------------------------------------------------------------------------------------------------------ spoiling


def spoil(own: Records, rank: int, number: int, change: Callable[[RoundRow], RoundRow]) -> Records:
    """`own` with one round of one rank changed."""
    return {
        other: [
            change(row) if isinstance(row, RoundRow) and (other, row.round) == (rank, number) else row for row in rows
        ]
        for other, rows in own.items()
    }


def without(own: Records, dropped: Callable[[int, TimingRow], bool]) -> Records:
    return {rank: [row for row in rows if not dropped(rank, row)] for rank, rows in own.items()}


def with_time(arm: int, cycle: int, ns: int) -> Callable[[RoundRow], RoundRow]:
    def change(row: RoundRow) -> RoundRow:
        times = [list(own) for own in row.ns]
        times[arm][cycle] = ns
        return dataclasses.replace(row, ns=tuple(map(tuple, times)))

    return change


def with_wrong(arm: int, count: int) -> Callable[[RoundRow], RoundRow]:
    def change(row: RoundRow) -> RoundRow:
        return dataclasses.replace(row, wrong=tuple(count if arm == own else 0 for own in range(len(row.wrong))))

    return change


def median_ns(own: Records, arm: int, rank: int = 0, warmup: int = 2) -> float:
    rows = [row for row in own[rank] if isinstance(row, RoundRow)]
    return median(time for row in rows for time in row.ns[arm][warmup:])
