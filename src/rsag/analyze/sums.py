"""Rows of nvtx_kern_sum: nsys has attributed and added up already, so names and numbers are all there is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from rsag.analyze.kernel_rows import kernel_row
from rsag.analyze.words import name_claims
from rsag.collectives import Kind
from rsag.records.kernels import (
    Agreement,
    AgreementRow,
    DeviceRow,
    Evidence,
    KernelReason,
    KernelReasonCode,
    KernelRow,
    RangeRow,
    Structure,
)
from rsag.traces.events import Capture, SummedKernels

_REASON = KernelReason(
    code=KernelReasonCode.SUMS,
    message="nsys has added up kernels by name over all devices: their order, callers and devices are not in the file",
)


def sums_ranges(source: int, rows: Iterable[SummedKernels]) -> list[RangeRow]:
    """One row for each range, process and thread. What an order would be needed for is not told."""
    places: dict[tuple[str, int | None, int | None], list[SummedKernels]] = defaultdict(list)
    for row in rows:
        places[row.range, row.process, row.thread].append(row)
    return [
        RangeRow(
            source=source,
            range=name,
            pid=process,
            tid=thread,
            device=None,
            instances=max(row.range_instances for row in summed),
            structure=_structure(summed),
            evidence=Evidence.NAMES,
            collectives=_by_collective(summed),
            calls={},
            kernels=_kernels(summed),
            copies=0,
            unattributed=0,
            unattributed_calls=0,
            reasons=(_REASON,),
        )
        for (name, process, thread), summed in places.items()
    ]


def sums_devices(source: int, rows: Sequence[SummedKernels]) -> list[DeviceRow]:
    """The kernels of each process that are in no range. A sum over ranges would count nested ones twice."""
    outside: dict[int | None, list[SummedKernels]] = defaultdict(list)
    for row in rows:
        if not row.range:
            outside[row.process].append(row)
    return [
        DeviceRow(
            source=source,
            pid=process,
            device=None,
            collectives=_by_collective(summed),
            kernels=_kernels(summed),
            unattributed=sum(row.count for row in summed),
            unknown=0,
            graph_launches=0,
            reasons=(_REASON,),
        )
        for process, summed in outside.items()
    ]


def sums_agreement(captures: Sequence[Capture]) -> tuple[AgreementRow, ...]:
    """One row for each range that several processes have: sums can differ, and cannot show that ranks did the same."""
    ranges: dict[str, dict[tuple[int, int | None], list[SummedKernels]]] = defaultdict(lambda: defaultdict(list))
    processes = {(source, row.process) for source, capture in enumerate(captures) for row in capture.sums}
    for source, capture in enumerate(captures):
        for row in capture.sums:
            if row.range:
                ranges[row.range][source, row.process].append(row)
    return tuple(_agreement(name, processes, there) for name, there in ranges.items() if len(processes) > 1)


def _agreement(
    name: str,
    processes: Collection[tuple[int, int | None]],
    there: Mapping[tuple[int, int | None], Sequence[SummedKernels]],
) -> AgreementRow:
    said: dict[str, list[str]] = defaultdict(list)
    for source, process in sorted(processes, key=str):
        counts = sorted(_by_collective(there.get((source, process), ())).items())
        words = ", ".join(f"{count} {collective}" for collective, count in counts) or "no collective"
        said[words].append(f"file {source + 1} pid {process}")
    differ = len(said) > 1
    return AgreementRow(
        range=name,
        group=None,
        num_ranks=len(processes),
        agreement=Agreement.DIFFER if differ else Agreement.CANNOT_TELL,
        message="; ".join(f"{', '.join(who)}: {words}" for words, who in said.items())
        if differ
        else "the same numbers of kernels: their order is not in the file",
        not_compared=("order", "counts", "dtype", "group size"),
    )


def _structure(rows: Sequence[SummedKernels]) -> Structure:
    kinds = set(_by_collective(rows))
    if "unknown" in kinds or kinds == {Kind.REDUCE_SCATTER.value, Kind.ALL_GATHER.value}:
        return Structure.CANNOT_TELL  # which came first, and whether they belong together
    return Structure.SINGLE_KERNEL if len(kinds) == 1 else Structure.SEVERAL


def _by_collective(rows: Iterable[SummedKernels]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts[name_claims(row.name) or "unknown"] += row.count
    return dict(counts)


def _kernels(rows: Iterable[SummedKernels]) -> tuple[KernelRow, ...]:
    return tuple(kernel_row(row.name, row.count, row.total_ns) for row in sorted(rows, key=lambda row: -row.total_ns))
