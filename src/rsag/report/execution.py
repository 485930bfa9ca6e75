"""The kernels experiment as terminal tables: what ran in each range, at which boundaries, and who says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.records.execution import BoundaryRow, LoggedCount, Probe
from rsag.records.kernels import ProbeVerdict, RangeRow, in_words
from rsag.records.latency import PredictionOutcome
from rsag.records.verdict import Verdict
from rsag.report.tables import MARKS, plain_table
from rsag.units import format_bytes

PROBES = {Probe.RANKS: "one process a rank", Probe.NATIVE: "one process, all GPUs"}
_MARK = {
    PredictionOutcome.AGREES: MARKS["good"],
    PredictionOutcome.DIFFERS: MARKS["bad"],
    PredictionOutcome.CANNOT_TELL: MARKS["none"],
}


def print_execution(verdict: Verdict, out: Console) -> None:
    """Ranges, boundaries, the counts in the library's log, and each reason once."""
    if any(probe.ranges for probe in verdict.kernels):
        out.print(ranges_table(verdict.kernels))
        out.print()
    if verdict.boundaries:
        out.print(boundary_table(verdict.boundaries))
        out.print()
    chosen = choices_line(verdict.kernels)
    if chosen:
        out.print(Text(chosen))
    if verdict.logged:
        out.print(Text(logged_line(verdict.logged)))
    for line in reason_lines(verdict.kernels):
        out.print(line)


def ranges_table(probes: Sequence[ProbeVerdict]) -> Table:
    """One line for each range of each probe, ranks or devices together where they are alike."""
    table = plain_table()
    payloads = dict.fromkeys(f"{probe.calls} calls of {format_bytes(probe.bytes)}" for probe in probes)
    table.add_column(f"range, {' and '.join(payloads)}", min_width=10)
    table.add_column("structure", min_width=13)
    table.add_column("ran, on each", min_width=16)
    table.add_column("outcome")
    for probe in probes:
        table.add_row(Text(PROBES[probe.probe], style="bold"))
        for name in dict.fromkeys(row.range for row in probe.ranges):
            rows = [row for row in probe.ranges if row.range == name]
            agree = all(row.ran == probe.predicted.get(name) for row in rows)
            mark, style = _MARK[PredictionOutcome.AGREES if agree else PredictionOutcome.DIFFERS]
            table.add_row(
                f" {name}",
                _joined(row.structure.value for row in rows),
                _joined(in_words(row.ran) for row in rows) + f" ({_places(rows)})",
                Text(f"{mark} {'as predicted' if agree else 'differs'}", style=style),
            )
    return table


def _places(rows: Sequence[RangeRow]) -> str:
    what = "rank" if rows[0].device is None else "GPU"
    return f"{len(rows)} {what}{'' if len(rows) == 1 else 's'}, {'calls' if rows[0].device is None else 'kernels'}"


def _joined(parts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(parts))


def boundary_table(rows: Sequence[BoundaryRow]) -> Table:
    """Each quantity in both ranges, over all of their calls; from the least to the most where ranks differ."""
    table = plain_table()
    table.add_column("boundary", min_width=22)
    for name in ("direct", "decomposed", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for probe in dict.fromkeys(row.probe for row in rows):
        table.add_row(Text(PROBES[probe], style="bold"))
        own = [row for row in rows if row.probe is probe]
        for quantity in dict.fromkeys(row.quantity for row in own):
            of_it = [row for row in own if row.quantity == quantity]
            table.add_row(
                f" {quantity}",
                span([row.direct for row in of_it]),
                span([row.decomposed for row in of_it]),
                span([row.difference for row in of_it], signed=True),
            )
    return table


def span(values: Sequence[int | None], *, signed: bool = False) -> str:
    known = sorted({value for value in values if value is not None})
    if not known:
        return "-"
    ends = known if len(known) == 1 else [known[0], known[-1]]
    return " to ".join(f"{value:+d}" if signed else str(value) for value in ends)


def choices_line(probes: Sequence[ProbeVerdict]) -> str:
    """`by the library's own log: AllReduce RING SIMPLE x24, ...`; nothing where no log was read."""
    rows = [row for probe in probes for row in probe.ranges]
    chosen = dict.fromkeys(str(choice) for row in rows for kernel in row.kernels for choice in kernel.choices)
    return f"algorithm, protocol and channels by the library's own log: {', '.join(chosen)}" if chosen else ""


def logged_line(counts: Sequence[LoggedCount]) -> str:
    """`by the library's own log, 1003 elements: all_reduce: AllReduce 1003; rs_ag_padded: ReduceScatter 502, ...`."""
    by_composition: dict[str, list[str]] = {}
    for row in counts:
        by_composition.setdefault(row.composition, []).append(f"{row.function} {row.count}")
    said = "; ".join(f"{name}: {', '.join(calls)}" for name, calls in by_composition.items())
    return f"counts in the library's own log, {counts[0].numel} elements: {said}"


def reason_lines(probes: Sequence[ProbeVerdict]) -> list[Text]:
    """Each reason once, with the probe that it is of."""
    lines: dict[tuple[str, str], None] = {}
    for probe in probes:
        for reason in probe.reasons:
            lines[PROBES[probe.probe], reason] = None
        for row in probe.ranges:
            for found in row.reasons:
                lines[found.code.value, found.message] = None
    return [Text.assemble((f"  {head}", "bold"), f": {text}") for head, text in lines]
