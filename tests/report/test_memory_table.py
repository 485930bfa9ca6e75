"""The tables of memory, as people read them."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from rsag.records.latency import PredictionOutcome, Reason, ReasonCode
from rsag.records.memory import MemoryLedger, MemoryReading, MemoryVerdict
from rsag.report.memory import print_memory
from rsag.units import MIB

AGREED = MemoryVerdict(
    composition="all_reduce",
    rank=0,
    bytes=64 * MIB,
    predicted_steady_bytes=64 * MIB,
    predicted_peak_bytes=64 * MIB,
    measured_steady_bytes=64 * MIB,
    measured_peak_bytes=64 * MIB,
    outcome=PredictionOutcome.AGREES,
    readings=(),
    reasons=(),
)
COPIED = dataclasses.replace(
    AGREED,
    composition="rs_ag_naive",
    predicted_peak_bytes=144 * MIB,
    measured_peak_bytes=208 * MIB,
    outcome=PredictionOutcome.DIFFERS,
    reasons=(Reason(code=ReasonCode.GLOO_REDUCE_SCATTER_CLONE, message="a clone"),),
)


def lines_of(*rows: MemoryVerdict) -> list[str]:
    out = Console(file=io.StringIO(), width=130, highlight=False)
    print_memory(rows, out)
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return [" ".join(line.split()) for line in text.splitlines()]


def test_prediction_stands_beside_measurement_with_the_name_of_the_difference() -> None:
    lines = lines_of(AGREED, COPIED)
    assert "all_reduce 64 MiB 64 MiB 64 MiB 64 MiB ✓ agrees" in lines
    assert "rs_ag_naive 64 MiB 64 MiB 144 MiB 208 MiB ✗ differs" in lines
    assert "gloo-reduce-scatter-clone: a clone; rs_ag_naive" in lines


def test_ranks_are_one_line_and_their_spread_is_shown() -> None:
    other = dataclasses.replace(COPIED, rank=1, measured_peak_bytes=272 * MIB)
    assert any("144 MiB 208 MiB to 272 MiB" in line for line in lines_of(COPIED, other))


def test_what_was_not_measured_is_a_dash() -> None:
    row = dataclasses.replace(
        AGREED, measured_steady_bytes=None, measured_peak_bytes=None, outcome=PredictionOutcome.CANNOT_TELL
    )
    assert "all_reduce 64 MiB - 64 MiB - · cannot-tell" in lines_of(row)


def test_the_allocator_s_other_ledgers_have_a_table_of_their_own() -> None:
    def reading(ledger: MemoryLedger, baseline: int, steady: int, peak: int) -> MemoryReading:
        return MemoryReading(
            ledger=ledger, baseline_bytes=baseline * MIB, steady_bytes=steady * MIB, peak_bytes=peak * MIB
        )

    readings = (
        reading(MemoryLedger.REQUESTED, 0, 64, 64),
        reading(MemoryLedger.ALLOCATED, 0, 64, 65),
        reading(MemoryLedger.RESERVED, 2, 128, 128),
        reading(MemoryLedger.OUTSIDE, 672, 0, 0),
    )
    lines = lines_of(dataclasses.replace(AGREED, readings=readings))
    assert "all_reduce 64 MiB / 64 MiB 64 MiB / 65 MiB 128 MiB / 128 MiB 0 B / 0 B 672 MiB" in lines
