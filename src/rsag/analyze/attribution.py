"""Which ranges and calls a kernel belongs to, by the host's call that launched it: Nsight's own rule.

A kernel is joined to its launch by process and correlation id, and the launch to every span of its thread that it lies
in, both ends. When the kernel itself ran does not matter: it may run long after the range around its launch has ended.
Source: the report nvtx_kern_sum of Nsight Systems (Analysis Guide), which joins the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from rsag.records.kernels import Rule
from rsag.traces.events import DeviceOperation, GraphLaunch, Launch


class Span(Protocol):
    """A stretch of a host thread: a launch, a call, a range."""

    @property
    def process(self) -> int | None: ...
    @property
    def thread(self) -> int | None: ...
    @property
    def start_ns(self) -> int | None: ...
    @property
    def end_ns(self) -> int | None: ...


Placed = tuple[int, int, int]
"""Start, end and index of a span."""


def enclosing(spans: Sequence[Span], inner: Sequence[Span | None], rule: Rule) -> list[tuple[int, ...]]:
    """For each of `inner`, the indices of the `spans` that it lies in, outermost first.

    Under SAME_THREAD an inner span lies in spans of its own thread, both ends within; under ANY_THREAD it is enough
    that it starts within a span of its process. None lies in nothing. Sorted and swept once for each thread: the cost
    is that of sorting plus that of the answer.
    """
    found: list[tuple[int, ...]] = [()] * len(inner)
    outer_by_place, inner_by_place = _by_place(spans, rule), _by_place(inner, rule)
    for place, queries in inner_by_place.items():
        _sweep(outer_by_place.get(place, []), queries, found, both_ends=rule is Rule.SAME_THREAD)
    return found


def _by_place(spans: Iterable[Span | None], rule: Rule) -> dict[tuple[int | None, int | None], list[Placed]]:
    """The spans of each thread, or of each process, by their start; the longer first where two start together."""
    placed: dict[tuple[int | None, int | None], list[Placed]] = defaultdict(list)
    for index, span in enumerate(spans):
        if span is not None and span.start_ns is not None and span.end_ns is not None:
            place = (span.process, span.thread if rule is Rule.SAME_THREAD else None)
            placed[place].append((span.start_ns, span.end_ns, index))
    for spans_there in placed.values():
        spans_there.sort(key=lambda span: (span[0], -span[1], span[2]))
    return placed


def _sweep(outer: list[Placed], inner: list[Placed], found: list[tuple[int, ...]], *, both_ends: bool) -> None:
    open_spans: list[Placed] = []
    upcoming = 0
    for start, end, index in inner:
        while upcoming < len(outer) and outer[upcoming][0] <= start:
            open_spans.append(outer[upcoming])
            upcoming += 1
        open_spans = [span for span in open_spans if span[1] >= start]
        needed = end if both_ends else start
        found[index] = tuple(span[2] for span in open_spans if span[1] >= needed)


class Launches:
    """The launch of each operation, found by process and correlation id.

    Where a file does not say the process of an operation, an id that several of its processes used finds nothing.
    """

    def __init__(self, launches: Iterable[Launch]) -> None:
        self._launches: dict[tuple[int, int], Launch] = {}
        self._processes: dict[int, set[int]] = defaultdict(set)
        for launch in launches:
            self._launches[launch.process, launch.correlation] = launch
            self._processes[launch.correlation].add(launch.process)

    def of(self, operation: DeviceOperation | GraphLaunch) -> Launch | None:
        """The host's call that started `operation`; None where the file has no such row."""
        if operation.correlation is None:
            return None
        process = operation.process
        if process is None:
            processes = self._processes.get(operation.correlation, set())
            if len(processes) != 1:
                return None
            (process,) = processes
        return self._launches.get((process, operation.correlation))
