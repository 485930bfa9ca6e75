"""Which lifetimes are measured, at which payload, with what the ledger says of each."""

from __future__ import annotations

from collections.abc import Sequence

from rsag.compositions import find
from rsag.errors import UsageError
from rsag.interpreters.ledger import ledger
from rsag.programs import Composition, record_all
from rsag.records.memory import MemoryArm, MemoryPlan, PredictedMemory, PredictedMoment
from rsag.records.plan import Backend
from rsag.reduction import DType, ReduceOp
from rsag.units import MIB, format_bytes

SIZES = {Backend.GLOO: 64 * MIB, Backend.NCCL: 256 * MIB}
PADDED = ("rs_ag_padded_naive", "rs_ag_padded_early_release", "rs_ag_padded")
ARMS = (
    "all_reduce",
    "reduce_scatter_only",
    "reduce_scatter_in_place",
    "reduce_scatter_copied_out",
    "rs_ag_naive",
    "rs_ag_early_release",
    "rs_ag_in_place",
    "rs_ag_chunked",
    "rs_ag_staged",
    "rs_ag_padded",
    "rs_ag_padded_early_release",
)


def plan_memory(
    *,
    world_size: int,
    backend: Backend,
    size: int | None = None,
    compositions: Sequence[str] | None = None,
    dtype: DType = DType.FLOAT32,
    op: ReduceOp = ReduceOp.SUM,
) -> MemoryPlan:
    """Each composition once at `size` bytes, or the next smaller payload that divides over the ranks.

    Raises UsageError for a composition that no tensors carry, and for a size that is less than one element.
    """
    wanted = SIZES[backend] if size is None else size
    if wanted < dtype.itemsize:
        raise UsageError(
            "a payload has at least one element", got=format_bytes(wanted), expected=f"{dtype.itemsize} B or more"
        )
    numel = max(wanted // dtype.itemsize // world_size, 1) * world_size
    names = dict.fromkeys(ARMS if compositions is None else compositions)
    arms = tuple(memory_arm(find(name), world_size, _numel(name, world_size, numel), op, dtype) for name in names)
    return MemoryPlan(bytes=numel * dtype.itemsize, dtype=dtype, op=op, arms=arms)


def _numel(name: str, world_size: int, numel: int) -> int:
    """What pads is given something to pad."""
    return numel + 1 if name in PADDED and world_size > 1 else numel


def memory_arm(composition: Composition, world_size: int, numel: int, op: ReduceOp, dtype: DType) -> MemoryArm:
    """`composition` at `numel` elements, with what the ledger says of each rank."""
    if composition.symmetric:
        raise UsageError(
            f"{composition.name} cannot be measured",
            do="it reads peers' memory: proved and counted, not carried by tensors",
        )
    costs = ledger(record_all(composition, world_size=world_size, numel=numel, op=op), dtype.itemsize)
    predicted = tuple(
        PredictedMemory(
            rank=row.rank,
            steady_bytes=row.steady_bytes,
            peak_bytes=row.peak_bytes,
            timeline=tuple(
                PredictedMoment(
                    what=moment.what,
                    site=moment.site,
                    live_bytes={role.value: held for role, held in moment.live_bytes.items()},
                )
                for moment in row.timeline
            ),
        )
        for row in costs.ranks
    )
    return MemoryArm(composition=composition.name, bytes=numel * dtype.itemsize, predicted=predicted)
