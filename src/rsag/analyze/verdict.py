"""A run directory to a verdict: the four meanings of the equation first, each with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rsag.analyze.claims import run_sentence
from rsag.analyze.contracts import OBSERVATION, judge_contracts
from rsag.analyze.execution import judge_execution, judge_meaning
from rsag.analyze.latency import TimingRow, judge_latency
from rsag.analyze.meanings import judge_result, judge_steps
from rsag.analyze.memory import judge_memory, judge_state
from rsag.analyze.protocol import with_protocols
from rsag.analyze.recorded import Recorded, read_recorded
from rsag.analyze.wire import judge_wire
from rsag.errors import RecordError
from rsag.records.codec import load_document
from rsag.records.contracts import ContractOutcome, ContractRow, Observation
from rsag.records.execution import ExecutionRow, NativeProbe
from rsag.records.latency import CaseEnd, LatencyRow, LookRow, ReasonCode, RoundRow, WireRow, WireVerdict
from rsag.records.memory import MemoryRow
from rsag.records.plan import Experiment, Plan
from rsag.records.proof import Proofs
from rsag.records.protocol import Protocols
from rsag.records.run import Run
from rsag.records.rundir import NATIVE, PLAN, PROOFS, PROTOCOLS, RUN, require_run_directory
from rsag.records.verdict import Verdict, VerdictOutcome


def judge(directory: Path) -> Verdict:
    """Judge what is in `directory`.

    Raises RecordError for a file that cannot be read or is of another run, UsageError where there is no run.
    """
    plan = load_document(Plan, require_run_directory(directory) / PLAN)
    proofs = load_document(Proofs, directory / PROOFS) if (directory / PROOFS).exists() else None
    protocols = _protocols(plan, directory / PROTOCOLS)
    ranks = read_recorded(plan, directory)
    rows: tuple[ContractRow, ...] = ()
    if Experiment.CONTRACTS in plan.experiments:
        rows = judge_contracts(plan, _of(ranks, Observation))
    wire = judge_wire(plan, _of(ranks, WireRow), protocols)
    memory = judge_memory(plan, _of(ranks, MemoryRow))
    latency = _latency(plan, ranks, wire, protocols)
    native = load_document(NativeProbe, directory / NATIVE) if (directory / NATIVE).exists() else None
    execution = judge_execution(plan, directory, _of(ranks, ExecutionRow), native, protocols)
    launcher = _launcher(directory)
    problems = [*_problems(plan, proofs, ranks, launcher), *_of_latency(latency, _DAMAGED), *execution.problems]
    reasons = [*problems, *_against(rows), *_of_latency(latency, {ReasonCode.WRONG_RESULT}), *execution.wrong]
    if proofs is not None:
        reasons += [f"{row.composition} is refuted under {row.op.value}" for row in proofs.refuted]
    outcome = VerdictOutcome.PASS if not reasons else VerdictOutcome.FAIL
    return Verdict(
        outcome=VerdictOutcome.INVALID if problems else outcome,
        reasons=tuple(reasons),
        equivalence=(
            judge_result(
                plan,
                proofs,
                [row for row in rows if row.expected != OBSERVATION],
                (row for own in _of(ranks, RoundRow).values() for row in own),
                (row for own in _of(ranks, ExecutionRow).values() for row in own),
                complete=not problems and all(row.expected != OBSERVATION for row in rows),
            ),
            judge_steps(plan, wire),
            judge_meaning(plan, execution),
            judge_state(plan, memory),
        ),
        contracts=rows,
        latency=latency,
        wire=wire,
        memory=memory,
        kernels=execution.probes,
        boundaries=execution.boundaries,
        logged=() if protocols is None else protocols.counts,
        sentence=run_sentence(latency),
    )


def _latency(
    plan: Plan, ranks: Mapping[int, Recorded], wire: Sequence[WireVerdict], protocols: Protocols | None
) -> tuple[LatencyRow, ...]:
    if Experiment.LATENCY not in plan.experiments:
        return ()
    timed: dict[int, list[TimingRow]] = {
        rank: [*one.of(RoundRow), *one.of(LookRow), *one.of(CaseEnd)] for rank, one in ranks.items()
    }
    rows = judge_latency(plan, timed, wire)
    return rows if protocols is None else with_protocols(rows, protocols)


def _against(rows: Sequence[ContractRow]) -> list[str]:
    """Contracts that fail, and how many rows there are of which nothing was observed."""
    unseen = sum(row.expected == OBSERVATION for row in rows)
    failed = Counter(
        row.contract for row in rows if row.outcome is ContractOutcome.FAIL and row.expected != OBSERVATION
    )
    reasons = [f"{contract} fails on {count} ranks" for contract, count in failed.items()]
    return [*reasons, *([f"{unseen} contract rows were never observed"] if unseen else [])]


def _launcher(directory: Path) -> str | None:
    return load_document(Run, directory / RUN).launcher if (directory / RUN).exists() else None


def _protocols(plan: Plan, path: Path) -> Protocols | None:
    """What NCCL said in a launch of its own. Raises RecordError for another number of ranks."""
    found = load_document(Protocols, path) if path.exists() else None
    if found is not None and found.world_size not in (None, plan.world_size):
        raise RecordError(
            f"{path}: of another number of ranks",
            got=found.world_size,
            expected=plan.world_size,
            do="ask NCCL with this run's plan, or take the file away",
        )
    return found


R = TypeVar("R")

_DAMAGED = {ReasonCode.NO_RECORDS, ReasonCode.BAD_TIMES, ReasonCode.DECISION_DIFFERS}
"""Flaws of the records, so that the run cannot be judged whole; that A/A differs is a finding about one case."""


def _of(ranks: Mapping[int, Recorded], kind: type[R]) -> dict[int, list[R]]:
    return {rank: one.of(kind) for rank, one in ranks.items()}


def _of_latency(rows: Sequence[LatencyRow], codes: set[ReasonCode]) -> list[str]:
    """What rows say under these codes, each thing once with the number of cases that it is said of."""
    cases: dict[str, set[tuple[object, ...]]] = {}
    for row in rows:
        for reason in row.reasons:
            if reason.code in codes:
                cases.setdefault(reason.message, set()).add((row.bytes, row.dtype, row.op, row.clock, row.calls))
    return [
        f"latency: {message} ({len(where)} {'case' if len(where) == 1 else 'cases'})"
        for message, where in cases.items()
    ]


def _problems(plan: Plan, proofs: Proofs | None, ranks: Mapping[int, Recorded], launcher: str | None) -> list[str]:
    """What keeps this run from being judged whole. Under torchrun nothing is proved, whatever the plan says."""
    if set(plan.experiments) <= {Experiment.PROOF}:
        return [] if proofs is not None else [f"no {PROOFS}, and nothing else to judge by"]
    missing = [rank for rank in range(plan.world_size) if rank not in ranks]
    problems = [f"no records of rank {', '.join(map(str, missing))}"] if missing else []
    if launcher == "local" and proofs is None and Experiment.PROOF in plan.experiments:
        problems.append(f"no {PROOFS}, and the plan asks for proofs")
    for rank, one in ranks.items():
        problems += [f"rank {rank}: {problem}" for problem in one.problems]
    return problems
