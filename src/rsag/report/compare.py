"""Two runs side by side as terminal tables: what differs around them first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.records.compare import CompareRow, Comparison, Difference, RatioChange, Side
from rsag.records.contracts import ContractOutcome
from rsag.records.latency import ArmRole
from rsag.report.answers import answer
from rsag.report.names import arm_name, case_heading, kind_name
from rsag.report.tables import MARKS, plain_table
from rsag.units import format_bytes

WIDE = 110
"""From so many columns on, an interval has room beside its ratio."""

NOTHING = "-"
_CHANGE_STYLE = {
    RatioChange.HIGHER: "yellow",
    RatioChange.LOWER: "green",
    RatioChange.OVERLAP: "dim",
    RatioChange.CANNOT_TELL: "dim",
}


def print_comparison(compared: Comparison, out: Console) -> None:
    """What differs around the runs, their times, and the contracts that came out differently."""
    for name, run in (("A", compared.a), ("B", compared.b)):
        out.print(
            f"{name}: {run.directory}, {run.started_utc}, seed {run.seed}, {run.outcome.value}, "
            f"verdict {run.verdict.value}"
        )
    out.print()
    if compared.differences:
        out.print(Text("the runs differ in more than their numbers", style="bold yellow"))
        out.print(difference_table(compared.differences))
        out.print()
    if compared.rows:
        out.print(compare_table(compared.rows, out.width))
        kinds = dict.fromkeys(kind_name(row.case) for row in compared.rows)
        out.print(
            f"{', '.join(kinds)}; a ratio is higher or lower only where the intervals do not overlap; each holds in "
            "its own launch, and what differs may be the launch (rsag merge); B/A is of medians as measured, without "
            "an error",
            style="dim",
        )
        out.print()
    lines = [*contract_lines(compared), *memory_lines(compared)]
    for line in lines:
        out.print(line)
    if not (compared.rows or lines):
        out.print("neither times nor contracts nor memory to hold against each other")


def difference_table(found: Sequence[Difference]) -> Table:
    table = plain_table()
    for name in ("field", "A", "B"):
        table.add_column(name, overflow="fold")
    for one in found:
        table.add_row(one.field, one.a, one.b)
    return table


def compare_table(rows: Sequence[CompareRow], width: int) -> Table:
    """One block per case; each arm has a line for A and one for B, which also says what changed."""
    table = plain_table()
    table.add_column("case, composition", min_width=17)
    table.add_column("", no_wrap=True)
    table.add_column("median us", justify="right", no_wrap=True)
    table.add_column("B/A", justify="right", no_wrap=True)
    table.add_column("against direct", min_width=16)
    table.add_column("ratio in B")
    cases = [row.case for row in rows]
    case = None
    for row in rows:
        if row.case != case:
            case = row.case
            table.add_row(Text(case_heading(case, cases), style="bold"))
        between = " " if width >= WIDE else "\n"
        table.add_row(f"  {arm_name(row.arm)}", "A", _median(row.a), "", _against(row.a, row.arm.role, between))
        table.add_row("", "B", _median(row.b), _moved(row), _against(row.b, row.arm.role, between), _change(row))
    return table


def _median(side: Side | None) -> str:
    return NOTHING if side is None or side.median_us is None else f"{side.median_us:.1f}"


def _moved(row: CompareRow) -> str:
    return NOTHING if row.median_change is None else f"{row.median_change - 1:+.1%}"


def _against(side: Side | None, role: ArmRole, between: str) -> Text:
    if side is None:
        return Text("not in this run", style="dim")
    if side.outcome is None:
        return Text("" if role is ArmRole.NULL else "reference", style="dim")
    text = answer(side.outcome, side.ratio, side.interval, between=between)
    if side.interval is None and side.reasons:
        text.append(f"{between}({side.reasons[0]})", "dim")
    return text


def _change(row: CompareRow) -> Text:
    if row.ratio_change is None:
        return Text("")
    return Text(row.why or row.ratio_change.value, style=_CHANGE_STYLE[row.ratio_change])


def contract_lines(compared: Comparison) -> Iterator[Text]:
    """Which contracts came out differently, rank by rank in one line each, or that none did."""
    if not compared.contracts:
        if compared.num_same_contracts:
            yield Text(f"contracts: all {compared.num_same_contracts} rows alike")
        return
    num_rows = len(compared.contracts) + compared.num_same_contracts
    yield Text(f"contracts: {len(compared.contracts)} of {num_rows} rows differ", "bold")
    ranks: dict[tuple[str, ContractOutcome | None, ContractOutcome | None], list[int]] = {}
    for one in compared.contracts:
        ranks.setdefault((one.contract, one.a, one.b), []).append(one.rank)
    for (contract, a, b), own in ranks.items():
        where = f"rank {own[0]}" if len(own) == 1 else f"ranks {', '.join(map(str, own))}"
        mark, style = MARKS["bad" if b is ContractOutcome.FAIL else "warn"]
        yield Text.assemble(
            (f"  {mark} ", style), f"{contract}: {_word(a)} in A, {_word(b)} in B", (f"; {where}", "dim")
        )


def memory_lines(compared: Comparison) -> Iterator[Text]:
    """Which measured peaks differ, or that none does."""
    if not compared.memory:
        if compared.num_same_memory:
            yield Text(f"memory: all {compared.num_same_memory} measured peaks alike")
        return
    num_rows = len(compared.memory) + compared.num_same_memory
    yield Text(f"memory: {len(compared.memory)} of {num_rows} measured peaks differ", "bold")
    mark, style = MARKS["warn"]
    for one in compared.memory:
        peaks = [
            "not measured" if peak is None else format_bytes(peak) for peak in (one.a_peak_bytes, one.b_peak_bytes)
        ]
        words = f"{one.composition} at {format_bytes(one.bytes)}: {peaks[0]} in A, {peaks[1]} in B"
        yield Text.assemble((f"  {mark} ", style), words, (f"; rank {one.rank}", "dim"))


def _word(outcome: ContractOutcome | None) -> str:
    return "not tried" if outcome is None else outcome.value
