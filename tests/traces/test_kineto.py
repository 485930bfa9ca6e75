"""torch.profiler's traces in every form that torch has written them in, and what is taken from them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kineto_files import BASE_NS, GEMM, Row, codes, kernel, launch, num_joined, read_bytes, read_rows, row

from rsag.traces import kineto, kineto_joined
from rsag.traces.events import CallSource, Capture, LimitCode, Metadata, OperationKind, Range, RangeKind

Find = Callable[[str], Path]
RECORDINGS = ("cuda_graph", "ddp", "eager", "ops", "symmetric", "world_size_1")


def marks(capture: Capture) -> Counter[str]:
    return Counter(one.name for one in capture.ranges if one.kind is RangeKind.MARK)


# -- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["head", "tail"])
def test_the_base_is_added_wherever_it_stands(tmp_path: Path, where: str) -> None:
    event = json.dumps(kernel(1, ts=5209851962657.243))
    base = f'"baseTimeNanoseconds": {BASE_NS}'
    text = f'{{{base}, "traceEvents": [{event}]}}' if where == "head" else f'{{"traceEvents": [{event}], {base}}}'
    (operation,) = read_bytes(tmp_path, text.encode()).operations
    assert BASE_NS + 5_209_851_962_657_243 == operation.start_ns
    assert 50_000 == operation.end_ns - operation.start_ns


@pytest.mark.parametrize(
    ("written", "expected_ns"),
    [
        ("1790857026000000.123", 1_790_857_026_000_000_123),  # no double holds this
        ("1790857026000000", 1_790_857_026_000_000_000),
        ("1712195495505543.2", 1_712_195_495_505_543_200),
        ("5209851962657.001", 5_209_851_962_657_001),
        ("1.5e3", 1_500_000),
        ("12.34567", 12_346),
        ("0.5", 500),
        ("0", 0),
    ],
)
def test_a_time_loses_no_digit(tmp_path: Path, written: str, expected_ns: int) -> None:
    text = json.dumps(kernel(1, ts="TIME")).replace('"TIME"', written)
    (operation,) = read_bytes(tmp_path, f"[{text}]".encode()).operations
    assert expected_ns == operation.start_ns


@pytest.mark.parametrize(
    ("written_us", "expected_ns"), [(1.001, 1001), (4.128, 4128), (0.0006, 1), (0.0014, 1), (30.879, 30_879)]
)
def test_a_duration_is_the_nearest_nanosecond_of_its_double(
    tmp_path: Path, written_us: float, expected_ns: int
) -> None:
    (operation,) = read_rows(tmp_path, kernel(1, dur=written_us)).operations
    assert expected_ns == operation.end_ns - operation.start_ns


# -- forms -----------------------------------------------------------------------------------------------------------


def unzipped(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize(
    "options",
    [{"separators": (",", ":")}, {"indent": 1}, {"indent": 2}, {"indent": "\t"}, {"sort_keys": True}, {}],
    ids=str,
)
def test_a_trace_written_anew_by_another_program_reads_the_same(
    recorded: Find, tmp_path: Path, name: str, options: dict[str, object], compressed: bool
) -> None:
    path = recorded(f"{name}.rank0.json.gz")
    text = json.dumps(json.loads(unzipped(path)), **options)  # type: ignore[arg-type]
    anew = read_bytes(tmp_path, text.encode(), compressed=compressed)
    assert kineto.read(path) == replace(anew, source=str(path))


def test_a_bare_list_of_events_is_a_trace(recorded: Find, tmp_path: Path) -> None:
    path = recorded("eager.rank0.json.gz")
    events = json.dumps(json.loads(unzipped(path))["traceEvents"]).encode()
    capture = read_bytes(tmp_path, events)
    assert 15 == num_joined(capture)
    assert set() == codes(capture)
    assert kineto.sniff(events[:65536], tmp_path)


def test_the_categories_of_2021_are_read(tmp_path: Path) -> None:
    capture = read_rows(
        tmp_path,
        row("Operator", "## forward ##", 50, 100),
        row("Operator", "aten::add", 60, 5),
        row("Operator", "MulBackward0", 61, 1),
        row("Operator", "nccl:all_reduce", 90, 20),
        {**launch(3, "cudaLaunchKernel"), "cat": "Runtime"},
        {**kernel(3, "ncclAllReduceRingLLKernel_sum_f32(ncclColl)"), "cat": "Kernel"},
        {**row("Memcpy", "Memcpy DtoD (Device -> Device)", 300, 3, 0, 7, correlation=4, device=0, stream=7)},
        {"ph": "f", "id": 3, "pid": 0, "tid": 17, "ts": 200, "cat": "async_gpu", "name": "", "bp": "e"},
    )
    assert ["ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "Memcpy DtoD (Device -> Device)"] == [
        one.name for one in capture.operations
    ]
    assert 1 == num_joined(capture)
    assert {"## forward ##": 1} == marks(capture)
    assert ["nccl:all_reduce"] == [one.name for one in capture.ranges if one.kind is RangeKind.FRAMEWORK]


def test_only_copies_within_and_between_devices_are_kept(tmp_path: Path) -> None:
    names = ("Memcpy DtoD (Device -> Device)", "Memcpy PtoP (Device -> Device)", "Memcpy HtoD (Pinned -> Device)")
    capture = read_rows(tmp_path, *(row("gpu_memcpy", name, correlation=1, device=0, stream=7) for name in names))
    assert [(OperationKind.COPY, name) for name in names[:2]] == [(one.kind, one.name) for one in capture.operations]


def test_names_count_on_rows_of_kernels_only(tmp_path: Path) -> None:
    capture = read_rows(
        tmp_path,
        row("python_function", "pynccl_allocator.py(48): ncclAllReduce"),
        row("gpu_user_annotation", "nccl:all_reduce", pid=0),
        kernel(1, "my_nccl_like_gemm"),
        kernel(2, GEMM),
        kernel(3, "ncclDevKernel_Generic"),
    )
    assert ["ncclDevKernel_Generic"] == [one.name for one in capture.operations]
    assert 2 == capture.num_other_kernels


def test_launches_of_kernels_that_compute_are_dropped_and_those_of_graphs_kept(tmp_path: Path) -> None:
    rows = launch(1), launch(2), launch(3, "cudaGraphLaunch"), kernel(2), kernel(1, GEMM)
    assert [2, 3] == [one.correlation for one in read_rows(tmp_path, *rows).launches]


def test_a_correlation_id_of_two_processes_tells_no_process(tmp_path: Path) -> None:
    rows = launch(1, pid=7), launch(1, pid=8), launch(2, pid=8), kernel(1), kernel(2)
    assert [None, 8] == [one.process for one in read_rows(tmp_path, *rows).operations]


# -- launches whose row is missing -----------------------------------------------------------------------------------


def flow(correlation: object, **fields: object) -> Row:
    return {"ph": "s", "id": correlation, "pid": 7, "tid": 8, "ts": 110.5, "cat": "ac2g", "name": "ac2g", **fields}


def test_a_kernel_without_a_launch_is_given_the_one_that_its_flow_comes_from(tmp_path: Path) -> None:
    end = {**flow(1), "ph": "f", "pid": 0, "tid": 17, "bp": "e"}
    capture = read_rows(tmp_path, kernel(1), launch(2), kernel(2), flow(1), end, flow(2), flow(3), head=BASE)
    by_row, by_flow = capture.launches
    assert (1, 7, 8) == (by_flow.correlation, by_flow.process, by_flow.thread)
    assert BASE_NS + 110_500 == by_flow.start_ns == by_flow.end_ns
    assert 2 == by_row.correlation
    assert [7, 7] == [one.process for one in capture.operations]


def test_where_only_flows_say_what_launched_kernels_that_is_no_limit(tmp_path: Path) -> None:
    assert LimitCode.NO_LAUNCHES not in codes(read_rows(tmp_path, kernel(1), flow(1)))
    assert LimitCode.NO_LAUNCHES in codes(read_rows(tmp_path, kernel(1), flow(2)))


@pytest.mark.parametrize(
    "bad",
    [
        *(flow("1"), flow(1.5), flow(1 << 80), flow([1]), flow(1, ts="soon"), flow(1, ts=-1), flow(1, ts=10**30)),
        *(flow(1, pid="Spans"), flow(1, cat="fwdbwd"), flow(1, ph="f")),
    ],
    ids=str,
)
def test_a_flow_that_cannot_be_is_no_launch(tmp_path: Path, bad: Row) -> None:
    assert () == read_rows(tmp_path, kernel(1), bad).launches


def test_where_all_kernels_have_their_launches_a_file_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "read_flows", lambda *_: pytest.fail("read again"))
    assert 1 == num_joined(read_rows(tmp_path, kernel(1), launch(1), flow(1)))


@pytest.mark.parametrize("device", [0, 1])
def test_of_two_kernels_with_the_id_of_one_launch_neither_is_taken_for_launched_by_it(
    tmp_path: Path, device: int
) -> None:
    capture = read_rows(tmp_path, launch(1), kernel(1), kernel(1, ts=90, device=device), launch(2), kernel(2))
    assert [None, None, 2] == [one.correlation for one in capture.operations]
    assert [None, None, 7] == [one.process for one in capture.operations]
    (limit,) = [one for one in capture.limits if one.code is LimitCode.SHARED_IDS]
    assert limit.message.startswith("2 kernels")


@pytest.mark.parametrize("api", ["cudaGraphLaunch", "cudaLaunchCooperativeKernelMultiDevice"])
def test_one_launch_may_start_several_kernels(tmp_path: Path, api: str) -> None:
    capture = read_rows(tmp_path, launch(1, api), kernel(1), kernel(1, device=1))
    assert [1, 1] == [one.correlation for one in capture.operations]
    assert LimitCode.SHARED_IDS not in codes(capture)


# -- ranges ----------------------------------------------------------------------------------------------------------


BASE = f'"baseTimeNanoseconds": {BASE_NS},'
IDLE = [row("user_annotation", f"idle {i}", 1000 + i, 0.5) for i in range(5)]
BUSY = row("user_annotation", "busy", 90, 50)


def test_of_the_users_ranges_without_communication_so_many_are_kept_and_the_rest_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_joined, "MAX_IDLE_MARKS", 3)
    capture = read_rows(tmp_path, *IDLE, BUSY, launch(1), kernel(1))
    assert ["idle 0", "idle 1", "idle 2", "busy"] == [one.name for one in capture.ranges]
    (limit,) = [one for one in capture.limits if one.code is LimitCode.RANGES_DROPPED]
    assert " 2 are not" in limit.message


def test_ranges_up_to_that_number_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_joined, "MAX_IDLE_MARKS", 5)
    capture = read_rows(tmp_path, *IDLE, launch(1), kernel(1))
    assert 5 == len(capture.ranges)
    assert LimitCode.RANGES_DROPPED not in codes(capture)


@pytest.mark.parametrize("inner", [launch(1, ts=110), row("cpu_op", "c10d::barrier", 110, 5)], ids=["launch", "call"])
@pytest.mark.parametrize(
    ("start", "length", "is_kept"), [(110, 1, True), (50, 60, True), (111, 9, False), (50, 59, False)]
)
def test_a_range_of_torchs_is_kept_if_a_launch_or_a_call_starts_in_it(
    tmp_path: Path, inner: Row, start: int, length: int, is_kept: bool
) -> None:
    outer = row("cpu_op", "_c10d_functional::all_reduce", start, length)
    names = [one.name for one in read_rows(tmp_path, outer, inner, kernel(1), head=BASE).ranges]
    assert is_kept == (outer["name"] in names)


def test_a_range_that_is_kept_has_all_its_fields(tmp_path: Path) -> None:
    mark = row("user_annotation", "busy", 90, 50.5, pid=7, tid=8)
    (kept,) = read_rows(tmp_path, mark, launch(1), kernel(1), head=BASE).ranges
    expected = Range(
        name="busy",
        kind=RangeKind.MARK,
        process=7,
        thread=8,
        start_ns=BASE_NS + 90_000,
        end_ns=BASE_NS + 140_500,
    )
    assert expected == kept


# -- calls -----------------------------------------------------------------------------------------------------------


def test_waiting_is_no_collective(tmp_path: Path) -> None:
    rows = (row("cpu_op", "record_param_comms", **{"Collective name": name}) for name in ("allreduce", "wait", "init"))
    assert ["allreduce"] == [call.metadata.collective for call in read_rows(tmp_path, *rows).calls]


def test_a_record_without_a_collective_is_a_range_and_no_call(tmp_path: Path) -> None:
    capture = read_rows(tmp_path, row("cpu_op", "record_param_comms"), launch(1, ts=105), kernel(1))
    assert (1, 0) == (len(capture.ranges), len(capture.calls))


def test_torch_2_2_calls_elements_a_size(tmp_path: Path) -> None:
    said = {"Collective name": "allreduce", "In msg size": 6, "Out msg size": 12, "dtype": "Half", "Group size": 2}
    (call,) = read_rows(tmp_path, row("cpu_op", "record_param_comms", **said)).calls
    expected = Metadata(collective="allreduce", in_numel=6, out_numel=12, dtype="Half", group_size=2)
    assert expected == call.metadata


def test_the_ranks_of_a_large_group_are_cut_short_and_not_guessed(tmp_path: Path) -> None:
    said = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1, 2, ..., 511]", "Group size": 512, "Seq": 9}
    (call,) = read_rows(tmp_path, row("cpu_op", "record_param_comms", **said)).calls
    assert (None, 512, 9) == (call.metadata.group_ranks, call.metadata.group_size, call.metadata.sequence)


@pytest.mark.parametrize(
    ("name", "shapes", "types", "expected"),
    [
        ("c10d::allreduce_", [[[1024]], []], ["TensorList", ""], (1024, 1024, None)),
        ("c10d::allreduce_", [[[8, 2], [4]], []], ["TensorList", ""], (20, 20, None)),
        ("c10d::allreduce_", [[], []], ["TensorList", ""], (None, None, None)),
        ("c10d::_reduce_scatter_base_", [[512], [1024]], ["float", "float"], (1024, 512, "Float")),
        ("c10d::_allgather_base_", [[8, 25136], [1, 25136]], ["c10::BFloat16"] * 2, (25136, 201088, "BFloat16")),
        ("c10d::allgather_", [[], [[16]]], ["", "TensorList"], (16, None, None)),
        ("c10d::reduce_scatter_tensor_coalesced_", [[[32]], [[64]]], ["TensorList"] * 2, (64, 32, None)),
        ("c10d::alltoall_base_", [[48], [64]], ["long int", "long int"], (64, 48, "Long")),
        ("c10d::broadcast_", [[-(1 << 70)]], ["float"], (None, None, "Float")),
    ],
)
def test_shapes_tell_what_goes_in_and_what_comes_out(
    tmp_path: Path, name: str, shapes: list[object], types: list[str], expected: tuple[object, ...]
) -> None:
    (call,) = read_rows(tmp_path, row("cpu_op", name, **{"Input Dims": shapes, "Input type": types})).calls
    assert (name, *expected) == (
        call.metadata.collective,
        call.metadata.in_numel,
        call.metadata.out_numel,
        call.metadata.dtype,
    )


def test_what_gloo_ran_stands_beside_what_was_called(tmp_path: Path) -> None:
    rows = (
        row("cpu_op", "c10d::_reduce_scatter_base_", 100, 50),
        row("user_annotation", "gloo:all_reduce", 110, 20, tid=9),
    )
    calls = read_rows(tmp_path, *rows).calls
    expected = [(CallSource.C10D, "c10d::_reduce_scatter_base_", 7), (CallSource.WORKER, "gloo:all_reduce", 9)]
    assert expected == [(call.source, call.metadata.collective, call.thread) for call in calls]


def test_torch_s_own_annotations_are_not_the_user_s(tmp_path: Path) -> None:
    names = ("mine", "ProfilerStep#3", "nccl:all_reduce", "Optimizer.step#SGD.step", "FSDP::all_gather (0)")
    capture = read_rows(tmp_path, *(row("user_annotation", name) for name in names))
    assert ["mine", "ProfilerStep#3"] == list(marks(capture))


# -- limits ----------------------------------------------------------------------------------------------------------

MARK = row("user_annotation", "step", 90, 60)
SAID = {"Collective name": "allreduce", "In msg nelems": 4}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([MARK, launch(1), kernel(1, **SAID)], set()),
        ([MARK, row("cpu_op", "record_param_comms", **SAID)], {LimitCode.NO_DEVICE_ROWS}),
        ([MARK, kernel(1, **SAID)], {LimitCode.NO_LAUNCHES}),
        ([launch(1), kernel(1, **SAID)], {LimitCode.NO_RANGES}),
        ([MARK, launch(1), kernel(1)], {LimitCode.NO_COUNTS}),
        ([MARK, launch(1), kernel(1, GEMM)], set()),
    ],
)
def test_a_limit_says_which_question_the_file_cannot_answer(
    tmp_path: Path, rows: list[dict[str, object]], expected: set[LimitCode]
) -> None:
    capture = read_rows(tmp_path, *rows)
    assert expected == codes(capture)
    assert all(limit.message for limit in capture.limits)


# -- what is a trace -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_known_by_its_beginning(recorded: Find, tmp_path: Path, name: str) -> None:
    stored = recorded(f"{name}.rank1.json.gz").read_bytes()
    assert kineto.sniff(stored[:65536], tmp_path)
    assert kineto.sniff(gzip.decompress(stored)[:65536], tmp_path)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b'{"version": "2.10", "pg_config": {}, "entries": []}',
        b'{"schema": "1.1.0-chakra.0.0.4", "nodes": []}',
        b'dlrm_kineto/worker0.json\0\0{"traceEvents": []}',
        gzip.compress(b"NVTX Range,Style\n", mtime=0),
        b"\x1f\x8b broken",
    ],
)
def test_other_files_are_not_taken_for_traces(tmp_path: Path, head: bytes) -> None:
    assert not kineto.sniff(head, tmp_path)
