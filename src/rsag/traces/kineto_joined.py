"""The rows of a whole Kineto file, joined and in absolute time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rsag.traces.events import Call, CallSource, DeviceOperation, Launch, Metadata, Range
from rsag.traces.kineto_rows import DeviceRow, HostRow, Rows
from rsag.traces.skips import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a whole file comes to."""

    operations: tuple[DeviceOperation, ...]
    launches: tuple[Launch, ...]
    ranges: tuple[Range, ...]
    calls: tuple[Call, ...]
    num_other_kernels: int
    num_device_rows: int
    num_api_calls: int


def join(parts: Sequence[Rows], base_ns: int) -> Kept:
    """All parts of a file, in its order, with `base_ns` added; of the calls, those that launched what is kept.

    A device's rows do not say which process they belong to: the launch with their correlation id does. The parts are
    emptied on the way, so that little is held twice.
    """
    num_api_calls = sum(len(rows.calls) // 4 for rows in parts)
    correlations = {row.correlation for rows in parts for row in rows.device if row.correlation is not None}
    launches = tuple(launch for rows in parts for launch in _launches(rows, correlations, base_ns))
    processes = _processes(launches)
    graphs = {launch.correlation for launch in launches if launch.is_graph}
    operations: list[DeviceOperation] = []
    ranges: list[Range] = []
    calls: list[Call] = []
    for rows in parts:
        operations += [_operation(row, base_ns, processes, graphs) for row in rows.device]
        ranges += [_range(row, base_ns) for row in rows.host]
        calls += [_call(row, row.source, base_ns) for row in rows.host if row.source]
        rows.device.clear()
        rows.host.clear()
    return Kept(
        operations=tuple(operations),
        launches=launches,
        ranges=tuple(ranges),
        calls=tuple(calls),
        num_other_kernels=sum(rows.num_other_kernels for rows in parts),
        num_device_rows=sum(rows.num_device_rows for rows in parts),
        num_api_calls=num_api_calls,
    )


def _launches(rows: Rows, correlations: Collection[int], base_ns: int) -> Iterator[Launch]:
    kinds = list(rows.call_kinds)
    graphs = {number for (_, _, api), number in rows.call_kinds.items() if "GraphLaunch" in api}
    values = iter(rows.calls)
    for correlation, start_ns, end_ns, number in zip(values, values, values, values):
        if correlation in correlations or number in graphs:
            process, thread, api = kinds[number]
            yield Launch(
                process=process,
                thread=thread,
                start_ns=base_ns + start_ns,
                end_ns=base_ns + end_ns,
                correlation=correlation,
                api=printable(api),
            )
    del rows.calls[:]


def _processes(launches: tuple[Launch, ...]) -> dict[int, int | None]:
    """The process of each correlation id; None where several processes in the file have it."""
    processes: dict[int, int | None] = {}
    for launch in launches:
        known = processes.setdefault(launch.correlation, launch.process)
        if known != launch.process:
            processes[launch.correlation] = None
    return processes


def _operation(
    row: DeviceRow, base_ns: int, processes: dict[int, int | None], graphs: Collection[int]
) -> DeviceOperation:
    return DeviceOperation(
        kind=row.kind,
        name=row.name,
        start_ns=base_ns + row.start_ns,
        end_ns=base_ns + row.end_ns,
        process=None if row.correlation is None else processes.get(row.correlation),
        device=row.device,
        stream=row.stream,
        correlation=row.correlation,
        in_graph=row.in_graph or row.correlation in graphs,
        metadata=row.metadata,
    )


def _range(row: HostRow, base_ns: int) -> Range:
    return Range(
        name=row.name,
        kind=row.kind,
        process=row.process,
        thread=row.thread,
        start_ns=base_ns + row.start_ns,
        end_ns=base_ns + row.end_ns,
    )


def _call(row: HostRow, source: CallSource, base_ns: int) -> Call:
    return Call(
        source=source,
        metadata=row.metadata or Metadata(),
        process=row.process,
        thread=row.thread,
        start_ns=base_ns + row.start_ns,
        end_ns=base_ns + row.end_ns,
    )
