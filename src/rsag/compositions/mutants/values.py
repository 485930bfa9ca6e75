"""Wrong values: in a result, or in a shard between the halves."""

from __future__ import annotations

from rsag.compositions.mutants.halves import both_in_place, gather, scatter
from rsag.compositions.slices import shard
from rsag.programs import IDENTITY, Recorder, View


def rotated_shards(m: Recorder, full: View, op: str) -> View:
    gathered = gather(m, scatter(m, full, op))
    rotated = m.allocate(len(full), "gathered")
    for index in range(m.world):
        m.copy(shard(rotated, (index + 1) % m.world, m.world), shard(gathered, index, m.world))
    return rotated


def max_for_sum(m: Recorder, full: View, op: str) -> View:  # noqa: ARG001 - that is the fault
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, "max")
    m.all_gather(full, mine)
    return full


def dropped_tail(m: Recorder, full: View, op: str) -> View:
    both_in_place(m, full[: len(full) // m.world * m.world], op)
    return full


def _padded(m: Recorder, full: View, op: str, *, before: int, value: str | float) -> View:
    numel = len(full)
    even = m.allocate(-(-numel // m.world) * m.world, "padding")
    m.copy(even[before : before + numel], full)
    m.fill(even[:before], value)
    m.fill(even[before + numel :], value)
    return both_in_place(m, even, op)[:numel]


def zero_padding(m: Recorder, full: View, op: str) -> View:
    return _padded(m, full, op, before=0, value=0)


def padding_elsewhere_on_one_rank(m: Recorder, full: View, op: str) -> View:
    padding = -len(full) % m.world
    return _padded(m, full, op, before=padding if m.rank == m.world - 1 else 0, value=IDENTITY)


def transform_between(m: Recorder, full: View, op: str) -> View:
    mine = scatter(m, full, op)
    m.apply("adam", mine, mine)
    return gather(m, mine)


def stale_output(m: Recorder, full: View, op: str) -> View:
    gather(m, scatter(m, full, op))
    return full


def swapped_order(m: Recorder, full: View, op: str) -> View:
    """Same kind, same size, so nothing stops it: it completes, with the halves' values crossed."""
    halves = [shard(full, 0, 2), shard(full, 1, 2)]
    for half in halves if m.rank == 0 else reversed(halves):
        m.all_reduce(half, op)
    return full


def gather_in_other_order(m: Recorder, full: View, op: str) -> View:
    mine = scatter(m, full, op)
    gathered = m.allocate(len(full), "gathered")
    m.sub(range(m.world)[::-1]).all_gather(gathered, mine)
    return gathered


def reduced_twice(m: Recorder, full: View, op: str) -> View:
    m.all_reduce(full, op)
    m.all_reduce(full, op)
    return full


def avg_pairwise(m: Recorder, full: View, op: str) -> View:
    """A running average along a chain of pairs: the last rank weighs a half."""
    for left in range(m.world - 1):
        if m.rank in (left, left + 1):
            m.sub((left, left + 1)).all_reduce(full, op)
    m.broadcast(full, root=m.world - 1)
    return full


def avg_of_unequal_groups(m: Recorder, full: View, op: str) -> View:
    """The mean of means over all ranks but one, and that one."""
    if m.rank < m.world - 1:
        m.sub(range(m.world - 1)).all_reduce(full, op)
    if m.rank in (0, m.world - 1):
        m.sub((0, m.world - 1)).all_reduce(full, op)
    m.broadcast(full, root=0)
    return full


def reduce_reused_off_root(m: Recorder, full: View, op: str) -> View:
    """NCCL leaves the input alone away from the root; Gloo leaves partial sums there, which the next root reduces."""
    own, result = m.allocate(len(full)), m.allocate(len(full), "gathered")
    m.copy(own, full)
    for root in range(m.world):
        m.reduce(full, op, root=root)
        if m.rank == root:
            m.copy(result, full)
            m.copy(full, own)
    return result
