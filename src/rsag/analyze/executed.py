"""What each kernel ran: joined to its launch, to the call that asked for it, and to what its name says."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rsag.analyze.asked import Asked, asked_for
from rsag.analyze.attribution import Launches, enclosing
from rsag.analyze.words import name_claims, name_says, runs_as, word
from rsag.records.kernels import Rule
from rsag.traces.events import Capture, DeviceOperation, GraphLaunch, Launch, Metadata, OperationKind, RangeKind
from rsag.traces.kernel_names import Naming, decode

_KERNEL = OperationKind.KERNEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One kernel or copy, and the process that launched it, where the file tells or has only one.

    `calls` are the indices of the calls that it ran: none where no record says, several in a group, all of which each
    of its kernels has where it is not known which ran which. `collective` is the caller's word, else the name's; None
    where neither tells.
    """

    operation: DeviceOperation
    process: int | None
    launch: Launch | None
    calls: tuple[int, ...]
    metadata: Metadata
    collective: str | None
    from_caller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One capture, joined: kernels and copies in the order of their launches, calls, graphs that were not expanded."""

    capture: Capture
    executed: tuple[Executed, ...]
    asked: tuple[Asked, ...]
    graphs: tuple[tuple[GraphLaunch, Launch | None], ...]


def join(capture: Capture) -> Joined:
    """Everything in `capture` that can be joined without ranges."""
    launches = Launches(capture.launches)
    asked = asked_for(capture.calls)
    operations = sorted(
        ((operation, launches.of(operation)) for operation in capture.operations),
        key=lambda pair: (pair[1].start_ns if pair[1] else pair[0].start_ns, pair[0].start_ns),
    )
    around = enclosing(asked, [launch for _, launch in operations], Rule.SAME_THREAD)
    calls = _with_groups(capture, asked, operations, around)
    processes = {launch.process for launch in capture.launches} | {span.process for span in capture.ranges}
    alone = processes.pop() if len(processes) == 1 else None
    return Joined(
        capture=capture,
        executed=tuple(
            _executed(operation, launch, indices, asked, alone)
            for (operation, launch), indices in zip(operations, calls)
        ),
        asked=asked,
        graphs=tuple((graph, launches.of(graph)) for graph in capture.graph_launches),
    )


def _innermost(indices: tuple[int, ...], asked: Sequence[Asked]) -> tuple[int, ...]:
    named = [index for index in indices if asked[index].is_collective]
    return (named[-1],) if named else ()


def _with_groups(
    capture: Capture,
    asked: Sequence[Asked],
    operations: Sequence[tuple[DeviceOperation, Launch | None]],
    around: Sequence[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """The calls of each operation: the one that its launch lies in, or those of the group that this launch ends.

    The calls of a group launch nothing; its kernels are launched within the call that ends it. Kernels that lie in
    neither stand for themselves: calls that launched nothing may have been recorded into a graph, or never have run.
    """
    calls = [_innermost(indices, asked) for indices in around]
    groups: dict[int, list[int]] = defaultdict(list)
    for position, (operation, launch) in enumerate(operations):
        ends = [index for index in around[position] if asked[index].is_group_end]
        is_kernel = operation.kind is _KERNEL and launch is not None and not launch.is_graph
        if ends and is_kernel and not calls[position]:
            groups[ends[-1]].append(position)
    if groups:
        kernels_of = [(launch, calls[i]) for i, (one, launch) in enumerate(operations) if one.kind is _KERNEL]
        members = _members(capture, asked, kernels_of, groups)
        for end, positions in groups.items():
            kernels = {position: operations[position][0] for position in positions}
            for position, share in _shares(members[end], kernels, asked).items():
                calls[position] = share
    return calls


def _members(
    capture: Capture,
    asked: Sequence[Asked],
    launched: Sequence[tuple[Launch | None, tuple[int, ...]]],
    ends: Iterable[int],
) -> dict[int, list[int]]:
    """The calls of each group, by the call that ends it: those on its thread, in the same marks, that launched nothing
    since anything was launched there or another group ended."""
    marks = enclosing([span for span in capture.ranges if span.kind is RangeKind.MARK], asked, Rule.SAME_THREAD)
    ran = {index for _, calls in launched for index in calls}
    bounds: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    waiting: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    for launch in [*(one for one in capture.launches if one.is_graph), *(one for one, _ in launched if one)]:
        bounds[launch.process, launch.thread].append(launch.start_ns)
    for index, call in enumerate(asked):
        if call.is_group_end:
            bounds[call.process, call.thread].append(call.end_ns or 0)
        elif call.is_collective and index not in ran and not call.needs_no_kernel:
            waiting[call.process, call.thread].append(index)
    for bounds_there in bounds.values():
        bounds_there.sort()
    starts = {thread: [asked[index].start_ns or 0 for index in indices] for thread, indices in waiting.items()}
    members: dict[int, list[int]] = {}
    for end in ends:
        thread, start = (asked[end].process, asked[end].thread), asked[end].start_ns or 0
        before = bisect_right(bounds[thread], start)
        since = bounds[thread][before - 1] if before else 0
        began = starts.get(thread, [])
        there = waiting[thread][bisect_left(began, since) : bisect_left(began, start)]
        members[end] = [index for index in there if marks[index] == marks[end]]
    return members


def _shares(
    calls: Sequence[int], kernels: Mapping[int, DeviceOperation], asked: Sequence[Asked]
) -> dict[int, tuple[int, ...]]:
    """The calls of a group for each of its kernels, by position: on each device the same, for every device takes part.

    Where calls do not come to the same on each device, no kernel has any. Where a device ran as many kernels as it was
    asked for and their names fit in order, each has its own; else each of them has all that its device was asked for.
    """
    devices: dict[int, list[int]] = defaultdict(list)
    for position, operation in kernels.items():
        devices[operation.device].append(position)
    alike: dict[tuple[str | None, Metadata], list[int]] = defaultdict(list)
    for index in calls:
        alike[asked[index].collective, asked[index].metadata].append(index)
    if any(len(indices) % len(devices) for indices in alike.values()):
        return {}
    shares: dict[int, tuple[int, ...]] = {}
    for number, positions in enumerate(devices.values()):
        share = sorted(index for indices in alike.values() for index in indices[number :: len(devices)])
        fitting = [one for one in positions if any(_may_run(kernels[one], asked[index]) for index in share)]
        if len(fitting) == len(share) and all(_may_run(kernels[one], asked[i]) for one, i in zip(fitting, share)):
            shares.update((one, (index,)) for one, index in zip(fitting, share))
        else:
            shares.update((one, tuple(share)) for one in fitting)
    return shares


def _may_run(operation: DeviceOperation, call: Asked) -> bool:
    """Whether the call is what the kernel's name says; an entry point of NCCL's for anything may run any call."""
    said = name_says(operation.name)
    if said is not None:
        return runs_as(said, call.collective)
    decoded = decode(operation.name)
    return decoded is not None and decoded.naming is not Naming.FOREIGN


def _common(descriptions: Sequence[Metadata]) -> Metadata:
    """What all of them say."""
    values = {name: {getattr(one, name) for one in descriptions} for name in Metadata.__dataclass_fields__}
    return Metadata(**{name: there.pop() for name, there in values.items() if len(there) == 1})


def _executed(
    operation: DeviceOperation,
    launch: Launch | None,
    calls: tuple[int, ...],
    asked: Sequence[Asked],
    only_process: int | None,
) -> Executed:
    asked_metadata = _common([asked[index].metadata for index in calls])
    metadata = operation.metadata or asked_metadata
    kinds = {asked[index].collective for index in calls}
    caller = word(metadata.collective) or (kinds.pop() if len(kinds) == 1 else None)
    process = launch.process if launch is not None else operation.process
    return Executed(
        operation=operation,
        process=only_process if process is None else process,
        launch=launch,
        calls=calls,
        metadata=metadata,
        collective=caller or name_claims(operation.name),
        from_caller=caller is not None or bool(calls),
    )
