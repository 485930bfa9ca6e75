"""Merged launches as a terminal table: what each launch came to, and what holds across them."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.records.latency import ArmRole
from rsag.records.merge import Merge, MergeRow
from rsag.report.answers import answer
from rsag.report.names import arm_name, case_heading, case_name, kind_name
from rsag.report.tables import plain_table

WIDE = 110
"""From so many columns on, an interval has room beside its ratio."""

NOTHING = "-"


def print_merge(merged: Merge, out: Console) -> None:
    """The launches, the table, what may be claimed of all of it, and each reason once."""
    for number, run in enumerate(merged.runs, start=1):
        out.print(
            f"launch {number}: {run.directory}, {run.started_utc}, seed {run.seed}, {run.outcome.value}, "
            f"verdict {run.verdict.value}",
            style="dim",
        )
    out.print()
    out.print(merge_table(merged, out.width))
    kinds = dict.fromkeys(kind_name(row.case) for row in merged.rows)
    out.print(
        f"{', '.join(kinds)}; under each median over launches the smallest and the largest; only the last column "
        "claims anything, each row at 5 % by itself",
        style="dim",
    )
    out.print()
    out.print(Text(merged.sentence, style="bold"))
    for line in reason_lines(merged):
        out.print(line)


def merge_table(merged: Merge, width: int) -> Table:
    """One block per case, one line per arm."""
    table = plain_table()
    table.add_column("case, composition", min_width=26)
    table.add_column("counted", justify="right", no_wrap=True)
    table.add_column("median us", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("across launches", min_width=16)
    cases = [row.case for row in merged.rows]
    case = None
    for row in merged.rows:
        if row.case != case:
            case = row.case
            table.add_row(Text(case_heading(case, cases), style="bold"))
        counted = sum(not launch.left_out and launch.median_us is not None for launch in row.launches)
        table.add_row(
            f"  {arm_name(row.arm)}",
            f"{counted} of {len(row.launches)}",
            _span(row.median_us, row.median_us_range, _microseconds, width),
            _span(row.median_ratio, row.ratio_range, "{:.3f}".format, width),
            _across(row, width),
        )
    return table


def _span(middle: float | None, ends: tuple[float, float] | None, write: Callable[[float], str], width: int) -> Text:
    if middle is None or ends is None:
        return Text(NOTHING, style="dim")
    return Text(write(middle)).append(f"{_between(width)}{write(ends[0])}-{write(ends[1])}", "dim")


def _microseconds(value: float) -> str:
    """With a tenth where that is no more than a thousandth of it."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"


def _across(row: MergeRow, width: int) -> Text:
    if row.arm.role in (ArmRole.DIRECT, ArmRole.NULL):
        return Text("reference" if row.arm.role is ArmRole.DIRECT else "", style="dim")
    if row.outcome is None:
        return Text("too few launches", style="dim")
    return answer(row.outcome, row.ratio, row.interval, between=_between(width))


def _between(width: int) -> str:
    return " " if width >= WIDE else "\n"


def reason_lines(merged: Merge) -> list[Text]:
    """Each reason once, with the first row that it was given for."""
    places: dict[str, list[str]] = {}
    for row in merged.rows:
        for reason in row.reasons:
            places.setdefault(reason, []).append(f"{arm_name(row.arm)} at {case_name(row.case)}")
    return [
        Text.assemble(f"  {reason}", (f"; {own[0]}" + (f", and {len(own) - 1} more" if own[1:] else ""), "dim"))
        for reason, own in places.items()
    ]
