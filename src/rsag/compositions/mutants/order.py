"""Order: use before the wait, after the release, or while a peer reads."""

from __future__ import annotations

from collections.abc import Callable

from rsag.compositions.mutants.halves import gather, scatter
from rsag.compositions.slices import shard
from rsag.programs import Recorder, View


def write_in_flight(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    token = m.reduce_scatter(mine, full, op, start=True)
    m.fill(full, 0)
    m.wait(token)
    m.all_gather(full, mine)
    return full


def read_before_the_wait(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    token = m.reduce_scatter(mine, full, op, start=True)
    gathered = gather(m, mine)
    m.wait(token)
    return gathered


def never_waited(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, op)
    m.all_gather(full, mine, start=True)
    return full


def reads_a_released_shard(m: Recorder, full: View, op: str) -> View:
    mine = scatter(m, full, op)
    m.release(mine)
    m.all_gather(full, mine)
    return full


def gathers_into_released_memory(m: Recorder, full: View, op: str) -> View:
    mine = scatter(m, full, op)
    m.release(full)
    m.all_gather(full, mine)
    return full


def output_on_a_neighbours_slice(m: Recorder, full: View, op: str) -> View:
    theirs = shard(full, (m.rank + 1) % m.world, m.world)
    m.reduce_scatter(theirs, full, op)
    return gather(m, theirs)


def staging_reused_early(m: Recorder, full: View, op: str) -> View:
    """Peers' slices fetched one ahead into one staging buffer instead of two."""
    mine = shard(full, m.rank, m.world)
    others = [(m.rank + distance) % m.world for distance in range(1, m.world)]
    staging = m.allocate(len(mine))
    m.barrier()
    coming = m.copy(staging, m.peer(mine, others[0]), start=True) if others else None
    for index in range(len(others)):
        m.wait(coming)
        if index + 1 < len(others):
            coming = m.copy(staging, m.peer(mine, others[index + 1]), start=True)
        m.combine(mine, staging, op=op)
    m.barrier()
    for other in others:
        theirs = shard(full, other, m.world)
        m.copy(theirs, m.peer(theirs, other))
    m.barrier()
    return full


def peer_without(missing: int) -> Callable[[Recorder, View, str], View]:
    def run(m: Recorder, full: View, op: str) -> View:
        mine = shard(full, m.rank, m.world)
        others = [(m.rank + distance) % m.world for distance in range(1, m.world)]
        if missing != 0:
            m.barrier()
        for other in others:
            m.combine(mine, m.peer(mine, other), op=op)
        if missing != 1:
            m.barrier()
        for other in others:
            theirs = shard(full, other, m.world)
            m.copy(theirs, m.peer(theirs, other))
        if missing != 2:
            m.barrier()
        return full

    return run


def staging_shared_without_the_last_barrier(m: Recorder, full: View, op: str) -> View:
    """Peers' copies are read and none is released: the first rank that returns frees what the others still read."""
    result, shared = m.allocate(len(full), "gathered"), m.allocate(len(full), symmetric=True)
    m.copy(result, full)
    m.copy(shared, full)
    m.barrier()
    for distance in range(1, m.world):
        m.combine(result, m.peer(shared, (m.rank + distance) % m.world), op=op)
    return result


def peer_reads_a_collectives_output(m: Recorder, full: View, op: str) -> View:
    """That my AllReduce has ended says that peers have sent, not that their results are written."""
    m.all_reduce(full, op)
    if m.rank:
        m.copy(full, m.peer(full, 0))
    m.barrier()
    return full
