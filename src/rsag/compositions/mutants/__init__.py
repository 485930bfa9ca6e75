"""Deliberately wrong compositions, each with the contract it must be refuted against; two look wrong and are right.

A prover, a test or a reader that cannot tell these from the real ones is worth nothing. They are never run on real
ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rsag.compositions.mutants import calls, order, recorded, values
from rsag.programs import Composition
from rsag.programs.program import Run, any_numel
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


def _even(world_size: int) -> int:
    return 4 * world_size


def _uneven(world_size: int) -> int:
    return 4 * world_size + 1


def _mutant(
    run: Run,
    breaks: Contract | None,
    *,
    op: ReduceOp = ReduceOp.SUM,
    name: str | None = None,
    numel: Callable[[int], int] = _even,
    consumes: bool = False,
    symmetric: bool = False,
    in_place: bool = False,
) -> Mutant:
    composition = Composition(
        name=name or run.__name__,
        run=run,
        summary=(run.__doc__ or "").split("\n")[0],
        consumes=consumes,
        symmetric=symmetric,
        in_place=in_place,
        multiple_of=any_numel,
    )
    return Mutant(composition=composition, breaks=breaks, op=op, numel=numel)


_RESULT = (
    _mutant(values.rotated_shards, Contract.RESULT),
    _mutant(values.max_for_sum, Contract.RESULT, in_place=True),
    _mutant(values.dropped_tail, Contract.RESULT, in_place=True, numel=_uneven),
    _mutant(values.padding_elsewhere_on_one_rank, Contract.RESULT, numel=_uneven),
    _mutant(values.transform_between, Contract.RESULT),
    _mutant(values.stale_output, Contract.RESULT, in_place=True),
    _mutant(values.swapped_order, Contract.RESULT, in_place=True),
    _mutant(values.gather_in_other_order, Contract.RESULT),
    _mutant(values.avg_pairwise, Contract.RESULT, in_place=True, op=ReduceOp.AVG),
    _mutant(values.avg_of_unequal_groups, Contract.RESULT, in_place=True, op=ReduceOp.AVG),
    _mutant(values.reduced_twice, Contract.RESULT, in_place=True, name="reduced_twice_under_sum"),
    _mutant(values.reduce_reused_off_root, Contract.RESULT),
)
_SHARD = (
    _mutant(values.zero_padding, Contract.SHARD, op=ReduceOp.MAX, name="zero_padding_under_max", numel=_uneven),
    _mutant(values.zero_padding, Contract.SHARD, op=ReduceOp.MIN, name="zero_padding_under_min", numel=_uneven),
    _mutant(values.zero_padding, Contract.SHARD, op=ReduceOp.PRODUCT, name="zero_padding_under_product", numel=_uneven),
)
_PROGRESS = (
    _mutant(calls.one_rank_skips_the_gather, Contract.PROGRESS, in_place=True),
    _mutant(calls.send_before_receive, Contract.PROGRESS, in_place=True),
    _mutant(calls.message_in_another_group, Contract.PROGRESS, in_place=True),
    _mutant(calls.send_behind_a_started_call, Contract.PROGRESS, in_place=True),
)
_AGREEMENT = (_mutant(calls.one_rank_with_another_operator, Contract.AGREEMENT, in_place=True),)
_ORDER = (
    _mutant(order.write_in_flight, Contract.ORDER, in_place=True),
    _mutant(order.read_before_the_wait, Contract.ORDER),
    _mutant(order.never_waited, Contract.ORDER, in_place=True),
    _mutant(order.reads_a_released_shard, Contract.ORDER, in_place=True),
    _mutant(order.gathers_into_released_memory, Contract.ORDER, consumes=True),
    _mutant(order.output_on_a_neighbours_slice, Contract.ORDER, consumes=True),
    _mutant(order.staging_reused_early, Contract.ORDER, in_place=True, symmetric=True),
    _mutant(order.staging_shared_without_the_last_barrier, Contract.ORDER),
    *(
        _mutant(
            order.peer_without(missing),
            Contract.ORDER,
            name=f"peer_without_the_{which}_barrier",
            in_place=True,
            symmetric=True,
        )
        for missing, which in enumerate(("first", "middle", "last"))
    ),
    _mutant(order.peer_reads_a_collectives_output, Contract.ORDER, in_place=True, symmetric=True),
)
_PROGRAM = (
    _mutant(recorded.releases_a_borrowed_input, Contract.PROGRAM),
    _mutant(recorded.input_released_before_the_wait, Contract.PROGRAM, consumes=True),
    _mutant(recorded.avg_folded_pairwise, Contract.PROGRAM, in_place=True, op=ReduceOp.AVG),
    _mutant(recorded.peer_reads_memory_not_symmetric, Contract.PROGRAM, in_place=True),
)
_RIGHT = (
    _mutant(values.zero_padding, None, name="zero_padding_under_sum", numel=_uneven),
    _mutant(values.reduced_twice, None, in_place=True, op=ReduceOp.MAX, name="reduced_twice_under_max"),
)

MUTANTS: tuple[Mutant, ...] = (*_RESULT, *_SHARD, *_PROGRESS, *_AGREEMENT, *_ORDER, *_PROGRAM, *_RIGHT)
