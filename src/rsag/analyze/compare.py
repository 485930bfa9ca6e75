"""Two judged runs side by side: what differs around them, and what came out differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rsag.analyze.judged import JudgedRun, arm_of, by_arm, case_of
from rsag.analyze.mixed import differences, in_words
from rsag.errors import UsageError
from rsag.records.compare import CompareRow, Comparison, ContractChange, MemoryChange, RatioChange, Side
from rsag.records.contracts import ContractOutcome
from rsag.records.latency import LatencyRow, TimeOutcome
from rsag.records.memory import MemoryVerdict
from rsag.records.verdict import Verdict


def compare(a: JudgedRun, b: JudgedRun, *, allow_mixed: bool = False) -> Comparison:
    """Every arm of both runs, A's in its order first, and the contracts that came out differently.

    Raises UsageError for one run twice, and, unless `allow_mixed`, for runs that differ in hardware, versions or plan.
    """
    if a.run == b.run:
        raise UsageError("both are the same run", got=f"{a.directory} and {b.directory}", expected="two runs")
    found = differences(a, b)
    if found and not allow_mixed:
        raise UsageError(
            "these runs differ in more than their numbers",
            got=in_words(found, a.directory, b.directory),
            do="compare like with like, or add --allow-mixed and read the differences above the table",
        )
    own, other = by_arm(a.verdict.latency), by_arm(b.verdict.latency)
    memory, num_same_memory = _memory(a.verdict.memory, b.verdict.memory)
    changes, num_same = _contracts(_by_contract(a.verdict), _by_contract(b.verdict))
    return Comparison(
        a=a.source,
        b=b.source,
        differences=found,
        rows=tuple(_row(own.get(key), other.get(key)) for key in dict.fromkeys([*own, *other])),
        contracts=changes,
        num_same_contracts=num_same,
        memory=memory,
        num_same_memory=num_same_memory,
    )


def _row(a: LatencyRow | None, b: LatencyRow | None) -> CompareRow:
    some = a or b
    assert some is not None
    change, why = _ratio_change(a, b) if some.role.is_compared else (None, "")
    return CompareRow(
        case=case_of(some),
        arm=arm_of(some),
        a=_side(a),
        b=_side(b),
        median_change=_median_change(a, b),
        ratio_change=change,
        why=why,
    )


def _side(row: LatencyRow | None) -> Side | None:
    if row is None:
        return None
    return Side(
        median_us=row.median_us,
        outcome=row.outcome,
        ratio=row.ratio,
        interval=row.interval,
        rounds=row.rounds,
        reasons=tuple(dict.fromkeys(reason.code.value for reason in row.reasons)),
    )


def _median_change(a: LatencyRow | None, b: LatencyRow | None) -> float | None:
    """None where either side is invalid: its times are shown, and nothing is made of them."""
    if a is None or b is None or TimeOutcome.INVALID in (a.outcome, b.outcome) or not a.median_us:
        return None
    return None if b.median_us is None else b.median_us / a.median_us


def _ratio_change(a: LatencyRow | None, b: LatencyRow | None) -> tuple[RatioChange, str]:
    """From the intervals alone; a run that found no direction has one as well."""
    if a is None or b is None:
        return RatioChange.CANNOT_TELL, f"not in {'A' if a is None else 'B'}"
    before, after = _interval(a, "A"), _interval(b, "B")
    if isinstance(before, str):
        return RatioChange.CANNOT_TELL, before
    if isinstance(after, str):
        return RatioChange.CANNOT_TELL, after
    if after[0] > before[1]:
        return RatioChange.HIGHER, ""
    return (RatioChange.LOWER if after[1] < before[0] else RatioChange.OVERLAP), ""


def _interval(row: LatencyRow, name: str) -> tuple[float, float] | str:
    """The interval, or why there is none to compare with."""
    if row.outcome is TimeOutcome.INVALID:
        return f"invalid in {name}"
    return row.interval or f"no interval in {name}"


_Contracts = Mapping[tuple[str, int], ContractOutcome]


def _by_contract(verdict: Verdict) -> _Contracts:
    return {(row.contract, row.rank): row.outcome for row in verdict.contracts}


def _contracts(a: _Contracts, b: _Contracts) -> tuple[tuple[ContractChange, ...], int]:
    """What differs, and how many rows are alike; nothing of either where one of the runs tried no contract."""
    if not a or not b:
        return (), 0
    both = list(dict.fromkeys([*a, *b]))
    changes = tuple(
        ContractChange(contract=contract, rank=rank, a=a.get((contract, rank)), b=b.get((contract, rank)))
        for contract, rank in both
        if a.get((contract, rank)) is not b.get((contract, rank))
    )
    return changes, len(both) - len(changes)


def _memory(a: Sequence[MemoryVerdict], b: Sequence[MemoryVerdict]) -> tuple[tuple[MemoryChange, ...], int]:
    """Measured peaks that differ, and how many are alike, of what both runs ran at one payload."""
    peaks = {(row.composition, row.bytes, row.rank): row.measured_peak_bytes for row in b}
    both = [row for row in a if (row.composition, row.bytes, row.rank) in peaks]
    changes = tuple(
        MemoryChange(
            composition=row.composition,
            bytes=row.bytes,
            rank=row.rank,
            a_peak_bytes=row.measured_peak_bytes,
            b_peak_bytes=peaks[row.composition, row.bytes, row.rank],
        )
        for row in both
        if row.measured_peak_bytes != peaks[row.composition, row.bytes, row.rank]
    )
    return changes, len(both) - len(changes)
