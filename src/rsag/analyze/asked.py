"""The collectives that were asked for: several records of one call become one.

One call leaves up to four nested records on its thread (`c10d::allreduce_`, `record_param_comms`, `nccl:all_reduce`,
`ncclAllReduce`). The outermost counts; the others say more about it. What a backend's own threads say they ran stands
beside that, and is set against it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rsag.analyze.words import ALL_TO_ALL, P2P, backend, is_group_end, merged, word
from rsag.collectives import Kind
from rsag.traces.events import Call, CallSource, Metadata

# What Gloo runs for a call that it does not have: its ReduceScatter is an AllReduce of the whole input.
_SUBSTITUTES = {Kind.REDUCE_SCATTER.value: Kind.ALL_REDUCE.value}

_ASKING = (CallSource.C10D, CallSource.PARAM_COMMS, CallSource.FLIGHT_RECORDER, CallSource.LIBRARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One collective as its caller asked for it; `collective` is None for a record that does not say which.

    `count` is what the library's own ranges show within it, else 1. `is_coalesced`: it may be for several tensors, and
    their number is not known. `is_group_end`: it only starts what was asked for before.
    `ran_as` and `host_backend` are set where a backend's own thread has a record of it: such a backend has no kernels.
    """

    collective: str | None
    metadata: Metadata
    process: int | None
    thread: int | None
    start_ns: int | None
    end_ns: int | None
    rank: int | None = None
    count: int = 1
    is_coalesced: bool = False
    is_group_end: bool = False
    ran_as: str | None = None
    host_backend: str | None = None

    @property
    def is_collective(self) -> bool:
        return self.collective is not None and not self.is_group_end

    @property
    def needs_no_kernel(self) -> bool:
        return self.host_backend is not None or self.metadata.group_size == 1


def asked_for(calls: Sequence[Call]) -> tuple[Asked, ...]:
    """What was asked for in a capture, thread by thread in the order of time; what names no collective included."""
    nests = [nest for thread in _by_thread(calls) for nest in _nests(thread)]
    asking = [nest for nest in nests if any(call.source in _ASKING for call in nest)]
    workers = [nest for nest in nests if not any(call.source in _ASKING for call in nest)]
    if not any(word(call.metadata.collective) for nest in asking for call in nest):
        return tuple(_asked(nest) for nest in nests)
    return _beside_workers([_asked(nest) for nest in asking], [_asked(nest) for nest in workers])


def _by_thread(calls: Iterable[Call]) -> Iterator[list[Call]]:
    threads: dict[tuple[int | None, int | None], list[Call]] = defaultdict(list)
    for call in calls:
        threads[call.process, call.thread].append(call)
    for thread in threads.values():
        if all(call.start_ns is not None for call in thread):
            thread.sort(key=lambda call: (call.start_ns, -(call.end_ns or 0)))
        yield thread


def _nests(calls: list[Call]) -> Iterator[list[Call]]:
    """Each outermost call with all that lie in it. Calls without times, as in a log, are nests of their own."""
    nest: list[Call] = []
    end = None
    for call in calls:
        times_are_its_own = call.source is not CallSource.FLIGHT_RECORDER  # its ends are the device's
        if nest and times_are_its_own and end is not None and call.end_ns is not None and call.end_ns <= end:
            nest.append(call)
            continue
        if nest:
            yield nest
        nest, end = [call], call.end_ns
    if nest:
        yield nest


def _asked(nest: list[Call]) -> Asked:
    metadata = merged(tuple((call.source, call.metadata) for call in nest if word(call.metadata.collective)))
    collective = word(metadata.collective)
    within = sum(
        call.source is CallSource.LIBRARY and word(call.metadata.collective) == collective for call in nest[1:]
    )
    outer = nest[0]
    return Asked(
        collective=collective,
        metadata=metadata,
        process=outer.process,
        thread=outer.thread,
        start_ns=outer.start_ns,
        end_ns=outer.end_ns,
        rank=outer.rank,
        count=max(1, within) if collective not in (*P2P, ALL_TO_ALL) else 1,
        is_coalesced=not within and any("coalesced" in (call.metadata.collective or "") for call in nest),
        is_group_end=collective is None and any(is_group_end(call.metadata.collective) for call in nest),
    )


def _beside_workers(asked: list[Asked], workers: list[Asked]) -> tuple[Asked, ...]:
    """Each call with the first later record of a backend's thread that may be what was run for it."""
    waiting: dict[tuple[int | None, str | None], list[int]] = defaultdict(list)
    for index in sorted(range(len(asked)), key=lambda index: _start(asked[index]), reverse=True):
        waiting[asked[index].process, asked[index].collective].append(index)
    result = list(asked)
    for worker in sorted((one for one in workers if one.is_collective), key=_start):
        names = [worker.collective, *(name for name, other in _SUBSTITUTES.items() if other == worker.collective)]
        queues = [queue for name in names if (queue := waiting[worker.process, name])]
        queues = [queue for queue in queues if _start(asked[queue[-1]]) <= _start(worker)]
        if queues:
            index = min(queues, key=lambda queue: _start(asked[queue[-1]])).pop()
            result[index] = dataclasses.replace(
                result[index], ran_as=worker.collective, host_backend=backend(worker.metadata.collective)
            )
    return tuple(result)


def _start(one: Asked) -> int:
    return one.start_ns or 0
