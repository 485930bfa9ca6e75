"""A run directory to a verdict: the four meanings of the equation first, each with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from rsag.analyze.claims import run_sentence
from rsag.analyze.contracts import judge_contracts
from rsag.analyze.latency import judge_latency
from rsag.analyze.memory import judge_memory, judge_state
from rsag.analyze.protocol import with_protocols
from rsag.analyze.wire import judge_wire
from rsag.records.codec import decode, load_document
from rsag.records.contracts import ContractOutcome, ContractRow, Observation
from rsag.records.jsonl import RankFile, read_rows
from rsag.records.latency import CaseEnd, LatencyRow, LookRow, ReasonCode, RoundRow, WireRow
from rsag.records.memory import MemoryRow
from rsag.records.plan import Experiment, Plan, Prediction
from rsag.records.proof import ProofOutcome, Proofs
from rsag.records.protocol import Protocols
from rsag.records.rundir import PLAN, PROOFS, PROTOCOLS, rank_files, require_run_directory
from rsag.records.verdict import Equivalence, Holds, Meaning, Verdict, VerdictOutcome

DIRECT, DECOMPOSED = "all_reduce", "rs_ag_in_place"


def judge(directory: Path) -> Verdict:
    """Judge what is in `directory`.

    Raises RecordError for a file that cannot be read, UsageError where there is no run.
    """
    plan = load_document(Plan, require_run_directory(directory) / PLAN)
    proofs = load_document(Proofs, directory / PROOFS) if (directory / PROOFS).exists() else None
    files = {rank: read_rows(path) for rank, path in rank_files(directory)}
    rows: tuple[ContractRow, ...] = ()
    if Experiment.CONTRACTS in plan.experiments:
        rows = judge_contracts(plan, {rank: _rows(file, Observation) for rank, file in files.items()})
    wire = judge_wire(plan, {rank: _rows(file, WireRow) for rank, file in files.items()})
    memory = judge_memory(plan, {rank: _rows(file, MemoryRow) for rank, file in files.items()})
    latency: tuple[LatencyRow, ...] = ()
    if Experiment.LATENCY in plan.experiments:
        timed = {rank: [row for kind in _TIMED for row in _rows(file, kind)] for rank, file in files.items()}
        latency = judge_latency(plan, timed, wire)
        if (directory / PROTOCOLS).exists():
            latency = with_protocols(latency, load_document(Protocols, directory / PROTOCOLS))
    problems = [*_problems(plan, proofs, files), *_of_latency(latency, _DAMAGED)]
    failed = Counter(row.contract for row in rows if row.outcome is ContractOutcome.FAIL)
    reasons = [*problems, *(f"{contract} fails on {count} ranks" for contract, count in failed.items())]
    reasons += _of_latency(latency, {ReasonCode.WRONG_RESULT})
    if proofs is not None:
        reasons += [f"{row.composition} is refuted under {row.op.value}" for row in proofs.refuted]
    outcome = VerdictOutcome.PASS if not reasons else VerdictOutcome.FAIL
    return Verdict(
        outcome=VerdictOutcome.INVALID if problems else outcome,
        reasons=tuple(reasons),
        equivalence=(
            _result(plan, proofs, rows),
            _steps(plan),
            _not_examined(
                Meaning.EXECUTION, "which kernels ran, and with which boundaries, was not looked at in this run"
            ),
            judge_state(plan, memory),
        ),
        contracts=rows,
        latency=latency,
        wire=wire,
        memory=memory,
        sentence=run_sentence(latency),
    )


_KINDS: dict[type, str] = {
    Observation: "observation",
    RoundRow: "round",
    LookRow: "look",
    CaseEnd: "case-end",
    WireRow: "wire",
    MemoryRow: "memory",
}
_TIMED: tuple[type[RoundRow] | type[LookRow] | type[CaseEnd], ...] = (RoundRow, LookRow, CaseEnd)

_DAMAGED = {ReasonCode.NO_RECORDS, ReasonCode.BAD_TIMES, ReasonCode.DECISION_DIFFERS}
"""Flaws of the records, so that the run cannot be judged whole; that A/A differs is a finding about one case."""

R = TypeVar("R")


def _rows(file: RankFile, kind: type[R]) -> list[R]:
    return [
        decode(kind, row, where=f"{file.path}: row {number}")
        for number, row in enumerate(file.rows, start=2)
        if row.get("kind") == _KINDS[kind]
    ]


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


def _problems(plan: Plan, proofs: Proofs | None, files: dict[int, RankFile]) -> list[str]:
    """What keeps this run from being judged whole. Under torchrun nothing is proved, whatever the plan says."""
    if set(plan.experiments) <= {Experiment.PROOF}:
        return [] if proofs is not None else [f"no {PROOFS}, and nothing else to judge by"]
    missing = [rank for rank in range(plan.world_size) if rank not in files]
    problems = [f"no records of rank {', '.join(map(str, missing))}"] if missing else []
    for rank, file in files.items():
        problems += [f"rank {rank}: {problem}" for problem in file.problems]
    return problems


# -------------------------------------------------------------------------------------------------- the four meanings


def _result(plan: Plan, proofs: Proofs | None, rows: tuple[ContractRow, ...]) -> Equivalence:
    evidence = []
    broken = False
    if proofs is not None:
        about = [row for row in proofs.rows if row.composition.startswith("rs_ag")]
        refuted = [row for row in about if row.result is ProofOutcome.REFUTED]
        broken = bool(refuted)
        worlds = sum(row.num_worlds for row in about)
        evidence.append(f"{worlds:,} worlds {'refuted in part' if refuted else 'proved'} on symbols")
    checked = [row for row in rows if row.outcome is not ContractOutcome.UNSUPPORTED]
    if checked:
        passed = sum(row.outcome is ContractOutcome.PASS for row in checked)
        broken = broken or passed < len(checked)
        evidence.append(
            f"{passed} of {len(checked)} contract rows pass on {plan.world_size} {plan.backend.value} ranks"
        )
    if not evidence:
        holds = Holds.CANNOT_TELL
    else:
        holds = Holds.NO if broken else Holds.YES
    return Equivalence(
        meaning=Meaning.RESULT,
        holds=holds,
        evidence="; ".join(evidence) or "neither proved nor tested in this run",
        conditions="one group in one rank order, one operator, equal shards or padding with its identity, shards left "
        "alone in between; floats up to the order of summing, not bit for bit",
    )


def _steps(plan: Plan) -> Equivalence:
    """From the ledger: what both ways are predicted to take on a ring."""
    direct, decomposed = _prediction(plan, DIRECT), _prediction(plan, DECOMPOSED)
    if direct is None or decomposed is None:
        return _not_examined(Meaning.STEPS, f"the plan predicts nothing for {DIRECT} and {DECOMPOSED}")
    same = (direct.steps, direct.sent_bytes) == (decomposed.steps, decomposed.sent_bytes)
    return Equivalence(
        meaning=Meaning.STEPS,
        holds=Holds.YES if same else Holds.NO,
        evidence=f"AllReduce {direct.steps} steps, ReduceScatter + AllGather {decomposed.steps}; per rank "
        f"{_payloads(direct, plan)} M and {_payloads(decomposed, plan)} M on the wire",
        conditions="by the ring's model of steps and bytes; the library may choose another algorithm for either",
    )


def _prediction(plan: Plan, composition: str) -> Prediction | None:
    return next((row for row in plan.predictions if row.composition == composition and row.rank == 0), None)


def _payloads(prediction: Prediction, plan: Plan) -> str:
    return f"{prediction.sent_bytes / (prediction.numel * plan.dtype.itemsize):.4g}"


def _not_examined(meaning: Meaning, why: str) -> Equivalence:
    return Equivalence(meaning=meaning, holds=Holds.CANNOT_TELL, evidence=why, conditions="")
