"""AllReduce as ReduceScatter + AllGather: three lifetimes, the same padded, and chunked.

All of them move the same bytes. They differ in what lives at once: M + M/N + M elements (naive), M + M/N (early
release), M (in place).
"""

from __future__ import annotations

from rsag.compositions.slices import shard, split
from rsag.programs import IDENTITY, Composition, Recorder, View
from rsag.programs.program import Run, any_numel

NUM_CHUNKS = 4


def naive(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    gathered = m.allocate(len(full), "gathered")
    m.reduce_scatter(mine, full, op)
    m.all_gather(gathered, mine)
    m.release(full, mine)
    return gathered


def early_release(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    m.reduce_scatter(mine, full, op)
    m.release(full)
    gathered = m.allocate(len(mine) * m.world, "gathered")
    m.all_gather(gathered, mine)
    m.release(mine)
    return gathered


def in_place(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, op)
    m.all_gather(full, mine)
    return full


def padded(lifetime: Run) -> Run:
    """`lifetime` on a copy filled up with the operator's identity, its result trimmed to the logical elements."""

    def run(m: Recorder, full: View, op: str) -> View:
        numel = len(full)
        even = m.allocate(-(-numel // m.world) * m.world, "padding")
        m.copy(even[:numel], full)
        m.fill(even[numel:], IDENTITY)
        m.release(full)
        return lifetime(m, even, op)[:numel]

    return run


def chunked(m: Recorder, full: View, op: str) -> View:
    """Two in flight: a chunk is gathered while the next is scattered."""
    gathers = []
    start = 0
    for rows in split(len(full) // m.world, NUM_CHUNKS):
        part = full[start : start + rows * m.world]
        start += len(part)
        mine = shard(part, m.rank, m.world)
        m.reduce_scatter(mine, part, op)
        gathers.append(m.all_gather(part, mine, start=True))
    for gather in gathers:
        m.wait(gather)
    return full


NAIVE = Composition(
    name="rs_ag_naive",
    run=naive,
    consumes=True,
    summary="all three buffers alive to the end",
)
EARLY_RELEASE = Composition(
    name="rs_ag_early_release",
    run=early_release,
    consumes=True,
    summary="the input released before the gathered buffer exists",
)
IN_PLACE = Composition(
    name="rs_ag_in_place",
    run=in_place,
    in_place=True,
    summary="scattered into the own slice of the input, gathered from it: no extra memory",
)
PADDED_NAIVE = Composition(
    name="rs_ag_padded_naive",
    run=padded(naive),
    consumes=True,
    multiple_of=any_numel,
    summary="padded with the identity, then naive, then trimmed",
)
PADDED_EARLY_RELEASE = Composition(
    name="rs_ag_padded_early_release",
    run=padded(early_release),
    consumes=True,
    multiple_of=any_numel,
    summary="padded with the identity, then early release, then trimmed",
)
PADDED_IN_PLACE = Composition(
    name="rs_ag_padded",
    run=padded(in_place),
    consumes=True,
    multiple_of=any_numel,
    summary="padded with the identity, then in place, then trimmed",
)
CHUNKED = Composition(
    name="rs_ag_chunked",
    run=chunked,
    in_place=True,
    summary=f"in place in {NUM_CHUNKS} chunks, a gather in flight under the next scatter",
)
