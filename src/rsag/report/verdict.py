"""A verdict as terminal tables: the four meanings first, then the contracts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.verdict import Equivalence, Holds, Verdict, VerdictOutcome
from rsag.report.execution import print_execution
from rsag.report.latency import print_latency
from rsag.report.memory import print_memory
from rsag.report.tables import MARKS, plain_table

NUM_LISTED = 6
"""So many contracts, the chapter's and the one on floats, are listed rank by rank."""

_FIXED_WIDTHS = (37, 4, 13)

_HOLDS_MARK = {Holds.YES: MARKS["good"], Holds.NO: MARKS["bad"], Holds.CANNOT_TELL: MARKS["none"]}
_ROW_MARK = {
    ContractOutcome.PASS: MARKS["good"],
    ContractOutcome.FAIL: MARKS["bad"],
    ContractOutcome.UNSUPPORTED: MARKS["none"],
}
_OUTCOME_MARK = {
    VerdictOutcome.PASS: MARKS["good"],
    VerdictOutcome.FAIL: MARKS["bad"],
    VerdictOutcome.INVALID: MARKS["warn"],
}


def print_verdict(verdict: Verdict, out: Console) -> None:
    """The four meanings first, then times, memory, kernels and contracts, last the outcome."""
    out.print(equivalence_table(verdict.equivalence))
    out.print()
    if verdict.latency or verdict.wire:
        print_latency(verdict, out)
        out.print()
    if verdict.memory:
        print_memory(verdict.memory, out)
        out.print()
    if verdict.kernels or verdict.boundaries:
        print_execution(verdict, out)
        out.print()
    if verdict.contracts:
        out.print(contract_table(verdict.contracts, out.width))
        out.print()
    mark, style = _OUTCOME_MARK[verdict.outcome]
    out.print(Text(f"{mark} {verdict.outcome.value}", style=style))
    for reason in verdict.reasons:
        out.print(f"  {reason}")


def equivalence_table(rows: Sequence[Equivalence]) -> Table:
    """AllReduce = ReduceScatter + AllGather, in each of its four meanings."""
    table = plain_table()
    table.add_column("the same", min_width=9)
    table.add_column("holds", min_width=13)
    table.add_column("evidence, and under which conditions")
    for row in rows:
        mark, style = _HOLDS_MARK[row.holds]
        text = Text(row.evidence)
        if row.conditions:
            text.append(f"\n{row.conditions}", "dim")
        table.add_row(row.meaning.value, Text(f"{mark} {row.holds.value}", style=style), text)
    return table


def contract_table(rows: Sequence[ContractRow], width: int) -> Table:
    """The chapter's contracts rank by rank, the others by family; a row that fails always stands alone.

    What was seen is cut to one line of `width` columns in all: rich would rather squeeze the other columns to nothing.
    """
    seen_width = max(width - sum(_FIXED_WIDTHS) - 2 * len(_FIXED_WIDTHS), 12)

    def cut(text: str) -> str:
        return text if len(text) <= seen_width else text[: seen_width - 1] + "…"

    table = plain_table()
    for name, fixed in zip(("contract", "rank", "outcome"), _FIXED_WIDTHS):
        table.add_column(name, width=fixed, no_wrap=True, justify="right" if name == "rank" else "left")
    table.add_column("seen", no_wrap=True)
    listed = list(dict.fromkeys(row.contract for row in rows))[:NUM_LISTED]
    for row in rows:
        if row.contract in listed or row.outcome is ContractOutcome.FAIL:
            mark, style = _ROW_MARK[row.outcome]
            seen = row.got if row.outcome is ContractOutcome.PASS else f"{row.reason} {row.got}".strip()
            table.add_row(row.contract, str(row.rank), Text(f"{mark} {row.outcome.value}", style=style), cut(seen))
    others = [row for row in rows if row.contract not in listed and row.outcome is not ContractOutcome.FAIL]
    for family, outcome in dict.fromkeys((row.contract.split("/")[0], row.outcome) for row in others):
        members = [row for row in others if (row.contract.split("/")[0], row.outcome) == (family, outcome)]
        num_contracts = len({row.contract for row in members})
        mark, style = _ROW_MARK[outcome]
        table.add_row(
            f"{family} ({num_contracts})",
            "all",
            Text(f"{mark} {outcome.value}", style=style),
            cut(f"{len(members)} rows; {members[0].contract.partition('/')[2]}: {members[0].reason or members[0].got}"),
        )
    return table
