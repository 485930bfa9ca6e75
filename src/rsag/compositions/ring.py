"""The ring algorithms, chunk by chunk in NCCL's order (src/device/all_reduce.h, reduce_scatter.h, all_gather.h).

Rank r sends to r+1 and receives from r-1. In the scatter phase it first sends chunk r-1 and ends owning chunk r; in the
gather phase it first sends chunk r and ends with chunk r+1.
"""

from __future__ import annotations

from rsag.collectives import Kind
from rsag.compositions.slices import shard
from rsag.programs import Composition, Recorder, View


def all_reduce(m: Recorder, full: View, op: str) -> View:
    incoming = m.allocate(len(full) // m.world)
    left, right = (m.rank - 1) % m.world, (m.rank + 1) % m.world
    for step in range(m.world - 1):
        m.sendrecv(incoming, left, shard(full, (m.rank - 1 - step) % m.world, m.world), right)
        m.combine(shard(full, (m.rank - 2 - step) % m.world, m.world), incoming, op=op)
    _gather(m, full)
    m.release(incoming)
    return full


def reduce_scatter(m: Recorder, full: View, op: str) -> View:
    """The input is only read: partial sums travel through two staging buffers, the last step lands in the output."""
    mine = m.allocate(len(full) // m.world, "shard")
    if m.world == 1:
        m.copy(mine, full)
        return mine
    _scatter(m, full, mine, op)
    return mine


def reduce_scatter_in_place(m: Recorder, full: View, op: str) -> View:
    """As above, but the output is the rank's own slice, which already holds its own contribution."""
    mine = shard(full, m.rank, m.world)
    if m.world > 1:
        _scatter(m, full, mine, op)
    return mine


def all_gather(m: Recorder, mine: View, op: str) -> View:  # noqa: ARG001 - a gather reduces nothing
    gathered = m.allocate(len(mine) * m.world, "gathered")
    m.copy(shard(gathered, m.rank, m.world), mine)
    _gather(m, gathered)
    return gathered


def all_gather_in_place(m: Recorder, full: View, op: str) -> View:  # noqa: ARG001 - a gather reduces nothing
    _gather(m, full)
    return full


def _scatter(m: Recorder, full: View, mine: View, op: str) -> None:
    left, right = (m.rank - 1) % m.world, (m.rank + 1) % m.world
    staging = [m.allocate(len(mine)) for _ in range(2)]
    outgoing = shard(full, (m.rank - 1) % m.world, m.world)
    for step in range(m.world - 1):
        incoming, own = staging[step % 2], shard(full, (m.rank - 2 - step) % m.world, m.world)
        m.sendrecv(incoming, left, outgoing, right)
        if step < m.world - 2:
            m.combine(incoming, own, op=op)
            outgoing = incoming
        else:
            if mine != own:
                m.copy(mine, own)
            m.combine(mine, incoming, op=op)
    m.release(*staging)


def _gather(m: Recorder, full: View) -> None:
    left, right = (m.rank - 1) % m.world, (m.rank + 1) % m.world
    for step in range(m.world - 1):
        outgoing = shard(full, (m.rank - step) % m.world, m.world)
        m.sendrecv(shard(full, (m.rank - 1 - step) % m.world, m.world), left, outgoing, right)


ALL_REDUCE = Composition(
    name="ring_all_reduce",
    run=all_reduce,
    folds=True,
    in_place=True,
    summary="2(N-1) steps round a ring: scatter, then gather",
)
REDUCE_SCATTER = Composition(
    name="ring_reduce_scatter",
    run=reduce_scatter,
    folds=True,
    target=Kind.REDUCE_SCATTER,
    summary="N-1 steps round a ring, partial results reduced on the way",
)
REDUCE_SCATTER_IN_PLACE = Composition(
    name="ring_reduce_scatter_in_place",
    run=reduce_scatter_in_place,
    folds=True,
    target=Kind.REDUCE_SCATTER,
    in_place=True,
    summary="the same, landing in the rank's own slice of its input",
)
ALL_GATHER = Composition(
    name="ring_all_gather",
    run=all_gather,
    target=Kind.ALL_GATHER,
    summary="N-1 steps round a ring, shards copied on the way",
)
ALL_GATHER_IN_PLACE = Composition(
    name="ring_all_gather_in_place",
    run=all_gather_in_place,
    target=Kind.ALL_GATHER,
    in_place=True,
    summary="the same, from the rank's own slice of its output",
)
