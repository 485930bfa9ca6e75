"""One case's times, cycle by cycle in the order they ran, from the rank files."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rsag.analyze.judged import arm_of, case_of
from rsag.errors import UsageError
from rsag.records.latency import ArmRole, LatencyPlan, LatencyRow, TimeOutcome, cycle_order
from rsag.records.plan import Plan
from rsag.report.names import apart_name, arm_name
from rsag.report.page.ranks import RankRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """One case's times in the order they were taken, for its plot.

    `ns[arm][cycle]` is the slowest rank's, `place[cycle][arm]` when in its cycle the arm ran, from 0. For each arm
    `kinds` is what sets it apart besides its composition, `references` the direct arm that it is compared with, and
    `bands_ns` where that one lies when it is compared with itself: its median times its control's interval.
    """

    arms: tuple[str, ...]
    compositions: tuple[str, ...]
    roles: tuple[ArmRole, ...]
    kinds: tuple[str, ...]
    references: tuple[int | None, ...]
    cycles_per_round: int
    ns: tuple[tuple[int, ...], ...]
    place: tuple[tuple[int, ...], ...]
    bands_ns: tuple[tuple[float, float] | None, ...]

    @property
    def has_bands(self) -> bool:
        return any(self.bands_ns)


def view_cycles(
    plan: Plan | None, case: int, rows: Sequence[LatencyRow], ranks: Sequence[RankRows]
) -> tuple[Cycles | None, str]:
    """The counted cycles of one case, or the word for why there are none to show."""
    timing = None if plan is None else plan.latency
    if plan is None or timing is None or not _is_of(timing, case, rows):
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
    references = [_reference(timing, arm) for arm in range(len(timing.arms))]
    bands = {reference: _band(rows, references, reference) for reference in references if reference is not None}
    cycles = Cycles(
        arms=tuple(arm_name(arm) for arm in timing.arms),
        compositions=tuple(arm.composition for arm in timing.arms),
        roles=tuple(arm.role for arm in timing.arms),
        kinds=tuple(apart_name(arm) for arm in timing.arms),
        references=tuple(references),
        cycles_per_round=2 * timing.blocks,
        ns=tuple(map(tuple, ns)),
        place=tuple(place),
        bands_ns=tuple(None if reference is None else bands[reference] for reference in references),
    )
    return cycles, ""


def _is_of(timing: LatencyPlan, case: int, rows: Sequence[LatencyRow]) -> bool:
    """Whether the verdict's rows are of the plan's case, arm by arm."""
    planned = timing.cases[case : case + 1] * len(timing.arms)
    return [(case_of(row), arm_of(row)) for row in rows] == list(zip(planned, timing.arms))


def _reference(timing: LatencyPlan, arm: int) -> int | None:
    """The arm that `arm` is compared with, itself if it is a direct one; None where there is none."""
    if timing.arms[arm].role is ArmRole.NULL:
        return None
    try:
        return timing.reference(arm)
    except UsageError:
        return None


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


def _band(rows: Sequence[LatencyRow], references: Sequence[int | None], direct: int) -> tuple[float, float] | None:
    """None where there is no control, or an invalid one: its interval says nothing of the noise."""
    own = (row for row, reference in zip(rows, references) if reference == direct and row.role is ArmRole.CONTROL)
    control = next(own, None)
    median_us = rows[direct].median_us
    if control is None or control.outcome is TimeOutcome.INVALID or control.interval is None or median_us is None:
        return None
    low, high = control.interval
    return 1e3 * median_us * low, 1e3 * median_us * high
