"""What the library itself says it was asked for and chose: a pass with NCCL's log on, each arm once, nothing timed.

NCCL reads its variables when the first communicator is made, so this pass has processes of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.compositions import find
from rsag.programs import Program, record_all
from rsag.rank.bench import Arm
from rsag.rank.context import Context
from rsag.rank.latency import case_programs
from rsag.rank.tiles import Tiles
from rsag.records.execution import KernelsPlan, LoggedCount
from rsag.records.latency import ArmRole, Buffers, Case, Clock, LatencyPlan
from rsag.records.protocol import Choice, CountsRow, LoggedCall, ProtocolRow

LOG_VARIABLE = "NCCL_DEBUG_FILE"


def observe_protocols(context: Context, environment: Mapping[str, str] = os.environ) -> None:
    """Rows by rank 0, which is the one that NCCL lets say what it chose."""
    log = _Log(context, Path(environment[LOG_VARIABLE].replace("%p", str(os.getpid()))))
    if context.plan.latency is not None:
        _of_latency(context, context.plan.latency, log)
    if context.plan.kernels is not None:
        _of_kernels(context, context.plan.kernels, log)


def _of_latency(context: Context, plan: LatencyPlan, log: _Log) -> None:
    for case in plan.wire_cases:
        for arm, programs in zip(plan.arms, case_programs(context, plan, case)):
            if programs is not None and arm.role is not ArmRole.CONTROL:
                choices = log.choices(programs, case, arm.buffers)
                _write(
                    context,
                    ProtocolRow(bytes=case.bytes, composition=arm.composition, buffers=arm.buffers, choices=choices),
                )


def _of_kernels(context: Context, plan: KernelsPlan, log: _Log) -> None:
    def case_of(num_bytes: int) -> Case:
        return Case(bytes=num_bytes, dtype=plan.dtype, op=plan.op, clock=Clock.EAGER, calls=1)

    def programs_of(composition: str, numel: int) -> tuple[Program, ...]:
        return record_all(find(composition), world_size=context.world_size, numel=numel, op=plan.op)

    for arm in plan.arms:
        programs = programs_of(arm.composition, plan.bytes // plan.dtype.itemsize)
        choices = log.choices(programs, case_of(plan.bytes), Buffers.PLAIN)
        _write(context, ProtocolRow(bytes=plan.bytes, composition=arm.composition, choices=choices))
    for name in plan.padded:
        numel = plan.padded_numel
        lines = log.lines(programs_of(name, numel), case_of(numel * plan.dtype.itemsize), Buffers.PLAIN)
        counts = tuple(
            LoggedCount(composition=name, numel=numel, function=call.function, count=call.count, dtype=call.dtype)
            for call in map(LoggedCall.parse, lines)
            if call is not None
        )
        _write(context, CountsRow(counts=counts))


def _write(context: Context, row: ProtocolRow | CountsRow) -> None:
    if context.rank == 0:
        context.write(row)


class _Log:
    """This process's NCCL log, read call by call."""

    def __init__(self, context: Context, path: Path) -> None:
        self._context, self._path = context, path

    def choices(self, programs: Sequence[Program], case: Case, buffers: Buffers) -> tuple[Choice, ...]:
        lines = self.lines(programs, case, buffers)
        return tuple(choice for choice in map(Choice.parse, lines) if choice is not None)

    def lines(self, programs: Sequence[Program], case: Case, buffers: Buffers) -> list[str]:
        """What one call of these programs adds to the log. Collective."""
        context = self._context
        tiles = Tiles(case.op, case.dtype, context.world_size, context.device)
        mine = programs[context.rank]
        with Groups(programs) as groups, Arm(mine, groups, tiles, case, context.device, buffers=buffers) as bound:
            bound.call()  # the first call also makes what it needs
            self._finish()
            read = self._size()
            bound.call()
            self._finish()
        if not self._path.exists():
            return []
        return self._path.read_bytes()[read:].decode(errors="replace").splitlines()

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _finish(self) -> None:
        torch.cuda.synchronize()
        dist.barrier(group=self._context.control)
