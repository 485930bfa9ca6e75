"""AllReduce over memory that peers can read: no communication call but barriers.

Each rank reduces its slice by reading that slice from every peer, then copies everyone else's slice. Three barriers:
before the first read, between the two phases, and before the caller may write again; leaving any one out is a race.
"""

from __future__ import annotations

from rsag.compositions.slices import shard
from rsag.programs import Composition, Recorder, View


def peer(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    others = [(m.rank + distance) % m.world for distance in range(1, m.world)]
    m.barrier()
    for other in others:
        m.combine(mine, m.peer(mine, other), op=op)
    m.barrier()
    for other in others:
        theirs = shard(full, other, m.world)
        m.copy(theirs, m.peer(theirs, other))
    m.barrier()
    return full


PEER = Composition(
    name="peer",
    run=peer,
    folds=True,
    symmetric=True,
    in_place=True,
    summary="peers' slices read and reduced in place, then copied; barriers instead of collectives",
)
