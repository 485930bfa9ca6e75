"""Two runs laid over each other, for the plot: the ratio of each compared arm in A and in B."""

from __future__ import annotations

from dataclasses import dataclass

from rsag.records.compare import CompareRow, Comparison, Side
from rsag.records.latency import ArmRole, TimeOutcome
from rsag.report.answers import answer
from rsag.report.names import arm_name, case_name
from rsag.report.page.times import Standing, ends, plot_heading


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPoint:
    bytes: int
    case: str
    kind: str
    composition: str
    arm: str
    role: ArmRole
    run: str
    standing: Standing
    outcome: str
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine:
    """One arm of one case; the sources count in what `rsag compare --json` prints."""

    case: str
    arm: str
    a: str
    b: str
    median_a: str
    median_b: str
    moved: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedView:
    points: tuple[ComparedPoint, ...]
    lines: tuple[ComparedLine, ...]


def view_comparison(compared: Comparison) -> ComparedView:
    points = []
    for row in compared.rows:
        points += [
            _point(row, run, side)
            for run, side in (("A", row.a), ("B", row.b))
            if side is not None and side.outcome is not None and row.arm.role.is_compared
        ]
    return ComparedView(points=tuple(points), lines=tuple(map(_line, compared.rows)))


def _point(row: CompareRow, run: str, side: Side) -> ComparedPoint:
    low, high = ends(side.outcome, side.interval)
    return ComparedPoint(
        bytes=row.case.bytes,
        case=case_name(row.case),
        kind=plot_heading(row.case, row.arm),
        composition=row.arm.composition,
        arm=arm_name(row.arm),
        role=row.arm.role,
        run=run,
        standing=_standing(side),
        outcome="" if side.outcome is None else side.outcome.value,
        ratio=side.ratio,
        low=low,
        high=high,
    )


def _standing(side: Side) -> Standing:
    if side.outcome is TimeOutcome.INVALID:
        return Standing.INVALID
    return Standing.REFUSED if side.ratio is None else Standing.ACCEPTED


def _line(row: CompareRow) -> ComparedLine:
    return ComparedLine(
        case=case_name(row.case),
        arm=arm_name(row.arm),
        a=_said(row.a),
        b=_said(row.b),
        median_a=_median(row.a),
        median_b=_median(row.b),
        moved="" if row.median_change is None else f"{row.median_change - 1:+.1%}",
        change=row.why or ("" if row.ratio_change is None else row.ratio_change.value),
    )


def _said(side: Side | None) -> str:
    if side is None or side.outcome is None:
        return ""
    return answer(side.outcome, side.ratio, side.interval).plain


def _median(side: Side | None) -> str:
    return "" if side is None or side.median_us is None else f"{side.median_us:,.1f}"
