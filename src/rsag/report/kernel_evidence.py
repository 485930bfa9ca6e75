"""The tables below the ranges: kernels by name, calls, the library's choices, waiting and transfer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rsag.records.kernels import ChoiceRow, Claim, ClaimAbout, KernelRow, KernelsDocument, SourceRow, TransferRow
from rsag.report.tables import plain_table
from rsag.units import format_bytes, format_seconds


def counts(numbers: Mapping[str, int]) -> str:
    """`5 reduce_scatter, 5 all_gather`."""
    return ", ".join(f"{count} {name}" for name, count in numbers.items())


def count_all(document: KernelsDocument) -> int:
    """Kernels and calls that the document knows of, wherever."""
    kernels = sum(sum(device.collectives.values()) for device in document.devices)
    kernels += sum(sum(row.collectives.values()) for row in document.ranges)
    return kernels + sum(row.count for source in document.sources for row in source.calls)


def span_of(times_ns: Sequence[int]) -> str:
    """`1.2 ms`, or `1.2-1.4 ms` where ranks differ, each in its own unit if they must."""
    least, most = format_seconds(min(times_ns) / 1e9), format_seconds(max(times_ns) / 1e9)
    if least == most:
        return most
    number, _, unit = least.partition(" ")
    return f"{number}-{most}" if most.endswith(f" {unit}") else f"{least}-{most}"


MOST_LINES = 40

WIDE = 110
"""From so many columns on, the library's word has a column of its own."""


def kernels_table(kernels: Sequence[KernelRow], width: int) -> Table:
    """Each name once: how often and how long it ran, what the name says, what it cannot, and the library's word."""
    names: dict[str, list[KernelRow]] = defaultdict(list)
    for row in kernels:
        names[row.name].append(row)
    logged = width >= WIDE and any(row.choices for row in kernels)
    table = plain_table()
    table.add_column("kernel, all files", overflow="fold", ratio=3)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("the name says", ratio=2, overflow="fold")
    table.add_column("it cannot say", ratio=2, overflow="fold")
    if logged:
        table.add_column("the log says", ratio=2)
    for name, rows in sorted(names.items(), key=lambda item: -sum(row.total_ns for row in item[1])):
        claims = rows[0].claims
        choices = dict.fromkeys(str(choice) for row in rows for choice in row.choices)
        below = "" if logged else "".join(f"\n log: {choice}" for choice in choices)
        cells: list[RenderableType] = [
            Text(_short(name)).append(_owner(rows[0]) + below, "dim"),
            str(sum(row.count for row in rows)),
            format_seconds(sum(row.total_ns for row in rows) / 1e9),
            Text(", ".join(claim.value for claim in claims if claim.value) or "-"),
            Text(", ".join(_not_said(claims)) or "-", style="dim"),
        ]
        table.add_row(*cells, *([Text("\n".join(choices) or "-")] if logged else []))
    return table


def _short(name: str) -> str:
    """Without return type and parameters: they fill lines and say nothing of the collective."""
    return name.removeprefix("void ").replace("(anonymous namespace)::", "").split("(")[0]


def _owner(row: KernelRow) -> str:
    return f" ({row.library})" if row.library not in (None, "NCCL") else ""


def _not_said(claims: Iterable[Claim]) -> list[str]:
    """What a reader may look for in a name; a method is named only where there is one."""
    return [claim.about.value for claim in claims if claim.value is None and claim.about is not ClaimAbout.METHOD]


def numbers(of: Sequence[int]) -> str:
    """`0-7` for a run of numbers, else `0, 2, 5`."""
    if len(of) > 2 and list(of) == list(range(of[0], of[-1] + 1)):
        return f"{of[0]}-{of[-1]}"
    return ", ".join(map(str, of))


def _cut(table: Table, num_rows: int) -> Table:
    """`table`, which shows at most MOST_LINES of its rows, with the number of the others below it."""
    if num_rows > MOST_LINES:
        table.caption = f"{num_rows - MOST_LINES} more: --json has all"
        table.caption_justify = "left"
    return table


def calls_table(sources: Iterable[SourceRow]) -> Table:
    """Calls by collective, group and dtype; those that several ranks made alike on one line."""
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for source in sources:
        for row in source.calls:
            rank = row.rank if row.rank is not None else source.rank
            key = (row.collective, row.group, row.group_size, row.dtype, row.ran_as, row.count)
            kinds[key] += [] if rank is None else [rank]
    ran_as = any(key[4] for key in kinds)
    table = plain_table()
    for column in ("asked for", "group", "size", "dtype"):
        table.add_column(column, overflow="fold")
    table.add_column("on each", justify="right")
    table.add_column("ranks", overflow="fold")
    if ran_as:
        table.add_column("the backend ran")
    for (collective, group, size, dtype, ran, count), ranks in list(kinds.items())[:MOST_LINES]:
        cells = [_or_dash(value) for value in (collective, group, size, dtype)]
        table.add_row(*cells, str(count), numbers(sorted(ranks)) or "-", *([_or_dash(ran)] if ran_as else []))
    return _cut(table, len(kinds))


def choices_table(rows: Sequence[ChoiceRow]) -> Table:
    """What the library's own log says it chose, for each function and size."""
    table = plain_table()
    table.add_column("the library's log")
    table.add_column("bytes", justify="right")
    table.add_column("algorithm, protocol")
    table.add_column("channels", justify="right")
    table.add_column("count", justify="right")
    for row in rows[:MOST_LINES]:
        choice = row.choice
        table.add_row(
            _or_dash(choice.function),
            format_bytes(choice.bytes),
            " ".join(choice.how) or "-",
            _or_dash(choice.channels),
            str(row.count),
        )
    return _cut(table, len(rows))


def transfers_table(rows: Sequence[TransferRow]) -> Table:
    """How long collectives moved data and how long ranks waited for the last one; the longest wait in full."""
    table = plain_table()
    table.add_column("over all ranks")
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("transfer", justify="right", no_wrap=True)
    table.add_column("waiting", justify="right", no_wrap=True)
    table.add_column("the longest wait", ratio=1)
    for row in rows:
        longest = (
            f"number {row.number}: the kernel lasts {_us(row.shortest_ns)} to {_us(row.longest_ns)}, "
            f"rank {row.last_rank} came last, ends within {_us(row.ends_within_ns)}"
        )
        name = row.collective + (f"\n group {row.group}" if row.group is not None else "")
        table.add_row(name, str(row.count), _us(row.transfer_ns), _us(row.waiting_ns), Text(longest, style="dim"))
    return table


def _us(time_ns: int) -> str:
    return format_seconds(time_ns / 1e9)


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
