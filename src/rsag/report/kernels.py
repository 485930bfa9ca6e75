"""What really ran, as terminal tables: the ranges first, then what their answer rests on and what it cannot say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsag.records.kernels import Agreement, Evidence, KernelsDocument, RangeRow, SourceRow, Structure
from rsag.report.kernel_evidence import (
    calls_table,
    choices_table,
    count_all,
    counts,
    kernels_table,
    numbers,
    span_of,
    transfers_table,
)
from rsag.report.tables import plain_table

MOST_ROWS = 30
"""So many ranges are shown; those with the most kernels and calls, in the order of time."""

_EVIDENCE = {
    Evidence.MATCHED: "",
    Evidence.NAMES: " by name",
    Evidence.CALLS: " by calls",
    Evidence.NOTHING: "",
}

_NUMBER = re.compile(r"\d+")

# The other structures say by themselves what they rest on.
_RESTS_ON_EVIDENCE = (Structure.SINGLE_KERNEL, Structure.DECOMPOSED, Structure.GROUPED, Structure.SEVERAL)

Places = list[tuple[SourceRow, RangeRow]]
"""Rows that say the same of several ranks, devices or threads."""


def print_kernels(document: KernelsDocument, out: Console) -> None:
    """Ranges, reasons, agreement, waiting, names, calls, limits, what was skipped: what is empty is left out."""
    for heading in _headings(document.sources):
        out.print(heading, style="dim", soft_wrap=True)
    groups = _folded(document)
    shown = _most(groups)
    if groups:
        _print_table(_ranges_table(shown), out)
    _print_left_out(document, len(groups) - len(shown), out)
    _print_lines([*_reason_lines(document, shown), *_outside_lines(document), *_agreement_lines(document)], out)
    if document.transfers:
        _print_table(transfers_table(document.transfers), out)
    _print_lines([Text(note) for note in document.notes], out)
    kernels = [kernel for device in document.devices for kernel in device.kernels]
    if kernels:
        _print_table(kernels_table(kernels, out.width), out)
    _print_calls(document, out)
    _print_lines([*_limit_lines(document), *_quarantine_lines(document)], out)


def _print_lines(lines: Sequence[Text], out: Console) -> None:
    if lines:
        out.print()
    for line in lines:
        out.print(line)


def _print_table(table: Table, out: Console) -> None:
    out.print()
    out.print(table)


def _headings(sources: Sequence[SourceRow]) -> list[str]:
    """Who wrote each file; files that differ in nothing but name and rank on one line."""
    alike: dict[tuple[str | int | None, ...], list[SourceRow]] = defaultdict(list)
    for source in sources:
        key = (source.format, source.world_size, source.backend, source.library_version, source.tool)
        alike[key].append(source)
    headings = []
    for (kind, world_size, *said), files in alike.items():
        ranks = sorted(source.rank for source in files if source.rank is not None)
        rank = f"rank{'s' if len(ranks) > 1 else ''} {numbers(ranks)}" if ranks else ""
        rank += f" of {world_size}" if ranks and world_size else ""
        described = ", ".join(str(part) for part in (kind, rank, *said) if part)
        headings.append(f"{_some([Path(source.path).name for source in files], 2)}: {described}")
    return headings


def _folded(document: KernelsDocument) -> list[Places]:
    """The rows of ranges in order of their first; those that say the same on several ranks, and of ranges whose names
    differ in a number only, are together."""
    groups: dict[object, Places] = defaultdict(list)
    for row in document.ranges:
        kernels = tuple(sorted((kernel.name, kernel.count) for kernel in row.kernels))
        counted = (tuple(row.collectives.items()), tuple(row.calls.items()), row.copies, row.instances)
        key = (_NUMBER.sub("0", row.range), row.structure, row.evidence, counted, kernels, row.reasons)
        groups[key].append((document.sources[row.source], row))
    return list(groups.values())


def _most(groups: Sequence[Places]) -> list[Places]:
    def weight(group: Places) -> int:
        return sum(
            sum(row.collectives.values()) + sum(row.calls.values()) + row.unattributed + row.unattributed_calls
            for _, row in group
        )

    kept = sorted(range(len(groups)), key=lambda index: -weight(groups[index]))[:MOST_ROWS]
    return [groups[index] for index in sorted(kept)]


def _print_left_out(document: KernelsDocument, not_shown: int, out: Console) -> None:
    if not_shown:
        out.print(f"{not_shown} more rows: --range GLOB shows those that fit, --json all", style="dim")
    if document.ranges_left_out:
        out.print(f"{document.ranges_left_out} more ranges hold no collective", style="dim")


def _ranges_table(groups: Sequence[Places]) -> Table:
    table = plain_table()
    table.add_column("range", overflow="fold", ratio=3)
    table.add_column("structure", min_width=13)
    table.add_column("kernels", ratio=3)
    table.add_column("kernel time", justify="right", no_wrap=True)
    for group in groups:
        row = group[0][1]
        table.add_row(_names(group), _structure(row), _ran(row), _times(group))
    return table


def _names(group: Places) -> Text:
    row = group[0][1]
    name = Text(row.range + (f" (x{row.instances})" if row.instances > 1 else ""))
    alike = len({other.range for _, other in group}) - 1
    name.append(f"\n and {alike} alike" if alike else "")
    where = _where(group)
    return name.append(f"\n {where}" if where else "", "dim")


def _structure(row: RangeRow) -> Text:
    style = {
        Structure.MIXED: "yellow",
        Structure.CANNOT_TELL: "yellow",
        Structure.NO_KERNEL: "yellow",
        Structure.NOTHING: "dim",
    }.get(row.structure, "bold")
    shown = row.structure in _RESTS_ON_EVIDENCE
    return Text(row.structure.value, style=style).append(_EVIDENCE[row.evidence] if shown else "", "dim")


def _ran(row: RangeRow) -> Text:
    """What ran, and what was asked for where that is not the same."""
    parts = [f"{count} {collective}" for collective, count in row.collectives.items()]
    parts += [f"{row.copies} by copies"] if row.copies else []
    cell = Text("\n".join(parts) or "-")
    if row.calls and row.calls != row.collectives:
        cell.append(f"\nasked for: {counts(row.calls)}", "dim")
    if row.unattributed:
        cell.append(f"\nby other threads: {row.unattributed}", "dim")
    elif row.unattributed_calls:
        cell.append(f"\nasked for by other threads: {row.unattributed_calls}", "dim")
    return cell


def _times(group: Places) -> str:
    totals = [sum(kernel.total_ns for kernel in row.kernels) for _, row in group]
    return span_of(totals) if any(totals) else "-"


def _where(group: Places) -> str:
    """`ranks 0-7, device 0`: what the rows do not share is left out where it would be a list."""
    ranks = [source.rank for source, _ in group]
    parts = []
    if None not in ranks:
        distinct = sorted({rank for rank in ranks if rank is not None})
        parts.append(f"rank{'s' if len(distinct) > 1 else ''} {numbers(distinct)}")
    else:
        pids = sorted({row.pid for _, row in group if row.pid is not None})
        parts += [f"pid {numbers(pids)}"] if pids else []
    devices = sorted({row.device for _, row in group if row.device is not None})
    parts += [f"device{'s' if len(devices) > 1 else ''} {numbers(devices)}"] if devices else []
    return ", ".join(parts)


def _reason_lines(document: KernelsDocument, groups: Iterable[Places]) -> list[Text]:
    """Each reason once, with the ranges that it is given for."""
    given: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for group in groups:
        for reason in group[0][1].reasons:
            given[reason.code.value, reason.message].update({row.range: None for _, row in group})
    for device in document.devices:
        for reason in device.reasons:
            given.setdefault((reason.code.value, reason.message), {"the whole file": None})
    return [
        Text.assemble((f"{code}: ", "bold"), message, (f" ({_some(list(ranges))})", "dim"))
        for (code, message), ranges in given.items()
    ]


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _outside_lines(document: KernelsDocument) -> list[Text]:
    """For each device how many of its kernels the ranges shown do not hold."""
    lines: dict[str, list[str]] = defaultdict(list)
    for device in document.devices:
        if device.unattributed:
            total = sum(device.collectives.values())
            unknown = f", {device.unknown} of them of unknown launch" if device.unknown else ""
            source = document.sources[device.source]
            where = f"rank {source.rank}" if source.rank is not None else f"pid {device.pid}"
            where += f" device {device.device}" if device.device is not None else ""
            lines[f"{device.unattributed} of {total} kernels{unknown}"].append(where)
    head = "in none of these ranges: " if document.ranges else "in no range: "
    return [Text.assemble((head, "bold"), what, (f" ({_some(where, 8)})", "dim")) for what, where in lines.items()]


def _agreement_lines(document: KernelsDocument) -> list[Text]:
    alike: dict[tuple[Agreement, int, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for row in document.agreement:
        where = f"group {row.group}" if row.range is None else row.range
        alike[row.agreement, row.num_ranks, row.message, row.not_compared].append(where)
    return [_agreement_line(*said, places) for said, places in alike.items()]


def _agreement_line(
    outcome: Agreement, num_ranks: int, message: str, not_compared: Sequence[str], places: Sequence[str]
) -> Text:
    ranks = "both ranks" if num_ranks == 2 else f"all {num_ranks} ranks"
    where = _some(places, 8)
    rest = f"; not recorded and not compared: {', '.join(not_compared)}" if not_compared else ""
    match outcome:
        case Agreement.AGREE:
            return Text(f"{ranks}: {message} in {where}{rest}")
        case Agreement.CANNOT_TELL:
            return Text.assemble((f"whether {ranks} agree in {where} cannot be told: ", "yellow"), message + rest)
        case Agreement.DIFFER:
            return Text.assemble((f"ranks differ in {where}: ", "bold yellow"), message)


def _print_calls(document: KernelsDocument, out: Console) -> None:
    """Calls by kind where no kernels stand for them: logs, dumps, groups of one, Gloo."""
    shown = {row.source for row in document.devices if row.kernels}
    sources = [source for number, source in enumerate(document.sources) if number not in shown]
    if any(source.calls for source in sources):
        _print_table(calls_table(sources), out)
    choices = [row for source in document.sources for row in source.choices]
    if choices:
        _print_table(choices_table(choices), out)
    if not (count_all(document) or choices):
        out.print(Text("no collective was found in what was read", style="yellow"))


def _limit_lines(document: KernelsDocument) -> list[Text]:
    given: dict[tuple[str, str], list[str]] = defaultdict(list)
    for source in document.sources:
        for limit in source.limits:
            given[limit.code, limit.message].append(Path(source.path).name)
    return [
        Text.assemble((f"{code}: ", "bold yellow"), message, (f" ({_some(paths, 2)})", "dim"))
        for (code, message), paths in given.items()
    ]


def _quarantine_lines(document: KernelsDocument) -> list[Text]:
    quarantine = document.quarantine
    if not quarantine.num_skipped:
        return []
    share = quarantine.num_skipped / max(1, quarantine.num_seen)
    lines = [
        Text.assemble(
            ("skipped: ", "bold yellow"),
            f"{quarantine.num_skipped:,} of {quarantine.num_seen:,} rows could not be used ({share:.2%})",
        )
    ]
    lines += [
        Text(f"  {Path(document.sources[row.source].path).name} at {row.offset:,}: {row.reason}", style="dim")
        for row in quarantine.first
    ]
    return lines
