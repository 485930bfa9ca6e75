"""What ran in each marked range: calls as they were counted on every rank, kernels as captures show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from rsag.records.execution import Counted
from rsag.records.kernels import KernelsDocument, RangeRow
from rsag.records.plan import Plan
from rsag.records.rundir import PLAN
from rsag.report.kernel_evidence import counts
from rsag.report.page.figures import NOTHING, Figure, counted, number
from rsag.report.page.ranks import RankRows
from rsag.units import format_seconds

MOST_RANGES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """One composition on rank 0: its calls by kind."""

    composition: str
    predicted: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLine:
    """One quantity over all calls of each range, on ranks that counted the same; None for a range that did not run."""

    quantity: str
    ranks: str
    ranges: tuple[Figure | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLine:
    """One range on one device, by a capture."""

    range: str
    where: str
    structure: Figure
    evidence: Figure
    kernels: Figure
    asked_for: Figure
    time: Figure
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsView:
    """`ranges` are the names of the marked ranges, `num_calls` the calls in each."""

    calls: tuple[CallLine, ...]
    ranges: tuple[str, ...]
    num_calls: Figure | None
    counted: tuple[CountedLine, ...]
    lines: tuple[RangeLine, ...]
    num_lines: int


def view_kernels(
    plan: Plan | None, ranks: Sequence[RankRows], document: KernelsDocument | None, source: str
) -> KernelsView:
    """Calls by the plan and the rank files; kernels by `document`, whose rows lie at `source`, where there is one."""
    predictions = () if plan is None else plan.predictions
    kernels = None if plan is None else plan.kernels
    rows = () if document is None else document.ranges
    return KernelsView(
        calls=tuple(
            CallLine(
                composition=one.composition,
                predicted=counted(counts(one.calls), f"{PLAN}: predictions[{index}].calls.*"),
            )
            for index, one in enumerate(predictions)
            if one.rank == 0
        ),
        ranges=() if kernels is None else tuple(f"{arm.range}: {arm.composition}" for arm in kernels.arms),
        num_calls=None if kernels is None else number(kernels.calls, 0, f"{PLAN}: kernels.calls"),
        counted=() if kernels is None else tuple(_counted(len(kernels.arms), ranks)),
        lines=tuple(_line(document, index, row, source) for index, row in enumerate(rows[:MOST_RANGES]) if document),
        num_lines=len(rows),
    )


def _counted(num_arms: int, ranks: Sequence[RankRows]) -> list[CountedLine]:
    """Each quantity that any rank has, once for all ranks that counted the same."""
    lines = []
    for quantity in (field.name for field in fields(Counted)):
        holders: dict[tuple[int | None, ...], list[int]] = {}
        for rows in ranks:
            own = (rows.execution.get(arm) for arm in range(num_arms))
            values = tuple(None if row is None else getattr(row.counted, quantity) for row in own)
            if any(value is not None for value in values):
                holders.setdefault(values, []).append(rows.rank)
        for values, own_ranks in holders.items():
            at = f"rank-{own_ranks[0]:04d}.jsonl: execution of arm {{}}, counted.{quantity}"
            lines.append(
                CountedLine(
                    quantity=quantity,
                    ranks=", ".join(map(str, own_ranks[:8])) + (", ..." if len(own_ranks) > 8 else ""),
                    ranges=tuple(
                        None if value is None else counted(f"{value:,}", at.format(arm))
                        for arm, value in enumerate(values)
                    ),
                )
            )
    return lines


def _line(document: KernelsDocument, index: int, row: RangeRow, source: str) -> RangeLine:
    at = f"{source}ranges[{index}]"
    rank = document.sources[row.source].rank
    where = [f"rank {rank}"] if rank is not None else []
    where += [f"device {row.device}"] if row.device is not None else []
    total_ns = sum(kernel.total_ns for kernel in row.kernels)
    return RangeLine(
        range=row.range,
        where=", ".join(where),
        structure=Figure(text=row.structure.value, source=f"{at}.structure", value=row.structure.value),
        evidence=Figure(text=row.evidence.value, source=f"{at}.evidence", value=row.evidence.value),
        kernels=counted(counts(row.collectives) or NOTHING, f"{at}.collectives.*"),
        asked_for=counted(counts(row.calls) or NOTHING, f"{at}.calls.*"),
        time=counted(format_seconds(total_ns / 1e9) if total_ns else NOTHING, f"{at}.kernels[*].total_ns"),
        reasons={reason.code.value: reason.message for reason in row.reasons},
    )
