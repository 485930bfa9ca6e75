"""The owning carrier: a program run once, with its buffers allocated and freed for real.

Release means that the memory is given back, not that a name is dropped: the caller and the composition still hold the
tensor, so its storage is shrunk to nothing. On a CUDA stream that is safe for what ran on the *current* stream, in
whose order the allocator reuses it; work started beside it is waited for first, as the recorder demands.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rsag.carriers.calls import Calls
from rsag.carriers.groups import Groups
from rsag.carriers.tensors import flatten
from rsag.carriers.torch_types import dtype_name
from rsag.errors import UnsupportedError, UsageError
from rsag.programs import Alloc, Program, Release, View


def run_owning(program: Program, tensor: Tensor, groups: Groups) -> Tensor:
    """Run `program` on `tensor` and return its result, 1-D.

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
            _free(buffers.pop(step.view.buffer))
        else:
            call = calls.make(step)
            if call is not None:
                call()
    result = at(program.result)
    if program.consumes:
        if flat.copied:
            _free(tensor)
    else:
        flat.copy_back(tensor)
    return result


def _free(tensor: Tensor) -> None:
    tensor.untyped_storage().resize_(0)


def _require_own_storage(tensor: Tensor) -> None:
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        raise UnsupportedError(
            "a consumed input must own its memory",
            got=f"a view into {tensor.untyped_storage().nbytes()} bytes of {dtype_name(tensor.dtype)}",
            do="give the whole tensor away, or use a composition that works in place",
        )
