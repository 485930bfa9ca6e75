"""Memory, measured and predicted: every byte of difference by name, or as unexplained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rsag.records.latency import PredictionOutcome, Reason, ReasonCode
from rsag.records.memory import (
    MemoryArm,
    MemoryLedger,
    MemoryMoment,
    MemoryReading,
    MemoryRow,
    MemoryVerdict,
    PredictedMemory,
    Thread,
)
from rsag.records.plan import Backend, Plan
from rsag.records.verdict import Equivalence, Holds, Meaning
from rsag.units import MIB, format_bytes

DIRECT, IN_PLACE, NAIVE = "all_reduce", "rs_ag_in_place", "rs_ag_naive"
SHARD_KEPT = ("reduce_scatter_only", "reduce_scatter_copied_out")

LARGE_BLOCK_BYTES = MIB
"""A block of CUDA's caching allocator is at most so much larger than what was asked for: a large one that is not split
(512 B otherwise; c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize and kSmallSize)."""

_GLOO = {
    "reduce_scatter": ReasonCode.GLOO_REDUCE_SCATTER_CLONE,
    "all_gather": ReasonCode.GLOO_ALL_GATHER_OUTPUT,
}
_WORDS = {
    ReasonCode.GLOO_REDUCE_SCATTER_CLONE: "Gloo's ReduceScatter clones its whole input",
    ReasonCode.GLOO_ALL_GATHER_OUTPUT: "Gloo's AllGather has a flat output of its own",
}


def judge_memory(plan: Plan, records: Mapping[int, Iterable[MemoryRow]]) -> tuple[MemoryVerdict, ...]:
    """A verdict for each arm and rank, in the order of the plan; ranks that left no row cannot tell."""
    if plan.memory is None:
        return ()
    rows = {(row.arm, rank): row for rank, own in records.items() for row in own}
    return tuple(
        _judge(plan, arm, predicted, rows.get((index, predicted.rank)))
        for index, arm in enumerate(plan.memory.arms)
        for predicted in arm.predicted
    )


def _judge(plan: Plan, arm: MemoryArm, predicted: PredictedMemory, row: MemoryRow | None) -> MemoryVerdict:
    readings = () if row is None else row.readings
    requested = next((one for one in readings if one.ledger is MemoryLedger.REQUESTED), None)
    if row is None:
        reasons: tuple[Reason, ...] = (Reason(code=ReasonCode.NO_RECORDS, message="this rank left no row"),)
    elif requested is None:
        reasons = (Reason(code=ReasonCode.NOT_MEASURED, message=row.reason or "no reading, and no word why"),)
    else:
        reasons = (
            *_explain(plan.backend, predicted, row.timeline, requested),
            *_rounding(predicted, readings, requested),
        )
    return MemoryVerdict(
        composition=arm.composition,
        rank=predicted.rank,
        bytes=arm.bytes,
        predicted_steady_bytes=predicted.steady_bytes,
        predicted_peak_bytes=predicted.peak_bytes,
        measured_steady_bytes=None if requested is None else requested.steady_bytes,
        measured_peak_bytes=None if requested is None else requested.peak_bytes,
        outcome=_outcome(predicted, requested, reasons),
        readings=readings,
        reasons=reasons,
    )


def _outcome(
    predicted: PredictedMemory, requested: MemoryReading | None, reasons: Sequence[Reason]
) -> PredictionOutcome:
    if requested is None:
        return PredictionOutcome.CANNOT_TELL
    same = (requested.steady_bytes, requested.peak_bytes) == (predicted.steady_bytes, predicted.peak_bytes)
    explained = all(reason.code is not ReasonCode.UNEXPLAINED for reason in reasons)
    return PredictionOutcome.AGREES if same and explained else PredictionOutcome.DIFFERS


# ------------------------------------------------------------------------------------------------- whose each change is


@dataclass(frozen=True, slots=True)
class _Change:
    """One moment and whose it is: None is the composition's own, which the ledger knows."""

    moment: MemoryMoment
    owner: ReasonCode | None


def _explain(
    backend: Backend, predicted: PredictedMemory, timeline: Sequence[MemoryMoment], requested: MemoryReading
) -> tuple[Reason, ...]:
    """The backend's own memory by name, and what is left over."""
    changes = _attribute(backend, timeline)
    reasons = [_hidden(code, changes) for code in _WORDS if any(change.owner is code for change in changes)]
    own = [(change.moment.what, change.moment.bytes) for change in changes if change.owner is None]
    expected = _predicted_changes(predicted)
    if own != expected:
        reasons.append(_departs(own, expected))
    strange = [change.moment for change in changes if change.owner is ReasonCode.UNEXPLAINED]
    if strange:
        first, most = strange[0], _most_of(ReasonCode.UNEXPLAINED, changes)
        message = f"{_exactly(most)} at most; the first on the {first.thread.value}'s thread in {first.what}"
        reasons.append(Reason(code=ReasonCode.UNEXPLAINED, message=message))
    reached = max((moment.live_bytes for moment in timeline), default=0)
    if requested.peak_bytes != reached:
        message = f"the peak is {_exactly(requested.peak_bytes)}, and the timeline reaches {_exactly(reached)}"
        reasons.append(Reason(code=ReasonCode.UNEXPLAINED, message=message))
    return tuple(reasons)


def _attribute(backend: Backend, timeline: Sequence[MemoryMoment]) -> list[_Change]:
    """A free belongs to whoever allocated the block, whenever it comes."""
    owners: dict[int, ReasonCode | None] = {}
    changes = []
    for moment in timeline:
        owner = _owner(backend, moment)
        if moment.block is not None:
            owner = owners.setdefault(moment.block, owner)
        changes.append(_Change(moment, owner))
    return changes


def _owner(backend: Backend, moment: MemoryMoment) -> ReasonCode | None:
    if moment.what.startswith(("allocate ", "release ")) and moment.thread is Thread.CALLER:
        return None
    known = _GLOO.get(moment.what) if backend is Backend.GLOO else None
    return known if known is not None and abs(moment.bytes) == moment.payload_bytes else ReasonCode.UNEXPLAINED


def _predicted_changes(predicted: PredictedMemory) -> list[tuple[str, int]]:
    """What each allocation and release adds; a buffer without elements asks for nothing."""
    totals = [0, *(sum(moment.live_bytes.values()) for moment in predicted.timeline)]
    changes = [(moment.what, after - before) for moment, before, after in zip(predicted.timeline, totals, totals[1:])]
    return [(what, change) for what, change in changes if change]


def _most_of(code: ReasonCode, changes: Sequence[_Change]) -> int:
    """The most that `code` held at once."""
    held = most = 0
    for change in changes:
        if change.owner is code:
            held += change.moment.bytes
            most = max(most, held)
    return most


def _hidden(code: ReasonCode, changes: Sequence[_Change]) -> Reason:
    """What the backend held by this name, on whose threads, and how much was held in all meanwhile."""
    own = [change.moment for change in changes if change.owner is code]
    threads = dict.fromkeys(moment.thread.value for moment in own)
    in_all = max(moment.live_bytes for moment in own)
    return Reason(
        code=code,
        message=f"{_WORDS[code]}: {_exactly(_most_of(code, changes))} in {own[0].what}, on the "
        f"{' and the '.join(f'{thread}' for thread in threads)}'s thread; {_exactly(in_all)} in all at that time",
    )


def _departs(own: Sequence[tuple[str, int]], expected: Sequence[tuple[str, int]]) -> Reason:
    """The first change that is not the ledger's."""
    at = next(
        (index for index, pair in enumerate(zip(own, expected)) if pair[0] != pair[1]), min(len(own), len(expected))
    )
    got, wanted = (_change_in_words(side[at : at + 1]) for side in (own, expected))
    return Reason(code=ReasonCode.UNEXPLAINED, message=f"the ledger has {wanted}, where {got} was measured")


def _change_in_words(changes: Sequence[tuple[str, int]]) -> str:
    return "nothing more" if not changes else f"{changes[0][0]} ({changes[0][1]:+,} B)"


def _rounding(
    predicted: PredictedMemory, readings: Sequence[MemoryReading], requested: MemoryReading
) -> tuple[Reason, ...]:
    allocated = next((one for one in readings if one.ledger is MemoryLedger.ALLOCATED), None)
    if allocated is None:
        return ()
    steady = allocated.steady_bytes - requested.steady_bytes
    peak = allocated.peak_bytes - requested.peak_bytes
    if not steady and not peak:
        return ()
    num_buffers = sum(moment.what.startswith("allocate ") for moment in predicted.timeline)
    is_rounding = max(steady, peak) <= num_buffers * LARGE_BLOCK_BYTES
    message = f"the allocator's blocks hold {_exactly(steady)} more than was asked for, at the peak {_exactly(peak)}"
    return (Reason(code=ReasonCode.ALLOCATOR_ROUNDING if is_rounding else ReasonCode.UNEXPLAINED, message=message),)


def _exactly(count: int) -> str:
    """`64 MiB`, with the bytes where that is rounded."""
    text = format_bytes(count)
    value, _, unit = text.partition(" ")
    exact = unit == "B" or float(value) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit] == count
    return text if exact else f"{text} ({count:,} B)"


# -------------------------------------------------------------------------------------------- the state between halves


def judge_state(plan: Plan, verdicts: Sequence[MemoryVerdict]) -> Equivalence:
    """Whether both sides of the equation hold the same in between: bytes, and the shard that only one of them has."""
    by_name = {one.composition: [row for row in verdicts if row.composition == one.composition] for one in verdicts}
    if not verdicts:
        return _cannot_tell("memory between the halves was not measured in this run")
    missing = [name for name in (DIRECT, IN_PLACE) if not _is_measured(by_name.get(name, []))]
    if missing:
        return _cannot_tell(f"the memory of {' and '.join(missing)} was not measured in this run")
    measured = {name: rows for name, rows in by_name.items() if _is_measured(rows)}
    kept = next((name for name in SHARD_KEPT if name in measured), None)
    evidence = [_peaks(name, measured[name]) for name in (DIRECT, IN_PLACE, NAIVE) if name in measured]
    same = _predicted_peak(by_name[DIRECT]) == _predicted_peak(by_name[IN_PLACE])
    if kept is not None:
        held, whole = max(row.measured_steady_bytes or 0 for row in by_name[kept]), by_name[kept][0].bytes
        what = "the whole tensor" if held == whole else "a state that AllReduce never has"
        evidence.append(
            f"between the halves a rank holds a shard, {what}: "
            f"{kept} keeps {format_bytes(held)} of {format_bytes(whole)}"
        )
        same = same and held == whole
    elif same:
        return _cannot_tell("; ".join([*evidence, "whether a shard exists between the halves was not measured"]))
    return Equivalence(
        meaning=Meaning.STATE,
        holds=Holds.YES if same else Holds.NO,
        evidence="; ".join(evidence),
        conditions=f"on {plan.world_size} {plan.backend.value} ranks, outside of timing; the same bytes in place only, "
        "and what the backend allocates for itself comes on top",
    )


def _cannot_tell(why: str) -> Equivalence:
    return Equivalence(meaning=Meaning.STATE, holds=Holds.CANNOT_TELL, evidence=why, conditions="")


def _is_measured(rows: Sequence[MemoryVerdict]) -> bool:
    return bool(rows) and all(row.measured_peak_bytes is not None for row in rows)


def _predicted_peak(rows: Sequence[MemoryVerdict]) -> int:
    return max(row.predicted_peak_bytes for row in rows)


def _peaks(name: str, rows: Sequence[MemoryVerdict]) -> str:
    """`rs_ag_naive 144 MiB at the peak (208 MiB measured)`, the most of any rank."""
    measured = max(row.measured_peak_bytes or 0 for row in rows)
    predicted = _predicted_peak(rows)
    seen = "as measured" if measured == predicted else f"{format_bytes(measured)} measured"
    return f"{name} {format_bytes(predicted)} at the peak ({seen})"
