"""A verdict as Markdown: a comment for a pull request, short enough to be read there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rsag.records.contracts import ContractOutcome
from rsag.records.latency import LatencyRow
from rsag.records.verdict import Holds, Verdict, VerdictOutcome
from rsag.report.answers import answer
from rsag.report.names import arm_name, case_name

MOST_ROWS = 40
"""So many lines of times; a comment is no place for more."""

_MARK = {Holds.YES: "=", Holds.NO: "≠", Holds.CANNOT_TELL: "?"}
_OUTCOME = {VerdictOutcome.PASS: "✓", VerdictOutcome.FAIL: "✗", VerdictOutcome.INVALID: "!"}


def markdown(verdict: Verdict, *, name: str) -> str:
    """The four meanings, what failed, and the times, of the run called `name`.

    What records say stands in code spans, where neither Markdown nor a forge makes anything of it: no markup, no link,
    mention, issue, or emoji.
    """
    return "\n".join([*_head(verdict, name), *_meanings(verdict), *_failures(verdict), *_times(verdict.latency)]) + "\n"


def _head(verdict: Verdict, name: str) -> Iterator[str]:
    yield f"### AllReduce = ReduceScatter + AllGather? {_OUTCOME[verdict.outcome]} {verdict.outcome.value}"
    yield ""
    yield from (f"- {code(reason)}" for reason in verdict.reasons)
    if verdict.reasons:
        yield ""
    yield f"{code(verdict.sentence)} (run {code(name)})".strip()
    yield ""


def _meanings(verdict: Verdict) -> Iterator[str]:
    yield "| the same | | evidence |"
    yield "|---|---|---|"
    for row in verdict.equivalence:
        yield f"| {row.meaning.value} | {_MARK[row.holds]} {row.holds.value} | {code(row.evidence)} |"
    yield ""


def _failures(verdict: Verdict) -> Iterator[str]:
    failed = [row for row in verdict.contracts if row.outcome is ContractOutcome.FAIL]
    if not failed:
        return
    yield f"**{len(failed)} contract rows fail**"
    yield ""
    for row in failed[:MOST_ROWS]:
        yield f"- {code(row.contract)}, rank {row.rank}: {code(row.reason or row.got)}"
    yield from _rest(len(failed))
    yield ""


def _times(rows: Sequence[LatencyRow]) -> Iterator[str]:
    """A refused ratio has its raw times and the reason, and no number that looks like an answer."""
    compared = [row for row in rows if row.role.is_compared]
    if not compared:
        return
    yield "| case | composition | median us | P95 us | CV | against direct |"
    yield "|---|---|--:|--:|--:|---|"
    for row in compared[:MOST_ROWS]:
        cv = "–" if row.cv is None else f"{row.cv:.1%}"
        times = f"{_number(row.median_us)} | {_number(row.p95_us)} | {cv}"
        yield f"| {case_name(row)} | {code(arm_name(row))} | {times} | {_answer(row)} |"
    yield from _rest(len(compared))


def _answer(row: LatencyRow) -> str:
    if row.outcome is None:
        return ""
    if row.ratio is not None:
        return answer(row.outcome, row.ratio, row.interval).plain
    return ": ".join([row.outcome.value, *(reason.code.value for reason in row.reasons[:1])])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _rest(count: int) -> Iterator[str]:
    if count > MOST_ROWS:
        yield ""
        yield f"... and {count - MOST_ROWS} more in verdict.json"


def code(text: str) -> str:
    """`text` as a code span on one line, for a table too; empty for nothing.

    What would end a span or a cell, a backtick and a bar, is shown as a quote and a broken bar.
    """
    printable = "".join(one if one.isprintable() else " " for one in text)
    shown = " ".join(printable.split()).replace("`", "'").replace("|", "¦")
    return f"`{shown}`" if shown else ""
