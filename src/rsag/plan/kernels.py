"""What is called in marked ranges under a profiler, and how often."""

from __future__ import annotations

from rsag.errors import UsageError
from rsag.records.execution import KernelsPlan, MarkedArm
from rsag.records.plan import Backend
from rsag.reduction import DType, ReduceOp
from rsag.units import MIB, format_bytes

SIZES = {Backend.GLOO: 4 * MIB, Backend.NCCL: 64 * MIB}
DIRECT, DECOMPOSED = "direct", "decomposed"
PADDED_NUMEL = 1003
"""The chapter's."""


def plan_kernels(*, world_size: int, backend: Backend, size: int | None = None) -> KernelsPlan:
    """AllReduce, and ReduceScatter + AllGather in place, five calls each at `size` bytes or a little less.

    A payload is cut to the next smaller one that divides over the ranks. Raises UsageError for less than one element.
    """
    dtype = DType.FLOAT32
    wanted = SIZES[backend] if size is None else size
    if wanted < dtype.itemsize:
        raise UsageError("a payload has at least one element", got=format_bytes(wanted), expected="4 B or more")
    step = dtype.itemsize * world_size
    return KernelsPlan(
        bytes=max(wanted // step, 1) * step,
        dtype=dtype,
        op=ReduceOp.SUM,
        warmup_calls=2,
        calls=5,
        arms=(
            MarkedArm(range=DIRECT, composition="all_reduce"),
            MarkedArm(range=DECOMPOSED, composition="rs_ag_in_place"),
        ),
        padded_numel=PADDED_NUMEL,
        padded=("all_reduce", "rs_ag_padded"),
        native=backend is Backend.NCCL,
    )
