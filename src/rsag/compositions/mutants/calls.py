"""Who calls what, and when: ranks that disagree, or wait for each other."""

from __future__ import annotations

from rsag.compositions.slices import shard
from rsag.programs import Recorder, View


def one_rank_skips_the_gather(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, op)
    if m.rank != m.world - 1:
        m.all_gather(full, mine)
    return full


def one_rank_with_another_operator(m: Recorder, full: View, op: str) -> View:
    m.all_reduce(full, "product" if m.rank == 0 else op)
    return full


def send_before_receive(m: Recorder, full: View, op: str) -> View:
    incoming = m.allocate(len(full) // m.world)
    left, right = (m.rank - 1) % m.world, (m.rank + 1) % m.world
    for step in range(m.world - 1):
        m.sendrecv(None, None, shard(full, (m.rank - 1 - step) % m.world, m.world), right)
        m.sendrecv(incoming, left, None, None)
        m.combine(shard(full, (m.rank - 2 - step) % m.world, m.world), incoming, op=op)
    return full


def message_in_another_group(m: Recorder, full: View, op: str) -> View:
    """Sent over the pair's communicator, awaited on everybody's."""
    m.reduce(full, op, root=0)
    if m.rank:
        m.sendrecv(full, 0, None, None)
    else:
        for other in range(1, m.world):
            m.sub((0, other)).sendrecv(None, None, full, 1)
    return full


def send_behind_a_started_call(m: Recorder, full: View, op: str) -> View:
    """Rank 0's go-ahead queues behind its own all_reduce, which lacks rank 1, which awaits the go-ahead."""
    go_ahead = m.allocate(1)
    m.fill(go_ahead, 0)
    if m.rank == 1:
        m.sendrecv(go_ahead, 0, None, None)
    reduction = m.all_reduce(full, op, start=True)
    if m.rank == 0:
        m.sendrecv(None, None, go_ahead, 1)
    m.wait(reduction)
    return full
