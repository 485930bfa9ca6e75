"""Runs by hand, for what looks at several of them: as judged values, and as run directories with known times."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from rsag.analyze.judged import JudgedRun
from rsag.plan import make_plan
from rsag.plan.latency import plan_latency
from rsag.records.codec import dump_document, encode
from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.jsonl import RowWriter
from rsag.records.latency import (
    ArmRole,
    Case,
    Clock,
    LatencyPlan,
    LatencyRow,
    LookRow,
    Reason,
    ReasonCode,
    RoundRow,
    TimedArm,
    TimeOutcome,
    cycle_order,
)
from rsag.records.plan import Backend, Experiment, Plan
from rsag.records.run import RankInfo, Run, RunOutcome
from rsag.records.rundir import PLAN, RUN, rank_file
from rsag.records.verdict import Verdict, VerdictOutcome
from rsag.reduction import DType, ReduceOp
from rsag.stats import Stop
from rsag.units import MIB

CASE = Case(bytes=MIB, dtype=DType.FLOAT32, op=ReduceOp.SUM, clock=Clock.CPU, calls=1)
DIRECT = TimedArm(role=ArmRole.DIRECT, composition="all_reduce")
CANDIDATE = TimedArm(role=ArmRole.CANDIDATE, composition="rs_ag_in_place")
CONTROL = TimedArm(role=ArmRole.CONTROL, composition="all_reduce")
AA_DIFFERS = Reason(code=ReasonCode.AA_DIFFERS, message="all_reduce against itself: 1.1 to 1.2")


@functools.cache
def plan(*, seed: int = 0, world_size: int = 2) -> Plan:
    """1 MiB on Gloo ranks: direct, one candidate, the control, the empty call."""
    timing = plan_latency(world_size=world_size, backend=Backend.GLOO, sizes=(MIB,))
    return make_plan(
        world_size=world_size,
        backend=Backend.GLOO,
        experiments=(Experiment.LATENCY,),
        seed=seed,
        latency=timing,
    )


def timing_of(plan: Plan) -> LatencyPlan:
    assert plan.latency is not None
    return plan.latency


def rank_info(rank: int = 0, **changed: object) -> RankInfo:
    info = RankInfo(
        rank=rank,
        world_size=2,
        local_rank=rank,
        host="node7",
        pid=4000 + rank,
        device="x86_64",
        backend=Backend.GLOO,
        versions={"python": "3.11.7", "torch": "2.13.0"},
        collective_names={},
        environment={"GLOO_SOCKET_IFNAME": "lo"},
    )
    return dataclasses.replace(info, **changed)  # type: ignore[arg-type]


def rank_start(plan: Plan, rank: int) -> dict[str, object]:
    """What the first line of a rank's file says of it."""
    info = rank_info(rank, world_size=plan.world_size, backend=plan.backend)
    return cast("dict[str, object]", encode(info))


def run(number: int, *, ranks: Sequence[RankInfo] | None = None) -> Run:
    """The `number`th launch of a day."""
    return Run(
        started_utc=f"2026-07-10T08:{number:02d}:00Z",
        rsag_version="0.1.0",
        launcher="local",
        command="rsag run",
        platform="Linux",
        outcome=RunOutcome.COMPLETE,
        message="",
        seconds=10.0,
        ranks=tuple(ranks or (rank_info(0), rank_info(1))),
    )


# -------------------------------------------------------------------------------------------------------- judged values


def row(
    arm: TimedArm,
    ratio: float = 1.0,
    *,
    case: Case = CASE,
    median_us: float | None = 100.0,
    outcome: TimeOutcome | None = None,
    interval: tuple[float, float] | None = None,
    reasons: Sequence[Reason] = (),
) -> LatencyRow:
    """A row whose rounds are centred on `ratio`. Outcome and interval are as given, whatever the rounds say."""
    compared = arm.role in (ArmRole.CANDIDATE, ArmRole.CONTROL) and outcome is not TimeOutcome.INVALID
    answered = outcome in (TimeOutcome.SLOWER, TimeOutcome.FASTER)
    return LatencyRow(
        bytes=case.bytes,
        dtype=case.dtype,
        op=case.op,
        composition=arm.composition,
        role=arm.role,
        buffers=arm.buffers,
        settings=arm.settings,
        clock=case.clock,
        calls=case.calls,
        outcome=outcome,
        ratio=ratio if answered else None,
        interval=interval,
        median_us=median_us,
        rounds=3,
        stop=None,
        round_values=tuple(math.log(ratio) + off for off in (-0.01, 0.0, 0.01)) if compared else (),
        cv_ratio=None,
        predicted=None,
        reasons=tuple(reasons),
    )


def judged(
    number: int,
    *rows: LatencyRow,
    plan_of_run: Plan | None = None,
    run_of_run: Run | None = None,
    contracts: Mapping[tuple[str, int], ContractOutcome] | None = None,
) -> JudgedRun:
    """The `number`th launch, of which `rows` were found."""
    found = [
        ContractRow(contract=contract, rank=rank, outcome=outcome, expected="", got="", reason="")
        for (contract, rank), outcome in (contracts or {}).items()
    ]
    return JudgedRun(
        directory=f"run-{number}",
        plan=plan_of_run or plan(),
        run=run_of_run or run(number),
        verdict=Verdict(
            outcome=VerdictOutcome.PASS, reasons=(), equivalence=(), contracts=tuple(found), latency=tuple(rows)
        ),
    )


# ----------------------------------------------------------------------------------------------------- run directories


def write_run(
    directory: Path, number: int, *, ratio: float = 1.2, plan_of_run: Plan | None = None, **rank: object
) -> Path:
    """A whole run directory: the candidate takes `ratio` times the direct arm's 100 us, always."""
    directory.mkdir()
    own = plan_of_run or plan(seed=number)
    ranks = [rank_info(index, pid=1000 * number + index, **rank) for index in range(own.world_size)]
    dump_document(own, directory / PLAN)
    dump_document(run(number, ranks=ranks), directory / RUN)
    stop = Stop.PRECISE if ratio == 1 else Stop.DIRECTION
    look = LookRow(case=0, rounds=12, stops=(None, stop, Stop.PRECISE, None), went_on=False)
    for info in ranks:
        start = cast("dict[str, object]", encode(info))
        with RowWriter(rank_file(directory, info.rank), start=start) as writer:
            for round_number in range(12):
                writer.write(cast("dict[str, object]", encode(_round(own, round_number, ratio))))
            if info.rank == 0:
                writer.write(cast("dict[str, object]", encode(look)))
            writer.end()
    return directory


def _round(plan: Plan, number: int, ratio: float) -> RoundRow:
    order = cycle_order(timing_of(plan), plan.seed, 0, number)
    return RoundRow(
        case=0,
        round=number,
        start_ns=number,
        ns=tuple((ns,) * len(order) for ns in (100_000, round(100_000 * ratio), 100_000, 10)),
        started_us=tuple(1000 * cycle for cycle in range(len(order))),
        wrong=(0,) * len(order[0]),
    )
