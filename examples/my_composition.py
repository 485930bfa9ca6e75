"""A composition of your own, proved or refuted: bucketed ReduceScatter + AllGather, once wrong and once right.

Needs no torch and no second process: python examples/my_composition.py
"""
# ruff: noqa: T201 - a script speaks

from __future__ import annotations

from rsag.interpreters.ledger import ledger
from rsag.programs import Composition, Recorder, View, record_all
from rsag.proofs.world import Prover
from rsag.records.proof import Refutation
from rsag.reduction import ReduceOp
from rsag.units import MIB, format_bytes


def gathered_at_once(m: Recorder, full: View, op: str) -> View:
    """Two buckets are scattered one by one, and their shards gathered in one call."""
    half, q = len(full) // 2, len(full) // m.world
    mine = m.allocate(q, "shard")
    m.reduce_scatter(mine[: q // 2], full[:half], op)
    m.reduce_scatter(mine[q // 2 :], full[half:], op)
    gathered = m.allocate(len(full), "gathered")
    m.all_gather(gathered, mine)
    return gathered


def gathered_by_bucket(m: Recorder, full: View, op: str) -> View:
    """The same, but each bucket is gathered by itself."""
    half, q = len(full) // 2, len(full) // m.world
    mine = m.allocate(q, "shard")
    gathered = m.allocate(len(full), "gathered")
    for shard, bucket in ((mine[: q // 2], slice(0, half)), (mine[q // 2 :], slice(half, len(full)))):
        m.reduce_scatter(shard, full[bucket], op)
        m.all_gather(gathered[bucket], shard)
    return gathered


def twice_the_world_size(world_size: int) -> int:
    return 2 * world_size


COMPOSITIONS = [
    Composition(name=run.__name__, run=run, summary=run.__doc__ or "", multiple_of=twice_the_world_size)
    for run in (gathered_at_once, gathered_by_bucket)
]


def first_refutation(composition: Composition, op: ReduceOp) -> Refutation | None:
    """The first counterexample with 1 to 8 ranks and 1 to 8 elements a rank; None where all worlds are proved."""
    prover = Prover(op)
    for world_size in range(1, 9):
        for numel in range(1, 8 * world_size + 1):
            if composition.why_refused(numel, world_size, op) is None:
                proof = prover.prove(composition, world_size, numel)
                found = proof.result or proof.shard
                if found is not None:
                    return found
    return None


def predicted(composition: Composition) -> str:
    """What the ledger says of rank 0 of 4, for 256 MiB of float32."""
    costs = ledger(record_all(composition, world_size=4, numel=64 * MIB, op=ReduceOp.SUM), itemsize=4)
    rank = costs.ranks[0]
    return f"{costs.steps} steps, {format_bytes(rank.sent_bytes)} sent, peak {format_bytes(rank.peak_bytes)}"


def main() -> None:
    for composition in COMPOSITIONS:
        found = first_refutation(composition, ReduceOp.SUM)
        if found is None:
            print(f"{composition.name}: proved in every world tried")
            print(f"  256 MiB on 4 ranks: {predicted(composition)}")
        else:
            print(f"{composition.name}: {found.contract.value} refuted at N={found.world_size}, M={found.numel}")
            print(f"  {found.message}")
            print(f"  lines: {', '.join(found.sites) or 'none'}")


if __name__ == "__main__":
    main()
