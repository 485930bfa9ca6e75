"""What nsys has added up already is counted by name, and what it lost is said."""

from __future__ import annotations

from captured import NAMES
from rsag.analyze.kernels import read_kernels
from rsag.records.kernels import Evidence, KernelReasonCode, RangeRow, Structure
from rsag.traces.events import Capture, Format, SummedKernels


def summed(name: str, kernel: str, count: int = 5, *, process: int = 1) -> SummedKernels:
    return SummedKernels(
        range=name,
        style="PushPop",
        process=process,
        thread=process,
        range_instances=1,
        count=count,
        total_ns=1_000 * count,
        name=NAMES[kernel],
    )


def capture(*rows: SummedKernels) -> Capture:
    return Capture(source="run.csv", format=Format.NSYS_CSV, sums=rows)


def only(*rows: SummedKernels) -> RangeRow:
    (row,) = read_kernels([capture(*rows)]).ranges
    return row


def test_all_reduces_alone_are_single_kernels_by_name() -> None:
    row = only(summed("direct", "all_reduce"))
    assert (Structure.SINGLE_KERNEL, Evidence.NAMES) == (row.structure, row.evidence)
    assert ({"all_reduce": 5}, 5_000) == (row.collectives, row.kernels[0].total_ns)


def test_pairs_without_an_order_are_counted_and_cannot_be_told_to_belong_together() -> None:
    row = only(summed("decomposed", "reduce_scatter"), summed("decomposed", "all_gather"))
    assert {"reduce_scatter": 5, "all_gather": 5} == row.collectives
    assert Structure.CANNOT_TELL is row.structure
    assert KernelReasonCode.SUMS in {reason.code for reason in row.reasons}


def test_other_kinds_beside_each_other_are_several() -> None:
    assert Structure.SEVERAL is only(summed("step", "broadcast"), summed("step", "all_reduce")).structure


def test_a_name_that_fits_anything_cannot_be_told() -> None:
    row = only(summed("step", "sendrecv"))
    assert (Structure.CANNOT_TELL, {"unknown": 5}) == (row.structure, row.collectives)


def test_processes_are_kept_apart_and_asked_for_together() -> None:
    answer = read_kernels([capture(summed("step", "all_reduce"), summed("step", "all_reduce", process=2))])
    assert [1, 2] == [row.pid for row in answer.ranges]
    assert {"all_reduce": 10} == answer.kernels_in("step")


def test_kernels_in_no_range_are_unattributed() -> None:
    answer = read_kernels([capture(summed("", "all_reduce", 2))])
    assert () == answer.ranges
    assert [2] == [row.unattributed for row in answer.devices]


def test_the_library_s_ranges_are_shown_only_if_asked_for() -> None:
    rows = capture(summed("NCCL:ncclAllReduce", "all_reduce"), summed("direct", "all_reduce"))
    assert ["direct"] == [row.range for row in read_kernels([rows]).ranges]
    assert ["NCCL:ncclAllReduce"] == [row.range for row in read_kernels([rows], "NCCL:*").ranges]
