"""The right answers of real traces, as far as the reader alone can tell: kernels, launches, calls, limits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kineto_files import BASE_NS, codes, num_calls, num_joined

from rsag.traces import kineto
from rsag.traces.events import CallSource, Capture, Format, LimitCode, Metadata, OperationKind

Find = Callable[[str], Path]
RECORDINGS = (
    *("ar_then_slice", "cuda_graph", "ddp", "ddp_rs_ag_hook", "eager"),
    *("launch_only", "ops", "symmetric", "world_size_1"),
)


def kernels(capture: Capture) -> list[str]:
    """The first word of each communication kernel's name, and its collective."""
    names = (one.name for one in capture.operations if one.kind is OperationKind.KERNEL)
    return ["_".join(name.split("_")[:2]) for name in names]


# -- our own recordings ----------------------------------------------------------------------------------------------

DEV, SYMMETRIC = "ncclDevKernel_", "ncclSymkDevKernel_"
PAIRS_OF_3 = {DEV + "ReduceScatter": 3, DEV + "AllGather": 3}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("name", "expected", "calls"),
    [
        ("eager", {DEV + "AllReduce": 5, DEV + "ReduceScatter": 5, DEV + "AllGather": 5}, 15),
        ("launch_only", PAIRS_OF_3, 6),
        ("cuda_graph", PAIRS_OF_3, 0),
        ("world_size_1", {}, 1),
        ("symmetric", {SYMMETRIC + "AllReduce": 1, SYMMETRIC + "ReduceScatter": 1, SYMMETRIC + "AllGather": 1}, 3),
        ("ddp", {DEV + "AllReduce": 2}, 2),
        ("ddp_rs_ag_hook", {DEV + "ReduceScatter": 2, DEV + "AllGather": 2}, 4),
        ("ar_then_slice", {DEV + "AllReduce": 1}, 1),
        ("ops", {DEV + "AllReduce": 6, DEV + "ReduceScatter": 6}, 12),
    ],
)
def test_a_recording_has_its_kernels_each_with_its_launch_and_its_call(
    recorded: Find, name: str, expected: dict[str, int], calls: int, rank: int
) -> None:
    capture = kineto.read(recorded(f"{name}.rank{rank}.json.gz"))
    assert expected == Counter(kernels(capture))
    assert len(kernels(capture)) == num_joined(capture)
    assert calls == num_calls(capture, CallSource.PARAM_COMMS) == num_calls(capture, CallSource.C10D)
    assert (rank, 2, "nccl", "NCCL 2.28.9") == (
        capture.origin.rank,
        capture.origin.world_size,
        capture.origin.backend,
        capture.origin.library_version,
    )
    assert 0 == capture.quarantine.num_skipped


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recording_has_a_range_for_each_of_its_truth(recorded: Find, name: str) -> None:
    truth = json.loads(recorded(f"{name}.truth.json").read_text())
    capture = kineto.read(recorded(f"{name}.rank0.json.gz"))
    assert set(truth.get("ranges", {})) <= {one.name for one in capture.ranges}


def test_a_kernel_carries_what_its_caller_said(recorded: Find) -> None:
    first = kineto.read(recorded("eager.rank1.json.gz")).operations[0]
    expected = Metadata(
        collective="allreduce",
        in_numel=1 << 20,
        out_numel=1 << 20,
        dtype="Float",
        group="0",
        group_size=2,
        group_ranks=(0, 1),
    )
    assert expected == first.metadata


def test_kernels_of_a_graph_are_marked_and_share_their_launch(recorded: Find) -> None:
    capture = kineto.read(recorded("cuda_graph.rank0.json.gz"))
    assert [True] * 6 == [operation.in_graph for operation in capture.operations]
    assert [True] * 3 == [launch.is_graph for launch in capture.launches]


def test_a_kernel_is_of_the_process_that_launched_it(recorded: Find) -> None:
    capture = kineto.read(recorded("ddp.rank0.json.gz"))
    assert {launch.process for launch in capture.launches} == {one.process for one in capture.operations}


def test_the_files_of_two_ranks_are_on_one_clock(recorded: Find) -> None:
    ends = [kineto.read(recorded(f"eager.rank{rank}.json.gz")).operations[-1].end_ns for rank in (0, 1)]
    assert abs(ends[0] - ends[1]) < 100_000
    assert min(ends) > BASE_NS


# -- published traces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "num_kernels", "joined", "asked"),
    [
        ("hta/nccl_data.json.gz", 21, 21, 21),
        ("hta/negative_queue_rank0_of16.json.gz", 80, 75, 85),
        ("hta/sampled_rank-0.json.gz", 10, 10, 10),
        ("hta/sampled_rank-1.json.gz", 10, 10, 10),
        ("hta/ns_resolution_world1_nonccl_kernels.json.gz", 0, 0, 35),
    ],
)
def test_a_published_trace_has_its_kernels_launches_and_calls(
    public: Find, name: str, num_kernels: int, joined: int, asked: int
) -> None:
    capture = kineto.read(public(name))
    assert (num_kernels, joined) == (len(kernels(capture)), num_joined(capture))
    assert asked == num_calls(capture, CallSource.C10D)
    assert 0 == capture.quarantine.num_skipped


@pytest.mark.parametrize(
    "name", ["cpu_only_gloo_rank34_of300.json.gz", "rank_non_gpu.json.gz", "distributed_info_not_found.json.gz"]
)
def test_a_published_trace_without_a_device_says_so(public: Find, name: str) -> None:
    assert LimitCode.NO_DEVICE_ROWS in codes(kineto.read(public(f"hta/{name}")))


def test_the_oldest_published_format_has_no_communication(public: Find) -> None:
    capture = kineto.read(public("hta/old_format_inference_rank_1.json.gz"))
    assert (Format.KINETO, 1, 4, []) == (
        capture.format,
        capture.origin.rank,
        capture.num_other_kernels,
        kernels(capture),
    )


def test_python_frames_in_a_path_of_nccl_are_no_kernels(public: Find) -> None:
    names = Counter(kernels(kineto.read(public("tracelens/b200_eager_trace_rank0_of8.json.gz"))))
    assert 1 == sum(count for name, count in names.items() if "nccl" in name)


def test_gloo_s_calls_are_those_of_the_callers(public: Find) -> None:
    capture = kineto.read(public("gloo/gloo_shapes_rank0.json.gz"))
    assert 10 == num_calls(capture, CallSource.C10D)
    assert {LimitCode.NO_DEVICE_ROWS} == codes(capture)
