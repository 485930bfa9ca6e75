"""What each rank did within each instance of a range, step by step, so that ranks can be set side by side."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.analyze.executed import Executed, Joined
from rsag.analyze.range_rows import Contents
from rsag.analyze.range_rows import instances as instances_held
from rsag.analyze.structure import Held
from rsag.analyze.words import P2P
from rsag.collectives import Kind
from rsag.traces.events import Metadata, Range

# Of these every rank has the same full payload; of others it is a rank's own: a root's, or uneven parts.
_IN = frozenset({Kind.ALL_REDUCE.value, Kind.REDUCE_SCATTER.value, Kind.BROADCAST.value, Kind.REDUCE.value})
_OUT = frozenset({Kind.ALL_GATHER.value})

GRAPH = "a graph launch"
"""Stands for the collectives of a graph that was not expanded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One collective, or one graph launch that was not expanded. None is what the file does not record.

    `numel` counts the full payload, which all ranks share. `how` says what ran it, where a device ran something.
    """

    collective: str | None
    numel: int | None = None
    dtype: str | None = None
    group_size: int | None = None
    how: str = ""

    def __str__(self) -> str:
        words = [self.collective or "an unknown collective"]
        words += [f"of {self.numel:,}"] if self.numel is not None else []
        words += [self.dtype] if self.dtype is not None else []
        words += [f"in a group of {self.group_size}"] if self.group_size is not None else []
        return " ".join(words) + (f" ({self.how})" if self.how else "")


Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a range on one rank: what its own thread did, and what each other thread did meanwhile."""

    own: Steps
    others: tuple[Steps, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One rank: a device of a process of a file, or a process or file that ran nothing on a device."""

    source: int
    process: int | None
    device: int | None


def step(collective: str | None, metadata: Metadata, how: str = "") -> Step:
    """A collective by what all ranks must have in common."""
    both = (metadata.in_numel, metadata.out_numel)
    numel = both[0] if collective in _IN else both[1] if collective in _OUT else None
    return Step(collective=collective, numel=numel, dtype=metadata.dtype, group_size=metadata.group_size, how=how)


def members_of(source: int, joined: Joined) -> list[Member]:
    """The ranks of a file: processes that neither ran nor asked for a collective are none, unless there is no other."""
    devices = {(one.process, one.operation.device) for one in joined.executed if one.process is not None}
    devices |= {(launch.process, graph.device) for graph, launch in joined.graphs if launch is not None}
    processes = {process for process, _ in devices}
    alone = {call.process for call in joined.asked if call.is_collective} - processes
    members = [Member(source, process, device) for process, device in sorted(devices)]
    members += [Member(source, process, None) for process in sorted(alone, key=str)]
    return members or [Member(source, None, None)]


def instances(
    source: int, joined: Joined, ranges: Sequence[Range], own: Contents, anywhere: Contents
) -> dict[Member, dict[str, list[Instance]]]:
    """Every rank's instances of each range, thread by thread in order of time.

    `own` holds what each range's own thread did, `anywhere` what any thread did meanwhile. What ran on no device counts
    for every device of its process. Sends and receives are left out: they differ between ranks by their nature.
    """
    order = sorted(range(len(ranges)), key=lambda index: (ranges[index].thread, ranges[index].start_ns))
    own_held = instances_held(joined, own, order)
    others_held = instances_held(joined, anywhere.without(own), order)
    found: dict[Member, dict[str, list[Instance]]] = {}
    for member in members_of(source, joined):
        names: dict[str, list[Instance]] = defaultdict(list)
        for index, held, others in zip(order, own_held, others_held):
            if member.process in (None, ranges[index].process):
                threads = [_steps(one, member.device) for one in _by_thread(others)]
                names[ranges[index].name].append(
                    Instance(_steps(held, member.device), tuple(sorted(filter(None, threads), key=repr)))
                )
        found[member] = dict(names)
    return found


def _by_thread(held: Held) -> list[Held]:
    threads = {call.thread for call in held.calls.values()}
    threads |= {one.launch.thread for one in held.executed if one.launch is not None}
    return [
        dataclasses.replace(
            held,
            calls={index: call for index, call in held.calls.items() if call.thread == thread},
            executed=tuple(one for one in held.executed if one.launch is not None and one.launch.thread == thread),
            graphs=(),
        )
        for thread in threads
    ]


def _steps(held: Held, device: int | None) -> Steps:
    """What one thread had run on the device and what of its calls ran nowhere, in order; graphs come last."""
    timed: list[tuple[int, Step]] = []
    ran = {index for one in [*held.kernels(None), *held.copied(None)] for index in one.calls}
    kernels = [] if device is None else held.kernels(device)
    copied = [] if device is None else held.copied(device)
    for one, how in [*((one, "") for one in kernels), *((one, "by copies") for one in copied)]:
        at = one.operation.start_ns if one.launch is None else one.launch.start_ns
        timed += [(at, found) for found in _ran(held, one, how)]
    for index, call in held.calls.items():
        if index not in ran:
            how = "" if held.on_host(call) else "without a kernel"
            timed += [(call.start_ns or 0, step(call.collective, call.metadata, how))] * call.count
    timed.sort(key=lambda one: one[0])
    graphs = sum(graph.device == device for graph in held.graphs)
    steps = [found for _, found in timed if found.collective not in P2P]
    return (*steps, *[Step(collective=GRAPH, how="not expanded")] * graphs)


def _ran(held: Held, one: Executed, how: str) -> list[Step]:
    calls = [held.calls[index] for index in one.calls if index in held.calls]
    if len(calls) < 2:
        return [step(one.collective, one.metadata, how)] * (calls[0].count if calls else 1)
    return [step(call.collective, call.metadata, "in a group") for call in calls]
