"""Waiting told from moving data, by the kernels of one collective on several ranks.

A collective's kernel starts when its rank arrives and ends when all have exchanged: on an early rank it mostly waits.
So data move from the last start to the last end, and what a rank spent before the last start it waited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rsag.analyze.executed import Executed
from rsag.analyze.words import ALL_TO_ALL
from rsag.collectives import Kind
from rsag.records.kernels import TransferRow
from rsag.traces.events import OperationKind

# No rank is done with one of these before all have come. A root or a sender need not wait for anybody.
_ALL_WAIT = frozenset(
    {Kind.ALL_REDUCE.value, Kind.REDUCE_SCATTER.value, Kind.ALL_GATHER.value, Kind.BARRIER.value, ALL_TO_ALL}
)

# How far apart one collective's ends may lie for its times to be of one clock: ends on one host were seen 7 us apart,
# and between hosts the last hop of a long collective takes its time. Beyond, the difference of clocks is in the answer.
_ENDS_APART_NS = 10_000
_MOST_ENDS_APART_NS = 50_000
_SHARE_OF_SHORTEST = 10


@dataclass(frozen=True, slots=True)
class _Instance:
    """One collective: when it started and ended on each rank."""

    number: int
    spans: dict[int, tuple[int, int]]

    @property
    def last_start(self) -> int:
        return max(start for start, _ in self.spans.values())

    @property
    def last_rank(self) -> int:
        return max(self.spans, key=lambda rank: self.spans[rank][0])

    @property
    def transfer_ns(self) -> int:
        return max(end for _, end in self.spans.values()) - self.last_start

    @property
    def waiting_ns(self) -> int:
        return self.last_start - min(start for start, _ in self.spans.values())

    @property
    def ends_within_ns(self) -> int:
        ends = [end for _, end in self.spans.values()]
        return max(ends) - min(ends)

    @property
    def is_on_one_clock(self) -> bool:
        """No rank is done before the last one has come, and all are done together, as far as can be seen."""
        shortest = min(end - start for start, end in self.spans.values())
        apart = min(max(_ENDS_APART_NS, shortest // _SHARE_OF_SHORTEST), _MOST_ENDS_APART_NS)
        return min(end for _, end in self.spans.values()) > self.last_start and self.ends_within_ns <= apart


@dataclass(frozen=True, slots=True)
class Transfers:
    rows: tuple[TransferRow, ...]
    notes: tuple[str, ...]


def transfers(ranks: Mapping[int, Sequence[Executed]]) -> Transfers:
    """The kernels of each rank, in order of launch, set side by side: by group and sequence, else by their order.

    Left out and noted are groups of which ranks are missing, whose ranks ran different numbers or kinds of collectives,
    or whose times cannot be of one clock: hosts whose clocks differ have no last start. Collectives in which not all
    ranks wait for all are left out.
    """
    groups: dict[str, dict[int, list[Executed]]] = defaultdict(dict)
    for rank, executed in ranks.items():
        for one in executed:
            # a kernel of an unknown collective keeps its place in the order, and has no row
            if one.operation.kind is OperationKind.KERNEL and one.collective in (None, *_ALL_WAIT):
                groups[_group(one)].setdefault(rank, []).append(one)
    rows: list[TransferRow] = []
    notes: list[str] = []
    for group, in_order_of_launch in groups.items():
        members = {rank: _in_sequence(executed) for rank, executed in in_order_of_launch.items()}
        if len(ranks) < 2:
            continue
        label = f"group {group}" if group else "the kernels without a group"
        unlike = _absent(members, ranks) or _unlike(members)
        if unlike is not None:
            notes.append(f"waiting is not told from transfer in {label}: {unlike}")
            continue
        instances = _instances(members)
        apart = sum(not one.is_on_one_clock for ones in instances.values() for one in ones)
        if apart:
            widest = max(one.ends_within_ns for ones in instances.values() for one in ones)
            notes.append(
                f"waiting is not told from transfer in {label}: of {apart} collectives the ends lie too far apart, "
                f"up to {widest / 1_000:,.1f} us, so the clocks differ, or the files are not of one step"
            )
            continue
        rows += [_row(collective, group, len(members), ones) for collective, ones in instances.items()]
    return Transfers(rows=tuple(rows), notes=tuple(notes))


def _group(one: Executed) -> str:
    metadata = one.metadata
    ranks = "" if not metadata.group_ranks else f" ({', '.join(map(str, metadata.group_ranks))})"
    return f"{metadata.group}{ranks}" if metadata.group is not None else ""


def _absent(members: Mapping[int, Sequence[Executed]], ranks: Mapping[int, Sequence[Executed]]) -> str | None:
    """Which ranks are not here, so that the last to come may be one of them; None where all are."""
    described = [one.metadata for executed in members.values() for one in executed]
    size = max((metadata.group_size or 0 for metadata in described), default=0)
    expected = next((metadata.group_ranks for metadata in described if metadata.group_ranks), None)
    here = [rank for rank in ranks if expected is None or rank in expected]
    idle = [rank for rank in here if rank not in members]
    if idle and size in (0, len(here)):
        return f"rank{'s' if len(idle) > 1 else ''} {', '.join(map(str, idle))} ran none of its collectives"
    return f"{len(members)} of its {size} ranks are here" if len(members) < size else None


def _unlike(members: Mapping[int, Sequence[Executed]]) -> str | None:
    """Why the members' kernels cannot be set side by side; None where they can."""
    counts = {rank: len(executed) for rank, executed in members.items()}
    if len(set(counts.values())) > 1:
        return "unlike numbers of kernels, " + ", ".join(f"{count} on rank {rank}" for rank, count in counts.items())
    for number, ones in enumerate(zip(*members.values())):
        kinds = {one.collective for one in ones}
        if len(kinds) > 1:
            said = " and ".join(sorted(kind or "unknown" for kind in kinds))
            return f"collective {number} is {said} on different ranks"
    return None


def _instances(members: Mapping[int, Sequence[Executed]]) -> dict[str, list[_Instance]]:
    instances: dict[str, list[_Instance]] = defaultdict(list)
    for number, ones in enumerate(zip(*members.values())):
        spans = {rank: (one.operation.start_ns, one.operation.end_ns) for rank, one in zip(members, ones)}
        if ones[0].collective is not None:
            instances[ones[0].collective].append(_Instance(number, spans))
    return instances


def _in_sequence(executed: Sequence[Executed]) -> Sequence[Executed]:
    if any(one.metadata.sequence is None for one in executed):
        return executed
    return sorted(executed, key=lambda one: one.metadata.sequence or 0)


def _row(collective: str, group: str, num_ranks: int, instances: Sequence[_Instance]) -> TransferRow:
    worst = max(instances, key=lambda one: one.waiting_ns)
    durations = [end - start for start, end in worst.spans.values()]
    return TransferRow(
        collective=collective,
        group=group or None,
        num_ranks=num_ranks,
        count=len(instances),
        transfer_ns=sum(one.transfer_ns for one in instances),
        waiting_ns=sum(one.waiting_ns for one in instances),
        number=worst.number,
        last_rank=worst.last_rank,
        shortest_ns=min(durations),
        longest_ns=max(durations),
        ends_within_ns=worst.ends_within_ns,
    )
