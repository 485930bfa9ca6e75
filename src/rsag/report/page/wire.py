"""Bytes on the wire of a run: for each composition and size what one rank should send, and what was counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.records.latency import PredictionOutcome, WireVerdict
from rsag.records.rundir import VERDICT
from rsag.report.names import wire_name
from rsag.report.page.figures import NOTHING, Figure, counted, first_of_each, spread
from rsag.units import format_bytes

MOST_LISTED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLine:
    name: str
    payload: str
    predicted: Figure
    counted: Figure
    residual: Figure
    outcome: Figure
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WirePoint:
    """For the plot: multiples of the payload, the counted ones from the least rank to the most."""

    bytes: int
    payload: str
    name: str
    composition: str
    predicted: float | None
    low: float | None
    high: float | None
    outcome: PredictionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class WireView:
    lines: tuple[WireLine, ...]
    points: tuple[WirePoint, ...]
    num_lines: int


def view_wire(rows: Sequence[WireVerdict]) -> WireView:
    """One line per size, composition and kind of buffers, over all ranks."""
    groups: dict[tuple[int, str], list[WireVerdict]] = {}
    for row in rows:
        groups.setdefault((row.bytes, wire_name(row)), []).append(row)
    shown = list(groups.values())[:MOST_LISTED]
    return WireView(
        lines=tuple(map(_line, shown)),
        # Of no bytes there are no multiples.
        points=tuple(_point(own) for own in shown if own[0].bytes > 0),
        num_lines=len(groups),
    )


def _line(rows: Sequence[WireVerdict]) -> WireLine:
    first = rows[0]
    at = f"{VERDICT}: wire[*].{{}} of {wire_name(first)} at {format_bytes(first.bytes)}"
    return WireLine(
        name=wire_name(first),
        payload=format_bytes(first.bytes),
        predicted=spread([row.predicted_bytes for row in rows], at.format("predicted_bytes")),
        counted=spread([row.measured_bytes for row in rows], at.format("measured_bytes")),
        residual=_residual(rows, at.format("*_bytes")),
        outcome=counted(_outcomes(rows), at.format("outcome")),
        reasons=first_of_each(reason for row in rows for reason in row.reasons),
    )


def _outcomes(rows: Sequence[WireVerdict]) -> str:
    """`agrees`, or `agrees (3 of 4), differs (1 of 4)` where ranks come out differently."""
    counts = Counter(row.outcome.value for row in rows)
    return ", ".join(f"{one} ({count} of {len(rows)})" if len(counts) > 1 else one for one, count in counts.items())


def _residual(rows: Sequence[WireVerdict], source: str) -> Figure:
    """Counted over predicted, less one; of ranks that differ the one furthest off."""
    apart = [
        row.measured_bytes / row.predicted_bytes - 1
        for row in rows
        if row.measured_bytes is not None and row.predicted_bytes
    ]
    return counted(f"{max(apart, key=abs):+.1%}" if apart else NOTHING, source)


def _point(rows: Sequence[WireVerdict]) -> WirePoint:
    first = rows[0]
    known = [row.measured_bytes / row.bytes for row in rows if row.measured_bytes is not None]
    return WirePoint(
        bytes=first.bytes,
        payload=format_bytes(first.bytes),
        name=wire_name(first),
        composition=first.composition,
        predicted=None if first.predicted_bytes is None else first.predicted_bytes / first.bytes,
        low=min(known, default=None),
        high=max(known, default=None),
        outcome=_worst([row.outcome for row in rows]),
    )


def _worst(outcomes: Sequence[PredictionOutcome]) -> PredictionOutcome:
    order = (PredictionOutcome.DIFFERS, PredictionOutcome.CANNOT_TELL, PredictionOutcome.AGREES)
    return next(one for one in order if one in outcomes)
