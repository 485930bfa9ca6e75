"""The times of a run: for each case a line per arm, its cycles in the order they ran, and the ratios over all sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rsag.analyze.judged import case_of
from rsag.records.latency import ArmRole, LatencyRow, ReasonCode, TimeOutcome
from rsag.records.plan import Plan
from rsag.records.rundir import VERDICT
from rsag.report.names import ArmLike, CaseLike, apart_name, arm_name, case_heading, case_name, kind_name
from rsag.report.page.cycles import Cycles, view_cycles
from rsag.report.page.figures import NOTHING, Figure, counted, number, percent, word
from rsag.report.page.ranks import RankRows
from rsag.report.page.words import Words

MOST_DETAILED = 24
"""So many cases have a table and a plot of their own."""

MOST_LISTED = 400
"""So many lines has the table of all ratios."""

MOST_TIMINGS = 60_000
"""So many single times are in the page; cases beyond have their table alone."""

_DECIDING = frozenset(
    {
        ReasonCode.NO_RECORDS,
        ReasonCode.BAD_TIMES,
        ReasonCode.DECISION_DIFFERS,
        ReasonCode.WRONG_RESULT,
        ReasonCode.AA_DIFFERS,
        ReasonCode.TOO_FEW_ROUNDS,
        ReasonCode.HOLDS_ONE,
        ReasonCode.UNSTABLE_CV,
        ReasonCode.NOT_MEASURED,
    }
)
"""Those that refuse a ratio; the others are remarks beside it (docs/reference/reasons.md)."""

_EXPECTED_OF_CONTROL = frozenset({ReasonCode.TOO_FEW_ROUNDS, ReasonCode.HOLDS_ONE})
"""That AllReduce does not differ from itself is how it should be, and needs no explanation."""


class Standing(str, Enum):
    """How an arm stands to the direct one."""

    ACCEPTED = "accepted"  # there is an answer: faster, slower, equivalent
    REFUSED = "refused"  # the noise does not support one
    INVALID = "invalid"
    REFERENCE = "reference"
    APART = "apart"  # not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonView:
    """One reason; what `decides` is why there is no ratio, the others are remarks."""

    code: str
    message: Figure
    decides: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLine:
    """One arm of one case: raw times always, a ratio only where it was given."""

    arm: str
    role: ArmRole
    standing: Standing
    median: Figure
    p95: Figure
    p99: Figure
    cv: Figure
    fastest: Figure
    gbps: Figure
    rounds: Figure
    outcome: Figure
    ratio: Figure | None
    interval: Figure | None
    cv_rule: Figure | None
    choices: Figure | None
    reasons: tuple[ReasonView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """`cycles` is None where they are not shown: `why` says so."""

    name: str
    heading: str
    lines: tuple[ArmLine, ...]
    cycles: Cycles | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioPoint:
    """One compared arm at one size, for the plot; without a ratio only its interval is drawn, and that if it is valid.

    Arms of one `kind` share a plot: they are on one clock, and compared with one direct arm.
    """

    bytes: int
    case: str
    kind: str
    composition: str
    arm: str
    role: ArmRole
    standing: Standing
    outcome: str
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioLine:
    """One row of the table behind that plot."""

    case: str
    line: ArmLine


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesView:
    """`num_cases` are all of the run, of which `cases` are shown one by one."""

    num_cases: int
    cases: tuple[CaseView, ...]
    points: tuple[RatioPoint, ...]
    listed: tuple[RatioLine, ...]
    num_compared: int


# --------------------------------------------------------------------------------------------------------- the cases


Indexed = tuple[int, LatencyRow]


def by_case(rows: Sequence[LatencyRow]) -> list[list[Indexed]]:
    """The verdict's rows with their indices, case by case, whatever the plan says."""
    return [list(own) for _, own in itertools.groupby(enumerate(rows), key=lambda one: case_of(one[1]))]


def detailed_cases(plan: Plan | None) -> range:
    """The plan's cases whose rounds are read."""
    return range(0 if plan is None or plan.latency is None else min(len(plan.latency.cases), MOST_DETAILED))


def view_times(plan: Plan | None, rows: Sequence[LatencyRow], ranks: Sequence[RankRows], words: Words) -> TimesView:
    """What the verdict says of every case, and of the first ones the cycles from the rank files."""
    cases = by_case(rows)
    room = MOST_TIMINGS
    views = []
    for number_of, case in enumerate(cases[:MOST_DETAILED]):
        cycles, why = view_cycles(plan, number_of, [row for _, row in case], ranks)
        if cycles is not None:
            room -= sum(map(len, cycles.ns))
            if room < 0:
                cycles, why = None, "room"
        views.append(
            CaseView(
                name=case_name(case[0][1]),
                heading=case_heading(case[0][1], among=rows),
                lines=tuple(_line(index, row) for index, row in case),
                cycles=cycles,
                why=words(f"time.why_{why}") if why else "",
            )
        )
    compared = [(index, row) for case in cases for index, row in case if row.role.is_compared]
    return TimesView(
        num_cases=len(cases),
        cases=tuple(views),
        points=tuple(_point(row) for _, row in compared if row.bytes > 0),  # an axis of logarithms has no place for 0
        listed=tuple(RatioLine(case=case_name(row), line=_line(index, row)) for index, row in compared[:MOST_LISTED]),
        num_compared=len(compared),
    )


def standing(row: LatencyRow) -> Standing:
    if row.outcome is None:
        return Standing.REFERENCE if row.role is ArmRole.DIRECT else Standing.APART
    if row.outcome is TimeOutcome.INVALID:
        return Standing.INVALID
    return Standing.REFUSED if row.outcome is TimeOutcome.INCONCLUSIVE else Standing.ACCEPTED


def _line(index: int, row: LatencyRow) -> ArmLine:
    def at(key: str) -> str:
        return f"{VERDICT}: latency[{index}].{key}"

    stands = standing(row)
    moves = row.role is not ArmRole.NULL
    return ArmLine(
        arm=arm_name(row),
        role=row.role,
        standing=stands,
        median=number(row.median_us, 1, at("median_us")),
        p95=number(row.p95_us, 1, at("p95_us")),
        p99=number(row.p99_us, 1, at("p99_us")),
        cv=percent(row.cv, at("cv")),
        fastest=number(row.min_median_us, 1, at("min_median_us")),
        gbps=_rate(row.gbps if moves else None, at("gbps")),
        rounds=number(row.rounds, 0, at("rounds")),
        outcome=_outcome(row, stands, at("outcome")),
        ratio=None if row.ratio is None else number(row.ratio, 3, at("ratio")),
        interval=None if row.interval is None or stands is Standing.INVALID else _interval(row, at("interval")),
        cv_rule=_cv_rule(row, at("cv_ratio")),
        choices=counted(", ".join(row.protocols), at("protocols[*]")) if row.protocols else None,
        reasons=tuple(
            ReasonView(
                code=reason.code.value,
                message=word(reason.message, at(f"reasons[{place}].message")),
                decides=reason.code in _DECIDING,
            )
            for place, reason in enumerate(row.reasons)
            if row.role is not ArmRole.CONTROL or reason.code not in _EXPECTED_OF_CONTROL
        ),
    )


def _rate(gbps: float | None, source: str) -> Figure:
    if gbps is None:
        return Figure(text=NOTHING, source=source)
    return Figure(text=f"{gbps:.3f}" if gbps >= 0.001 else "< 0.001", source=source, value=gbps)


def _outcome(row: LatencyRow, stands: Standing, source: str) -> Figure:
    if row.outcome is not None:
        return word(row.outcome.value, source)
    return Figure(text="reference" if stands is Standing.REFERENCE else NOTHING, source=source)


def _interval(row: LatencyRow, source: str) -> Figure:
    assert row.interval is not None
    low, high = row.interval
    return Figure(text=f"[{low:.3f}, {high:.3f}]", source=source, value=list(row.interval))


def _cv_rule(row: LatencyRow, source: str) -> Figure | None:
    if not row.role.is_compared:
        return None
    if row.median_us is None or row.outcome is TimeOutcome.INVALID:
        return Figure(text=NOTHING, source=source)
    return Figure(text="unstable" if row.cv_ratio is None else f"{row.cv_ratio:.3f}", source=source, value=row.cv_ratio)


def plot_heading(case: CaseLike, arm: ArmLike) -> str:
    """`graph, float32 sum, symmetric`: what arms have in common that are set against the same direct one."""
    apart = apart_name(arm)
    return f"{case.clock.value}, {kind_name(case)}" + (f", {apart}" if apart else "")


def ends(outcome: TimeOutcome | None, interval: tuple[float, float] | None) -> tuple[float, float] | tuple[None, None]:
    """The interval as it may be drawn: that of an invalid arm is none."""
    return (None, None) if interval is None or outcome is TimeOutcome.INVALID else interval


def _point(row: LatencyRow) -> RatioPoint:
    low, high = ends(row.outcome, row.interval)
    return RatioPoint(
        bytes=row.bytes,
        case=case_name(row),
        kind=plot_heading(row, row),
        composition=row.composition,
        arm=arm_name(row),
        role=row.role,
        standing=standing(row),
        outcome="" if row.outcome is None else row.outcome.value,
        ratio=row.ratio,
        low=low,
        high=high,
    )
