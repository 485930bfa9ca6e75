"""Memory as terminal tables: what the ledger predicts, what was measured, and the name of each difference."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.records.latency import PredictionOutcome
from rsag.records.memory import MemoryLedger, MemoryVerdict
from rsag.report.tables import MARKS, plain_table
from rsag.units import format_bytes

NOTHING = "-"
_MARK = {
    PredictionOutcome.AGREES: MARKS["good"],
    PredictionOutcome.DIFFERS: MARKS["bad"],
    PredictionOutcome.CANNOT_TELL: MARKS["none"],
}


def print_memory(rows: Sequence[MemoryVerdict], out: Console) -> None:
    """Prediction beside measurement, the allocator's other ledgers where there are any, each reason once."""
    out.print(memory_table(rows))
    out.print("of one rank, the input included; steady is what stays, peak the most at once", style="dim")
    if any(len(row.readings) > 1 for row in rows):
        out.print()
        out.print(ledger_table(rows))
        out.print(
            "above the baseline; the baseline of what lies outside is since before the group was made", style="dim"
        )
    for line in reason_lines(rows):
        out.print(line)


def memory_table(rows: Sequence[MemoryVerdict]) -> Table:
    """One line per composition; where ranks differ, from the least to the most."""
    table = plain_table()
    payloads = " and ".join(dict.fromkeys(format_bytes(row.bytes) for row in rows))
    table.add_column(f"memory, M = {payloads}", min_width=26, overflow="fold")
    for name in ("steady", "measured", "peak", "measured"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome")
    for composition in dict.fromkeys(row.composition for row in rows):
        own = [row for row in rows if row.composition == composition]
        table.add_row(
            composition,
            _span([row.predicted_steady_bytes for row in own]),
            _span([row.measured_steady_bytes for row in own]),
            _span([row.predicted_peak_bytes for row in own]),
            _span([row.measured_peak_bytes for row in own]),
            _outcomes(own),
        )
    return table


def ledger_table(rows: Sequence[MemoryVerdict]) -> Table:
    """Steady / peak of each ledger, the most of any rank: counts by different keepers, never to be added."""
    table = plain_table()
    table.add_column("steady / peak", min_width=19, overflow="fold")
    for ledger in MemoryLedger:
        table.add_column(ledger.value, justify="right")
    table.add_column("outside at first", justify="right")
    for composition in dict.fromkeys(row.composition for row in rows):
        own = [reading for row in rows if row.composition == composition for reading in row.readings]
        cells = []
        for ledger in MemoryLedger:
            read = [reading for reading in own if reading.ledger is ledger]
            steady, peak = ([getattr(one, name) for one in read] for name in ("steady_bytes", "peak_bytes"))
            cells.append(f"{format_bytes(max(steady))} / {format_bytes(max(peak))}" if read else NOTHING)
        first = [reading.baseline_bytes for reading in own if reading.ledger is MemoryLedger.OUTSIDE]
        table.add_row(composition, *cells, format_bytes(max(first)) if first else NOTHING)
    return table


def _span(counts: Sequence[int | None]) -> str:
    known = sorted(count for count in counts if count is not None)
    if not known:
        return NOTHING
    return " to ".join(dict.fromkeys(format_bytes(count) for count in (known[0], known[-1])))


def _outcomes(rows: Sequence[MemoryVerdict]) -> Text:
    text = Text()
    outcomes = [row.outcome for row in rows]
    for outcome in dict.fromkeys(outcomes):
        mark, style = _MARK[outcome]
        count = f" ({outcomes.count(outcome)} of {len(rows)} ranks)" if len(set(outcomes)) > 1 else ""
        text.append(f"{', ' if text else ''}{mark} {outcome.value}{count}", style)
    return text


def reason_lines(rows: Sequence[MemoryVerdict]) -> list[Text]:
    """Each code once: its first message in full, and of how many compositions it was said."""
    said: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for reason in row.reasons:
            said.setdefault(reason.code.value, []).append((row.composition, reason.message))
    lines = []
    for code, places in said.items():
        where, message = places[0]
        others = len({composition for composition, _ in places}) - 1
        more = f", and {others} more" if others else ""
        lines.append(Text.assemble((f"  {code}", "bold"), f": {message}", (f"; {where}{more}", "dim")))
    return lines
