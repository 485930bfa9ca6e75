"""Deliberately wrong compositions, each with the contract it must be refuted against; two look wrong and are right.

A prover, a test or a reader that cannot tell these from the real ones is worth nothing. They are never run on real
ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rsag.compositions.slices import shard
from rsag.programs import IDENTITY, Composition, Recorder, View
from rsag.programs.program import any_numel
from rsag.records.proof import Contract
from rsag.reduction import ReduceOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A composition with a planted fault. `breaks` is None where it only looks wrong.

    `numel(N)` is a payload at which the fault shows.
    """

    composition: Composition
    breaks: Contract | None
    op: ReduceOp
    numel: Callable[[int], int]

    @property
    def name(self) -> str:
        return self.composition.name


def _reduce_scatter(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    m.reduce_scatter(mine, full, op)
    return mine


def _gather(m: Recorder, mine: View) -> View:
    gathered = m.allocate(len(mine) * m.world, "gathered")
    m.all_gather(gathered, mine)
    return gathered


def _in_place(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, op)
    m.all_gather(full, mine)
    return full


# ------------------------------------------------------------------------------------------------------ wrong values


def rotated_shards(m: Recorder, full: View, op: str) -> View:
    gathered = _gather(m, _reduce_scatter(m, full, op))
    rotated = m.allocate(len(full), "gathered")
    for index in range(m.world):
        m.copy(shard(rotated, (index + 1) % m.world, m.world), shard(gathered, index, m.world))
    return rotated


def max_for_sum(m: Recorder, full: View, op: str) -> View:  # noqa: ARG001 - that is the fault
    return _in_place(m, full, "max")


def dropped_tail(m: Recorder, full: View, op: str) -> View:
    _in_place(m, full[: len(full) // m.world * m.world], op)
    return full


def _padded(m: Recorder, full: View, op: str, *, before: int, value: str | float) -> View:
    numel = len(full)
    even = m.allocate(-(-numel // m.world) * m.world, "padding")
    m.copy(even[before : before + numel], full)
    m.fill(even[:before], value)
    m.fill(even[before + numel :], value)
    return _in_place(m, even, op)[:numel]


def zero_padding(m: Recorder, full: View, op: str) -> View:
    return _padded(m, full, op, before=0, value=0)


def padding_elsewhere_on_one_rank(m: Recorder, full: View, op: str) -> View:
    padding = -len(full) % m.world
    return _padded(m, full, op, before=padding if m.rank == m.world - 1 else 0, value=IDENTITY)


def transform_between(m: Recorder, full: View, op: str) -> View:
    mine = _reduce_scatter(m, full, op)
    m.apply("adam", mine, mine)
    return _gather(m, mine)


def stale_output(m: Recorder, full: View, op: str) -> View:
    _gather(m, _reduce_scatter(m, full, op))
    return full


def swapped_order(m: Recorder, full: View, op: str) -> View:
    """Same kind, same size, so nothing stops it: it completes, with the halves' values crossed."""
    halves = [shard(full, 0, 2), shard(full, 1, 2)]
    for half in halves if m.rank == 0 else reversed(halves):
        m.all_reduce(half, op)
    return full


def gather_in_other_order(m: Recorder, full: View, op: str) -> View:
    mine = _reduce_scatter(m, full, op)
    gathered = m.allocate(len(full), "gathered")
    m.sub(range(m.world)[::-1]).all_gather(gathered, mine)
    return gathered


def reduced_twice(m: Recorder, full: View, op: str) -> View:
    m.all_reduce(full, op)
    m.all_reduce(full, op)
    return full


def avg_pairwise(m: Recorder, full: View, op: str) -> View:
    """A running average along a chain of pairs: the last rank weighs a half."""
    for left in range(m.world - 1):
        if m.rank in (left, left + 1):
            m.sub((left, left + 1)).all_reduce(full, op)
    m.broadcast(full, root=m.world - 1)
    return full


def avg_of_unequal_groups(m: Recorder, full: View, op: str) -> View:
    """The mean of means over all ranks but one, and that one."""
    if m.rank < m.world - 1:
        m.sub(range(m.world - 1)).all_reduce(full, op)
    if m.rank in (0, m.world - 1):
        m.sub((0, m.world - 1)).all_reduce(full, op)
    m.broadcast(full, root=0)
    return full


# ------------------------------------------------------------------------------------------- who calls what, and when


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


# ------------------------------------------------------------------------------------------------------------- order


def input_released_before_the_wait(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    scatter = m.reduce_scatter(mine, full, op, start=True)
    m.release(full)
    m.wait(scatter)
    return _gather(m, mine)


def write_in_flight(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    scatter = m.reduce_scatter(mine, full, op, start=True)
    m.fill(full, 0)
    m.wait(scatter)
    m.all_gather(full, mine)
    return full


def read_before_the_wait(m: Recorder, full: View, op: str) -> View:
    mine = m.allocate(len(full) // m.world, "shard")
    scatter = m.reduce_scatter(mine, full, op, start=True)
    gathered = _gather(m, mine)
    m.wait(scatter)
    return gathered


def never_waited(m: Recorder, full: View, op: str) -> View:
    mine = shard(full, m.rank, m.world)
    m.reduce_scatter(mine, full, op)
    m.all_gather(full, mine, start=True)
    return full


def reads_a_released_shard(m: Recorder, full: View, op: str) -> View:
    mine = _reduce_scatter(m, full, op)
    m.release(mine)
    m.all_gather(full, mine)
    return full


def output_on_a_neighbours_slice(m: Recorder, full: View, op: str) -> View:
    theirs = shard(full, (m.rank + 1) % m.world, m.world)
    m.reduce_scatter(theirs, full, op)
    return _gather(m, theirs)


def staging_reused_early(m: Recorder, full: View, op: str) -> View:
    """Peers' slices fetched one ahead into one staging buffer instead of two."""
    mine = shard(full, m.rank, m.world)
    others = [(m.rank + distance) % m.world for distance in range(1, m.world)]
    staging = m.allocate(len(mine))
    m.barrier()
    coming = m.copy(staging, m.peer(mine, others[0]), start=True) if others else None
    for index in range(len(others)):
        m.wait(coming)
        if index + 1 < len(others):
            coming = m.copy(staging, m.peer(mine, others[index + 1]), start=True)
        m.combine(mine, staging, op=op)
    m.barrier()
    for other in others:
        theirs = shard(full, other, m.world)
        m.copy(theirs, m.peer(theirs, other))
    m.barrier()
    return full


def _peer_without(missing: int) -> Callable[[Recorder, View, str], View]:
    def run(m: Recorder, full: View, op: str) -> View:
        mine = shard(full, m.rank, m.world)
        others = [(m.rank + distance) % m.world for distance in range(1, m.world)]
        if missing != 0:
            m.barrier()
        for other in others:
            m.combine(mine, m.peer(mine, other), op=op)
        if missing != 1:
            m.barrier()
        for other in others:
            theirs = shard(full, other, m.world)
            m.copy(theirs, m.peer(theirs, other))
        if missing != 2:
            m.barrier()
        return full

    return run


def peer_reads_a_collectives_output(m: Recorder, full: View, op: str) -> View:
    """That my AllReduce has ended says that peers have sent, not that their results are written."""
    m.all_reduce(full, op)
    if m.rank:
        m.copy(full, m.peer(full, 0))
    m.barrier()
    return full


# ------------------------------------------------------------------------------------------ refused when recorded


def releases_a_borrowed_input(m: Recorder, full: View, op: str) -> View:
    mine = _reduce_scatter(m, full, op)
    m.release(full)
    return _gather(m, mine)


def avg_folded_pairwise(m: Recorder, full: View, op: str) -> View:
    incoming = m.allocate(len(full))
    for _ in range(m.world - 1):
        m.sendrecv(incoming, (m.rank - 1) % m.world, full, (m.rank + 1) % m.world)
        m.combine(full, incoming, op=op)
    return full


def _even(world_size: int) -> int:
    return 4 * world_size


def _uneven(world_size: int) -> int:
    return 4 * world_size + 1


def _mutant(
    run: Callable[[Recorder, View, str], View],
    breaks: Contract | None,
    *,
    op: ReduceOp = ReduceOp.SUM,
    name: str | None = None,
    numel: Callable[[int], int] = _even,
    consumes: bool = False,
    symmetric: bool = False,
) -> Mutant:
    composition = Composition(
        name=name or run.__name__,
        run=run,
        summary=(run.__doc__ or "").split("\n")[0],
        consumes=consumes,
        symmetric=symmetric,
        multiple_of=any_numel,
    )
    return Mutant(composition=composition, breaks=breaks, op=op, numel=numel)


MUTANTS: tuple[Mutant, ...] = (
    _mutant(rotated_shards, Contract.RESULT),
    _mutant(max_for_sum, Contract.RESULT),
    _mutant(dropped_tail, Contract.RESULT, numel=_uneven),
    _mutant(padding_elsewhere_on_one_rank, Contract.RESULT, numel=_uneven),
    _mutant(transform_between, Contract.RESULT),
    _mutant(stale_output, Contract.RESULT),
    _mutant(swapped_order, Contract.RESULT),
    _mutant(gather_in_other_order, Contract.RESULT),
    _mutant(avg_pairwise, Contract.RESULT, op=ReduceOp.AVG),
    _mutant(avg_of_unequal_groups, Contract.RESULT, op=ReduceOp.AVG),
    _mutant(reduced_twice, Contract.RESULT, name="reduced_twice_under_sum"),
    _mutant(zero_padding, Contract.SHARD, op=ReduceOp.MAX, name="zero_padding_under_max", numel=_uneven),
    _mutant(zero_padding, Contract.SHARD, op=ReduceOp.MIN, name="zero_padding_under_min", numel=_uneven),
    _mutant(zero_padding, Contract.SHARD, op=ReduceOp.PRODUCT, name="zero_padding_under_product", numel=_uneven),
    _mutant(one_rank_skips_the_gather, Contract.PROGRESS),
    _mutant(send_before_receive, Contract.PROGRESS),
    _mutant(one_rank_with_another_operator, Contract.AGREEMENT),
    _mutant(input_released_before_the_wait, Contract.ORDER, consumes=True),
    _mutant(write_in_flight, Contract.ORDER),
    _mutant(read_before_the_wait, Contract.ORDER),
    _mutant(never_waited, Contract.ORDER),
    _mutant(reads_a_released_shard, Contract.ORDER),
    _mutant(output_on_a_neighbours_slice, Contract.ORDER),
    _mutant(staging_reused_early, Contract.ORDER, symmetric=True),
    _mutant(_peer_without(0), Contract.ORDER, name="peer_without_the_first_barrier", symmetric=True),
    _mutant(_peer_without(1), Contract.ORDER, name="peer_without_the_middle_barrier", symmetric=True),
    _mutant(_peer_without(2), Contract.ORDER, name="peer_without_the_last_barrier", symmetric=True),
    _mutant(peer_reads_a_collectives_output, Contract.ORDER, symmetric=True),
    _mutant(releases_a_borrowed_input, Contract.PROGRAM),
    _mutant(avg_folded_pairwise, Contract.PROGRAM, op=ReduceOp.AVG),
    _mutant(zero_padding, None, name="zero_padding_under_sum", numel=_uneven),
    _mutant(reduced_twice, None, op=ReduceOp.MAX, name="reduced_twice_under_max"),
)
