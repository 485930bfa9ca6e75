"""ReduceScatter alone, its input given away: what is left is a shard. Sharded training stops here.

Both leave M/N elements at a peak of M + M/N. They differ in when the shard's own memory exists: during the collective,
or only after it. Without the copy the shard would be a view into the input, and keep all of it alive.
"""

from __future__ import annotations

from rsag.collectives import Kind
from rsag.compositions.slices import shard
from rsag.programs import Composition, Recorder, View


def only(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    m.reduce_scatter(mine, full, op)
    m.release(full)
    return mine


def copied_out(m: Recorder, full: View, op: str) -> View:
    scattered = shard(full, m.rank, m.world)
    m.reduce_scatter(scattered, full, op)
    mine = m.allocate(len(scattered), "shard")
    m.copy(mine, scattered)
    m.release(full)
    return mine


ONLY = Composition(
    name="reduce_scatter_only",
    run=only,
    target=Kind.REDUCE_SCATTER,
    consumes=True,
    summary="into a shard of its own, the input released: the shard is all that stays",
)
COPIED_OUT = Composition(
    name="reduce_scatter_copied_out",
    run=copied_out,
    target=Kind.REDUCE_SCATTER,
    consumes=True,
    summary="in place, then the shard copied out and the input released",
)
