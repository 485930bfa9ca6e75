"""Training steps as programs: what data parallelism makes of ReduceScatter and AllGather, state by state.

They reach no collective's result, so they are no compositions; they are written in the same seventeen names, recorded,
proved and accounted for in the same way.
"""

from __future__ import annotations

from rsag.compositions.training import fsdp, fully_shard, replicated, torch_ddp, zero
from rsag.compositions.training.step import Stack, State, TrainingProgram, TrainingStep, record_all_steps, record_steps
from rsag.errors import unknown_name

__all__ = [
    "TRAINING_STEPS",
    "Stack",
    "State",
    "TrainingProgram",
    "TrainingStep",
    "find_steps",
    "record_all_steps",
    "record_steps",
]

TRAINING_STEPS: tuple[TrainingStep, ...] = (
    replicated.DDP,
    zero.ZERO1,
    zero.ZERO2,
    fsdp.FSDP,
    fsdp.FSDP_KEPT,
    replicated.MISTAKE,
    torch_ddp.TORCH_DDP,
    torch_ddp.TORCH_DDP_VIEWS,
    torch_ddp.TORCH_ZERO,
    fully_shard.TORCH_FULLY_SHARD,
)
"""The textbook's first, then torch's own with the buffers that it really holds."""


def find_steps(name: str) -> tuple[TrainingStep, ...]:
    """The step called `name`, or else all whose names begin so; UsageError with the nearest where there is none."""
    exact = tuple(step for step in TRAINING_STEPS if step.name == name)
    found = exact or tuple(step for step in TRAINING_STEPS if name and step.name.startswith(name))
    if not found:
        raise unknown_name("training step", name, (step.name for step in TRAINING_STEPS))
    return found
