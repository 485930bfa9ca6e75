"""One case's times, cycle by cycle in the order they ran, from the rank files."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rsag.records.latency import ArmRole, LatencyPlan, LatencyRow, cycle_order
from rsag.records.plan import Plan
from rsag.report.names import arm_name
from rsag.report.page.ranks import RankRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """One case's times in the order they were taken, for its plot.

    `ns[arm][cycle]` is the slowest rank's, `place[cycle][arm]` when in its cycle the arm ran, from 0. `band_ns` is
    where the direct arm lies when it is compared with itself: its median times the control's interval.
    """

    arms: tuple[str, ...]
    roles: tuple[ArmRole, ...]
    cycles_per_round: int
    ns: tuple[tuple[int, ...], ...]
    place: tuple[tuple[int, ...], ...]
    band_ns: tuple[float, float] | None


def view_cycles(
    plan: Plan | None, case: int, rows: Sequence[LatencyRow], ranks: Sequence[RankRows]
) -> tuple[Cycles | None, str]:
    """The counted cycles of one case, or the word for why there are none to show."""
    timing = None if plan is None else plan.latency
    if plan is None or timing is None or case >= len(timing.cases) or len(rows) != len(timing.arms):
        return None, "plan"
    rounds = _whole_rounds(timing, case, plan.world_size, ranks)
    if not rounds:
        return None, "rounds"
    first = timing.warmup_cycles
    ns: list[list[int]] = [[] for _ in timing.arms]
    place: list[tuple[int, ...]] = []
    for number_of, of_ranks in rounds.items():
        for arm, times in enumerate(ns):
            times += [max(of_cycle) for of_cycle in zip(*(own[arm][first:] for own in of_ranks))]
        order = cycle_order(timing, plan.seed, case, number_of)[first:]
        place += [tuple(of_cycle.index(arm) for arm in range(len(timing.arms))) for of_cycle in order]
    cycles = Cycles(
        arms=tuple(arm_name(arm) for arm in timing.arms),
        roles=tuple(arm.role for arm in timing.arms),
        cycles_per_round=2 * timing.blocks,
        ns=tuple(map(tuple, ns)),
        place=tuple(place),
        band_ns=_band(rows),
    )
    return cycles, ""


def _whole_rounds(
    timing: LatencyPlan, case: int, world_size: int, ranks: Sequence[RankRows]
) -> Mapping[int, list[tuple[tuple[int, ...], ...]]]:
    """Round -> each rank's times: the rounds that every rank has, in their order, up to the first that one has not."""
    if len(ranks) < world_size:
        return {}
    shape = {(timing.warmup_cycles + 2 * timing.blocks,) * len(timing.arms)}
    rounds: dict[int, list[tuple[tuple[int, ...], ...]]] = {}
    for number_of in itertools.count():
        of_ranks = [rows.rounds[case][number_of].ns for rows in ranks if number_of in rows.rounds.get(case, {})]
        if len(of_ranks) < len(ranks) or {tuple(map(len, ns)) for ns in of_ranks} != shape:
            return rounds
        rounds[number_of] = of_ranks
    return rounds


def _band(rows: Sequence[LatencyRow]) -> tuple[float, float] | None:
    direct = next((row for row in rows if row.role is ArmRole.DIRECT), None)
    control = next((row for row in rows if row.role is ArmRole.CONTROL), None)
    if direct is None or control is None or direct.median_us is None or control.interval is None:
        return None
    low, high = control.interval
    return 1e3 * direct.median_us * low, 1e3 * direct.median_us * high
