"""The rows of a whole Kineto file, joined and in absolute time."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from rsag.traces.events import Call, DeviceOperation, Launch, OperationKind, Range, RangeKind
from rsag.traces.kineto_rows import CollectiveRow, DeviceRow, Rows
from rsag.traces.skips import printable

MAX_IDLE_MARKS = 100_000
"""How many of the user's ranges are kept in which nothing was launched or called that is kept."""


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
    num_marks_dropped: int
    num_with_shared_ids: int


def join(parts: Sequence[Rows], base_ns: int, read_flows: Callable[[Collection[int]], Sequence[Launch]]) -> Kept:
    """All parts of a file, in its order, with `base_ns` added.

    Of the calls to the CUDA API those are kept that launched what is kept; of the ranges, those that enclose such a
    call or a collective, and the first of the user's others.

    A device's rows do not say which process they belong to: the launch with their correlation id does, or, where its
    row is missing, what `read_flows` knows of that id. Of more kernels than launches with one id it cannot be told
    which was launched: they are given no id. The parts are emptied on the way, so that little is held twice.
    """
    num_api_calls = sum(len(rows.calls) // 4 for rows in parts)
    correlations = {row.correlation for rows in parts for row in rows.device if row.correlation is not None}
    launches = tuple(launch for rows in parts for launch in _launches(rows, correlations, base_ns))
    unlaunched = correlations - {launch.correlation for launch in launches}
    if unlaunched:
        launches += tuple(read_flows(unlaunched))
    shared = _shared(parts, launches)
    processes = _processes(launches)
    graphs = {launch.correlation for launch in launches if launch.is_graph}
    operations: list[DeviceOperation] = []
    calls: list[Call] = []
    for rows in parts:
        operations += [_operation(row, base_ns, processes, graphs, shared) for row in rows.device]
        calls += [_call(row, base_ns) for row in rows.collectives]
        rows.device.clear()
        rows.collectives.clear()
    ranges = _Ranges(launches, calls, base_ns)
    for rows in parts:
        ranges.add(rows)
    return Kept(
        operations=tuple(operations),
        launches=launches,
        ranges=tuple(ranges.kept),
        calls=tuple(calls),
        num_other_kernels=sum(rows.num_other_kernels for rows in parts),
        num_device_rows=sum(rows.num_device_rows for rows in parts),
        num_api_calls=num_api_calls,
        num_marks_dropped=ranges.num_marks_dropped,
        num_with_shared_ids=sum(shared.values()),
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


def _shared(parts: Sequence[Rows], launches: Sequence[Launch]) -> dict[int, int]:
    """How many kernels have each correlation id that fewer launches have, at least one."""
    kernels = Counter(
        row.correlation
        for rows in parts
        for row in rows.device
        if row.kind is OperationKind.KERNEL and row.correlation is not None and not row.in_graph
    )
    launched = Counter(launch.correlation for launch in launches)
    several = {launch.correlation for launch in launches if launch.is_graph or "MultiDevice" in launch.api}
    return {
        correlation: count
        for correlation, count in kernels.items()
        if count > launched[correlation] > 0 and correlation not in several
    }


def _processes(launches: tuple[Launch, ...]) -> dict[int, int | None]:
    """The process of each correlation id; None where several processes in the file have it."""
    processes: dict[int, int | None] = {}
    for launch in launches:
        known = processes.setdefault(launch.correlation, launch.process)
        if known != launch.process:
            processes[launch.correlation] = None
    return processes


def _operation(
    row: DeviceRow,
    base_ns: int,
    processes: dict[int, int | None],
    graphs: Collection[int],
    shared: Collection[int],
) -> DeviceOperation:
    correlation = None if row.correlation in shared else row.correlation
    return DeviceOperation(
        kind=row.kind,
        name=row.name,
        start_ns=base_ns + row.start_ns,
        end_ns=base_ns + row.end_ns,
        process=None if correlation is None else processes.get(correlation),
        device=row.device,
        stream=row.stream,
        correlation=correlation,
        in_graph=row.in_graph or correlation in graphs,
        metadata=row.metadata,
    )


class _Ranges:
    """The ranges that are kept: only one that is open when something is launched or called can have a kernel."""

    def __init__(self, launches: Sequence[Launch], calls: Sequence[Call], base_ns: int) -> None:
        starts = [*(one.start_ns for one in launches), *(one.start_ns for one in calls if one.start_ns is not None)]
        self._starts, self._base_ns = sorted(starts), base_ns
        self._num_idle = 0
        self.kept: list[Range] = []

    @property
    def num_marks_dropped(self) -> int:
        return max(0, self._num_idle - MAX_IDLE_MARKS)

    def add(self, rows: Rows) -> None:
        """The ranges of the next part, which is emptied."""
        labels, values = rows.labels(), iter(rows.ranges)
        for start_ns, end_ns, number in zip(values, values, values):
            process, thread, kind, name = labels[number]
            start_ns, end_ns = self._base_ns + start_ns, self._base_ns + end_ns
            if self._matters(kind, start_ns, end_ns):
                self.kept.append(
                    Range(
                        name=sys.intern(name),
                        kind=kind,
                        process=process,
                        thread=thread,
                        start_ns=start_ns,
                        end_ns=end_ns,
                    )
                )
        del rows.ranges[:]
        rows.range_labels = b""

    def _matters(self, kind: RangeKind, start_ns: int, end_ns: int) -> bool:
        first = bisect_left(self._starts, start_ns)
        if first < len(self._starts) and self._starts[first] <= end_ns:
            return True
        if kind is not RangeKind.MARK:
            return False
        self._num_idle += 1
        return self._num_idle <= MAX_IDLE_MARKS


def _call(row: CollectiveRow, base_ns: int) -> Call:
    return Call(
        source=row.source,
        metadata=row.metadata,
        process=row.process,
        thread=row.thread,
        start_ns=base_ns + row.start_ns,
        end_ns=base_ns + row.end_ns,
    )
