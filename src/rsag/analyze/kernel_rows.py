"""Kernels by name, and all kernels of each device: with what their names, callers and the library's log disagree on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from rsag.analyze.chosen import Chosen, disagreement
from rsag.analyze.executed import Executed, Joined
from rsag.analyze.structure import counted, not_expanded
from rsag.analyze.words import name_says, runs_as
from rsag.records.kernels import DeviceRow, KernelReason, KernelReasonCode, KernelRow
from rsag.records.protocol import Choice
from rsag.traces.events import OperationKind
from rsag.traces.kernel_names import decode


def is_kernel(one: Executed) -> bool:
    return one.operation.kind is OperationKind.KERNEL


def by_collective(kernels: Iterable[Executed]) -> dict[str, int]:
    return dict(Counter(one.collective or "unknown" for one in kernels))


def kernel_row(name: str, count: int, total_ns: int, choices: tuple[Choice, ...] = ()) -> KernelRow:
    """Kernels of one name with what the name says of them."""
    decoded = decode(name)
    return KernelRow(
        name=name,
        library=decoded.library if decoded else None,
        count=count,
        total_ns=total_ns,
        claims=decoded.claims if decoded else (),
        choices=choices,
    )


def kernel_rows(kernels: Iterable[Executed], chosen: Chosen) -> tuple[KernelRow, ...]:
    """The kernels by name, the longest time first."""
    names: dict[str, list[Executed]] = defaultdict(list)
    for one in kernels:
        names[one.operation.name].append(one)
    rows = [
        kernel_row(
            name,
            len(alike),
            sum(one.operation.end_ns - one.operation.start_ns for one in alike),
            chosen.of(alike),
        )
        for name, alike in names.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.total_ns))


def disagreements(kernels: Sequence[Executed], chosen: Chosen) -> list[KernelReason]:
    """Where a kernel's name and its caller, or the library's log, say different things; and kernels of graphs."""
    differ = Counter(
        (said, one.collective)
        for one in kernels
        if one.from_caller and (said := name_says(one.operation.name)) and not runs_as(said, one.collective)
    )
    reasons = [
        KernelReason(
            code=KernelReasonCode.NAME_AND_CALLER_DIFFER,
            message=f"name says {said}, caller says {collective}: {counted(count, 'kernel')}",
        )
        for (said, collective), count in differ.items()
    ]
    names: dict[str, list[Executed]] = defaultdict(list)
    for one in kernels:
        names[one.operation.name].append(one)
    messages = (disagreement(name, chosen.of(alike)) for name, alike in names.items())
    reasons += [
        KernelReason(code=KernelReasonCode.NAME_AND_LOG_DIFFER, message=message)
        for message in dict.fromkeys(messages)
        if message is not None
    ]
    replayed = sum(one.operation.in_graph or (one.launch is not None and one.launch.is_graph) for one in kernels)
    if replayed:
        message = f"{counted(replayed, 'kernel')} ran as part of a CUDA graph, in the range around its replay"
        reasons.append(KernelReason(code=KernelReasonCode.GRAPH_REPLAY, message=message))
    return reasons


def device_rows(source: int, joined: Joined, held: Collection[int], chosen: Chosen) -> list[DeviceRow]:
    """All communication kernels of each device; `held` are the indices of those that a range holds."""
    devices: dict[tuple[int | None, int], list[tuple[Executed, bool]]] = defaultdict(list)
    for number, one in enumerate(joined.executed):
        if is_kernel(one):
            devices[one.process, one.operation.device].append((one, number in held))
    graphs = Counter((launch.process if launch else graph.process, graph.device) for graph, launch in joined.graphs)
    rows = []
    for process, device in [*devices, *(place for place in graphs if place not in devices)]:
        members = devices.get((process, device), [])
        kernels = [one for one, _ in members]
        unknown = sum(one.launch is None for one in kernels)
        reasons = disagreements(kernels, chosen)
        if graphs[process, device]:
            reasons.append(not_expanded(graphs[process, device]))
        if unknown:
            message = f"of {counted(unknown, 'kernel')} the launch is not in the file, so that no range can hold them"
            reasons.append(KernelReason(code=KernelReasonCode.UNKNOWN_LAUNCH, message=message))
        rows.append(
            DeviceRow(
                source=source,
                pid=process,
                device=device,
                collectives=by_collective(kernels),
                kernels=kernel_rows(kernels, chosen),
                unattributed=sum(not is_held for _, is_held in members),
                unknown=unknown,
                graph_launches=graphs[process, device],
                reasons=tuple(reasons),
            )
        )
    return sorted(rows, key=lambda row: (row.pid or 0, row.device or 0))
