"""What is called in marked ranges under a profiler, and how often."""

from __future__ import annotations

from rsag.plan.latency import fit, refuse_uncarried
from rsag.records.execution import KernelsPlan, MarkedArm
from rsag.records.latency import Case, Clock
from rsag.records.plan import Backend
from rsag.reduction import DType, ReduceOp
from rsag.units import MIB

SIZES = {Backend.GLOO: 4 * MIB, Backend.NCCL: 64 * MIB}
CALLS = 5
DIRECT, DECOMPOSED = "direct", "decomposed"
PADDED_NUMEL = 1003
"""The chapter's."""


def plan_kernels(
    *,
    world_size: int,
    backend: Backend,
    size: int | None = None,
    composition: str = "rs_ag_in_place",
    dtype: DType = DType.FLOAT32,
    op: ReduceOp = ReduceOp.SUM,
) -> KernelsPlan:
    """AllReduce, and one composition that reaches it, five calls each at `size` bytes or a little less.

    A payload is cut to the next smaller one that divides over the ranks. Raises UsageError for what is no multiple of
    the dtype, and for what no tensors carry.
    """
    fitted = fit(SIZES[backend] if size is None else size, dtype, world_size)
    case = Case(bytes=fitted, dtype=dtype, op=op, clock=Clock.EAGER, calls=CALLS)
    refuse_uncarried(case, [composition], world_size)
    return KernelsPlan(
        bytes=fitted,
        dtype=dtype,
        op=op,
        warmup_calls=2,
        calls=CALLS,
        arms=(
            MarkedArm(range=DIRECT, composition="all_reduce"),
            MarkedArm(range=DECOMPOSED, composition=composition),
        ),
        padded_numel=PADDED_NUMEL,
        padded=("all_reduce", "rs_ag_padded"),
        native=backend is Backend.NCCL,
    )
