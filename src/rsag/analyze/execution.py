"""The kernels experiment: what ran in the marked ranges, at which boundaries, and whether it is the same execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rsag.analyze.kernels import read_kernels
from rsag.errors import UsageError
from rsag.records.execution import BoundaryRow, Counted, ExecutionRow, KernelsPlan, NativeProbe, Probe
from rsag.records.kernels import Agreement, ProbeVerdict, RangeRow, in_words
from rsag.records.latency import ArmRole, PredictionOutcome, TimedArm
from rsag.records.plan import Plan
from rsag.records.protocol import Choice, Protocols
from rsag.records.rundir import native_trace_file, trace_file
from rsag.records.verdict import Equivalence, Holds, Meaning
from rsag.traces.events import Capture, Format
from rsag.traces.kineto import read as read_kineto

DIRECT, DECOMPOSED = 0, 1
"""The arms of the plan, which the boundary table sets side by side."""


class Execution(NamedTuple):
    """`problems` keep the run from being judged whole, `wrong` are what was computed wrongly."""

    probes: tuple[ProbeVerdict, ...]
    boundaries: tuple[BoundaryRow, ...]
    problems: tuple[str, ...]
    wrong: tuple[str, ...]


def judge_execution(
    plan: Plan,
    directory: Path,
    records: Mapping[int, Iterable[ExecutionRow]],
    native: NativeProbe | None,
    protocols: Protocols | None,
) -> Execution:
    """From the rows and traces in `directory`; nothing where the plan has no kernels experiment."""
    kernels = plan.kernels
    if kernels is None:
        return Execution((), (), (), ())
    rows = {rank: list(own) for rank, own in records.items()}
    problems = [
        f"rank {rank}: {len(rows.get(rank, []))} of {len(kernels.arms)} ranges were recorded"
        for rank in range(plan.world_size)
        if len(rows.get(rank, [])) != len(kernels.arms)
    ]
    missing = [rank for rank in range(plan.world_size) if not trace_file(directory, rank).exists()]
    problems += [f"rank {rank}: no {trace_file(directory, rank).name}" for rank in missing]
    traces = [_read(trace_file(directory, rank)) for rank in range(plan.world_size) if rank not in missing]
    captures = [trace for trace in traces if isinstance(trace, Capture)]
    problems += [trace for trace in traces if isinstance(trace, str)]
    problems += [damage for capture in captures for damage in _damage(capture)]
    choices = _choices(kernels, protocols)
    probes = [_of_ranks(plan, kernels, captures, choices, complete=not problems)]
    boundaries = [*_of_log(kernels, protocols), *_of_rows(kernels, rows)]
    if native is not None:
        probes.append(_of_native(plan, kernels, native, directory, choices))
        boundaries += _compared(Probe.NATIVE, None, [arm.counted for arm in native.arms])
    boundaries += [row for probe in probes for row in _kernel_counts(kernels, probe)]
    wrong = [
        f"kernels: {row.wrong:,} wrong elements in {kernels.arms[row.arm].composition} on rank {rank}"
        for rank, own in rows.items()
        for row in own
        if row.wrong
    ]
    wrong += [
        f"kernels: {arm.wrong:,} wrong elements in the native probe's {arm.range}"
        for arm in ([] if native is None else native.arms)
        if arm.wrong
    ]
    return Execution(tuple(probes), tuple(boundaries), tuple(problems), tuple(wrong))


def _read(trace: Path) -> Capture | str:
    """The trace, or why it is none: it was one when the run wrote it."""
    try:
        return read_kineto(trace)
    except UsageError as error:
        return f"{trace.name}: not the trace that the run wrote: {error}"


def _damage(capture: Capture) -> list[str]:
    """What of a rank's own trace cannot be read: it was whole when the rank ended."""
    found = capture.quarantine
    if not found.num_skipped:
        return []
    where = "".join(f", the first at {one.offset:,}: {one.reason}" for one in found.first[:1])
    return [f"{Path(capture.source).name}: {found.num_skipped} of {found.num_seen} events cannot be read{where}"]


# --------------------------------------------------------------------------------------------------------- the probes


def _of_ranks(
    plan: Plan, kernels: KernelsPlan, captures: Sequence[Capture], choices: Sequence[Capture], *, complete: bool
) -> ProbeVerdict:
    document = read_kernels([*captures, *choices])
    found = [row for row in document.ranges if row.range in kernels.ranges]
    reasons = [] if complete else ["records are missing"]
    reasons += [f"{row.range}: {row.message}" for row in document.agreement if row.agreement is not Agreement.AGREE]
    return _verdict(plan, kernels, Probe.RANKS, found, reasons)


def _of_native(
    plan: Plan, kernels: KernelsPlan, native: NativeProbe, directory: Path, choices: Sequence[Capture]
) -> ProbeVerdict:
    trace = native_trace_file(directory)
    found = _read(trace) if trace.exists() else f"no {trace.name}"
    if native.reason or isinstance(found, str):
        reason = native.reason or found
        return ProbeVerdict(
            probe=Probe.NATIVE,
            bytes=kernels.bytes,
            calls=kernels.calls,
            outcome=PredictionOutcome.CANNOT_TELL,
            predicted=_predicted(plan, kernels),
            ranges=(),
            reasons=(f"not run: {reason}",),
        )
    document = read_kernels([found, *choices])
    return _verdict(plan, kernels, Probe.NATIVE, [row for row in document.ranges if row.range in kernels.ranges], [])


def _verdict(
    plan: Plan, kernels: KernelsPlan, probe: Probe, found: Sequence[RangeRow], reasons: list[str]
) -> ProbeVerdict:
    predicted = _predicted(plan, kernels)
    unlike = [
        f"{row.range} {_where(row)}: {in_words(row.ran)}, and the ledger says {in_words(predicted[row.range])}"
        for row in found
        if row.ran != predicted[row.range]
    ]
    seen = {name: sum(row.range == name for row in found) for name in kernels.ranges}
    absent = [
        f"{name}: seen in {count} of {plan.world_size} places"
        for name, count in seen.items()
        if count != plan.world_size
    ]
    outcome = PredictionOutcome.DIFFERS if unlike else PredictionOutcome.AGREES
    return ProbeVerdict(
        probe=probe,
        bytes=kernels.bytes,
        calls=kernels.calls,
        outcome=PredictionOutcome.CANNOT_TELL if absent or reasons else outcome,
        predicted=predicted,
        ranges=tuple(found),
        reasons=(*reasons, *absent, *unlike),
    )


def _predicted(plan: Plan, kernels: KernelsPlan) -> dict[str, dict[str, int]]:
    """By the ledger: each call of a collective is one, on every rank."""
    counts = {}
    for arm in kernels.arms:
        row = plan.prediction(arm.composition, rank=0)
        calls = {} if row is None else row.calls
        counts[arm.range] = {kind: count * kernels.calls for kind, count in calls.items()}
    return counts


def _where(row: RangeRow) -> str:
    return f"in file {row.source}" if row.device is None else f"on device {row.device}"


def _choices(kernels: KernelsPlan, protocols: Protocols | None) -> list[Capture]:
    """What the library said it chose for one call of each arm, as a log that is read along."""
    chosen = [choice for choices in _chosen(kernels, protocols) for choice in choices]
    return [Capture(source="protocols.json", format=Format.NCCL_LOG, choices=tuple(chosen))] if chosen else []


def _chosen(kernels: KernelsPlan, protocols: Protocols | None) -> list[tuple[Choice, ...]]:
    """Arm by arm what the library said it chose for one call, nothing where it was not asked."""
    arms = [TimedArm(role=ArmRole.CANDIDATE, composition=arm.composition) for arm in kernels.arms]
    return [() if protocols is None else protocols.of(kernels.bytes, arm) for arm in arms]


# ------------------------------------------------------------------------------------------------------ the boundaries


def _of_log(kernels: KernelsPlan, protocols: Protocols | None) -> list[BoundaryRow]:
    chosen = _chosen(kernels, protocols)
    if not any(chosen):
        return []
    return [
        BoundaryRow(
            probe=Probe.RANKS,
            rank=0,
            quantity="planner decisions of one call",
            direct=len(chosen[DIRECT]),
            decomposed=len(chosen[DECOMPOSED]),
        )
    ]


def _of_rows(kernels: KernelsPlan, rows: Mapping[int, Sequence[ExecutionRow]]) -> list[BoundaryRow]:
    found: list[BoundaryRow] = []
    for rank, own in rows.items():
        by_arm = {row.arm: row.counted for row in own}
        if set(by_arm) == set(range(len(kernels.arms))):
            found += _compared(Probe.RANKS, rank, [by_arm[arm] for arm in sorted(by_arm)])
    return found


_QUANTITIES = {
    "c10d calls": "calls",
    "Works": "works",
    "kernel launches": "launches",
    "event records": "event_records",
    "stream waits": "stream_waits",
}


def _compared(probe: Probe, rank: int | None, counted: Sequence[Counted]) -> list[BoundaryRow]:
    if len(counted) <= DECOMPOSED:
        return []
    rows = [
        BoundaryRow(
            probe=probe,
            rank=rank,
            quantity=quantity,
            direct=getattr(counted[DIRECT], field),
            decomposed=getattr(counted[DECOMPOSED], field),
        )
        for quantity, field in _QUANTITIES.items()
    ]
    return [row for row in rows if row.difference is not None]


def _kernel_counts(kernels: KernelsPlan, probe: ProbeVerdict) -> list[BoundaryRow]:
    """Kernels by device: of ranks a device is a rank."""
    counts: dict[tuple[int, int], dict[str, int]] = {}
    for row in probe.ranges:
        if row.device is not None:
            place = (row.source, row.device)
            counts.setdefault(place, {})[row.range] = sum(row.collectives.values())
    return [
        BoundaryRow(
            probe=probe.probe,
            rank=number,
            quantity="kernels",
            direct=by_range.get(kernels.ranges[DIRECT]),
            decomposed=by_range.get(kernels.ranges[DECOMPOSED]),
        )
        for number, (_, by_range) in enumerate(sorted(counts.items()))
    ]


# ---------------------------------------------------------------------------------------------------------- the meaning


def judge_meaning(plan: Plan, execution: Execution) -> Equivalence:
    """Whether both ranges ran the same, by every probe that saw them."""
    kernels = plan.kernels
    told = [probe for probe in execution.probes if probe.outcome is not PredictionOutcome.CANNOT_TELL and probe.ranges]
    if kernels is None or not told:
        why = "; ".join(reason for probe in execution.probes for reason in probe.reasons)
        return Equivalence(
            meaning=Meaning.EXECUTION,
            holds=Holds.CANNOT_TELL,
            evidence=why or "which kernels ran, and with which boundaries, was not looked at in this run",
            conditions="",
        )
    direct, decomposed = (kernels.ranges[arm] for arm in (DIRECT, DECOMPOSED))
    same = all(_each(probe, direct) == _each(probe, decomposed) for probe in told)
    return Equivalence(
        meaning=Meaning.EXECUTION,
        holds=Holds.YES if same else Holds.NO,
        evidence="; ".join(_evidence(kernels, probe) for probe in told),
        conditions="one capture of eager calls, by launch and enclosing range; algorithm and protocol by the library's "
        "own log where it was read, by no kernel's name",
    )


def _each(probe: ProbeVerdict, name: str) -> list[dict[str, int]]:
    return [row.ran for row in probe.ranges if row.range == name]


_PROBES = {Probe.RANKS: "one process a rank", Probe.NATIVE: "one process for all GPUs"}


def _evidence(kernels: KernelsPlan, probe: ProbeVerdict) -> str:
    places = len({(row.source, row.device) for row in probe.ranges})
    on_devices = any(row.device is not None for row in probe.ranges)
    ranges = " against ".join(_kinds(_each(probe, kernels.ranges[arm])) for arm in (DIRECT, DECOMPOSED))
    where = f"{'kernels' if on_devices else 'calls, for this backend has no kernels'}, on each of {places} "
    where += "GPUs" if on_devices else "ranks"
    others = dict.fromkeys(
        reason.message for row in probe.ranges for reason in row.reasons if reason.code.value == "backend-ran-other"
    )
    return "; ".join((f"{_PROBES[probe.probe]}: {ranges} {where}", *others))


def _kinds(counts: Sequence[dict[str, int]]) -> str:
    return " or ".join(dict.fromkeys(map(in_words, counts)))
