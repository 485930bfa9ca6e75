"""Latency and wire bytes as terminal tables: the answer, or the word for why there is none, beside the raw times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.records.latency import ArmRole, LatencyRow, PredictionOutcome, Reason, ReasonCode, TimeOutcome, WireVerdict
from rsag.records.verdict import Verdict
from rsag.report.answers import STYLE
from rsag.report.names import arm_name, case_heading, kind_name, wire_name
from rsag.report.tables import MARKS, plain_table
from rsag.units import format_bytes

WIDE = 130
"""From so many columns on, an interval has room beside its ratio, and the rarer figures are shown."""

_WIRE_MARK = {
    PredictionOutcome.AGREES: MARKS["good"],
    PredictionOutcome.DIFFERS: MARKS["bad"],
    PredictionOutcome.CANNOT_TELL: MARKS["none"],
}
NOTHING = "-"
_NO_ANSWER = (ReasonCode.TOO_FEW_ROUNDS, ReasonCode.HOLDS_ONE)


def print_latency(verdict: Verdict, out: Console) -> None:
    """Times case by case, wire bytes, the sentence that holds for all of it, and each reason once."""
    if verdict.latency:
        out.print(latency_table(verdict.latency, out.width))
        kinds = dict.fromkeys(kind_name(row) for row in verdict.latency)
        out.print(
            f"{', '.join(kinds)}; times in us, maxima over ranks; every interval holds in this launch", style="dim"
        )
        out.print()
    if verdict.wire:
        out.print(wire_table(verdict.wire))
        out.print()
    if verdict.sentence:
        out.print(Text(verdict.sentence, style="bold"))
    for line in reason_lines(verdict.latency, verdict.wire):
        out.print(line)


def latency_table(rows: Sequence[LatencyRow], width: int) -> Table:
    """One block per case, one line per arm; a ratio only where the gate gives one."""
    wide = width >= WIDE
    table = plain_table()
    table.add_column("composition", min_width=19, overflow="fold")
    for name in ("median", "P95", *(("P99", "min") if wide else ()), "CV", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("ring GB/s", "rounds") if wide else ():
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("against direct", width=None if wide else 14, no_wrap=wide)
    table.add_column("CV rule", min_width=8, no_wrap=True)
    case = None
    for row in rows:
        heading = case_heading(row, among=rows)
        if heading != case:
            case = heading
            table.add_row(Text(case, style="bold"))
        table.add_row(*_cells(row, wide=wide))
    return table


def _cells(row: LatencyRow, *, wide: bool) -> Iterable[str | Text]:
    yield f" {arm_name(row)}"
    yield _time(row.median_us)
    yield _time(row.p95_us)
    if wide:
        yield from map(_time, (row.p99_us, row.min_median_us))
    yield NOTHING if row.cv is None else f"{row.cv:.1%}"
    moves = row.role is not ArmRole.NULL
    yield _number(row.gbps if moves else None, 3)
    if wide:
        yield _number(row.ring_gbps if moves else None, 3)
        yield str(row.rounds)
    yield _answer(row, wide=wide)
    yield _chapter(row)


def _time(value_us: float | None) -> str:
    """In microseconds; from a tenth of a second on a tenth of one is no news, and takes the room of a column."""
    return _number(value_us, 1 if value_us is None or value_us < 1e5 else 0)


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _answer(row: LatencyRow, *, wide: bool) -> Text:
    """The ratio and its interval; without a ratio the word, and the interval as what is known all the same."""
    if row.outcome is None:
        return Text("" if row.role is ArmRole.NULL else "reference", style="dim")
    text = Text(row.outcome.value, style=STYLE[row.outcome])
    if row.ratio is not None:
        text = Text(f"{row.ratio:.3f}x {row.outcome.value}", style=STYLE[row.outcome])
    if row.interval is not None:
        low, high = row.interval
        text.append(f"{' ' if wide else chr(10)}[{low:.3f}, {high:.3f}]", "dim")
    return text


def _chapter(row: LatencyRow) -> str:
    if not row.role.is_compared:
        return ""
    if row.median_us is None or row.outcome is TimeOutcome.INVALID:
        return NOTHING
    return "unstable" if row.cv_ratio is None else f"{row.cv_ratio:.3f}x"


# ---------------------------------------------------------------------------------------------------------------- wire


def wire_table(verdicts: Sequence[WireVerdict]) -> Table:
    """One line per composition and size, in payloads M sent per call and rank: predicted, and counted over ranks."""
    table = plain_table()
    table.add_column("bytes on the wire", min_width=17)
    for name in ("M", "predicted", "counted"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome")
    for size, composition, buffers in dict.fromkeys((row.bytes, row.composition, row.buffers) for row in verdicts):
        asked = (size, composition, buffers)
        rows = [row for row in verdicts if (row.bytes, row.composition, row.buffers) == asked]
        table.add_row(
            wire_name(rows[0]),
            format_bytes(size),
            _span([row.predicted_bytes for row in rows], size),
            _span([row.measured_bytes for row in rows], size),
            _wire_outcomes(rows),
        )
    return table


def _span(counts: Sequence[float | None], size: int) -> str:
    """`2.25 M`, or `2.24-2.26 M` where ranks differ in what is shown."""
    shown = sorted({f"{count / size:.2f}" for count in counts if count is not None}, key=float)
    if not shown:
        return NOTHING
    return f"{shown[0]} M" if len(shown) == 1 else f"{shown[0]}-{shown[-1]} M"


def _wire_outcomes(rows: Sequence[WireVerdict]) -> Text:
    text = Text()
    outcomes = [row.outcome for row in rows]
    for outcome in dict.fromkeys(outcomes):
        mark, style = _WIRE_MARK[outcome]
        count = f" ({outcomes.count(outcome)} of {len(rows)} ranks)" if len(set(outcomes)) > 1 else ""
        text.append(f"{', ' if text else ''}{mark} {outcome.value}{count}", style)
    return text


# ------------------------------------------------------------------------------------------------------------- reasons


def reason_lines(latency: Sequence[LatencyRow], wire: Sequence[WireVerdict]) -> list[Text]:
    """Each code once: what it was said of, and its first message in full."""
    said: dict[str, list[tuple[str, str]]] = {}

    def note(reasons: Iterable[Reason], where: str) -> None:
        for reason in reasons:
            said.setdefault(reason.code.value, []).append((where, reason.message))

    for row in latency:
        # That a control shows nothing is how it should be, and asks for no explanation.
        reasons = [one for one in row.reasons if row.role is not ArmRole.CONTROL or one.code not in _NO_ANSWER]
        note(reasons, f"{arm_name(row)} at {format_bytes(row.bytes)} ({row.clock.value} x{row.calls})")
    for one in wire:
        note(one.reasons, f"the wire of {wire_name(one)} at {format_bytes(one.bytes)}")
    lines = []
    for code, places in said.items():
        (where, message), others = places[0], len(dict.fromkeys(place for place, _ in places)) - 1
        more = f", and {others} more" if others else ""
        lines.append(Text.assemble((f"  {code}", "bold"), f": {message}", (f"; {where}{more}", "dim")))
    return lines
