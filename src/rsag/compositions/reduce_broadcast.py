"""AllReduce as Reduce to rank 0 + Broadcast from it: the older decomposition, 2M bytes through the busiest rank."""

from __future__ import annotations

from rsag.programs import Composition, Recorder, View
from rsag.programs.program import any_numel


def reduce_broadcast(m: Recorder, full: View, op: str) -> View:
    m.reduce(full, op, root=0)
    m.broadcast(full, root=0)
    return full


REDUCE_BROADCAST = Composition(
    name="reduce_broadcast",
    run=reduce_broadcast,
    in_place=True,
    multiple_of=any_numel,
    summary="reduced to rank 0, broadcast from it",
)
