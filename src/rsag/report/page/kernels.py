"""What ran in each marked range, and at which boundaries: by the captures of a run, as its verdict has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rsag.records.execution import BoundaryRow, Probe
from rsag.records.kernels import KernelRow, ProbeVerdict, RangeRow, in_words
from rsag.records.plan import Plan
from rsag.records.rundir import PLAN, VERDICT
from rsag.records.verdict import Verdict
from rsag.report.execution import logged_line, span
from rsag.report.kernel_evidence import counts, span_of
from rsag.report.page.figures import NOTHING, Figure, counted

MOST_NAMED = 8
"""So many ranks or devices are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """One composition on rank 0: its calls by kind."""

    composition: str
    predicted: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLine:
    """One range of one probe, on all ranks or devices where it came out alike."""

    probe: Probe
    range: str
    where: str
    structure: Figure
    evidence: Figure
    predicted: Figure
    ran: Figure
    time: Figure
    as_predicted: bool
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryLine:
    """One quantity over all calls of each range; from the least rank to the most."""

    probe: Probe
    quantity: str
    direct: Figure
    decomposed: Figure
    difference: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """Kernels of one name: what the name says, what it cannot say, what the library's own log says."""

    name: str
    count: Figure
    time: Figure
    says: str
    cannot_say: str
    logged: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsView:
    """`logged` is what the library's own log has of padded calls, element by element."""

    ranges: tuple[RangeLine, ...]
    boundaries: tuple[BoundaryLine, ...]
    kernels: tuple[KernelLine, ...]
    logged: Figure | None
    notes: tuple[str, ...]
    calls: tuple[CallLine, ...]


def view_kernels(plan: Plan | None, verdict: Verdict | None) -> KernelsView:
    """Ranges, boundaries and names by the verdict, predicted calls by the plan."""
    probes = () if verdict is None else verdict.kernels
    return KernelsView(
        ranges=tuple(line for index, probe in enumerate(probes) for line in _ranges(index, probe)),
        boundaries=() if verdict is None else tuple(_boundaries(verdict.boundaries)),
        kernels=tuple(_names(probes)),
        logged=None
        if verdict is None or not verdict.logged
        else counted(logged_line(verdict.logged), f"{VERDICT}: logged[*]"),
        notes=tuple(dict.fromkeys(reason for probe in probes for reason in probe.reasons)),
        calls=tuple(
            CallLine(
                composition=one.composition,
                predicted=counted(counts(one.calls), f"{PLAN}: predictions[{index}].calls.*"),
            )
            for index, one in enumerate(() if plan is None else plan.predictions)
            if one.rank == 0
        ),
    )


def _ranges(number: int, probe: ProbeVerdict) -> list[RangeLine]:
    groups: dict[object, list[tuple[int, RangeRow]]] = {}
    for index, row in enumerate(probe.ranges):
        key = (row.range, row.structure, row.evidence, tuple(row.ran.items()), row.reasons)
        groups.setdefault(key, []).append((index, row))
    return [_range(number, probe, own) for own in groups.values()]


def _range(number: int, probe: ProbeVerdict, own: Sequence[tuple[int, RangeRow]]) -> RangeLine:
    index, row = own[0]
    at = f"{VERDICT}: kernels[{number}].ranges[{index}]"
    predicted = probe.predicted.get(row.range, {})
    totals = [sum(kernel.total_ns for kernel in one.kernels) for _, one in own]
    return RangeLine(
        probe=probe.probe,
        range=row.range,
        where=_where([one for _, one in own]),
        structure=Figure(text=row.structure.value, source=f"{at}.structure", value=row.structure.value),
        evidence=Figure(text=row.evidence.value, source=f"{at}.evidence", value=row.evidence.value),
        predicted=counted(in_words(predicted), f"{VERDICT}: kernels[{number}].predicted.{row.range}.*"),
        ran=counted(in_words(row.ran), f"{at}.{'calls' if row.device is None else 'collectives'}.*"),
        time=counted(span_of(totals) if any(totals) else NOTHING, f"{at}.kernels[*].total_ns"),
        as_predicted=row.ran == predicted,
        reasons={reason.code.value: reason.message for reason in row.reasons},
    )


def _where(rows: Sequence[RangeRow]) -> str:
    """`GPU 0, 1`, or on a backend without kernels the files of the ranks: `rank 0, 1`."""
    places = [row.source if row.device is None else row.device for row in rows]
    listed = ", ".join(map(str, places[:MOST_NAMED])) + (", ..." if len(places) > MOST_NAMED else "")
    return f"{'rank' if rows[0].device is None else 'GPU'} {listed}"


def _boundaries(rows: Sequence[BoundaryRow]) -> list[BoundaryLine]:
    lines = []
    for probe, quantity in dict.fromkeys((row.probe, row.quantity) for row in rows):
        own = [row for row in rows if (row.probe, row.quantity) == (probe, quantity)]
        at = f"{VERDICT}: boundaries[*].{{}} of {quantity}"
        lines.append(
            BoundaryLine(
                probe=probe,
                quantity=quantity,
                direct=counted(span([row.direct for row in own]), at.format("direct")),
                decomposed=counted(span([row.decomposed for row in own]), at.format("decomposed")),
                difference=counted(span([row.difference for row in own], signed=True), at.format("*")),
            )
        )
    return lines


def _names(probes: Sequence[ProbeVerdict]) -> list[KernelLine]:
    names: dict[str, list[KernelRow]] = {}
    for kernel in (kernel for probe in probes for row in probe.ranges for kernel in row.kernels):
        names.setdefault(kernel.name, []).append(kernel)
    return [_kernel(name, rows) for name, rows in names.items()]


def _kernel(name: str, rows: Sequence[KernelRow]) -> KernelLine:
    at = f"{VERDICT}: kernels[*].ranges[*].kernels[*].{{}} of {name}"
    claims = rows[0].claims
    return KernelLine(
        name=name,
        count=counted(f"{sum(row.count for row in rows):,}", at.format("count")),
        time=counted(span_of([sum(row.total_ns for row in rows)]), at.format("total_ns")),
        says=", ".join(f"{claim.about.value} {claim.value}" for claim in claims if claim.value is not None),
        cannot_say="; ".join(f"{claim.about.value}: {claim.reason}" for claim in claims if claim.value is None),
        logged=", ".join(dict.fromkeys(str(choice) for row in rows for choice in row.choices)),
    )
