"""Kernels and calls on the page: what ranks counted, and what a document of captures shows."""

from __future__ import annotations

from rsag.plan import make_plan
from rsag.records.execution import Counted, ExecutionRow
from rsag.records.kernels import (
    Evidence,
    KernelReason,
    KernelReasonCode,
    KernelRow,
    KernelsDocument,
    QuarantineRows,
    RangeRow,
    Rule,
    SourceRow,
    Structure,
)
from rsag.records.plan import Backend, Experiment
from rsag.report.page.kernels import view_kernels
from rsag.report.page.ranks import RankRows

PLAN = make_plan(world_size=3, backend=Backend.GLOO, experiments=(Experiment.KERNELS,))


def rank_rows(rank: int, *calls: int) -> RankRows:
    rows = RankRows(rank=rank)
    for arm, number in enumerate(calls):
        counted = Counted(calls=number, works=None, launches=None, event_records=None, stream_waits=None)
        rows.execution[arm] = ExecutionRow(arm=arm, wrong=0, counted=counted)
    return rows


def document() -> KernelsDocument:
    kernel = KernelRow(name="ncclDevKernel", library="NCCL", count=10, total_ns=1_500_000, claims=())
    row = RangeRow(
        source=0,
        range="decomposed",
        pid=1,
        tid=1,
        device=2,
        instances=5,
        structure=Structure.DECOMPOSED,
        evidence=Evidence.MATCHED,
        collectives={"reduce_scatter": 5, "all_gather": 5},
        calls={"reduce_scatter": 5, "all_gather": 5},
        kernels=(kernel,),
        copies=0,
        unattributed=0,
        unattributed_calls=0,
        reasons=(KernelReason(code=KernelReasonCode.GROUP, message="a group"),),
    )
    source = SourceRow(
        path="trace-0002.json.gz",
        format="kineto",
        rank=2,
        world_size=3,
        backend="nccl",
        library_version=None,
        tool=None,
        num_other_kernels=0,
        calls=(),
        choices=(),
        limits=(),
    )
    return KernelsDocument(
        rule=Rule.SAME_THREAD,
        sources=(source,),
        ranges=(row,),
        ranges_left_out=0,
        devices=(),
        agreement=(),
        transfers=(),
        notes=(),
        quarantine=QuarantineRows(num_skipped=0, num_seen=0, first=()),
    )


def test_ranks_that_counted_the_same_share_a_line() -> None:
    view = view_kernels(PLAN, [rank_rows(0, 5, 10), rank_rows(1, 5, 10), rank_rows(2, 5, 11)], None, "")

    assert [("0, 1", ["5", "10"]), ("2", ["5", "11"])] == [
        (line.ranks, [str(figure) for figure in line.ranges]) for line in view.counted
    ]


def test_what_no_rank_counted_has_no_line() -> None:
    assert {"calls"} == {line.quantity for line in view_kernels(PLAN, [rank_rows(0, 5, 10)], None, "").counted}


def test_a_range_that_a_rank_did_not_come_to_is_open() -> None:
    (line,) = view_kernels(PLAN, [rank_rows(0, 5)], None, "").counted

    assert ("5", None) == (str(line.ranges[0]), line.ranges[1])


def test_a_range_of_a_capture_is_shown_with_its_place_and_what_it_rests_on() -> None:
    (line,) = view_kernels(PLAN, (), document(), "verdict.json: kernels.").lines

    assert ("decomposed", "rank 2, device 2", "decomposed", "matched", "5 reduce_scatter, 5 all_gather", "1.5 ms") == (
        line.range,
        line.where,
        line.structure.text,
        line.evidence.text,
        line.kernels.text,
        line.time.text,
    )
    assert "verdict.json: kernels.ranges[0].structure" == line.structure.source
    assert {"group": "a group"} == line.reasons
