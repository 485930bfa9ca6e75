"""Nsight Systems' exports are read with the tables and columns that they have, and say what those leave open."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsag.errors import UsageError
from rsag.traces import nsys
from rsag.traces.events import CallSource, Capture, LimitCode, OperationKind, RangeKind

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
STRINGS = {1: ALL_REDUCE, 2: "gemm", 3: "cudaLaunchKernelExC_v11060", 4: "step", 5: "NCCL", 6: "ncclAllReduce"}
COLUMNS = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName, "
    "graphNodeId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, copyKind, srcDeviceId, "
    "dstDeviceId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start, end, deviceId, streamId, correlationId, globalPid, graphId",
    "NVTX_EVENTS": "start, end, eventType, globalTid, endGlobalTid, domainId, text, textId",
}
KERNEL, LAUNCH, COPY, GRAPH, RANGE = list(COLUMNS)[1:]


def global_id(process: int, thread: int = 0) -> int:
    return (1 << 48) | (process << 24) | thread


Row = tuple[Any, ...]


def kernel(start: Any = 100, end: Any = 200, *, process: int = 7, correlation: Any = 1, name: Any = 1) -> Row:
    return (start, end, 0, 13, correlation, global_id(process), name, name, None)


def launch(start: Any = 10, end: Any = 20, *, process: int = 7, correlation: Any = 1) -> Row:
    return (start, end, global_id(process, 9), correlation, 3)


def nvtx(
    start: Any,
    end: Any,
    text: Any = None,
    *,
    text_id: Any = None,
    kind: int = 59,
    domain: Any = 0,
    end_thread: Any = None,
) -> Row:
    return (start, end, kind, global_id(7, 9), end_thread, domain, text, text_id)


def write(path: Path, without: Sequence[str] = (), rename: dict[str, str] | None = None, **rows: Any) -> Path:
    """An export with the rows of each table: `kernels`, `launches`, ...; tables that have none are left out."""
    tables = dict(zip(("kernels", "launches", "copies", "graphs", "ranges"), list(COLUMNS)[1:]))
    with contextlib.closing(sqlite3.connect(path)) as database:
        for table, values in {"StringIds": list(STRINGS.items()), **{tables[key]: rows[key] for key in rows}}.items():
            columns = [column for column in COLUMNS[table].split(", ") if column not in without]
            kept = [index for index, column in enumerate(COLUMNS[table].split(", ")) if column not in without]
            name = (rename or {}).get(table, table)
            quoted = ", ".join('"end"' if column == "end" else column for column in columns)
            database.execute(f"CREATE TABLE {name} ({quoted})")
            marks = ", ".join("?" * len(columns))
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", [[row[i] for i in kept] for row in values])
        database.commit()
    return path


def on_machine(machine: int, row: Row) -> Row:
    """The same row with the process's and thread's ids of another VM or hardware."""
    return tuple(
        value - (1 << 48) + (machine << 48) if isinstance(value, int) and value > 1 << 48 else value for value in row
    )


def limits(capture: Capture) -> dict[LimitCode, str]:
    return {limit.code: limit.message for limit in capture.limits}


# -- published exports ---------------------------------------------------------------------------------------------


def test_two_processes_with_the_same_correlation_ids_keep_their_kernels_apart(public: Callable[[str], Path]) -> None:
    capture = nsys.read(public("nsys/mfu_2gpu_before.sqlite"))
    kernels = [operation for operation in capture.operations if operation.kind is OperationKind.KERNEL]
    assert {144: 33, 145: 33} == Counter(operation.process for operation in kernels)
    launched = {(one.process, one.correlation) for one in capture.launches}
    total_ns = {
        process: sum(
            operation.end_ns - operation.start_ns
            for operation in kernels
            if operation.process == process and (process, operation.correlation) in launched
        )
        for process in (144, 145)
    }
    assert {144: 17_072_844, 145: 8_106_669} == total_ns
    assert 64 == len([one for one in kernels if (one.process, one.correlation) in launched])


def test_each_launch_of_the_published_export_lies_in_the_ranges_that_nsight_gives_it(
    public: Callable[[str], Path],
) -> None:
    capture = nsys.read(public("nsys/mfu_2gpu_before.sqlite"))
    kernels = {
        (operation.process, operation.correlation)
        for operation in capture.operations
        if operation.kind is OperationKind.KERNEL
    }
    around = Counter(
        (one.process, enclosing.name)
        for one in capture.launches
        if (one.process, one.correlation) in kernels
        for enclosing in capture.ranges
        if (one.process, one.thread) == (enclosing.process, enclosing.thread)
        and enclosing.start_ns <= one.start_ns
        and enclosing.end_ns >= one.end_ns
    )
    names = ("AllToAll4D", "c10d::alltoall_base_", "record_param_comms", "nccl:all_to_all", "NCCL:ncclGroupEnd")
    assert {(process, name): 32 for process in (144, 145) for name in names} == {
        key: count for key, count in around.items() if key[1] in names
    }


@pytest.mark.parametrize(("name", "num_other"), [("mock", 2), ("healthy_1pct", 400)])
def test_exports_without_nvtx_say_what_cannot_be_answered(
    public: Callable[[str], Path], name: str, num_other: int
) -> None:
    capture = nsys.read(public(f"nsys/{name}.sqlite"))
    assert (0, num_other) == (len(capture.operations), capture.num_other_kernels)
    assert "which part of the program" in limits(capture)[LimitCode.NO_RANGES]


# -- kernels, launches, ranges -------------------------------------------------------------------------------------


def test_kernels_that_compute_are_counted_and_not_kept(tmp_path: Path) -> None:
    capture = nsys.read(write(tmp_path / "x.sqlite", kernels=[kernel(), kernel(name=2), kernel(name=2)]))
    assert (1, 2) == (len(capture.operations), capture.num_other_kernels)


def test_only_launches_of_kept_kernels_are_kept_and_by_process(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.sqlite",
        kernels=[kernel(process=7, correlation=1), kernel(process=8, correlation=2)],
        launches=[launch(process=process, correlation=number) for process in (7, 8) for number in (1, 2, 3)],
    )
    assert [(7, 1), (8, 2)] == [(one.process, one.correlation) for one in nsys.read(path).launches]


def test_without_processes_on_kernels_every_launch_of_the_number_is_kept(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.sqlite",
        without=["globalPid"],
        kernels=[kernel()],
        launches=[launch(process=7), launch(process=8), launch(correlation=5)],
    )
    capture = nsys.read(path)
    assert (None, [7, 8]) == (capture.operations[0].process, [one.process for one in capture.launches])


def test_names_come_from_text_or_from_registered_strings(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", ranges=[nvtx(0, 9, "free"), nvtx(0, 9, text_id=4)])
    assert ["free", "step"] == [one.name for one in nsys.read(path).ranges]


def test_a_named_domain_stands_before_its_ranges_and_nccl_calls_are_calls(tmp_path: Path) -> None:
    rows = [
        nvtx(0, None, text_id=5, kind=75, domain=1),
        nvtx(0, None, "Mine", kind=75, domain=2),
        nvtx(1, 2, text_id=6, domain=1),
        nvtx(1, 2, "part", domain=2),
    ]
    capture = nsys.read(write(tmp_path / "x.sqlite", ranges=rows))
    assert [("NCCL:ncclAllReduce", RangeKind.LIBRARY), ("Mine:part", RangeKind.MARK)] == [
        (one.name, one.kind) for one in capture.ranges
    ]
    assert [("ncclAllReduce", CallSource.LIBRARY)] == [(one.metadata.collective, one.source) for one in capture.calls]


def test_torchs_suffixes_go_its_communication_stays_and_its_other_operators_are_dropped(tmp_path: Path) -> None:
    names = ["c10d::allreduce_, seq = 5, op_id = 9", "aten::add, seq = 1", "mine, op_id = 3", "x::y, op_id = 1"]
    names.append("my::own")
    capture = nsys.read(write(tmp_path / "x.sqlite", ranges=[nvtx(0, 9, name) for name in names]))
    assert [
        ("c10d::allreduce_", RangeKind.FRAMEWORK),
        ("mine", RangeKind.MARK),
        ("my::own", RangeKind.MARK),
    ] == [(one.name, one.kind) for one in capture.ranges]
    assert [CallSource.C10D] == [one.source for one in capture.calls]


def test_an_open_range_ends_with_the_last_nvtx_time(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", ranges=[nvtx(5, None, "open"), nvtx(6, 70, "closed"), nvtx(90, 95, "last")])
    assert 95 == nsys.read(path).ranges[0].end_ns


@pytest.mark.parametrize("kind", [59, 60, 70, 71])
def test_the_four_types_of_range_are_ranges_and_a_mark_is_none(tmp_path: Path, kind: int) -> None:
    path = write(tmp_path / "x.sqlite", ranges=[nvtx(0, 9, "a", kind=kind), nvtx(0, 9, "b", kind=34)])
    assert ["a"] == [one.name for one in nsys.read(path).ranges]


def test_a_range_that_ends_on_another_thread_is_counted_and_not_used(tmp_path: Path) -> None:
    capture = nsys.read(write(tmp_path / "x.sqlite", ranges=[nvtx(0, 9, "a", end_thread=global_id(7, 10))]))
    assert (0, 1) == (len(capture.ranges), capture.quarantine.num_skipped)


@pytest.mark.parametrize(
    ("kind", "source", "target", "expected"),
    [(10, None, None, ["Memcpy PtoP"]), (8, 0, 1, ["Memcpy PtoP"]), (8, 0, 0, ["Memcpy DtoD"]), (1, None, None, [])],
)
def test_copies_between_and_within_devices_are_kept(
    tmp_path: Path, kind: int, source: int | None, target: int | None, expected: list[str]
) -> None:
    row = (0, 9, 0, 13, 1, global_id(7), kind, source, target)
    operations = nsys.read(write(tmp_path / "x.sqlite", copies=[row])).operations
    assert [(OperationKind.COPY, name) for name in expected] == [(one.kind, one.name) for one in operations]


def test_graphs_traced_as_a_whole_are_launches_that_were_not_expanded(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", graphs=[(0, 9, 0, 13, 1, global_id(7), 3)] * 2, launches=[launch()])
    capture = nsys.read(path)
    assert (2, 1) == (len(capture.graph_launches), len(capture.launches))
    message = limits(capture)[LimitCode.GRAPHS_NOT_EXPANDED]
    assert message.startswith("2 graph launches not expanded")
    assert "--cuda-graph-trace=node" in message


def test_kernels_of_expanded_graphs_are_marked(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", kernels=[(*kernel()[:-1], 42), kernel()])
    assert [True, False] == [one.in_graph for one in nsys.read(path).operations]


# -- what a file may lack ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [KERNEL, LAUNCH, RANGE])
def test_tables_with_a_version_in_their_name_are_found(tmp_path: Path, table: str) -> None:
    path = write(
        tmp_path / "x.sqlite",
        rename={table: table + "_V3"},
        kernels=[kernel()],
        launches=[launch()],
        ranges=[nvtx(0, 9, "a")],
    )
    capture = nsys.read(path)
    assert (1, 1, 1) == (len(capture.operations), len(capture.launches), len(capture.ranges))


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"kernels": [kernel()], "ranges": []}, LimitCode.NO_LAUNCHES),
        ({"kernels": [kernel()], "launches": []}, LimitCode.NO_RANGES),
        ({"launches": [], "ranges": []}, LimitCode.NO_KERNEL_TABLE),
        ({"kernels": [], "launches": [], "ranges": []}, LimitCode.NO_DEVICE_ROWS),
    ],
)
def test_what_is_missing_is_named_with_what_it_leaves_open(
    tmp_path: Path, tables: dict[str, Any], expected: LimitCode
) -> None:
    found = limits(nsys.read(write(tmp_path / "x.sqlite", **tables)))
    assert {expected, LimitCode.NO_COUNTS} == set(found)


@pytest.mark.parametrize("without", [["demangledName"], ["shortName"], ["graphNodeId"], ["streamId"], ["endGlobalTid"]])
def test_one_column_less_is_no_reason_to_stop(tmp_path: Path, without: list[str]) -> None:
    path = write(tmp_path / "x.sqlite", without, kernels=[kernel()], launches=[launch()], ranges=[nvtx(0, 9, "a")])
    capture = nsys.read(path)
    assert (1, 1, 1) == (len(capture.operations), len(capture.launches), len(capture.ranges))


def test_another_database_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite")) as database:
        database.execute("CREATE TABLE bookmarks (url)")
    with pytest.raises(UsageError, match=r"not an export of Nsight Systems; got bookmarks; .*nsys export"):
        nsys.read(tmp_path / "x.sqlite")


def test_views_in_a_file_from_elsewhere_are_not_run(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite")) as database:
        database.execute(
            "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
        )
    with pytest.raises(UsageError, match="not an export"):
        nsys.read(tmp_path / "x.sqlite")


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [kernel(200, 100), kernel(100, 100), kernel(None), kernel("soon"), kernel(100, 2.5)])
def test_a_kernel_that_cannot_be_is_counted_with_its_row(tmp_path: Path, bad: tuple[Any, ...]) -> None:
    capture = nsys.read(write(tmp_path / "x.sqlite", kernels=[kernel(), bad]))
    assert (1, 0) == (len(capture.operations), capture.num_other_kernels)
    assert (1, 2, 2) == (
        capture.quarantine.num_skipped,
        capture.quarantine.num_seen,
        capture.quarantine.first[0].offset,
    )


def test_a_database_that_is_cut_gives_what_can_be_read_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", kernels=[kernel(start, start + 5) for start in range(20_000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    capture = nsys.read(path)
    assert 0 < len(capture.operations) < 20_000
    assert LimitCode.TRUNCATED in limits(capture)
    assert 1 == capture.quarantine.num_skipped


def test_what_only_begins_like_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 200)
    with pytest.raises(UsageError, match="not a readable SQLite database"):
        nsys.read(tmp_path / "x.sqlite")


def test_a_locked_database_is_read_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", kernels=[kernel()])
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert 1 == len(nsys.read(path).operations)
    assert ["x.sqlite"] == sorted(entry.name for entry in tmp_path.iterdir())


def test_an_export_in_use_says_that_its_log_was_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.sqlite", kernels=[kernel()])
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("INSERT INTO StringIds VALUES (99, 'later')")
        other.commit()
        assert "x.sqlite-wal" in limits(nsys.read(path))[LimitCode.TRUNCATED]


def test_a_path_with_odd_characters_is_still_a_path(tmp_path: Path) -> None:
    path = write(tmp_path / "a?b#c%20 d.sqlite", kernels=[kernel()])
    assert 1 == len(nsys.read(path).operations)


CELL = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=8) | st.binary(max_size=8) | st.floats()


def rows(table: str) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*[CELL | st.sampled_from([1, 3, 59, 75])] * len(COLUMNS[table].split(", "))), max_size=4)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(kernels=rows(KERNEL), launches=rows(LAUNCH), copies=rows(COPY), graphs=rows(GRAPH), ranges=rows(RANGE))
def test_cells_of_any_type_are_read_without_harm(
    tmp_path_factory: pytest.TempPathFactory, **tables: list[tuple[Any, ...]]
) -> None:
    quarantine = nsys.read(write(tmp_path_factory.mktemp("fuzz") / "x.sqlite", **tables)).quarantine
    assert quarantine.num_skipped <= quarantine.num_seen


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_any_byte_of_a_database_may_be_another(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    path = write(folder / "x.sqlite", kernels=[kernel()] * 50, launches=[launch()], ranges=[nvtx(0, 9, "a")])
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(16, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(UsageError):
        nsys.read(path)


# -- files merged of several hosts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [2, 256, -128], ids=["another VM", "other hardware", "hardware with the sign bit"])
def test_one_pid_on_two_machines_is_two_processes(tmp_path: Path, other: int) -> None:
    path = write(
        tmp_path / "x.sqlite",
        kernels=[kernel(100), on_machine(other, kernel(5100, 5200))],
        launches=[on_machine(other, launch(5010, 5020)), launch(10)],
        ranges=[nvtx(0, 50, "a"), on_machine(other, nvtx(5000, 5050, "b"))],
    )
    capture = nsys.read(path)
    first, second = (one.process for one in capture.operations)
    assert 7 == first
    assert second is not None
    assert first != second
    assert 7 == second & 0xFFFFFF
    assert {first: 10, second: 5010} == {one.process: one.start_ns for one in capture.launches}
    assert {first: "a", second: "b"} == {one.process: one.name for one in capture.ranges}
