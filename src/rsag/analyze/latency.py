"""Rounds of all ranks to one row per arm and case: faster, slower, equivalent, or why not.

An arm that is invalid, or of which nothing can be said, keeps its interval and its raw times, and has no ratio.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rsag.analyze.conclude import Conclusion, Controls, conclude, unlike_themselves
from rsag.analyze.describe import chapter_ratio, describe, payload_gbps, ring_gbps
from rsag.analyze.diagnose import diagnose
from rsag.analyze.samples import Samples, find_flaw, merge, orders_of
from rsag.analyze.wire import predict
from rsag.records.latency import (
    ArmRole,
    Case,
    CaseEnd,
    LatencyPlan,
    LatencyRow,
    LookRow,
    Reason,
    ReasonCode,
    RoundRow,
    TimedArm,
    TimeOutcome,
    WireVerdict,
)
from rsag.records.plan import Plan
from rsag.stats import Decision, Interval

TimingRow = RoundRow | LookRow | CaseEnd


def judge_latency(
    plan: Plan, records: Mapping[int, Iterable[TimingRow]], wire: Sequence[WireVerdict] = ()
) -> tuple[LatencyRow, ...]:
    """Every case's arms in the order of the plan, from the rows that each rank left; () where nothing was to be timed.

    What `wire` knows of Gloo's ReduceScatter is added to the reasons of the compositions it was seen in.
    """
    timing = plan.latency
    if timing is None:
        return ()
    recorded = _by_case(records)
    merged = [_merge_case(plan, timing, number, recorded[number]) for number in range(len(timing.cases))]
    every = [one if isinstance(one, Samples) else None for one in merged]
    rows = []
    for number, controls in enumerate(unlike_themselves(timing, every)):
        case, found, samples = timing.cases[number], merged[number], every[number]
        conclusions = _judge_case(timing, found, recorded[number], controls) if isinstance(found, Samples) else found
        rows += [
            _row(plan, timing, case, index, conclusion, samples, _known_of(timing.arms[index], case, wire))
            for index, conclusion in enumerate(conclusions)
        ]
    return tuple(rows)


@dataclass(slots=True)
class _CaseRecords:
    """What was recorded of one case: every rank's rounds, rank 0's looks, and why it ended early, if it did."""

    rounds: dict[int, list[RoundRow]] = field(default_factory=lambda: defaultdict(list))
    looks: list[LookRow] = field(default_factory=list)
    ended: str = ""


def _by_case(records: Mapping[int, Iterable[TimingRow]]) -> dict[int, _CaseRecords]:
    cases: dict[int, _CaseRecords] = defaultdict(_CaseRecords)
    for rank, rows in sorted(records.items()):
        for row in rows:
            if isinstance(row, RoundRow):
                cases[row.case].rounds[rank].append(row)
            elif isinstance(row, CaseEnd):
                cases[row.case].ended = row.reason
            elif rank == 0:
                cases[row.case].looks.append(row)
    return cases


def _merge_case(plan: Plan, timing: LatencyPlan, number: int, recorded: _CaseRecords) -> Samples | list[Conclusion]:
    """The case's samples, or what is said of its arms without any."""
    rounds = recorded.rounds
    if recorded.ended and not rounds:
        return _all_alike(timing, TimeOutcome.INCONCLUSIVE, _not_measured(recorded))
    flaw = find_flaw(timing, rounds, plan.world_size)
    if flaw is not None:
        return _all_alike(timing, TimeOutcome.INVALID, flaw)
    return merge(timing, orders_of(timing, plan.seed, number, max(map(len, rounds.values()))), rounds)


def _judge_case(timing: LatencyPlan, samples: Samples, recorded: _CaseRecords, controls: Controls) -> list[Conclusion]:
    conclusions = conclude(timing, samples, recorded.looks, controls)
    return [_with(one, _not_measured(recorded)) for one in conclusions] if recorded.ended else conclusions


def _not_measured(recorded: _CaseRecords) -> Reason:
    return Reason(code=ReasonCode.NOT_MEASURED, message=recorded.ended)


def _all_alike(timing: LatencyPlan, outcome: TimeOutcome, reason: Reason) -> list[Conclusion]:
    return [Conclusion(outcome=outcome if arm.role.is_compared else None, reasons=(reason,)) for arm in timing.arms]


def _with(conclusion: Conclusion, reason: Reason) -> Conclusion:
    """An early end explains why there is no answer; an answer that was reached before it stands."""
    if conclusion.outcome is not TimeOutcome.INCONCLUSIVE:
        return conclusion
    return dataclasses.replace(conclusion, reasons=(*conclusion.reasons, reason))


def _known_of(arm: TimedArm, case: Case, wire: Sequence[WireVerdict]) -> list[Reason]:
    """What the wire says of Gloo's ReduceScatter in this arm: at the case's own size if it was counted there."""
    sizes = {
        verdict.bytes: reason
        for verdict in wire
        if verdict.composition == arm.composition
        for reason in verdict.reasons
        if reason.code is ReasonCode.GLOO_REDUCE_SCATTER
    }
    return [sizes.get(case.bytes, sizes[max(sizes)])] if sizes else []


def _row(
    plan: Plan,
    timing: LatencyPlan,
    case: Case,
    index: int,
    conclusion: Conclusion,
    samples: Samples | None,
    known: Sequence[Reason],
) -> LatencyRow:
    arm, decision = timing.arms[index], conclusion.decision
    row = LatencyRow(
        bytes=case.bytes,
        dtype=case.dtype,
        op=case.op,
        composition=arm.composition,
        role=arm.role,
        buffers=arm.buffers,
        settings=arm.settings,
        clock=case.clock,
        calls=case.calls,
        outcome=conclusion.outcome,
        ratio=conclusion.ratio,
        interval=None if decision is None else _on_ratios(decision.interval),
        rounds=_num_rounds(samples, decision),
        stop=None if decision is None else decision.stop,
        round_values=conclusion.values,
        cv_ratio=None,
        predicted=predict(plan, arm.composition, 0, case.bytes),
        reasons=(*conclusion.reasons, *known),
    )
    return row if samples is None else _described(row, samples, index, timing, plan.world_size)


def _described(row: LatencyRow, samples: Samples, index: int, timing: LatencyPlan, world_size: int) -> LatencyRow:
    """`row` with its raw times, what is odd about them, and the chapter's rule on them."""
    maxima, minima = samples.maxima[index], samples.minima[index]
    summary = describe(maxima)
    is_null = row.role is ArmRole.NULL
    is_valid = row.role.is_compared and row.outcome is not TimeOutcome.INVALID
    moved_bytes = 0 if is_null else row.bytes
    odd = () if is_null else diagnose(maxima, minima, samples.positions[index], samples.held_down)
    return dataclasses.replace(
        row,
        median_us=summary.median_us,
        p95_us=summary.p95_us,
        p99_us=summary.p99_us,
        mean_us=summary.mean_us,
        cv=summary.cv,
        min_median_us=describe(minima).median_us,
        gbps=payload_gbps(moved_bytes, summary.median_us),
        ring_gbps=ring_gbps(moved_bytes, summary.median_us, world_size),
        cv_ratio=chapter_ratio(describe(samples.maxima[timing.reference(index)]), summary) if is_valid else None,
        reasons=(*row.reasons, *odd),
    )


def _num_rounds(samples: Samples | None, decision: Decision | None) -> int:
    """Those that the decision rests on, or all where nothing was to be decided."""
    if decision is not None:
        return decision.rounds
    return 0 if samples is None else samples.num_rounds


def _on_ratios(found: Interval) -> tuple[float, float] | None:
    """From logarithms; None for an interval without ends, which JSON cannot hold."""
    return (math.exp(found.low), math.exp(found.high)) if math.isfinite(found.half_width) else None
