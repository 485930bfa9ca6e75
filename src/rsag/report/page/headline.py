"""The answer of a run: its verdict, the four meanings, and what was proved, predicted and measured of each quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rsag.analyze.judged import case_of
from rsag.analyze.meanings import DECOMPOSED, DIRECT
from rsag.records.contracts import ContractOutcome
from rsag.records.kernels import ProbeVerdict, in_words
from rsag.records.latency import ArmRole, Clock, LatencyRow, WireVerdict
from rsag.records.memory import MemoryVerdict
from rsag.records.plan import Plan
from rsag.records.run import RunOutcome
from rsag.records.rundir import PLAN, PROOFS, RUN, VERDICT
from rsag.records.verdict import Holds, Meaning, Verdict
from rsag.report.names import apart_name, arm_name, kind_name, wire_name
from rsag.report.page.figures import Figure, counted, number, size, spread, word
from rsag.report.page.files import Files
from rsag.report.page.memory import residual
from rsag.report.page.words import Words
from rsag.units import format_bytes

_CLOCKS = (Clock.GRAPH, Clock.EAGER, Clock.CPU)
"""Which of them the claims are of, where there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeaningLine:
    """One of the four meanings of the equation. Where there is no verdict nothing can be told."""

    meaning: Meaning
    holds: Holds
    evidence: Figure
    conditions: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """`outcome` is None without a verdict. `rests_on` counts the evidence there is, a figure for each kind.

    `ended` says what ended a run before its time.
    """

    ended: Figure | None
    outcome: Figure | None
    reasons: tuple[Figure, ...]
    sentence: Figure | None
    rests_on: tuple[Figure, ...]
    meanings: tuple[MeaningLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One quantity of one way to the result. A column is None where nothing of that kind is recorded."""

    quantity: str
    subject: str
    proved: Figure | None
    predicted: Figure | None
    measured: Figure | None
    residual: Figure | None


def view_headline(files: Files, words: Words) -> Headline:
    run, verdict = files.run, files.verdict
    ended = None
    if run is not None and run.outcome is not RunOutcome.COMPLETE:
        ended = word(run.message, f"{RUN}: message")
    if verdict is None:
        meanings = tuple(map(_untold, Meaning))
        return Headline(ended=ended, outcome=None, reasons=(), sentence=None, rests_on=(), meanings=meanings)
    told = {line.meaning: line for line in _meanings(verdict)}
    return Headline(
        ended=ended,
        outcome=word(verdict.outcome.value, f"{VERDICT}: outcome"),
        reasons=tuple(word(reason, f"{VERDICT}: reasons[{index}]") for index, reason in enumerate(verdict.reasons)),
        sentence=word(verdict.sentence, f"{VERDICT}: sentence") if verdict.sentence else None,
        rests_on=tuple(_rests_on(files, verdict, words)),
        meanings=tuple(told.get(meaning) or _untold(meaning) for meaning in Meaning),
    )


def _untold(meaning: Meaning) -> MeaningLine:
    nothing = Figure(text="", source=f"{VERDICT}: equivalence")
    return MeaningLine(meaning=meaning, holds=Holds.CANNOT_TELL, evidence=nothing, conditions=nothing)


def _meanings(verdict: Verdict) -> list[MeaningLine]:
    return [
        MeaningLine(
            meaning=one.meaning,
            holds=one.holds,
            evidence=Figure(text=one.evidence, source=f"{VERDICT}: equivalence[{index}].evidence", value=one.evidence),
            conditions=Figure(
                text=one.conditions, source=f"{VERDICT}: equivalence[{index}].conditions", value=one.conditions
            ),
        )
        for index, one in enumerate(verdict.equivalence)
    ]


def _rests_on(files: Files, verdict: Verdict, words: Words) -> list[Figure]:
    found = []

    def add(key: str, source: str, count: int, **values: object) -> None:
        if count:
            found.append(counted(words(f"rests.{key}", n=f"{count:,}", **values), source))

    add("worlds", f"{PROOFS}: num_worlds", 0 if files.proofs is None else files.proofs.num_worlds)
    tried = sum(row.outcome is not ContractOutcome.UNSUPPORTED for row in verdict.contracts)
    add("contracts", f"{VERDICT}: contracts[*].outcome", tried)
    # All arms of a case run in each of its rounds, the direct ones of every kind of buffers too.
    rounds = {case_of(row): row.rounds for row in verdict.latency if row.role is ArmRole.DIRECT}
    add("rounds", f"{VERDICT}: latency[*].rounds", sum(rounds.values()), cases=len(rounds))
    counts = sum(row.measured_bytes is not None for row in verdict.wire)
    add("wire", f"{VERDICT}: wire[*].measured_bytes", counts)
    add("memory", f"{VERDICT}: memory[*].readings", sum(bool(row.readings) for row in verdict.memory))
    return found


# ------------------------------------------------------------------------------------- proved, predicted, measured


def view_claims(files: Files, words: Words) -> tuple[Claim, ...]:
    """Result, steps, bytes, memory, time and kernels of AllReduce and of ReduceScatter + AllGather in place."""
    verdict = files.verdict
    both = (DIRECT, DECOMPOSED)
    return (
        _result(files, words),
        *(_steps(files.plan, subject) for subject in both),
        *(claim for subject in both for claim in _bytes(subject, () if verdict is None else verdict.wire, words)),
        *(_memory(subject, () if verdict is None else verdict.memory, words) for subject in both),
        *_times(() if verdict is None else verdict.latency, words),
        *_kernels(files.plan, () if verdict is None else verdict.kernels),
    )


def _nothing(quantity: str, subject: str) -> Claim:
    return Claim(quantity=quantity, subject=subject, proved=None, predicted=None, measured=None, residual=None)


def _result(files: Files, words: Words) -> Claim:
    claim = _nothing("result", words("claims.all"))
    proofs, verdict = files.proofs, files.verdict
    if proofs is not None:
        text = words("claims.worlds", n=f"{proofs.num_worlds:,}", refuted=len(proofs.refuted))
        claim = replace(claim, proved=counted(text, f"{PROOFS}: num_worlds, rows[*]"))
    rows = () if verdict is None else verdict.contracts
    tried = [row for row in rows if row.outcome is not ContractOutcome.UNSUPPORTED]
    if not tried:
        return claim
    passed = sum(row.outcome is ContractOutcome.PASS for row in tried)
    source = f"{VERDICT}: contracts[*].outcome"
    return replace(
        claim,
        measured=counted(words("claims.rows", passed=passed, n=len(tried)), source),
        residual=counted(words("claims.fail", n=len(tried) - passed), source),
    )


def _steps(plan: Plan | None, subject: str) -> Claim:
    """Of the ring's model; nothing counts steps, so there is no residual."""
    claim = _nothing("steps", subject)
    for index, row in enumerate(() if plan is None else plan.predictions):
        if (row.composition, row.rank) == (subject, 0):
            return replace(claim, predicted=number(row.steps, 0, f"{PLAN}: predictions[{index}].steps"))
    return claim


def _bytes(subject: str, rows: Sequence[WireVerdict], words: Words) -> list[Claim]:
    """For each kind of buffers, at the largest payload that was counted."""
    kinds: dict[str, list[WireVerdict]] = {}
    for row in rows:
        if row.composition == subject and row.measured_bytes is not None:
            kinds.setdefault(wire_name(row), []).append(row)
    return [_sent(name, own, words) for name, own in kinds.items()] or [_nothing("bytes", subject)]


def _sent(name: str, counts: Sequence[WireVerdict], words: Words) -> Claim:
    largest = max(row.bytes for row in counts)
    own = [row for row in counts if row.bytes == largest]
    at = f"{VERDICT}: wire[*].{{}} of {name} at {format_bytes(largest)}"
    apart = [row.measured_bytes - row.predicted_bytes for row in own if row.predicted_bytes and row.measured_bytes]
    return replace(
        _nothing("bytes", words("claims.at", composition=name, size=format_bytes(largest))),
        predicted=spread([row.predicted_bytes for row in own], at.format("predicted_bytes")),
        measured=spread([row.measured_bytes for row in own], at.format("measured_bytes")),
        residual=residual(max(apart, key=abs) if apart else None, at.format("*_bytes")),
    )


def _memory(subject: str, rows: Sequence[MemoryVerdict], words: Words) -> Claim:
    """The peak of the rank whose measurement is furthest off."""
    own = [
        (abs(row.measured_peak_bytes - row.predicted_peak_bytes), index, row)
        for index, row in enumerate(rows)
        if row.composition == subject and row.measured_peak_bytes is not None
    ]
    if not own:
        return _nothing("memory", subject)
    _, index, row = max(own, key=lambda one: one[0])
    at = f"{VERDICT}: memory[{index}]"
    return replace(
        _nothing("memory", words("claims.peak", composition=subject, size=format_bytes(row.bytes))),
        predicted=size(row.predicted_peak_bytes, f"{at}.predicted_peak_bytes"),
        measured=size(row.measured_peak_bytes, f"{at}.measured_peak_bytes"),
        residual=residual((row.measured_peak_bytes or 0) - row.predicted_peak_bytes, f"{at}.*_peak_bytes"),
    )


def _times(rows: Sequence[LatencyRow], words: Words) -> list[Claim]:
    """For each kind of buffers the ratio at its smallest and at its largest payload; nothing predicts it."""
    kinds: dict[str, list[tuple[int, LatencyRow]]] = {}
    for index, row in enumerate(rows):
        if row.composition == DECOMPOSED and row.role is ArmRole.CANDIDATE and row.outcome is not None:
            kinds.setdefault(apart_name(row), []).append((index, row))
    claims = [_time(index, row, words) for own in kinds.values() for index, row in _ends(own)]
    return claims or [_nothing("time", words("claims.over", composition=DECOMPOSED, direct=DIRECT))]


def _ends(own: Sequence[tuple[int, LatencyRow]]) -> list[tuple[int, LatencyRow]]:
    """Of one clock, type and operator the row of the least and that of the most bytes, which may be the same."""
    _, first = min(own, key=lambda one: _CLOCKS.index(one[1].clock))
    alike = [one for one in own if (one[1].clock, kind_name(one[1])) == (first.clock, kind_name(first))]
    ends = [pick(alike, key=lambda one: one[1].bytes) for pick in (min, max)]
    return ends[:1] if ends[0] == ends[1] else ends


def _time(index: int, row: LatencyRow, words: Words) -> Claim:
    at = f"{VERDICT}: latency[{index}]"
    if row.ratio is None or row.interval is None or row.outcome is None:
        measured = word("" if row.outcome is None else row.outcome.value, f"{at}.outcome")
    else:
        text = f"{row.ratio:.3f} [{row.interval[0]:.3f}, {row.interval[1]:.3f}]"
        measured = counted(text, f"{at}.ratio, {at.partition(': ')[2]}.interval[*]")
    direct = arm_name(replace(row, role=ArmRole.DIRECT, composition=DIRECT))
    values = {"composition": arm_name(row), "direct": direct, "size": format_bytes(row.bytes), "clock": row.clock.value}
    return replace(_nothing("time", words("claims.over_at", **values)), measured=measured)


def _kernels(plan: Plan | None, probes: Sequence[ProbeVerdict]) -> list[Claim]:
    """Each range of the first probe on its first rank or device: what it should run, and what ran."""
    arms = () if plan is None or plan.kernels is None else plan.kernels.arms
    claims = []
    for arm in arms if probes else ():
        index = next((index for index, row in enumerate(probes[0].ranges) if row.range == arm.range), None)
        if index is None:
            continue
        row, predicted = probes[0].ranges[index], probes[0].predicted.get(arm.range, {})
        at = f"{VERDICT}: kernels[0]"
        kinds = {**predicted, **row.ran}
        apart = {kind: row.ran.get(kind, 0) - predicted.get(kind, 0) for kind in kinds}
        differs = ", ".join(f"{count:+d} {kind}" for kind, count in apart.items() if count)
        claims.append(
            replace(
                _nothing("kernels" if row.device is not None else "calls", arm.composition),
                predicted=counted(in_words(predicted), f"{at}.predicted.{arm.range}.*"),
                measured=counted(in_words(row.ran), f"{at}.ranges[{index}].*"),
                residual=counted(differs or "0", f"{at}.*"),
            )
        )
    return claims or [_nothing("kernels", f"{DIRECT}, {DECOMPOSED}")]
