"""What one call means, whenever it runs: what it reads and writes, who receives what, who hears whom, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from rsag.collectives import Kind
from rsag.interpreters.algebra import Algebra, Cells
from rsag.interpreters.refuted import Refuted
from rsag.programs import Start, View
from rsag.records.proof import Contract


def read_by(rank: int, step: Start) -> View | None:
    """What `rank` puts in."""
    return None if step.kind is Kind.BROADCAST and rank != step.root else step.inp


def written_by(rank: int, step: Start) -> View | None:
    """Where `rank` receives."""
    return None if step.kind is Kind.BROADCAST and rank == step.root else step.out


def received(step: Start, sent: Sequence[Cells], algebra: Algebra) -> list[Cells]:
    """What each member of a collective receives, in group order, for what each has `sent`."""
    size = len(step.group)
    if step.kind is Kind.ALL_GATHER:
        gathered = sent[0][:0]
        for cells in sent:
            gathered = gathered + cells
        return [gathered] * size
    if step.kind is Kind.BROADCAST:
        assert step.root is not None
        return [sent[step.group.index(step.root)]] * size
    if step.op is None:
        return [[]] * size  # a barrier
    reduced = algebra.reduce(step.op, sent)
    if step.kind is Kind.REDUCE_SCATTER:
        q = len(reduced) // size
        return [reduced[index * q : (index + 1) * q] for index in range(size)]
    if step.kind is Kind.REDUCE:
        undefined = algebra.unwritten(len(reduced))  # Gloo leaves partial sums
        return [reduced if rank == step.root else undefined for rank in step.group]
    return [reduced] * size


def hears(rank: int, step: Start) -> tuple[int, ...]:
    """The ranks that `rank`'s completion depends on: the only order that a call gives."""
    if step.kind is Kind.BARRIER:
        return step.group
    if step.kind is Kind.SENDRECV:
        return (step.source,) if step.source is not None and step.out else ()
    if not step.inp:
        return ()  # nothing moves, so nothing is ordered
    if step.kind is Kind.BROADCAST:
        assert step.root is not None
        return (step.root,)
    if step.kind is Kind.REDUCE and rank != step.root:
        return ()
    return step.group


def refuse_overlap(rank: int, step: Start) -> None:
    """In place means NCCL's own slice; any other overlap of output and input is undefined."""
    out, inp = step.out, step.inp
    if out is None or inp is None or not out.overlaps(inp):
        return
    index = step.group.index(rank)
    if step.kind is Kind.REDUCE_SCATTER and out.start == inp.start + index * len(out):
        return
    if step.kind is Kind.ALL_GATHER and inp.start == out.start + index * len(inp):
        return
    if step.kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE) and out == inp:
        return
    raise Refuted(
        Contract.ORDER,
        f"rank {rank}'s {step.kind.value}: the output overlaps the input and is not the rank's own slice",
        rank=rank,
        sites=(step.site,),
    )


def refuse_disagreement(index: int, other: int, theirs: Start, rank: int, ours: Start) -> None:
    """Call number `index` of a group is one collective, of one size, for all its ranks."""
    if _signature(theirs) == _signature(ours):
        return

    def say(step: Start) -> str:
        op = "" if step.op is None else f", {step.op.value}"
        return f"{step.kind.value}({len(step.inp or ())}{op})"

    raise Refuted(
        Contract.AGREEMENT,
        f"call {index} of group {ours.group}: rank {other} issues {say(theirs)}, rank {rank} {say(ours)}",
        rank=rank,
        sites=(theirs.site, ours.site),
    )


def _signature(step: Start) -> tuple[object, ...]:
    return step.kind, len(step.inp or ()), len(step.out or ()), step.op, step.root


def refuse_unequal_sizes(source: int, send: Start, dest: int, receive: Start) -> None:
    """A message has the size that its receiver expects."""
    num_sent, num_expected = len(send.inp or ()), len(receive.out or ())
    if num_sent != num_expected:
        raise Refuted(
            Contract.AGREEMENT,
            f"rank {source} sends {num_sent} elements, rank {dest} expects {num_expected}",
            rank=dest,
            sites=(send.site, receive.site),
        )
