"""The right answers for recordings whose truth is known, from file to answer: exact counts, not words.

Our own recordings lie in tests/data/traces, each beside its truth; the public ones lie outside of the project.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from captured import OWN, PUBLIC
from rsag.analyze.kernels import read_kernels
from rsag.errors import UsageError
from rsag.records.kernels import (
    Agreement,
    ClaimAbout,
    DeviceRow,
    Evidence,
    KernelReasonCode,
    KernelsDocument,
    RangeRow,
    Rule,
    Structure,
)
from rsag.traces.files import read_trace


def own(name: str, ranges: str | None = None, rule: Rule = Rule.SAME_THREAD) -> KernelsDocument:
    """Both ranks of one of our recordings."""
    return read_kernels([read_trace(OWN / f"{name}.rank{rank}.json.gz") for rank in (0, 1)], ranges, rule)


def public(*names: str, ranges: str | None = None, rule: Rule = Rule.SAME_THREAD) -> KernelsDocument:
    paths = [PUBLIC / name for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip(f"needs the public samples, {' and '.join(names)}")
    return read_kernels([read_trace(path) for path in paths], ranges, rule)


def rows(answer: KernelsDocument, name: str) -> list[RangeRow]:
    return [row for row in answer.ranges if row.range == name]


def structures(answer: KernelsDocument, name: str) -> list[tuple[Structure, Evidence]]:
    return [(row.structure, row.evidence) for row in rows(answer, name)]


def device(answer: KernelsDocument) -> DeviceRow:
    (row,) = answer.devices
    return row


def codes(row: RangeRow) -> set[KernelReasonCode]:
    return {reason.code for reason in row.reasons}


def num_calls(answer: KernelsDocument) -> int:
    return sum(row.count for source in answer.sources for row in source.calls)


MATCHED_SINGLE = (Structure.SINGLE_KERNEL, Evidence.MATCHED)
MATCHED_DECOMPOSED = (Structure.DECOMPOSED, Evidence.MATCHED)


# -- our own recordings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_eager_ran_five_all_reduces_and_five_pairs(rank: int) -> None:
    answer = own("eager")
    assert {"all_reduce": 5} == answer.kernels_in("direct", device=rank)
    assert {"reduce_scatter": 5, "all_gather": 5} == answer.kernels_in("decomposed", device=rank)
    assert [MATCHED_SINGLE] * 2 == structures(answer, "direct")
    assert [MATCHED_DECOMPOSED] * 2 == structures(answer, "decomposed")


def test_a_range_that_ends_before_its_kernels_holds_all_six() -> None:
    answer = own("launch_only")
    assert {"reduce_scatter": 3, "all_gather": 3} == answer.kernels_in("launch_only", source=0)
    assert [MATCHED_DECOMPOSED] * 2 == structures(answer, "launch_only")


def test_three_replays_of_a_graph_are_in_the_range_around_them_by_name() -> None:
    answer = own("cuda_graph")
    assert {"reduce_scatter": 3, "all_gather": 3} == answer.kernels_in("graph_replay", source=1)
    assert [(Structure.DECOMPOSED, Evidence.NAMES)] * 2 == structures(answer, "graph_replay")
    unproved = {KernelReasonCode.IDENTITY_UNPROVED, KernelReasonCode.PAIRS_UNPROVED}
    assert {KernelReasonCode.BY_NAME, KernelReasonCode.GRAPH_REPLAY} | unproved == codes(
        rows(answer, "graph_replay")[0]
    )


def test_a_group_of_one_rank_has_no_kernel_and_that_is_right() -> None:
    answer = own("world_size_1")
    assert [Structure.NO_KERNEL] * 2 == [row.structure for row in rows(answer, "world1")]
    assert [{KernelReasonCode.GROUP_OF_ONE}] * 2 == [codes(row) for row in rows(answer, "world1")]
    assert () == answer.devices


def test_a_symmetric_kernel_with_two_phases_is_a_single_kernel() -> None:
    answer = own("symmetric")
    (kernel,) = rows(answer, "direct")[0].kernels
    assert "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32" in kernel.name
    assert "RSxLD_AGxST" in {claim.value for claim in kernel.claims if claim.about is ClaimAbout.METHOD}
    assert [MATCHED_SINGLE] * 2 == structures(answer, "direct")
    assert [MATCHED_DECOMPOSED] * 2 == structures(answer, "in_place")


def test_no_name_of_twelve_operators_and_dtypes_tells_the_operator() -> None:
    answer = own("ops")
    kernels = [kernel for row in answer.ranges for kernel in row.kernels]
    assert [1] * 24 == [kernel.count for kernel in kernels]
    assert all("_Sum_" in kernel.name for kernel in kernels)
    operators = [claim.value for kernel in kernels for claim in kernel.claims if claim.about is ClaimAbout.OPERATOR]
    assert [None] * 24 == operators


def test_ddp_launches_from_another_thread_which_the_range_does_not_hold() -> None:
    answer = own("ddp")
    assert [Structure.NOTHING] * 2 == [row.structure for row in rows(answer, "train_step")]
    assert [2, 2] == [row.unattributed for row in rows(answer, "train_step")]


def test_ddp_is_one_all_reduce_for_each_bucket_by_the_weaker_rule() -> None:
    answer = own("ddp", rule=Rule.ANY_THREAD)
    assert {"all_reduce": 2} == answer.kernels_in("train_step", source=0)
    assert [MATCHED_SINGLE] * 2 == structures(answer, "train_step")
    assert all(KernelReasonCode.WEAKER_RULE in codes(row) for row in rows(answer, "train_step"))


def test_a_hook_of_two_halves_is_decomposed_by_the_weaker_rule() -> None:
    answer = own("ddp_rs_ag_hook", rule=Rule.ANY_THREAD)
    assert {"reduce_scatter": 2, "all_gather": 2} == answer.kernels_in("train_step", source=0)
    assert [MATCHED_DECOMPOSED] * 2 == structures(answer, "train_step")


def test_an_all_reduce_of_which_a_slice_is_read_is_still_one_all_reduce() -> None:
    answer = own("ar_then_slice")
    assert {"all_reduce": 1} == answer.kernels_in("ar_then_slice", source=0)
    assert [MATCHED_SINGLE] * 2 == structures(answer, "ar_then_slice")


RECORDINGS = ("eager", "ops", "launch_only", "cuda_graph", "world_size_1", "symmetric", "ar_then_slice")


@pytest.mark.parametrize("name", RECORDINGS)
def test_both_ranks_of_every_recording_agree(name: str) -> None:
    agreement = own(name).agreement
    assert agreement
    assert {Agreement.AGREE} == {row.agreement for row in agreement}


@pytest.mark.parametrize("name", ["eager", "ops", "launch_only", "symmetric", "ddp", "ddp_rs_ag_hook", "ar_then_slice"])
def test_kernels_of_one_collective_end_together_within_a_microsecond(name: str) -> None:
    answer = own(name)
    assert not answer.notes
    assert all(row.ends_within_ns < 1_000 for row in answer.transfers)


def test_the_first_all_reduce_of_eager_waited_for_the_later_rank() -> None:
    all_reduces = own("eager").transfers[0]
    assert ("all_reduce", 5, 0, 0) == (
        all_reduces.collective,
        all_reduces.count,
        all_reduces.number,
        all_reduces.last_rank,
    )
    assert all_reduces.transfer_ns < 400_000 < 825_000_000 < all_reduces.waiting_ns


def test_a_log_alone_counts_calls_and_choices() -> None:
    (source,) = read_kernels([read_trace(OWN / "nccl_info_tuning.log")]).sources
    calls = {(row.collective, row.rank): row.count for row in source.calls}
    assert {"all_reduce": 8, "reduce_scatter": 6, "all_gather": 6} == {
        collective: count for (collective, rank), count in calls.items() if rank == 0
    }
    at_16_mib = [row.choice for row in source.choices if row.choice.bytes == 16 << 20]
    assert ["AllReduce RING SIMPLE x24"] == [str(choice) for choice in at_16_mib]


@pytest.mark.parametrize("form", ["pkl", "json"])
def test_flight_recorder_dumps_alone_count_calls(form: str) -> None:
    answer = read_kernels([read_trace(OWN / f"fr_ok.rank{rank}.{form}") for rank in (0, 1)])
    counted = [{row.collective: row.count for row in source.calls} for source in answer.sources]
    assert counted[0] == counted[1]
    assert counted[0]["reduce_scatter"] == counted[0]["all_gather"]


# -- public recordings -----------------------------------------------------------------------------------------------


def test_nccl_data_has_fifteen_all_reduces_and_six_broadcasts_all_in_some_range() -> None:
    answer = public("hta/nccl_data.json.gz", ranges="*")
    assert {"all_reduce": 15, "broadcast": 6} == device(answer).collectives
    assert 0 == device(answer).unattributed


def test_waits_are_no_collectives() -> None:
    assert 21 == num_calls(public("hta/nccl_data.json.gz"))


def test_eighty_kernels_of_one_name_are_what_their_callers_asked_for() -> None:
    row = device(public("hta/negative_queue_rank0_of16.json.gz"))
    expected = {"all_to_all": 45, "reduce_scatter": 10, "all_reduce": 10, "all_gather": 10, "unknown": 5}
    assert expected == row.collectives
    assert 5 == row.unknown
    differ = [one.message for one in row.reasons if one.code is KernelReasonCode.NAME_AND_CALLER_DIFFER]
    assert {
        f"name says sendrecv, caller says {collective}: 10 kernels"
        for collective in ("reduce_scatter", "all_reduce", "all_gather")
    } == set(differ)


@pytest.mark.parametrize("rank", [0, 1])
def test_kernels_whose_external_id_links_nothing_are_attributed_by_their_launch(rank: int) -> None:
    row = device(public(f"hta/sampled_rank-{rank}.json.gz", ranges="*"))
    assert (10, 0, 0) == (sum(row.collectives.values()), row.unattributed, row.unknown)


def test_a_group_of_one_asked_for_35_collectives_and_ran_none() -> None:
    answer = public("hta/ns_resolution_world1_nonccl_kernels.json.gz")
    assert (35, ()) == (num_calls(answer), answer.devices)
    assert {KernelReasonCode.GROUP_OF_ONE} <= set().union(*map(codes, answer.ranges))


@pytest.mark.parametrize("name", ["cpu_only_gloo_rank34_of300", "rank_non_gpu", "distributed_info_not_found"])
def test_a_capture_without_gpu_rows_is_a_finding_about_the_capture(name: str) -> None:
    answer = public(f"hta/{name}.json.gz")
    assert () == answer.devices
    assert "no-device-rows" in {limit.code for limit in answer.sources[0].limits}
    assert num_calls(answer) > 0


def test_one_kernel_of_nccl_and_not_seventy_four() -> None:
    row = device(public("tracelens/b200_eager_trace_rank0_of8.json.gz"))
    assert [("all_gather", 1)] == [
        (claim.value, kernel.count)
        for kernel in row.kernels
        if kernel.library == "NCCL"
        for claim in kernel.claims
        if claim.about is ClaimAbout.COLLECTIVE
    ]
    assert 73 == sum(kernel.count for kernel in row.kernels if kernel.library != "NCCL")


@pytest.fixture
def dlrm(tmp_path: Path) -> KernelsDocument:
    packed = PUBLIC / "param" / "dlrm_kineto.tar.gz"
    if not packed.exists():
        pytest.skip("needs the public sample param/dlrm_kineto.tar.gz")
    with tarfile.open(packed) as archive:
        for member in archive.getmembers():
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                (tmp_path / Path(member.name).name).write_bytes(content.read())
    return read_kernels([read_trace(path) for path in sorted(tmp_path.glob("*.json"))])


def test_an_all_to_all_of_ten_microseconds_looks_like_seven_milliseconds_to_early_ranks(dlrm: KernelsDocument) -> None:
    row = next(row for row in dlrm.transfers if row.collective == "all_to_all")
    assert (8, 5) == (row.num_ranks, row.count)
    assert (0, 7) == (row.number, row.last_rank)
    assert (10_000, 7_635_000, 2_000) == (row.shortest_ns, row.longest_ns, row.ends_within_ns)
    assert row.transfer_ns < 50_000 < 9_000_000 < row.waiting_ns


def test_eight_ranks_of_one_step_ran_the_same(dlrm: KernelsDocument) -> None:
    assert {Agreement.AGREE} == {row.agreement for row in dlrm.agreement}
    assert {8} == {row.num_ranks for row in dlrm.agreement}


RANGES_OF_AN_ALL_TO_ALL = ("AllToAll4D*", "c10d::alltoall_base_*", "record_param_comms*", "nccl:all_to_all*")


@pytest.mark.parametrize("ranges", RANGES_OF_AN_ALL_TO_ALL)
def test_two_processes_with_the_same_correlation_ids_are_kept_apart(ranges: str) -> None:
    answer = public("nsys/mfu_2gpu_before.sqlite", ranges=ranges)
    counts: dict[int | None, int] = {}
    times: dict[int | None, int] = {}
    for row in answer.ranges:
        counts[row.pid] = counts.get(row.pid, 0) + sum(row.collectives.values())
        times[row.pid] = times.get(row.pid, 0) + sum(kernel.total_ns for kernel in row.kernels)
    assert {144: 32, 145: 32} == counts
    assert {144: 17_072_844, 145: 8_106_669} == times
    assert [1, 1] == [row.unattributed for row in answer.devices]
    assert [1, 1] == [row.unknown for row in answer.devices]


@pytest.mark.parametrize("name", ["mock", "healthy_1pct"])
def test_a_database_without_ranges_says_what_it_cannot_answer(name: str) -> None:
    answer = public(f"nsys/{name}.sqlite")
    assert () == answer.ranges
    assert "no-ranges" in {limit.code for limit in answer.sources[0].limits}


GLOO = "gloo/{}_rank{}.json.gz"


@pytest.mark.parametrize(
    ("name", "ranges"),
    [("gloo_plain", "rs_ag_region"), ("gloo_shapes", "rs_ag_region"), ("functional", "functional_rs_ag")],
)
def test_on_gloo_two_calls_are_decomposed_and_its_all_reduce_for_one_of_them_is_said(name: str, ranges: str) -> None:
    answer = public(*(GLOO.format(name, rank) for rank in (0, 1)), ranges=ranges)
    assert [(Structure.DECOMPOSED, Evidence.CALLS)] * 2 == structures(answer, ranges)
    assert [{"reduce_scatter": 1, "all_gather": 1}] * 2 == [row.calls for row in answer.ranges]
    said = {reason.message for row in answer.ranges for reason in row.reasons}
    assert "gloo ran all_reduce for reduce_scatter: 1 call" in said


def test_on_gloo_ddp_calls_one_all_reduce_in_each_step() -> None:
    answer = public(*(GLOO.format("ddp", rank) for rank in (0, 1)), ranges="train_step")
    assert [(Structure.SINGLE_CALL, 2, {"all_reduce": 2})] * 2 == [
        (row.structure, row.instances, row.calls) for row in answer.ranges
    ]


def test_on_gloo_fsdp_gathers_eight_times_and_scatters_four_which_is_no_decomposition() -> None:
    answer = public(*(GLOO.format("fsdp2", rank) for rank in (0, 1)), ranges="train_step")
    assert [(Structure.SEVERAL, {"all_gather": 8, "reduce_scatter": 4})] * 2 == [
        (row.structure, row.calls) for row in answer.ranges
    ]


def test_an_execution_trace_is_refused() -> None:
    with pytest.raises(UsageError, match="execution trace"):
        public("param/resnet_2gpu_et.json.gz")
