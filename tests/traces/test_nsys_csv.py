"""nvtx_kern_sum is read in both header forms, with whatever nsys prints around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.traces import nsys_csv
from rsag.traces.events import Capture, LimitCode

LONG = (
    "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
    "Kernel Name\n"
)
SHORT = "NVTX Range,NVTX Inst,Kern Inst,Total Time (ns),Kernel Name\n"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def row(range_: str = ":direct", count: object = 5, total: object = 1000, name: str = ALL_REDUCE) -> str:
    return f"{range_},PushPop,144,145,5,{count},{total},200.0,200.0,200,200,0.0,{name}\n"


def read(tmp_path: Path, text: str | bytes) -> Capture:
    path = tmp_path / "sum.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return nsys_csv.read(path)


def test_the_long_header_gives_range_process_thread_counts_and_time(tmp_path: Path) -> None:
    (summed,) = read(tmp_path, LONG + row()).sums
    assert ("direct", "PushPop", 144, 145, 5, 5, 1000, ALL_REDUCE) == (
        summed.range,
        summed.style,
        summed.process,
        summed.thread,
        summed.range_instances,
        summed.count,
        summed.total_ns,
        summed.name,
    )


def test_the_short_header_has_neither_style_nor_process(tmp_path: Path) -> None:
    (summed,) = read(tmp_path, SHORT + f":direct,5,5,1000,{ALL_REDUCE}\n").sums
    assert ("direct", "", None, None, 5) == (
        summed.range,
        summed.style,
        summed.process,
        summed.thread,
        summed.count,
    )


def test_lines_of_nsys_before_the_header_and_other_reports_after_it_are_passed_over(tmp_path: Path) -> None:
    preamble = "NOTICE: Existing SQLite export found: x.sqlite\nProcessing [x.sqlite] with [nvtx_kern_sum.py]... \n\n"
    other = "\nProcessing [x.sqlite] with [cuda_gpu_kern_sum]\nTime (%),Total Time (ns),Name\n100,9,ncclKernel_x\n"
    capture = read(tmp_path, preamble + LONG + row() + other)
    assert (1, 0) == (len(capture.sums), capture.quarantine.num_skipped)


@pytest.mark.parametrize(
    ("unit", "expected"), [("ns", 1), ("us", 1500), ("μs", 1500), ("ms", 1_500_000), ("sec", 1_500_000_000)]
)
def test_times_are_in_the_unit_of_the_header(tmp_path: Path, unit: str, expected: int) -> None:
    total = "1" if unit == "ns" else "1.5"
    (summed,) = read(tmp_path, LONG.replace("(ns)", f"({unit})") + row(total=total)).sums
    assert expected == summed.total_ns


def test_a_unit_that_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    capture = read(tmp_path, LONG.replace("(ns)", "(fortnights)") + row())
    assert (0, 1) == (len(capture.sums), capture.quarantine.num_skipped)


def test_a_quoted_name_keeps_its_commas(tmp_path: Path) -> None:
    name = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"
    assert [name] == [summed.name for summed in read(tmp_path, LONG + row(name=f'"{name}"')).sums]


def test_kernels_outside_any_range_have_an_empty_one(tmp_path: Path) -> None:
    assert [""] == [summed.range for summed in read(tmp_path, LONG + row(range_="")).sums]


def test_a_range_of_a_named_domain_keeps_its_domain(tmp_path: Path) -> None:
    assert ["NCCL:ncclAllReduce"] == [one.range for one in read(tmp_path, LONG + row("NCCL:ncclAllReduce")).sums]


def test_kernels_that_compute_are_counted_and_not_kept(tmp_path: Path) -> None:
    capture = read(tmp_path, LONG + row() + row(name="gemm", count=7))
    assert (1, 7) == (len(capture.sums), capture.num_other_kernels)


def test_a_bom_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    text = (LONG + row()).replace("\n", "\r\n").encode("utf-8-sig")
    assert nsys_csv.sniff(text, Path("x"))
    assert 1 == len(read(tmp_path, text).sums)


@pytest.mark.parametrize(
    "bad",
    [
        row(total=0),
        row(total=-5),
        row(count=-1),
        row(count="many"),
        row(total="NaN"),
        row(total="1e999999"),
        ":a,PushPop\n",
        "half a name that breaks its line\n",
    ],
)
def test_a_row_that_cannot_be_is_counted_with_its_offset_and_the_rest_is_read(tmp_path: Path, bad: str) -> None:
    capture = read(tmp_path, LONG + row() + bad + row())
    assert (2, 1, 3) == (len(capture.sums), capture.quarantine.num_skipped, capture.quarantine.num_seen)
    assert len(LONG + row()) == capture.quarantine.first[0].offset


def test_sums_say_that_devices_cannot_be_told_apart(tmp_path: Path) -> None:
    assert LimitCode.NO_DEVICES in {limit.code for limit in read(tmp_path, LONG).limits}


def test_another_report_is_not_taken_for_this_one() -> None:
    assert not nsys_csv.sniff(b"Time (%),Total Time (ns),Instances,Name\n", Path("x.csv"))
    assert nsys_csv.sniff(b"NOTICE: x\n" + SHORT.encode(), Path("x.txt"))


@given(st.lists(st.text(max_size=30) | st.sampled_from([LONG, SHORT, row(), row(total="\x00"), '"', ","])))
def test_any_text_is_read_without_harm(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "sum.csv"
    path.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
    capture = nsys_csv.read(path)
    assert capture.quarantine.num_skipped + len(capture.sums) <= capture.quarantine.num_seen
