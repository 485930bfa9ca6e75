"""The tables of kernels, as people read them."""

from __future__ import annotations

import io

from rich.console import Console

from captured import Tracer, described
from rsag.analyze.kernels import read_kernels
from rsag.records.kernels import KernelsDocument
from rsag.records.protocol import Choice
from rsag.report.kernels import MOST_ROWS, print_kernels
from rsag.traces.events import Capture, Format, LimitCode, Quarantine, Skipped


def printed(document: KernelsDocument, width: int = 120) -> str:
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    print_kernels(document, out)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return text


def program(rank: int = 0, *, num_all_reduces: int = 5) -> Tracer:
    tracer = Tracer(rank=rank)
    start = tracer.tick()
    for _ in range(num_all_reduces):
        tracer.call("all_reduce", "all_reduce")
    tracer.mark("direct", start)
    start = tracer.tick()
    tracer.call("reduce_scatter", "sendrecv")
    tracer.call("all_gather", "all_gather")
    tracer.mark("decomposed", start)
    return tracer


def answer(*tracers: Tracer) -> KernelsDocument:
    return read_kernels([tracer.capture() for tracer in tracers])


def test_ranks_that_say_the_same_share_a_row() -> None:
    text = printed(answer(program(0), program(1)))
    assert 1 == text.count("direct   ")
    assert "ranks 0, 1, device 0" in text
    assert "both ranks: the same collectives in the same order in direct, decomposed" in text


def test_files_that_differ_in_their_rank_only_share_a_heading() -> None:
    heading = printed(answer(program(0), program(1), program(2))).splitlines()[0]
    assert "rank0.json, rank1.json and 1 more: kineto, ranks 0-2 of 2, nccl" == heading


def test_ranks_that_differ_have_rows_of_their_own_and_the_difference_is_said() -> None:
    text = printed(answer(program(0), program(1, num_all_reduces=4)))
    assert "ranks differ in direct: at position 4 rank 0: all_reduce of 1,024 Float in a group of 2" in text
    assert "waiting is not told from transfer in group 0 (0, 1)" in text


def test_a_name_says_what_it_can_and_the_rest_is_named() -> None:
    (line,) = [one for one in printed(answer(program())).splitlines() if "AllReduce_Sum_f32_RING_LL" in one]
    assert "all_reduce, float32" in line
    assert "operator, algorithm, protocol" in line


def test_the_library_s_log_has_a_column_of_its_own() -> None:
    choice = Choice(function="AllReduce", bytes=4096, algorithm="RING", protocol="SIMPLE", channels=24)
    log = Capture(source="logs/nccl.log", format=Format.NCCL_LOG, choices=(choice,))
    text = printed(read_kernels([program().capture(), log]), width=160)
    assert "AllReduce RING SIMPLE x24" in text
    assert "name says RING LL, the library's log says RING SIMPLE (direct)" in text


def test_a_reason_is_said_once_with_the_ranges_it_is_given_for() -> None:
    text = printed(answer(program(0), program(1)), width=160)
    assert 1 == text.count("name says sendrecv, caller says reduce_scatter: 1 kernel")


def test_so_many_ranges_are_shown_and_the_others_counted() -> None:
    tracer = Tracer()
    for number in range(MOST_ROWS + 7):
        start = tracer.tick()
        tracer.call("all_reduce", "all_reduce")
        tracer.mark("step " + "x" * number, start)
    text = printed(answer(tracer))
    assert MOST_ROWS == text.count("single-kernel")
    assert "7 more rows" in text


def test_steps_that_differ_in_their_number_only_share_a_row() -> None:
    tracer = Tracer()
    for number in range(5):
        start = tracer.tick()
        tracer.call("all_reduce", "all_reduce")
        tracer.mark(f"step {number}", start)
    text = printed(answer(tracer))
    assert 1 == text.count("single-kernel")
    assert "and 4 alike" in text


def test_what_was_skipped_is_said_with_its_share_and_place() -> None:
    skipped = Quarantine(num_skipped=3, num_seen=1_000, first=(Skipped(offset=4_096, reason="negative duration"),))
    text = printed(read_kernels([program().capture(quarantine=skipped)]))
    assert "3 of 1,000 rows could not be used (0.30%)" in text
    assert "rank0.json at 4,096: negative duration" in text


def test_limits_are_said_with_their_file() -> None:
    tracer = program()
    tracer.limit(LimitCode.NO_COUNTS)
    assert "no-counts: no-counts (rank0.json)" in printed(answer(tracer))


def test_a_capture_that_holds_nothing_says_so() -> None:
    assert "no collective was found in what was read" in printed(answer(Tracer()))


def test_calls_without_kernels_are_listed_by_group_and_dtype() -> None:
    tracer = Tracer()
    tracer.call("all_reduce", metadata=described("all_reduce", size=1))
    text = printed(answer(tracer))
    assert "asked for" in text
    assert "Float" in text


def test_eighty_columns_hold_every_line_but_paths() -> None:
    text = printed(answer(program(0), program(1)), width=80)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines() if not line.startswith("rank"))
