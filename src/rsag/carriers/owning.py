"""The owning carrier: a program run once, with its buffers allocated and freed for real.

What release means is written in one place, `release_memory`. What a program really holds is measured on this carrier,
by an observer that is told of each instruction when it is done.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rsag.carriers.calls import Calls
from rsag.carriers.groups import Groups
from rsag.carriers.tensors import flatten
from rsag.carriers.torch_types import dtype_name
from rsag.errors import UnsupportedError, UsageError
from rsag.programs import Alloc, Instruction, Program, Release, View

Observe = Callable[[Instruction], None]


def run_owning(program: Program, tensor: Tensor, groups: Groups, *, observe: Observe | None = None) -> Tensor:
    """Run `program` on `tensor` and return its result, 1-D; `observe` is called after each instruction.

    A composition that consumes its input frees `tensor`'s memory; any other leaves it alive, changed where it works in
    place. Raises UnsupportedError for a tensor that cannot be given to a collective, UsageError for one of another
    size.
    """
    if program.rank != groups.rank:
        raise UsageError("another rank's program", got=program.rank, expected=groups.rank)
    flat = flatten(tensor)
    if flat.tensor.numel() != len(program.input):
        raise UsageError(
            f"{program.composition} was recorded for another size", got=flat.tensor.numel(), expected=len(program.input)
        )
    if program.consumes:
        _require_own_storage(tensor)
    buffers = {program.input.buffer: flat.tensor}

    def at(view: View) -> Tensor:
        return buffers[view.buffer][view.start : view.stop]

    calls = Calls(program, groups, at, tensor.dtype)
    for step in program.code:
        if isinstance(step, Alloc):
            if step.view != program.input:
                buffers[step.view.buffer] = torch.empty(len(step.view), dtype=tensor.dtype, device=tensor.device)
        elif isinstance(step, Release):
            release_memory(buffers.pop(step.view.buffer))
        else:
            call = calls.make(step)
            if call is not None:
                call()
        if observe is not None:
            observe(step)
    result = at(program.result)
    if program.consumes:
        if flat.copied:
            release_memory(tensor)
    else:
        flat.copy_back(tensor)
    return result


def release_memory(tensor: Tensor) -> None:
    """Give `tensor`'s memory back now, whoever still holds the tensor: its storage is shrunk to nothing.

    Dropping a name would not do: the caller and the composition hold the tensor too. On a CUDA stream the device may
    still be reading. What is queued on the stream that the memory was allocated on is no danger, since the allocator
    hands it out again in that stream's order; for any other stream `record_stream` makes the allocator wait for what is
    queued now. A collective's own stream is ordered by its wait, which `record` asks for before a release and which
    lets go of the reference that the work holds.
    """
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    tensor.untyped_storage().resize_(0)


def _require_own_storage(tensor: Tensor) -> None:
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        raise UnsupportedError(
            "a consumed input must own its memory",
            got=f"a view into {tensor.untyped_storage().nbytes()} bytes of {dtype_name(tensor.dtype)}",
            do="give the whole tensor away, or use a composition that works in place",
        )
