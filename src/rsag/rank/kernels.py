"""The kernels experiment: each arm's calls in a range of its own, under a profiler, and the endpoint checked.

The trace is the record: the judge reads kernels, launches and calls from it as from any other tool's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.compositions import find
from rsag.programs import record_all
from rsag.rank.bench import Arm
from rsag.rank.context import Context
from rsag.rank.profiled import count_in, marked, profiled
from rsag.rank.tiles import Tiles
from rsag.records.execution import ExecutionRow, KernelsPlan
from rsag.records.latency import Case, Clock
from rsag.records.rundir import trace_file


def observe_kernels(context: Context) -> None:
    """One row per arm, and the rank's trace."""
    plan = context.plan.kernels
    if plan is None:
        return
    on_device = context.device.type == "cuda"
    case = Case(bytes=plan.bytes, dtype=plan.dtype, op=plan.op, clock=Clock.EAGER, calls=plan.calls)
    tiles = Tiles(plan.op, plan.dtype, context.world_size, context.device)
    numel = plan.bytes // plan.dtype.itemsize
    programs = [
        record_all(find(arm.composition), world_size=context.world_size, numel=numel, op=plan.op) for arm in plan.arms
    ]
    with Groups([program for row in programs for program in row]) as groups:
        arms = [Arm(row[context.rank], groups, tiles, case, context.device, calls=plan.calls) for row in programs]
        for row in _run(context, plan, arms, on_device=on_device):
            context.write(row)
        for arm in arms:
            arm.close()


def _run(context: Context, plan: KernelsPlan, arms: list[Arm], *, on_device: bool) -> list[ExecutionRow]:
    group: Any = dist.group.WORLD
    for arm in arms:
        for _ in range(plan.warmup_calls):
            arm.sets[0]()
        arm.reset()
    _finish(context)
    works = []
    with profiled(trace_file(context.out, context.rank), on_device=on_device) as found:
        for arm, marking in zip(arms, plan.arms):
            before = group._get_sequence_number_for_group()
            with marked(marking.range, on_device=on_device):
                arm.call()
            works.append(group._get_sequence_number_for_group() - before)
            _finish(context)
    rows = []
    for index, (arm, marking) in enumerate(zip(arms, plan.arms)):
        arm.check()
        counted = count_in(found, marking.range, on_device=on_device, calls="c10d::", works=works[index])
        rows.append(ExecutionRow(arm=index, wrong=arm.num_wrong(), counted=counted))
    return rows


def _finish(context: Context) -> None:
    if context.device.type == "cuda":
        torch.cuda.synchronize()
    dist.barrier(group=context.control)
