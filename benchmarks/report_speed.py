"""How long the page of a large run takes, in how much memory, and how large it is: 1,000 cases on 8 ranks."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

from rsag.plan import make_plan
from rsag.plan.latency import plan_latency
from rsag.records.codec import dump_document, encode
from rsag.records.jsonl import RowWriter
from rsag.records.latency import (
    ArmRole,
    Case,
    Clock,
    LatencyPlan,
    LatencyRow,
    Reason,
    ReasonCode,
    RoundRow,
    TimeOutcome,
)
from rsag.records.plan import Backend, Experiment, Plan
from rsag.records.run import RankInfo, Run, RunOutcome
from rsag.records.rundir import PLAN, RUN, VERDICT, rank_file
from rsag.records.verdict import Verdict, VerdictOutcome
from rsag.stats import Stop
from rsag.units import KIB

NUM_CASES, NUM_RANKS, NUM_ROUNDS = 1000, 8, 10
FACTORS = {ArmRole.DIRECT: 1.0, ArmRole.CANDIDATE: 1.4, ArmRole.CONTROL: 1.0, ArmRole.NULL: 0.05}

PROMISED_S, PROMISED_MB = 5.0, 300.0


def large_plan() -> tuple[Plan, LatencyPlan]:
    """As many cases as asked for, at sizes from 1 KiB up; direct, one candidate, control, null."""
    few = plan_latency(world_size=NUM_RANKS, backend=Backend.NCCL, sizes=(KIB,), clocks=(Clock.GRAPH,))
    case = few.cases[0]
    cases = tuple(dataclasses.replace(case, bytes=KIB * (number + 1)) for number in range(NUM_CASES))
    timing = dataclasses.replace(few, cases=cases, max_rounds=NUM_ROUNDS)
    plan = make_plan(
        world_size=NUM_RANKS, backend=Backend.NCCL, experiments=(Experiment.LATENCY,), seed=0, latency=timing
    )
    return plan, timing


def write_run(directory: Path) -> None:
    """A whole run directory, with times made up."""
    plan, timing = large_plan()
    dump_document(plan, directory / PLAN)
    ranks = tuple(rank_info(rank) for rank in range(NUM_RANKS))
    dump_document(run_of(ranks), directory / RUN)
    rows = tuple(row for case in timing.cases for row in case_rows(case, timing))
    verdict = Verdict(
        outcome=VerdictOutcome.PASS, reasons=(), equivalence=(), contracts=(), latency=rows, sentence="made up"
    )
    dump_document(verdict, directory / VERDICT)
    lines = [json.dumps(encode(one), separators=(",", ":")) for one in rounds(timing)]
    for info in ranks:
        start = cast("dict[str, object]", encode(info))
        with RowWriter(rank_file(directory, info.rank), start=start):
            pass  # the first line alone: the rows are too many to encode one by one
        with rank_file(directory, info.rank).open("a", encoding="ascii") as file:
            for case in range(NUM_CASES):
                file.writelines(line.replace('"case":0', f'"case":{case}', 1) + "\n" for line in lines)
            file.write('{"kind":"end"}\n')


def rounds(timing: LatencyPlan) -> list[RoundRow]:
    coin = random.Random(0)
    num_cycles = timing.warmup_cycles + 2 * timing.blocks
    return [
        RoundRow(
            case=0,
            round=number,
            start_ns=10**15 + number,
            ns=tuple(
                tuple(round(2e5 * FACTORS[arm.role] * math.exp(coin.gauss(0, 0.03))) for _ in range(num_cycles))
                for arm in timing.arms
            ),
            started_us=tuple(1000 * cycle for cycle in range(num_cycles)),
            wrong=(0,) * len(timing.arms),
        )
        for number in range(NUM_ROUNDS)
    ]


def case_rows(case: Case, timing: LatencyPlan) -> list[LatencyRow]:
    skew = Reason(code=ReasonCode.SKEW, message="ranks differ by more than 10 % in 40 of 160 cycles")
    rows = []
    for arm in timing.arms:
        factor = FACTORS[arm.role]
        compared = arm.role.is_compared
        slower = arm.role is ArmRole.CANDIDATE
        rows.append(
            LatencyRow(
                bytes=case.bytes,
                dtype=case.dtype,
                op=case.op,
                composition=arm.composition,
                role=arm.role,
                buffers=arm.buffers,
                settings=arm.settings,
                clock=case.clock,
                calls=case.calls,
                outcome=(TimeOutcome.SLOWER if slower else TimeOutcome.INCONCLUSIVE) if compared else None,
                ratio=factor if slower else None,
                interval=(factor - 0.0123456789, factor + 0.0123456789) if compared else None,
                median_us=200 * factor,
                p95_us=210 * factor,
                p99_us=220 * factor,
                mean_us=201 * factor,
                cv=0.0312345678,
                min_median_us=190 * factor,
                gbps=case.bytes / (200e3 * factor),
                ring_gbps=case.bytes / (200e3 * factor),
                rounds=NUM_ROUNDS,
                stop=Stop.DIRECTION if compared else None,
                round_values=(math.log(factor),) * NUM_ROUNDS if compared else (),
                cv_ratio=factor if compared else None,
                predicted=None,
                reasons=(skew,) if compared else (),
            )
        )
    return rows


def rank_info(rank: int) -> RankInfo:
    return RankInfo(
        rank=rank,
        world_size=NUM_RANKS,
        local_rank=rank,
        host="made-up",
        pid=1000 + rank,
        device="NVIDIA H200",
        backend=Backend.NCCL,
        versions={"python": "3.11.7", "torch": "2.13.0"},
        collective_names={},
        environment={},
    )


def run_of(ranks: tuple[RankInfo, ...]) -> Run:
    return Run(
        started_utc="2026-07-10T08:00:00Z",
        rsag_version="0.1.0",
        launcher="local",
        command="rsag run",
        platform="made up",
        outcome=RunOutcome.COMPLETE,
        message="",
        seconds=1.0,
        ranks=ranks,
    )


def measure(directory: Path) -> tuple[float, float, float]:
    """Seconds, peak megabytes and the page's megabytes of `rsag report`, its start included."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "rsag.cli", "report", str(directory)], stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"rsag report ended with {child.returncode}")
    return seconds, usage.ru_maxrss * 1024 / 1e6, (directory / "report.html").stat().st_size / 1e6


def kept(promise: bool) -> str:
    return "kept" if promise else "MISSED"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rsag-report-") as scratch:
        directory = Path(scratch)
        write_run(directory)
        recorded = sum(path.stat().st_size for path in directory.iterdir()) / 1e6
        seconds, peak, page = measure(directory)
    print(f"report of {NUM_CASES:,} cases x {NUM_RANKS} ranks, {recorded:.0f} MB of records:")
    print(f"  {seconds:.1f} s, promised under {PROMISED_S:g} s: {kept(seconds < PROMISED_S)}")
    print(f"  {peak:.0f} MB of memory at the peak, promised under {PROMISED_MB:g} MB: {kept(peak < PROMISED_MB)}")
    print(f"  {page:.2f} MB of page")


if __name__ == "__main__":
    main()
