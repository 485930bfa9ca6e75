"""AllReduce over nodes: ReduceScatter inside, AllReduce of the shard across, AllGather inside.

Legal only where the payload divides by the ranks of a node; an average is one per level, right only because nodes are
equal.
"""

from __future__ import annotations

from rsag.compositions.slices import shard
from rsag.programs import Composition, Recorder, View


def ranks_per_node(world_size: int) -> int:
    """Two nodes where that is even, else as few as divide the ranks: the largest proper divisor."""
    return next((size for size in range(world_size // 2, 1, -1) if world_size % size == 0), 1)


def two_level(m: Recorder, full: View, op: str) -> View:
    size = ranks_per_node(m.world)
    node, index = divmod(m.rank, size)
    inside = m.sub(range(node * size, (node + 1) * size))
    across = m.sub(range(index, m.world, size))
    mine = shard(full, inside.rank, inside.world)
    inside.reduce_scatter(mine, full, op)
    across.all_reduce(mine, op)
    inside.all_gather(full, mine)
    return full


TWO_LEVEL = Composition(
    name="two_level",
    run=two_level,
    in_place=True,
    multiple_of=ranks_per_node,
    summary="scattered inside a node, reduced across nodes, gathered inside",
)
