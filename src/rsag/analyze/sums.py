"""Rows of nvtx_kern_sum: nsys has attributed and added up already, so names and numbers are all there is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rsag.analyze.kernel_rows import kernel_row
from rsag.analyze.words import name_claims
from rsag.collectives import Kind
from rsag.records.kernels import (
    DeviceRow,
    Evidence,
    KernelReason,
    KernelReasonCode,
    KernelRow,
    RangeRow,
    Structure,
)
from rsag.traces.events import SummedKernels

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
