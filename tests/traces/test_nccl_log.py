"""NCCL's log gives calls with counts, dtype and operator, and choices with algorithm and protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.traces import nccl_log
from rsag.traces.events import Call, Capture, LimitCode

CALL = (
    "host:6:7 [0] NCCL INFO {name}: opCount {sequence} sendbuff 0x7f00 recvbuff 0x7f10 count {count} datatype {dtype} "
    "op {op} root 0 comm 0x55aa [nranks=4] stream 0x99\n"
)


def read(tmp_path: Path, *lines: str | bytes) -> Capture:
    path = tmp_path / "nccl.log"
    path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return nccl_log.read(path)


def one_call(tmp_path: Path, **fields: object) -> Call:
    line = CALL.format(**{"name": "AllReduce", "sequence": 0, "count": 8, "dtype": 7, "op": 0} | fields)
    (call,) = read(tmp_path, line).calls
    return call


def test_our_recording_has_the_calls_of_both_ranks_and_the_choices_of_rank_0(
    recorded: Callable[[str], Path],
) -> None:
    capture = nccl_log.read(recorded("nccl_info_tuning.log"))

    calls = Counter((call.metadata.collective, call.rank) for call in capture.calls)
    assert {
        ("AllReduce", 0): 8,
        ("AllReduce", 1): 8,
        ("ReduceScatter", 0): 6,
        ("ReduceScatter", 1): 6,
        ("AllGather", 0): 6,
        ("AllGather", 1): 6,
    } == calls
    assert 20 == len(capture.choices)
    assert ("2.28.9+cuda13.0", 2, None) == (
        capture.origin.library_version,
        capture.origin.world_size,
        capture.origin.rank,
    )
    assert 0 == capture.quarantine.num_skipped


def test_our_recording_chose_simple_for_what_the_kernel_name_calls_ll(recorded: Callable[[str], Path]) -> None:
    capture = nccl_log.read(recorded("nccl_info_tuning.log"))
    assert {("RING", "SIMPLE")} == {choice.how for choice in capture.choices if choice.bytes >= 16 << 20}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("AllReduce", (8, 8)), ("ReduceScatter", (32, 8)), ("AllGather", (8, 32)), ("Send", (8, 8))],
)
def test_counts_become_elements_of_both_sides(tmp_path: Path, name: str, expected: tuple[int, int]) -> None:
    metadata = one_call(tmp_path, name=name).metadata
    assert expected == (metadata.in_numel, metadata.out_numel)


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "int8"), (7, "float32"), (9, "bfloat16"), (11, "float8_e5m2"), (99, "99")]
)
def test_dtypes_are_named(tmp_path: Path, number: int, expected: str) -> None:
    assert expected == one_call(tmp_path, dtype=number).metadata.dtype


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("AllReduce", 0, "sum"),
        ("AllReduce", 2, "max"),
        ("ReduceScatter", 4, "avg"),
        ("AllReduce", 7, "premul_sum"),
        ("AllGather", 0, None),
    ],
)
def test_operators_are_named_where_something_is_reduced(
    tmp_path: Path, name: str, number: int, expected: str | None
) -> None:
    assert expected == one_call(tmp_path, name=name, op=number).metadata.op


def test_the_count_of_operations_is_hexadecimal(tmp_path: Path) -> None:
    assert 0x1F == one_call(tmp_path, sequence="1f").metadata.sequence


def test_a_call_has_process_and_thread_and_the_rank_that_its_communicator_was_made_with(tmp_path: Path) -> None:
    init = "host:6:6 [0] NCCL INFO comm 0x55aa rank 3 nranks 4 cudaDev 0 busId 70 commId 0x1 - Init COMPLETE\n"
    (call,) = read(tmp_path, init, CALL.format(name="AllReduce", sequence=0, count=1, dtype=7, op=0)).calls
    assert (6, 7, 3) == (call.process, call.thread, call.rank)


def test_a_cut_line_is_counted_with_its_offset_and_the_rest_is_read(tmp_path: Path) -> None:
    whole = CALL.format(name="AllReduce", sequence=0, count=1, dtype=7, op=0)
    capture = read(tmp_path, whole, whole[:80] + "\n", whole)
    assert 2 == len(capture.calls)
    assert (1, 3) == (capture.quarantine.num_skipped, capture.quarantine.num_seen)
    assert len(whole) == capture.quarantine.first[0].offset


def test_a_count_beyond_64_bits_is_no_count(tmp_path: Path) -> None:
    capture = read(tmp_path, CALL.format(name="AllReduce", sequence=0, count=1 << 63, dtype=7, op=0))
    assert (0, 1) == (len(capture.calls), capture.quarantine.num_skipped)


def test_bad_utf_8_and_a_timestamp_before_the_host_do_no_harm(tmp_path: Path) -> None:
    line = CALL.format(name="AllReduce", sequence=0, count=1, dtype=7, op=0).encode()
    assert 2 == len(read(tmp_path, b"\xff\xfe " + line, b"[2026-11-30 12:00:00] " + line).calls)


def test_a_line_of_many_megabytes_is_skipped_not_held(tmp_path: Path) -> None:
    line = CALL.format(name="AllReduce", sequence=0, count=1, dtype=7, op=0)
    capture = read(tmp_path, "x" * (3 << 20) + "\n", line)
    assert (1, 1) == (len(capture.calls), capture.quarantine.num_skipped)


def test_a_log_without_calls_and_choices_says_what_it_cannot_tell_and_what_would(tmp_path: Path) -> None:
    capture = read(tmp_path, "h:6:6 [0] NCCL INFO Using network Socket\n")
    limits = {limit.code: limit.message for limit in capture.limits}
    assert {LimitCode.NO_COUNTS, LimitCode.NO_CHOICES, LimitCode.NO_DEVICE_ROWS} == set(limits)
    assert "NCCL_DEBUG_SUBSYS" in limits[LimitCode.NO_CHOICES]


def test_a_log_is_known_by_its_lines_wherever_they_start() -> None:
    assert nccl_log.sniff(b"epoch 0\nhost:1:1 [0] NCCL INFO x", Path("out.txt"))
    assert not nccl_log.sniff(b"epoch 0\n", Path("nccl.log"))


def test_a_log_is_known_when_a_program_wrote_much_before(tmp_path: Path) -> None:
    text = b"epoch\n" * 100_000 + b"host:1:1 [0] NCCL INFO x\n"
    (tmp_path / "out.txt").write_bytes(text)
    assert nccl_log.sniff(text[: 64 << 10], tmp_path / "out.txt")


@given(st.lists(st.binary(max_size=60) | st.sampled_from([CALL[:70].encode(), b"h:1:1 [0] NCCL INFO 9 Bytes -> "])))
def test_any_bytes_are_read_without_harm(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(b"\n".join(parts))
    quarantine = nccl_log.read(path).quarantine
    assert quarantine.num_skipped <= quarantine.num_seen
