"""AllReduce as ReduceScatter + AllGather out of place, chunk by chunk through one staging buffer.

The caller's tensor never goes to a collective, so it need not be registered, symmetric or even one piece; that costs
M/k elements and two copies of M. Blocking: a second chunk in flight would need a second staging buffer.
"""

from __future__ import annotations

from rsag.compositions.slices import shard, split
from rsag.programs import Composition, Recorder, View

NUM_CHUNKS = 4


def staged(m: Recorder, full: View, op: str) -> View:
    rows = split(len(full) // m.world, NUM_CHUNKS)
    staging = m.allocate(rows[0] * m.world, "staging")
    start = 0
    for count in rows:
        part = full[start : start + count * m.world]
        start += len(part)
        chunk = staging[: len(part)]
        mine = shard(chunk, m.rank, m.world)
        m.copy(chunk, part)
        m.reduce_scatter(mine, chunk, op)
        m.all_gather(chunk, mine)
        m.copy(part, chunk)
    m.release(staging)
    return full


STAGED = Composition(
    name="rs_ag_staged",
    run=staged,
    in_place=True,
    summary=f"in {NUM_CHUNKS} chunks through one staging buffer: M/{NUM_CHUNKS} of extra memory",
)
