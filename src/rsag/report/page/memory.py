"""Memory of a run: each composition's bytes over its instructions, predicted by role and as it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rsag.records.memory import MemoryLedger, MemoryMoment, MemoryRow, MemoryVerdict, PredictedMemory, PredictedMoment
from rsag.records.plan import Plan
from rsag.records.rundir import PLAN, VERDICT
from rsag.report.page.figures import NOTHING, Figure, counted, first_of_each, size, spread
from rsag.report.page.ranks import RankRows
from rsag.report.page.words import Words
from rsag.units import format_bytes

MOST_MOMENTS = 400
"""A longer timeline is not drawn: its table alone would be longer than the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """One composition over all ranks, from the least to the most, and what it differs by: each code, its message."""

    composition: str
    predicted_steady: Figure
    measured_steady: Figure
    predicted_peak: Figure
    measured_peak: Figure
    residual: Figure
    outcome: Figure
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """Steady and peak in one ledger, the most of any rank."""

    composition: str
    ledger: str
    steady: Figure
    peak: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One change: at instruction `at` of the prediction, or between two of them what only the backend knows of."""

    at: float
    what: str
    site: str
    by_role: dict[str, int]
    live_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One composition on one rank. `note` says why there is no measurement, or how it was made."""

    composition: str
    rank: int
    roles: tuple[str, ...]
    predicted: tuple[Moment, ...]
    measured: tuple[Moment, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    payload: Figure | None
    lines: tuple[MemoryLine, ...]
    ledgers: tuple[LedgerLine, ...]
    timelines: tuple[Timeline, ...]


def view_memory(
    plan: Plan | None, rows: Sequence[MemoryVerdict], ranks: Sequence[RankRows], words: Words
) -> MemoryView:
    """Tables by the verdict, timelines by the plan and rank 0, or the first rank that left memory rows."""
    memory = None if plan is None else plan.memory
    return MemoryView(
        payload=None if memory is None else size(memory.bytes, f"{PLAN}: memory.bytes"),
        lines=tuple(_line(composition, rows) for composition in dict.fromkeys(row.composition for row in rows)),
        ledgers=tuple(_ledgers(rows)),
        timelines=() if plan is None else tuple(_timelines(plan, ranks, words)),
    )


def _line(composition: str, rows: Sequence[MemoryVerdict]) -> MemoryLine:
    own = [row for row in rows if row.composition == composition]
    at = f"{VERDICT}: memory[*].{{}} of {composition}"
    apart = [row.measured_peak_bytes - row.predicted_peak_bytes for row in own if row.measured_peak_bytes is not None]
    outcomes = list(dict.fromkeys(row.outcome.value for row in own))
    return MemoryLine(
        composition=composition,
        predicted_steady=spread([row.predicted_steady_bytes for row in own], at.format("predicted_steady_bytes")),
        measured_steady=spread([row.measured_steady_bytes for row in own], at.format("measured_steady_bytes")),
        predicted_peak=spread([row.predicted_peak_bytes for row in own], at.format("predicted_peak_bytes")),
        measured_peak=spread([row.measured_peak_bytes for row in own], at.format("measured_peak_bytes")),
        residual=residual(max(apart, key=abs) if apart else None, at.format("*_peak_bytes")),
        outcome=counted(", ".join(outcomes), at.format("outcome")),
        reasons=first_of_each(reason for row in own for reason in row.reasons),
    )


def residual(apart: float | None, source: str) -> Figure:
    """Measured less predicted, with its sign."""
    if apart is None:
        return Figure(text=NOTHING, source=source)
    sign = "+" if apart > 0 else "−"
    return Figure(text=f"{sign}{format_bytes(abs(apart))}" if apart else "0", source=source)


def _ledgers(rows: Sequence[MemoryVerdict]) -> list[LedgerLine]:
    """Where more than one ledger was read: the keepers' counts side by side, never added."""
    if all(len(row.readings) <= 1 for row in rows):
        return []
    lines = []
    for composition in dict.fromkeys(row.composition for row in rows):
        readings = [reading for row in rows if row.composition == composition for reading in row.readings]
        for ledger in MemoryLedger:
            read = [reading for reading in readings if reading.ledger is ledger]
            if read:
                at = f"{VERDICT}: memory[*].readings[*].{{}} of {composition}"
                lines.append(
                    LedgerLine(
                        composition=composition,
                        ledger=ledger.value,
                        steady=spread([max(one.steady_bytes for one in read)], at.format("steady_bytes")),
                        peak=spread([max(one.peak_bytes for one in read)], at.format("peak_bytes")),
                    )
                )
    return lines


# ------------------------------------------------------------------------------------------------------ the timelines


def _timelines(plan: Plan, ranks: Sequence[RankRows], words: Words) -> list[Timeline]:
    if plan.memory is None:
        return []
    measured = next((rows for rows in ranks if rows.memory), None)
    rank = 0 if measured is None else measured.rank
    timelines = []
    for arm, one in enumerate(plan.memory.arms):
        place = next((place for place, own in enumerate(one.predicted) if own.rank == rank), None)
        if place is None or len(one.predicted[place].timeline) > MOST_MOMENTS:
            continue
        row = None if measured is None else measured.memory.get(arm)
        predicted = _predicted(one.predicted[place], f"{PLAN}: memory.arms[{arm}].predicted[{place}].timeline")
        timelines.append(
            Timeline(
                composition=one.composition,
                rank=rank,
                roles=tuple(dict.fromkeys(role for moment in predicted for role in moment.by_role)),
                predicted=predicted,
                measured=() if row is None else _measured(row, one.predicted[place].timeline, rank, words),
                note=words("memory.not_measured") if row is None else row.reason or row.method,
            )
        )
    return timelines


def _predicted(own: PredictedMemory, source: str) -> tuple[Moment, ...]:
    return tuple(
        Moment(
            at=index,
            what=moment.what,
            site=moment.site,
            by_role=moment.live_bytes,
            live_bytes=sum(moment.live_bytes.values()),
            source=f"{source}[{index}].live_bytes",
        )
        for index, moment in enumerate(own.timeline)
    )


def _measured(row: MemoryRow, predicted: Sequence[PredictedMoment], rank: int, words: Words) -> tuple[Moment, ...]:
    """Each moment at the instruction of the same name; what came between two, evenly between their places."""
    places = _places([moment.what for moment in row.timeline], [moment.what for moment in predicted])
    source = f"rank-{rank:04d}.jsonl: memory of arm {row.arm}, timeline"
    return tuple(
        Moment(
            at=at,
            what=moment.what,
            site=_who(moment, words),
            by_role={},
            live_bytes=moment.live_bytes,
            source=f"{source}[{index}].live_bytes",
        )
        for index, (at, moment) in enumerate(zip(places, row.timeline))
    )


def _who(moment: MemoryMoment, words: Words) -> str:
    thread = moment.thread.value
    return thread if moment.seen else words("memory.end_of_collective", thread=thread)


def _places(happened: Sequence[str], foreseen: Sequence[str]) -> list[float]:
    """Where on the axis of what was foreseen each thing that happened belongs, in its order."""
    matched: list[int | None] = []
    following = 0
    for what in happened:
        found = next((place for place in range(following, len(foreseen)) if foreseen[place] == what), None)
        matched.append(found)
        following = following if found is None else found + 1
    places: list[float] = []
    last = -1.0
    for index, place in enumerate(matched):
        if place is None:
            rest = matched[index:]
            run = next((length for length, one in enumerate(rest) if one is not None), len(rest))
            after = rest[run] if run < len(rest) else None
            last += ((len(foreseen) if after is None else after) - last) / (run + 1)
        else:
            last = float(place)
        places.append(last)
    return places
