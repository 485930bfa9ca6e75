"""The whole way of a run: plan, prove, probe, launch, judge; every arrow a file in the run directory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rsag.analyze.verdict import judge
from rsag.compositions import COMPOSITIONS
from rsag.errors import UsageError
from rsag.launch import ForkServer, LaunchReport, Outcome, failure
from rsag.launch.devices import available_bytes
from rsag.launch.probing import probe_backend
from rsag.plan import write_plan
from rsag.proofs.prove import prove_all
from rsag.proofs.scope import DEFAULT_NUMELS, DEFAULT_RANKS, Numels, parse_ranks
from rsag.records.codec import dump_document
from rsag.records.describe import describe_run
from rsag.records.execution import NativeProbe
from rsag.records.plan import Backend, Experiment, Plan
from rsag.records.run import RunOutcome
from rsag.records.rundir import CAPABILITIES, NATIVE, PLAN, PROOFS, PROTOCOLS, RUN, VERDICT, rank_file
from rsag.records.verdict import Verdict
from rsag.records.watch import watched
from rsag.reduction import ReduceOp
from rsag.units import format_bytes

RANK_PROGRAM = "rsag.rank.__main__"
NATIVE_PROGRAM = "rsag.rank.native"
NATIVE_DEADLINE_S = 120.0
PRELOAD = ("torch", "torch.distributed", RANK_PROGRAM)
PROVED_OPS = (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PRODUCT)
Say = Callable[[str], None]
Watch = Callable[[Mapping[str, object]], None]
"""Is given each row of rank 0 as it is written."""

_OUTCOMES = {
    Outcome.OK: RunOutcome.COMPLETE,
    Outcome.RANK_DIED: RunOutcome.RANK_DIED,
    Outcome.DEADLINE: RunOutcome.DEADLINE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a run takes from outside: the environment of its ranks, the time it started, the command as it was given."""

    environment: Mapping[str, str]
    started_utc: datetime
    command: str


def run_plan(
    plan: Plan,
    directory: Path,
    circumstances: Circumstances,
    say: Say = lambda _: None,
    watch: Watch = lambda _: None,
) -> Verdict:
    """Do what `plan` says in `directory`, which is empty, and judge it.

    Raises UsageError for a payload that cannot fit into this machine's memory, before anything starts. Raises
    RunFailedError where a rank died or the deadline passed; what was recorded until then, the verdict on it included,
    is in the directory all the same.
    """
    require_room(plan)
    write_plan(plan, directory)
    if Experiment.PROOF in plan.experiments:
        say("proving on symbols")
        proofs = prove_all(
            COMPOSITIONS,
            world_sizes=parse_ranks(DEFAULT_RANKS),
            numels=Numels.parse(DEFAULT_NUMELS),
            ops=PROVED_OPS,
        )
        dump_document(proofs, directory / PROOFS)
        say(f"{proofs.num_worlds:,} worlds in {proofs.seconds:.1f} s, {len(proofs.refuted)} refuted")
    report = None
    if set(plan.experiments) - {Experiment.PROOF}:
        report = _launch(plan, directory, circumstances, say, watch)
    verdict = judge(directory)
    dump_document(verdict, directory / VERDICT)
    if report is not None and report.outcome is not Outcome.OK:
        raise failure(report)
    return verdict


def require_room(plan: Plan, free_bytes: int | None = None) -> None:
    """Raise UsageError where the ranks of the memory experiment need more than this host has free.

    On GPUs the ranks themselves look, for each has a memory of its own.
    """
    if plan.memory is None or plan.backend is not Backend.GLOO:
        return
    free = available_bytes() if free_bytes is None else free_bytes
    # Gloo's ReduceScatter and AllGather copy the payload once more, one after the other.
    peaks = {arm.composition: max(row.peak_bytes for row in arm.predicted) for arm in plan.memory.arms}
    largest = max(peaks, key=lambda name: peaks[name])
    needed = plan.world_size * (peaks[largest] + plan.memory.bytes)
    if needed > free:
        raise UsageError(
            f"{largest} at {format_bytes(plan.memory.bytes)} does not fit into memory",
            got=f"a predicted peak of {format_bytes(peaks[largest])} on each of {plan.world_size} ranks, and "
            f"{format_bytes(plan.memory.bytes)} more that Gloo takes for itself: {format_bytes(needed)}",
            expected=f"at most {format_bytes(free)}, which is free",
            do="ask for fewer --bytes, or leave memory out of --only",
        )


def _launch(plan: Plan, directory: Path, circumstances: Circumstances, say: Say, watch: Watch) -> LaunchReport:
    began = time.perf_counter()
    say("starting torch")
    with ForkServer(out=directory, environment=circumstances.environment, preload=PRELOAD) as server:
        if Experiment.CONTRACTS in plan.experiments:
            say(f"probing {plan.backend.value}")
            capabilities = probe_backend(server, plan.backend, min(plan.world_size, 2), directory)
            dump_document(capabilities, directory / CAPABILITIES)
        if plan.backend is Backend.NCCL and (plan.latency is not None or plan.kernels is not None):
            say("asking NCCL which algorithms and protocols it takes")
            _ask_protocols(server, plan, directory, say)
        names = ", ".join(one.value for one in plan.experiments if one is not Experiment.PROOF)
        say(f"{names} on {plan.world_size} {plan.backend.value} ranks")
        here = directory.absolute()
        arguments = ["--plan", str(here / PLAN), "--out", str(here)]
        if (here / CAPABILITIES).exists():
            arguments += ["--capabilities", str(here / CAPABILITIES)]
        with watched(rank_file(directory, 0), watch):
            report = server.run(
                entry=f"{RANK_PROGRAM}:main",
                arguments=arguments,
                world_size=plan.world_size,
                out=directory,
                deadline_s=plan.deadline_s,
            )
        if plan.kernels is not None and plan.kernels.native and report.outcome is Outcome.OK:
            say("the native probe: all GPUs from one process")
            _probe_natively(server, plan, directory)
    run = describe_run(
        directory,
        started_utc=circumstances.started_utc,
        command=circumstances.command,
        launcher="local",
        outcome=_OUTCOMES[report.outcome],
        message=report.message,
        seconds=time.perf_counter() - began,
    )
    dump_document(run, directory / RUN)
    return report


def _probe_natively(server: ForkServer, plan: Plan, directory: Path) -> None:
    """In a process of its own; what keeps it from ending well is a finding about the probe, not about the run."""
    here = directory.absolute()
    with tempfile.TemporaryDirectory(prefix=".native-", dir=directory) as scratch:
        report = server.run(
            entry=f"{NATIVE_PROGRAM}:main",
            arguments=["--plan", str(here / PLAN), "--out", str(here)],
            world_size=1,
            out=Path(scratch),
            deadline_s=min(plan.deadline_s, NATIVE_DEADLINE_S),
        )
    if report.outcome is not Outcome.OK:
        found = NativeProbe(num_devices=plan.world_size, arms=(), reason=str(failure(report)))
        dump_document(found, directory / NATIVE)


def _ask_protocols(server: ForkServer, plan: Plan, directory: Path, say: Say) -> None:
    """A pass of its own with the library's log on: nothing is timed, and of its files protocols.json alone stays.

    Where it fails the run goes on without: what is timed does not rest on it.
    """
    with tempfile.TemporaryDirectory(prefix=".protocols-", dir=directory) as scratch:
        here = Path(scratch).absolute()
        report = server.run(
            entry=f"{RANK_PROGRAM}:main",
            arguments=["--plan", str(directory.absolute() / PLAN), "--out", str(here), "--protocols"],
            world_size=plan.world_size,
            out=here,
            deadline_s=plan.deadline_s,
        )
        if report.outcome is Outcome.OK:
            (here / PROTOCOLS).replace(directory / PROTOCOLS)
        else:
            say(f"NCCL's log was not read: {failure(report)}")
