"""Compositions x worlds x operators: what is proved, what is refuted and by which counterexample."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rsag.programs import Composition
from rsag.proofs.scope import Numels
from rsag.proofs.world import Prover
from rsag.records.proof import ProofOutcome, ProofRow, Proofs, Refutation
from rsag.reduction import ReduceOp

SCOPE = (
    "exhaustive for these rank counts and sizes only; equal up to the order of reduction, not bit for bit; "
    "the argument for every N is on paper (docs/explanation/proof.md), not by this machine"
)


def prove_all(
    compositions: Sequence[Composition],
    *,
    world_sizes: Sequence[int],
    numels: Numels,
    ops: Sequence[ReduceOp],
    clock: Callable[[], float] = time.perf_counter,
) -> Proofs:
    """Prove each composition under each operator in every world it claims; a row keeps the first counterexample."""
    began = clock()
    provers = {op: Prover(op) for op in ops}
    rows = tuple(
        _prove_row(composition, provers[op], world_sizes, numels) for composition in compositions for op in ops
    )
    return Proofs(
        world_sizes=tuple(world_sizes),
        numels=numels.text,
        ops=tuple(ops),
        num_worlds=sum(row.num_worlds for row in rows),
        seconds=round(clock() - began, 3),
        scope=SCOPE,
        rows=rows,
    )


def _prove_row(composition: Composition, prover: Prover, world_sizes: Sequence[int], numels: Numels) -> ProofRow:
    num_worlds = num_refused = 0
    result: Refutation | None = None
    shard: Refutation | None = None
    has_shards = False
    reason: str | None = None
    for world_size in world_sizes:
        for numel in numels.at(world_size):
            refused = composition.why_refused(numel, world_size, prover.op)
            if refused is not None:
                num_refused += 1
                reason = reason or refused
                continue
            proof = prover.prove(composition, world_size, numel)
            num_worlds += 1
            has_shards = has_shards or proof.has_shards
            result = result or proof.result
            shard = shard or proof.shard
    return ProofRow(
        composition=composition.name,
        target=composition.target,
        op=prover.op,
        num_worlds=num_worlds,
        num_not_claimed=num_refused,
        result=_outcome(result, claimed=num_worlds > 0),
        result_refutation=result,
        shard=_outcome(shard, claimed=has_shards),
        shard_refutation=shard,
        not_claimed=reason,
    )


def _outcome(refutation: Refutation | None, *, claimed: bool) -> ProofOutcome:
    if refutation is not None:
        return ProofOutcome.REFUTED
    return ProofOutcome.PROVED if claimed else ProofOutcome.NOT_CLAIMED
