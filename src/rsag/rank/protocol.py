"""What the library itself says it chose: a pass with NCCL's log on, each arm once, nothing timed.

NCCL reads its variables when the first communicator is made, so this pass has processes of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.rank.bench import Arm
from rsag.rank.context import Context
from rsag.rank.latency import case_programs
from rsag.rank.tiles import Tiles
from rsag.records.latency import ArmRole
from rsag.records.protocol import Choice, ProtocolRow

LOG_VARIABLE = "NCCL_DEBUG_FILE"


def observe_protocols(context: Context, environment: Mapping[str, str] = os.environ) -> None:
    """One row per payload and arm, by rank 0, which is the one that NCCL lets say what it chose."""
    plan = context.plan.latency
    if plan is None:
        return
    log = Path(environment[LOG_VARIABLE].replace("%p", str(os.getpid())))
    for case in plan.wire_cases:
        tiles = Tiles(case.op, case.dtype, context.world_size, context.device)
        for arm, programs in enumerate(case_programs(context, plan, case)):
            if programs is None or plan.arms[arm].role is ArmRole.CONTROL:
                continue
            mine, kind = programs[context.rank], plan.arms[arm].buffers
            with Groups(programs) as groups, Arm(mine, groups, tiles, case, context.device, buffers=kind) as bound:
                bound.call()  # the first call also makes what it needs
                torch.cuda.synchronize()
                dist.barrier(group=context.control)
                read = log.stat().st_size if log.exists() else 0
                bound.call()
                torch.cuda.synchronize()
                dist.barrier(group=context.control)
            if context.rank == 0:
                lines = log.read_bytes()[read:].decode(errors="replace").splitlines() if log.exists() else []
                choices = tuple(choice for choice in map(Choice.parse, lines) if choice is not None)
                name = plan.arms[arm].composition
                context.write(ProtocolRow(bytes=case.bytes, composition=name, buffers=kind, choices=choices))
