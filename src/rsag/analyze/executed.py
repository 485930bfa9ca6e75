"""What each kernel ran: joined to its launch, to the call that asked for it, and to what its name says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.analyze.asked import Asked, asked_for
from rsag.analyze.attribution import Launches, enclosing
from rsag.analyze.words import name_claims, name_says, runs_as, word
from rsag.records.kernels import Rule
from rsag.traces.events import Capture, DeviceOperation, GraphLaunch, Launch, Metadata, OperationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """One kernel or copy, and the process that launched it, where the file tells or has only one.

    `calls` are the indices of the calls that it ran: none where no record says, several in a group. `collective` is
    the caller's word, else the name's; None where neither tells.
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
    calls = _with_groups(asked, operations, [_innermost(indices, asked) for indices in around])
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


@dataclass(slots=True)
class _Batch:
    """Calls that launched nothing themselves, and the kernels that were launched after the last of them."""

    calls: list[int]
    kernels: list[int]


def _with_groups(
    asked: Sequence[Asked],
    operations: Sequence[tuple[DeviceOperation, Launch | None]],
    calls: list[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """The calls of each operation; kernels that lie in no call run those made before them on their thread.

    So a group is seen: its calls launch nothing, and its kernels are launched where it ends. A graph's kernels were
    not asked for by the calls before the replay.
    """
    pending = _without_launch(asked, calls)
    batches: list[_Batch] = []
    last: dict[tuple[int, int], _Batch] = {}
    for position, (operation, launch) in enumerate(operations):
        if launch is None or launch.is_graph or operation.kind is OperationKind.COPY:
            continue
        thread = (launch.process, launch.thread)
        before = _take_before(launch.start_ns, pending[thread], asked)
        if before or calls[position]:
            last[thread] = _Batch(calls=[] if calls[position] else before, kernels=[])
            batches.append(last[thread])
        if not calls[position] and thread in last and _may_run(operation, last[thread].calls, asked):
            last[thread].kernels.append(position)
    for batch in batches:
        for position, share in zip(batch.kernels, _shares(batch.calls, len(batch.kernels))):
            calls[position] = share
    return calls


def _without_launch(
    asked: Sequence[Asked], calls: Sequence[tuple[int, ...]]
) -> dict[tuple[int | None, int | None], list[int]]:
    """The calls of each thread that launched nothing and had something to launch, the first one last."""
    launched = {index for indices in calls for index in indices}
    pending: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    for index, call in enumerate(asked):
        if call.is_collective and index not in launched and not call.needs_no_kernel:
            pending[call.process, call.thread].append(index)
    for indices in pending.values():
        indices.sort(key=lambda index: asked[index].start_ns or 0, reverse=True)
    return pending


def _take_before(time_ns: int, pending: list[int], asked: Sequence[Asked]) -> list[int]:
    taken = []
    while pending and (asked[pending[-1]].end_ns or 0) <= time_ns:
        taken.append(pending.pop())
    return taken


def _shares(calls: Sequence[int], num_kernels: int) -> list[tuple[int, ...]]:
    """The calls in order over the kernels, as evenly as they go: a group on two devices asks each for half of it."""
    ends = [len(calls) * (kernel + 1) // num_kernels for kernel in range(num_kernels)]
    if len(calls) < num_kernels:
        ends = [min(kernel + 1, len(calls)) for kernel in range(num_kernels)]
    return [tuple(calls[start:end]) for start, end in zip([0, *ends], ends)]


def _may_run(operation: DeviceOperation, calls: Sequence[int], asked: Sequence[Asked]) -> bool:
    """Whether one of the calls is what the kernel's name says; a name that says nothing may be any of them."""
    said = name_says(operation.name)
    return bool(calls) and (said is None or any(runs_as(said, asked[index].collective) for index in calls))


def _executed(
    operation: DeviceOperation,
    launch: Launch | None,
    calls: tuple[int, ...],
    asked: Sequence[Asked],
    only_process: int | None,
) -> Executed:
    asked_metadata = asked[calls[0]].metadata if calls else Metadata()
    metadata = operation.metadata or asked_metadata
    caller = word(metadata.collective) or word(asked_metadata.collective)
    process = launch.process if launch is not None else operation.process
    return Executed(
        operation=operation,
        process=only_process if process is None else process,
        launch=launch,
        calls=calls,
        metadata=metadata,
        collective=caller or name_claims(operation.name),
        from_caller=caller is not None,
    )
