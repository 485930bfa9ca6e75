"""The memory experiment: each composition once on the owning carrier, what it holds beside what the ledger says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.carriers.owning import Observe, run_owning
from rsag.carriers.torch_types import torch_dtype
from rsag.compositions import find
from rsag.errors import RunFailedError
from rsag.programs import Alloc, Instruction, Program, record_all
from rsag.rank.allocations import CpuMeter, CudaMeter, Meter
from rsag.rank.context import Context
from rsag.records.memory import MemoryArm, MemoryPlan, MemoryRow
from rsag.units import format_bytes

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")


def observe_memory(context: Context) -> None:
    """One row per arm. On CUDA a group of its own is made, so that its communicators can be counted from nothing."""
    plan = context.plan.memory
    if plan is None:
        return
    refusals = _refusals(context, plan.arms)
    meter: Meter = CudaMeter(context.device) if context.device.type == "cuda" else CpuMeter()
    group = dist.new_group(list(range(context.world_size))) if context.device.type == "cuda" else None
    for index, refusal in enumerate(refusals):
        if refusal:
            context.write(MemoryRow(arm=index, method="", reason=refusal))
        else:
            context.write(_measure(context, plan, index, meter, group))
    if group is not None:
        dist.destroy_process_group(group)


def _measure(context: Context, plan: MemoryPlan, index: int, meter: Meter, group: object) -> MemoryRow:
    arm, dtype = plan.arms[index], torch_dtype(plan.dtype.value)
    numel = arm.bytes // plan.dtype.itemsize
    programs = record_all(find(arm.composition), world_size=context.world_size, numel=numel, op=plan.op)
    program = programs[context.rank]
    with Groups(programs, group) as groups:
        # The first run makes the communicators, whose buffers would otherwise be counted as the composition's.
        run_once(program, groups, dtype, context.device, lambda _: None)
        dist.barrier(group=context.control)
        measured = meter.measure(
            program, plan.dtype.itemsize, lambda observe: run_once(program, groups, dtype, context.device, observe)
        )
    return MemoryRow(arm=index, method=measured.method, readings=measured.readings, timeline=measured.timeline)


def run_once(program: Program, groups: Groups, dtype: torch.dtype, device: torch.device, observe: Observe) -> object:
    """The input and the result of one run, to be kept alive.

    Raises RunFailedError that names composition and buffer where memory runs out.
    """
    done: list[Instruction] = []

    def note(instruction: Instruction) -> None:
        done.append(instruction)
        observe(instruction)

    try:
        tensor = torch.zeros(len(program.input), dtype=dtype, device=device)
        return tensor, run_owning(program, tensor, groups, observe=note)
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _OUT_OF_MEMORY):
            raise
        where = _where(program, len(done), dtype.itemsize)
        raise RunFailedError(
            f"{program.composition} ran out of memory on rank {program.rank}",
            got=f"no room for {where}",
            do="ask for fewer --bytes",
        ) from error


def _where(program: Program, index: int, itemsize: int) -> str:
    step = program.code[min(index, len(program.code) - 1)]
    if isinstance(step, Alloc):
        return f"its {step.role.value} buffer of {format_bytes(len(step.view) * itemsize)} ({step.site})"
    return f"what the backend allocates in its {getattr(step, 'kind', step).value} ({step.site})"  # type: ignore[union-attr]


def _refusals(context: Context, arms: Sequence[MemoryArm]) -> list[str]:
    """Per arm why it is not run, or nothing: on CUDA its peak must fit into what is free, on every rank."""
    if context.device.type != "cuda":
        return [""] * len(arms)
    free, _ = torch.cuda.mem_get_info(context.device)
    least = torch.tensor([free])
    dist.all_reduce(least, op=dist.ReduceOp.MIN, group=context.control)
    peaks = [max(row.peak_bytes for row in arm.predicted) for arm in arms]
    room = int(least.item())
    return [
        f"its predicted peak of {format_bytes(peak)} does not fit into {format_bytes(room)}, the least that is free"
        if peak > room
        else ""
        for peak in peaks
    ]
