"""Refused when recorded: what breaks a rule that needs no other rank to see."""

from __future__ import annotations

from rsag.compositions.mutants.halves import gather, scatter
from rsag.compositions.slices import shard
from rsag.programs import Recorder, View


def releases_a_borrowed_input(m: Recorder, full: View, op: str) -> View:
    mine = scatter(m, full, op)
    m.release(full)
    return gather(m, mine)


def input_released_before_the_wait(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    token = m.reduce_scatter(mine, full, op, start=True)
    m.release(full)
    m.wait(token)
    return gather(m, mine)


def avg_folded_pairwise(m: Recorder, full: View, op: str) -> View:
    incoming = m.allocate(len(full))
    for _ in range(m.world - 1):
        m.sendrecv(incoming, (m.rank - 1) % m.world, full, (m.rank + 1) % m.world)
        m.combine(full, incoming, op=op)
    return full


def peer_reads_memory_not_symmetric(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.barrier()
    for distance in range(1, m.world):
        m.combine(mine, m.peer(mine, (m.rank + distance) % m.world), op=op)
    m.barrier()
    m.all_gather(full, mine)
    return full
