"""The latency experiment: every case's rounds, and after some of them a look that rank 0 decides for all."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from rsag.carriers.groups import Groups
from rsag.compositions import find
from rsag.errors import UnsupportedError
from rsag.programs import Program, record_all
from rsag.rank.bench import Bench, CpuBench, EagerBench, GraphBench, Setup, most_bytes
from rsag.rank.context import Context
from rsag.rank.rounds import run_round
from rsag.rank.throttle import held_down
from rsag.rank.tiles import Tiles
from rsag.records.latency import (
    ArmRole,
    Case,
    CaseEnd,
    Clock,
    LatencyPlan,
    LookRow,
    RoundRow,
    cycle_order,
    decide_arm,
    round_seed,
)
from rsag.stats import LOOKS, Decision, round_value

MEMORY_SHARE = 0.8
BENCHES: dict[Clock, Callable[[Setup], Bench]] = {
    Clock.CPU: CpuBench,
    Clock.EAGER: EagerBench,
    Clock.GRAPH: GraphBench,
}


def observe_latency(context: Context) -> None:
    """Time every case of the plan, in its order."""
    plan = context.plan.latency
    if plan is None or not plan.cases:
        return
    graphs = _graph_group(context, plan.cases)
    for index, case in enumerate(plan.cases):
        reason = _measure(context, plan, index, case, graphs)
        if reason is not None:
            context.write(CaseEnd(case=index, reason=reason))
    if graphs is not None:
        dist.destroy_process_group(graphs)


def _graph_group(context: Context, cases: Sequence[Case]) -> Any:
    """A communicator for graphs alone: NCCL's support for mixing graphs and eager calls on one costs both."""
    if not any(case.clock is Clock.GRAPH for case in cases):
        return None
    return dist.new_group(list(range(context.world_size)))


def case_programs(context: Context, plan: LatencyPlan, case: Case) -> list[tuple[Program, ...] | None]:
    """Every rank's program of each arm; None for the null arm. The payload must divide over the ranks."""
    numel = case.bytes // case.dtype.itemsize
    return [
        None
        if arm.role is ArmRole.NULL
        else record_all(find(arm.composition), world_size=context.world_size, numel=numel, op=case.op)
        for arm in plan.arms
    ]


def _measure(context: Context, plan: LatencyPlan, index: int, case: Case, graphs: Any) -> str | None:
    """Run the case's rounds; why it was not measured, or None."""
    programs = case_programs(context, plan, case)
    mine = [None if row is None else row[context.rank] for row in programs]
    why = _why_too_large(context, case, mine)
    if why is not None:
        return why
    every = [program for row in programs if row is not None for program in row]
    with Groups(every, graphs if case.clock is Clock.GRAPH else None) as groups:
        bench: Bench = BENCHES[case.clock](
            Setup(
                case=case,
                programs=mine,
                buffers=[arm.buffers for arm in plan.arms],
                groups=groups,
                tiles=Tiles(case.op, case.dtype, context.world_size, context.device),
                device=context.device,
                control=context.control,
            )
        )
        try:
            _run_rounds(context, plan, index, bench)
        except UnsupportedError as error:
            bench.close()
            return str(error)
    return None


def _run_rounds(context: Context, plan: LatencyPlan, index: int, bench: Bench) -> None:
    looks = {look.rounds for look in LOOKS}
    counters = held_down(context.device)
    rows: list[RoundRow] = []
    merged: list[list[list[int]]] = []
    for number in range(plan.max_rounds):
        row = run_round(
            bench,
            case=index,
            number=number,
            order=cycle_order(plan, context.plan.seed, index, number),
            seed=round_seed(context.plan.seed, index, number),
            held_down=counters,
        )
        context.write(row)
        rows.append(row)
        if number + 1 in looks or number + 1 == plan.max_rounds:
            merged += _merge(context, rows[len(merged) :])
            if not _look(context, plan, index, merged):
                return


def _merge(context: Context, rows: Sequence[RoundRow]) -> list[list[list[int]]]:
    """These rounds' per-cycle maxima over ranks, [round][arm][cycle]: the critical rank's times."""
    times = torch.tensor([row.ns for row in rows], dtype=torch.int64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX, group=context.control)
    maxima: list[list[list[int]]] = times.tolist()
    return maxima


def _look(context: Context, plan: LatencyPlan, index: int, merged: Sequence[Sequence[Sequence[int]]]) -> bool:
    """Whether to go on. Rank 0 decides and writes the decision down; the judge comes to it again from the rows."""
    go_on = torch.zeros(1, dtype=torch.int64)
    if context.rank == 0:
        decisions = decide_arms(plan, merged)
        asked = [made for arm, made in zip(plan.arms, decisions) if arm.role is ArmRole.CANDIDATE]
        undecided = any(made is None or made.stop is None for made in asked)
        go_on[0] = int(undecided and len(merged) < plan.max_rounds)
        look = LookRow(
            case=index,
            rounds=len(merged),
            stops=tuple(None if made is None else made.stop for made in decisions),
            went_on=bool(go_on),
            ratios=tuple(None if made is None else _ratio(made) for made in decisions),
        )
        context.write(look)
    dist.broadcast(go_on, 0, group=context.control)
    return bool(go_on)


def decide_arms(plan: LatencyPlan, merged: Sequence[Sequence[Sequence[int]]]) -> list[Decision | None]:
    """Each arm's decision against the direct one, from the rounds so far; None for an arm that is not compared."""
    decisions: list[Decision | None] = []
    for arm, one in enumerate(plan.arms):
        if not one.role.is_compared:
            decisions.append(None)
            continue
        direct = plan.reference(arm)
        values = [round_value(row[direct][plan.warmup_cycles :], row[arm][plan.warmup_cycles :]) for row in merged]
        decisions.append(decide_arm(plan, one.role, values))
    return decisions


def _ratio(decision: Decision) -> tuple[float, float, float] | None:
    found = decision.interval
    if math.isinf(found.low) or math.isinf(found.high):
        return None
    return math.exp(found.estimate), math.exp(found.low), math.exp(found.high)


def _why_too_large(context: Context, case: Case, programs: Sequence[Program | None]) -> str | None:
    """The case's buffers, pads and chunks must fit into what is free on every rank's device, all arms at once."""
    if context.device.type != "cuda":
        return None
    needed = sum(most_bytes(case, program, context.device) for program in programs)
    gc.collect()
    torch.cuda.empty_cache()  # what torch keeps of the case before is not free for the driver
    free, _ = torch.cuda.mem_get_info(context.device)
    short = torch.tensor([int(needed > MEMORY_SHARE * free)])
    dist.all_reduce(short, group=context.control)
    if not short.item():
        return None
    return f"its buffers take {needed} bytes, more than {MEMORY_SHARE:.0%} of what is free; use fewer calls per timing"
