"""The collectives themselves: what every composition is compared with."""

from __future__ import annotations

from rsag.collectives import Kind
from rsag.compositions.slices import shard
from rsag.programs import Composition, Recorder, View
from rsag.programs.program import any_numel


def all_reduce(m: Recorder, full: View, op: str) -> View:
    m.all_reduce(full, op)
    return full


def reduce_scatter(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    m.reduce_scatter(mine, full, op)
    return mine


def reduce_scatter_in_place(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, op)
    return mine


def all_gather(m: Recorder, mine: View, op: str) -> View:  # noqa: ARG001 - a gather reduces nothing
    gathered = m.allocate(len(mine) * m.world, "gathered")
    m.all_gather(gathered, mine)
    return gathered


def all_gather_in_place(m: Recorder, full: View, op: str) -> View:  # noqa: ARG001 - a gather reduces nothing
    m.all_gather(full, shard(full, m.rank, m.world))
    return full


ALL_REDUCE = Composition(
    name="all_reduce",
    run=all_reduce,
    in_place=True,
    summary="the collective itself, in place",
    multiple_of=any_numel,
)
REDUCE_SCATTER = Composition(
    name="reduce_scatter",
    run=reduce_scatter,
    target=Kind.REDUCE_SCATTER,
    summary="the collective itself, into a shard of its own",
)
REDUCE_SCATTER_IN_PLACE = Composition(
    name="reduce_scatter_in_place",
    run=reduce_scatter_in_place,
    target=Kind.REDUCE_SCATTER,
    in_place=True,
    summary="the collective itself, into the rank's own slice of its input",
)
ALL_GATHER = Composition(
    name="all_gather",
    run=all_gather,
    target=Kind.ALL_GATHER,
    summary="the collective itself, into a buffer of its own",
)
ALL_GATHER_IN_PLACE = Composition(
    name="all_gather_in_place",
    run=all_gather_in_place,
    target=Kind.ALL_GATHER,
    in_place=True,
    summary="the collective itself, from the rank's own slice of its output",
)
