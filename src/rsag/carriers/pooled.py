"""The pooled carrier: a program bound to tensors that are kept for good. What is timed and captured.

When it runs, nothing is allocated, sliced, looked up or freed; its memory is therefore *not* the program's (see the
owning carrier).
"""

from __future__ import annotations

import torch
from torch import Tensor

from rsag.carriers.calls import Call, Calls
from rsag.carriers.groups import Groups
from rsag.carriers.memory import Memory, Plain
from rsag.errors import UsageError
from rsag.programs import Alloc, Program, Release, View


class Pooled:
    """`program` on tensors of its own, cut from `memory`: fill `input`, call, read `result`; `between` are the others.

    `input` and `result` are 1-D; where the composition works in place they are one memory.
    """

    def __init__(
        self,
        program: Program,
        groups: Groups,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        memory: Memory | None = None,
    ) -> None:
        if program.rank != groups.rank:
            raise UsageError("another rank's program", got=program.rank, expected=groups.rank)
        own = Plain(torch.device(device)) if memory is None else memory
        self._buffers = {
            step.view.buffer: own.empty(len(step.view), dtype) for step in program.code if isinstance(step, Alloc)
        }
        self.input = self._at(program.input)
        self.result = self._at(program.result)
        ends = {program.input.buffer, program.result.buffer}
        self.between = [tensor for buffer, tensor in self._buffers.items() if buffer not in ends]
        calls = Calls(program, groups, self._at, dtype)
        made = [calls.make(step) for step in program.code if not isinstance(step, (Alloc, Release))]
        self._calls: tuple[Call, ...] = tuple(call for call in made if call is not None)

    def _at(self, view: View) -> Tensor:
        return self._buffers[view.buffer][view.start : view.stop]

    def __call__(self) -> None:
        """Run the composition once, in place on the tensors it is bound to."""
        for call in self._calls:
            call()
