"""The table of times, as people read it."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from rich.console import Console
from rich.table import Table

from rsag.records.latency import (
    ArmRole,
    Buffers,
    Clock,
    LatencyRow,
    PredictionOutcome,
    Reason,
    ReasonCode,
    TimeOutcome,
    WireVerdict,
)
from rsag.records.verdict import Verdict, VerdictOutcome
from rsag.reduction import DType, ReduceOp
from rsag.report.latency import latency_table, print_latency, reason_lines, wire_table
from rsag.stats import Stop
from rsag.units import KIB, MIB

DIRECT = LatencyRow(
    bytes=16 * MIB,
    dtype=DType.FLOAT32,
    op=ReduceOp.SUM,
    composition="all_reduce",
    role=ArmRole.DIRECT,
    buffers=Buffers.PLAIN,
    settings={},
    clock=Clock.GRAPH,
    calls=10,
    outcome=None,
    ratio=None,
    interval=None,
    median_us=381.44,
    p95_us=408.765,
    p99_us=409.1,
    mean_us=382.0,
    cv=0.0328,
    min_median_us=380.0,
    gbps=43.984,
    ring_gbps=65.976,
    rounds=12,
    stop=None,
    round_values=(),
    cv_ratio=None,
    predicted=None,
    reasons=(),
)
SLOWER = dataclasses.replace(
    DIRECT,
    composition="rs_ag_in_place",
    role=ArmRole.CANDIDATE,
    outcome=TimeOutcome.SLOWER,
    stop=Stop.DIRECTION,
    ratio=1.1314,
    interval=(1.1102, 1.1523),
    median_us=431.568,
    cv_ratio=1.1314,
)
HOLDS_ONE = Reason(code=ReasonCode.HOLDS_ONE, message="12 rounds fix it to within 1.6%, and 1 is inside")
INCONCLUSIVE = dataclasses.replace(
    SLOWER,
    outcome=TimeOutcome.INCONCLUSIVE,
    ratio=None,
    interval=(0.9851, 1.0171),
    cv_ratio=None,
    reasons=(HOLDS_ONE,),
)
INVALID = dataclasses.replace(
    INCONCLUSIVE, outcome=TimeOutcome.INVALID, reasons=(Reason(code=ReasonCode.AA_DIFFERS, message="1.1 to 1.2"),)
)
CONTROL = dataclasses.replace(INCONCLUSIVE, composition="all_reduce", role=ArmRole.CONTROL)
NULL = dataclasses.replace(DIRECT, composition="", role=ArmRole.NULL, median_us=1.2, gbps=0.0, ring_gbps=0.0)
WIRE = WireVerdict(
    composition="rs_ag_in_place",
    rank=0,
    bytes=MIB,
    predicted_bytes=1.5 * MIB,
    measured_bytes=2.25 * MIB,
    outcome=PredictionOutcome.DIFFERS,
    reasons=(Reason(code=ReasonCode.GLOO_REDUCE_SCATTER, message="2.25 M against 1.50 M"),),
)


def lines_of(table: Table, width: int = 80) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(table)
    return file.getvalue().splitlines()


def shown(*rows: LatencyRow, width: int = 80) -> list[str]:
    return lines_of(latency_table(rows, width), width)


def line_of(lines: list[str], start: str) -> str:
    return next(" ".join(line.split()) for line in lines if line.strip().startswith(start))


EQUIVALENT = dataclasses.replace(
    SLOWER, outcome=TimeOutcome.EQUIVALENT, ratio=1.002, median_us=1310132.7, p95_us=3802156.6
)
ALL = (DIRECT, SLOWER, CONTROL, NULL, *(dataclasses.replace(row, bytes=KIB) for row in (DIRECT, INVALID, EQUIVALENT)))


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_cut_or_broken_at_any_usual_width(width: int) -> None:
    lines = shown(*ALL, width=width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    for word in ("rs_ag_in_place", "16 MiB, graph x10", "median", "against direct", "unstable"):
        assert any(word in line for line in lines), word


def test_a_row_reads_as_the_chapters_does() -> None:
    lines = shown(DIRECT, SLOWER)
    assert "all_reduce 381.4 408.8 3.3% 43.984 reference" == line_of(lines, "all_reduce")
    assert "rs_ag_in_place 431.6 408.8 3.3% 43.984 1.131x slower 1.131x" == line_of(lines, "rs_ag_in_place")
    assert "[1.110, 1.152]" == line_of(lines, "[")


def test_wide_terminals_get_the_interval_beside_the_ratio_and_the_rest() -> None:
    line = line_of(shown(SLOWER, width=140), "rs_ag_in_place")
    expected = "431.6 408.8 409.1 380.0 3.3% 43.984 65.976 12 1.131x slower [1.110, 1.152] 1.131x"
    assert f"rs_ag_in_place {expected}" == line


def test_cases_of_unlike_kinds_say_which_they_are() -> None:
    text = " ".join(shown(SLOWER, dataclasses.replace(SLOWER, dtype=DType.BFLOAT16), width=200))
    assert "16 MiB float32 sum, graph x10" in text
    assert "16 MiB bfloat16 sum, graph x10" in text


def test_each_case_has_its_heading_once() -> None:
    lines = shown(*ALL)
    assert 1 == sum("16 MiB, graph x10" in line for line in lines)
    assert 1 == sum("1 KiB, graph x10" in line for line in lines)


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("row", [INCONCLUSIVE, INVALID], ids=["inconclusive", "invalid"])
def test_a_refused_ratio_is_a_word_and_no_number(row: LatencyRow, width: int) -> None:
    text = "\n".join(shown(row, width=width))
    assert row.outcome is not None
    assert row.outcome.value in text
    assert "[0.985, 1.017]" in text
    assert not re.search(r"\d\.\d+x", text)


@pytest.mark.parametrize(("row", "said"), [(INCONCLUSIVE, "unstable"), (INVALID, "-")])
def test_the_chapters_rule_says_its_own_word(row: LatencyRow, said: str) -> None:
    assert said == line_of(shown(row, width=140), "rs_ag_in_place").split()[-1]


def test_arms_are_told_apart_by_buffers_settings_and_role() -> None:
    special = dataclasses.replace(SLOWER, buffers=Buffers.REGISTERED, settings={"NCCL_ALGO": "Ring"})
    lines = shown(special, CONTROL, NULL, width=200)
    assert line_of(lines, "rs_ag").startswith("rs_ag_in_place (registered, NCCL_ALGO=Ring) 431.6")
    assert line_of(lines, "all_reduce").startswith("all_reduce (again) 431.6")
    assert "(empty) 1.2 408.8 409.1 380.0 3.3% - - 12" == line_of(lines, "(empty)")


def test_what_was_not_measured_has_dashes() -> None:
    nothing = {"median_us": None, "p95_us": None, "cv": None, "gbps": None, "interval": None}
    row = dataclasses.replace(INCONCLUSIVE, **nothing)  # type: ignore[arg-type]
    assert "rs_ag_in_place - - - - inconclusive -" == line_of(shown(row), "rs_ag_in_place")


# ------------------------------------------------------------------------------------------------------------- reasons


def test_each_reason_stands_once_with_what_else_it_was_said_of() -> None:
    other = dataclasses.replace(INCONCLUSIVE, bytes=KIB)
    lines = [line.plain for line in reason_lines([INCONCLUSIVE, other, INVALID], [])]
    assert [
        "  holds-one: 12 rounds fix it to within 1.6%, and 1 is inside; "
        "rs_ag_in_place at 16 MiB (graph x10), and 1 more",
        "  aa-differs: 1.1 to 1.2; rs_ag_in_place at 16 MiB (graph x10)",
    ] == lines


def test_a_control_that_shows_nothing_needs_no_reason() -> None:
    against = dataclasses.replace(CONTROL, outcome=TimeOutcome.INVALID, reasons=INVALID.reasons)
    assert [] == reason_lines([CONTROL], [])
    assert 1 == len(reason_lines([against], []))


def test_ranks_that_say_the_same_of_the_wire_are_one_place() -> None:
    lines = reason_lines([], [WIRE, dataclasses.replace(WIRE, rank=1)])
    assert ["  gloo-reduce-scatter: 2.25 M against 1.50 M; the wire of rs_ag_in_place at 1 MiB"] == [
        line.plain for line in lines
    ]


# ---------------------------------------------------------------------------------------------------------------- wire


def wired(*rows: WireVerdict) -> list[str]:
    return lines_of(wire_table(rows))


def test_ranks_that_agree_are_one_line() -> None:
    lines = wired(WIRE, dataclasses.replace(WIRE, rank=1))
    assert "rs_ag_in_place 1 MiB 1.50 M 2.25 M ✗ differs" == line_of(lines, "rs_ag_in_place")


def test_ranks_that_differ_show_their_range_and_outcomes() -> None:
    other = dataclasses.replace(WIRE, rank=1, measured_bytes=1.5 * MIB, outcome=PredictionOutcome.AGREES)
    line = line_of(lines_of(wire_table([WIRE, other]), 100), "rs_ag_in_place")
    assert "rs_ag_in_place 1 MiB 1.50 M 1.50-2.25 M ✗ differs (1 of 2 ranks), ✓ agrees (1 of 2 ranks)" == line


def test_what_was_not_counted_has_a_dash() -> None:
    unknown = dataclasses.replace(WIRE, measured_bytes=None, outcome=PredictionOutcome.CANNOT_TELL)
    assert "rs_ag_in_place 1 MiB 1.50 M - · cannot-tell" == line_of(wired(unknown), "rs_ag_in_place")


# --------------------------------------------------------------------------------------------------------------- whole


def printed(verdict: Verdict) -> str:
    file = io.StringIO()
    print_latency(verdict, Console(file=file, width=100, highlight=False))
    return file.getvalue()


def test_times_wire_sentence_and_reasons_follow_each_other() -> None:
    text = printed(verdict_of((DIRECT, INCONCLUSIVE), (WIRE,), "In this launch, nothing."))
    marks = (
        "against direct",
        "in this launch",
        "bytes on the wire",
        "In this launch, nothing.",
        "holds-one",
        "gloo-red",
    )
    places = [text.index(mark) for mark in marks]
    assert sorted(places) == places


def test_without_times_nothing_is_printed() -> None:
    assert "" == printed(verdict_of((), (), ""))


def verdict_of(latency: tuple[LatencyRow, ...], wire: tuple[WireVerdict, ...], sentence: str) -> Verdict:
    return Verdict(
        outcome=VerdictOutcome.PASS,
        reasons=(),
        equivalence=(),
        contracts=(),
        latency=latency,
        wire=wire,
        sentence=sentence,
    )
