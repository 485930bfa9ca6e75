"""What the library itself says it was asked for and chose: a pass with NCCL's log on, each arm once, nothing timed.

NCCL reads its variables when the first communicator is made, so this pass has processes of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
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
from rsag.records.protocol import Choice, LoggedCall, ProtocolRow, Protocols

_LOG = "NCCL_DEBUG_FILE"


def switch_log_on(environment: MutableMapping[str, str] = os.environ) -> None:
    """Before NCCL starts, let it write into a file of this process alone what it is asked for and what it chooses."""
    log = Path(tempfile.mkdtemp(prefix="rsag-nccl-")) / "nccl.log"
    environment.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING,COLL", _LOG: str(log)})


def observe_protocols(context: Context) -> Protocols:
    """What this rank's log says; rank 0's is the one in which NCCL says what it chose. Collective."""
    log = _Log(context, Path(os.environ[_LOG]))
    try:
        latency, kernels = context.plan.latency, context.plan.kernels
        return Protocols(
            world_size=context.world_size,
            rows=(
                *(() if latency is None else _of_latency(context, latency, log)),
                *(() if kernels is None else _of_ranges(context, kernels, log)),
            ),
            counts=() if kernels is None else tuple(_of_padded(context, kernels, log)),
        )
    finally:
        shutil.rmtree(log.path.parent, ignore_errors=True)


def _of_latency(context: Context, plan: LatencyPlan, log: _Log) -> Iterator[ProtocolRow]:
    for case in plan.wire_cases:
        for arm, programs in zip(plan.arms, case_programs(context, plan, case)):
            if programs is not None and arm.role is not ArmRole.CONTROL:
                choices = log.choices(programs, case, arm.buffers)
                yield ProtocolRow(bytes=case.bytes, composition=arm.composition, buffers=arm.buffers, choices=choices)


def _of_ranges(context: Context, plan: KernelsPlan, log: _Log) -> Iterator[ProtocolRow]:
    for arm in plan.arms:
        programs = _programs(context, plan, arm.composition, plan.bytes // plan.dtype.itemsize)
        choices = log.choices(programs, _case(plan, plan.bytes), Buffers.PLAIN)
        yield ProtocolRow(bytes=plan.bytes, composition=arm.composition, choices=choices)


def _of_padded(context: Context, plan: KernelsPlan, log: _Log) -> Iterator[LoggedCount]:
    numel = plan.padded_numel
    case = _case(plan, numel * plan.dtype.itemsize)
    for name in plan.padded:
        for line in log.lines(_programs(context, plan, name, numel), case, Buffers.PLAIN):
            call = LoggedCall.parse(line)
            if call is not None:
                yield LoggedCount(
                    composition=name, numel=numel, function=call.function, count=call.count, dtype=call.dtype
                )


def _programs(context: Context, plan: KernelsPlan, composition: str, numel: int) -> tuple[Program, ...]:
    return record_all(find(composition), world_size=context.world_size, numel=numel, op=plan.op)


def _case(plan: KernelsPlan, num_bytes: int) -> Case:
    return Case(bytes=num_bytes, dtype=plan.dtype, op=plan.op, clock=Clock.EAGER, calls=1)


class _Log:
    """This process's NCCL log, read call by call."""

    def __init__(self, context: Context, path: Path) -> None:
        self._context, self.path = context, path

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
        if not self.path.exists():
            return []
        return self.path.read_bytes()[read:].decode(errors="replace").splitlines()

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _finish(self) -> None:
        torch.cuda.synchronize()
        dist.barrier(group=self._context.control)
