"""The two halves as they should be, for mutants that go wrong elsewhere."""

from __future__ import annotations

from rsag.compositions.slices import shard
from rsag.programs import Recorder, View


def scatter(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    m.reduce_scatter(mine, full, op)
    return mine


def gather(m: Recorder, mine: View) -> View:
    gathered = m.allocate(len(mine) * m.world, "gathered")
    m.all_gather(gathered, mine)
    return gathered


def both_in_place(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, op)
    m.all_gather(full, mine)
    return full
