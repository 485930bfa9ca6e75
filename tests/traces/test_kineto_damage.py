"""What is broken in a trace costs itself only, is counted, and is found again by its offset; nothing crashes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_files import GEMM, Row, codes, in_kineto_layout, kernel, launch, read_bytes, read_rows, row, trace

from rsag.errors import UsageError
from rsag.traces import blocks, chunks
from rsag.traces.events import Capture, LimitCode
from rsag.traces.kineto import read

Find = Callable[[str], Path]
ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

GOOD = [json.dumps(one) for one in (launch(1), kernel(1), launch(2), kernel(2), launch(3), kernel(3))]
KERNEL = json.dumps(kernel(9))
LAYOUTS: dict[str, Callable[[list[str]], bytes]] = {
    "kineto": in_kineto_layout,
    "minified": lambda rows: f'{{"traceEvents":[{",".join(rows)}]}}'.encode("utf-8", "surrogateescape"),
    "bare list": lambda rows: "[\n{}\n]".format(",\n".join(rows)).encode("utf-8", "surrogateescape"),
}
in_every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def correlations(capture: Capture) -> list[int | None]:
    return [one.correlation for one in capture.operations]


# -- one event -------------------------------------------------------------------------------------------------------

BROKEN = {
    "an unescaped quote": KERNEL.replace("ncclDev", 'nccl"Dev'),
    "two unescaped quotes": KERNEL.replace("ncclDev", '"nccl"Dev'),
    "a quote too many at the end": KERNEL.replace('ul>)"', 'ul>)""'),
    "a missing quote": KERNEL.replace('ul>)"', "ul>)"),
    "a bad escape": KERNEL.replace("ncclDev", "\\q"),
    "half a surrogate pair": KERNEL.replace("ncclDev", "\\ud800"),
    "no comma": KERNEL.replace(', "name"', ' "name"'),
    "a brace too few": KERNEL[:-1],
    "a name that is a number": KERNEL.replace('"name": "nccl', '"name": 7, "was": "nccl'),
    "a duration that is a text": KERNEL.replace('"dur": 50', '"dur": "50"'),
    "no object": '"what"',
    "too deep": f'{{"args": {"[" * 100_000}}}',
}


@in_every_layout
@pytest.mark.parametrize("position", [0, 3, 6])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_event_is_skipped_and_the_others_are_read(
    tmp_path: Path, broken: str, position: int, layout: Callable[[list[str]], bytes]
) -> None:
    data = layout([*GOOD[:position], broken, *GOOD[position:]])
    capture = read_bytes(tmp_path, data)
    assert [1, 2, 3] == correlations(capture)
    assert (1, 7) == (capture.quarantine.num_skipped, capture.quarantine.num_seen)
    assert LimitCode.TRUNCATED not in codes(capture)


@in_every_layout
@pytest.mark.parametrize("compressed", [False, True])
def test_the_offset_is_where_the_event_begins_in_the_decompressed_file(
    tmp_path: Path, layout: Callable[[list[str]], bytes], compressed: bool
) -> None:
    data = layout([*GOOD[:4], KERNEL.replace("ncclDev", 'BROKEN"'), *GOOD[4:]])
    (skipped,) = read_bytes(tmp_path, data, compressed=compressed).quarantine.first
    assert data.rindex(b"{", 0, data.index(b"BROKEN")) == skipped.offset


REPAIRED = {
    "a control character": KERNEL.replace("ncclDevKernel_AllReduce", "ncclDevKernel_AllReduce\x01\n\x1b[31m"),
    "bad UTF-8 in a name": KERNEL.replace("AllReduce", "AllReduce\udcff"),
    "bad UTF-8 among the arguments": KERNEL.replace('"device": 0', '"device": 0, "x": "\udcff"'),
    "NaN": KERNEL.replace('"device": 0', '"device": 0, "x": NaN, "y": -inf, "z": [nan, Infinity]'),
    "an integer above 64 bits": KERNEL.replace('"device": 0', '"device": 0, "Comms Id": 98765432109876543210'),
    "an endless integer": KERNEL.replace('"device": 0', f'"device": 0, "x": {"9" * 5000}'),
}


@in_every_layout
@pytest.mark.parametrize("written", REPAIRED.values(), ids=REPAIRED.keys())
def test_what_takes_no_guess_is_repaired(tmp_path: Path, written: str, layout: Callable[[list[str]], bytes]) -> None:
    capture = read_bytes(tmp_path, layout([*GOOD[:4], written, *GOOD[4:]]))
    assert [1, 2, 9, 3] == correlations(capture)
    assert 0 == capture.quarantine.num_skipped
    assert capture.operations[2].name.isprintable()


def without(one: Row, key: str) -> Row:
    return {name: value for name, value in one.items() if name != key}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (kernel(9, dur=0), "zero duration"),
        (kernel(9, GEMM, dur=0), "zero duration"),
        (kernel(9, dur=-1), "negative duration"),
        (kernel(9, ts=-0.5), "negative timestamp"),
        (without(kernel(9), "ts"), "no timestamp"),
        (without(kernel(9), "dur"), "no duration"),
        (kernel(9, ts="soon"), "not a number"),
        (kernel(9, ts=10**30), "beyond 64 bits"),
        (kernel(9, dur=1e300), "beyond 64 bits"),
        (kernel(9, ts=None), "no timestamp"),
        (kernel(9, device="zero"), "no device"),
        ({**kernel(9), "args": [1]}, "args that are no object"),
        ({**kernel(9), "ph": "B"}, "not a complete event"),
        (row("gpu_memcpy", "Memcpy DtoD", dur=-5, device=0, stream=7), "negative duration"),
        (row("user_annotation", "step", dur=-5), "negative duration"),
        (row("user_annotation", "step", pid="Spans"), "no process"),
        (without(launch(9), "ts"), "no timestamp"),
        (row("cuda_runtime", "cudaLaunchKernel", correlation=1 << 80), "correlation"),
        (row("cuda_runtime", "cudaLaunchKernel", correlation="9"), "correlation"),
    ],
)
def test_a_row_that_cannot_be_is_counted_with_its_reason_and_its_offset(tmp_path: Path, bad: Row, reason: str) -> None:
    data = trace(launch(1), kernel(1), bad, kernel(2))
    capture = read_bytes(tmp_path, data)
    assert [1, 2] == correlations(capture)
    assert (1, 4) == (capture.quarantine.num_skipped, capture.quarantine.num_seen)
    (skipped,) = capture.quarantine.first
    assert reason in skipped.reason
    assert data.count(b'"ph"', 0, skipped.offset) == 2


def test_a_range_or_a_call_of_no_length_is_no_error(tmp_path: Path) -> None:
    capture = read_rows(tmp_path, row("user_annotation", "step", dur=0), {**launch(1), "dur": 0}, kernel(1))
    assert (1, 1, 0) == (len(capture.ranges), len(capture.launches), capture.quarantine.num_skipped)


def test_the_first_ten_that_were_skipped_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    quarantine = read_rows(tmp_path, *(kernel(one, dur=0) for one in range(1, 31))).quarantine
    assert (30, 10) == (quarantine.num_skipped, len(quarantine.first))
    assert sorted(quarantine.first, key=lambda skipped: skipped.offset) == list(quarantine.first)


# -- the file --------------------------------------------------------------------------------------------------------


@ONE_FOLDER
@given(part=st.floats(0, 1))
@pytest.mark.parametrize("compressed", [False, True])
def test_a_truncated_file_is_read_up_to_the_cut(recorded: Find, tmp_path: Path, part: float, compressed: bool) -> None:
    path = tmp_path / "cut"
    stored = recorded("eager.rank0.json.gz").read_bytes()
    data = stored if compressed else gzip.decompress(stored)
    num_bytes = int(part * (len(data) - 1))
    path.write_bytes(data[:num_bytes])
    try:
        capture = read(path)
    except UsageError:
        assert num_bytes < (4000 if not compressed else 1000)  # within what stands before the events
        return
    whole = read(recorded("eager.rank0.json.gz"))
    assert correlations(whole)[: len(capture.operations)] == correlations(capture)
    assert capture.quarantine.num_skipped <= 1
    is_cut = compressed or num_bytes < data.rindex(b"\n  ]") + len("\n  ]")
    assert is_cut == (LimitCode.TRUNCATED in codes(capture))


def test_a_damaged_gzip_file_is_read_up_to_the_damage(recorded: Find, tmp_path: Path) -> None:
    stored = bytearray(recorded("ddp.rank0.json.gz").read_bytes())
    stored[-4000:] = bytes(4000)
    (tmp_path / "x.gz").write_bytes(stored)
    capture = read(tmp_path / "x.gz")
    assert capture.quarantine.num_seen > 300
    assert LimitCode.TRUNCATED in codes(capture)


def test_a_gzip_file_of_several_members_is_one_file(recorded: Find, tmp_path: Path) -> None:
    data = gzip.decompress(recorded("eager.rank0.json.gz").read_bytes())
    parts = [gzip.compress(data[at : at + 5000]) for at in range(0, len(data), 5000)]
    (tmp_path / "x.gz").write_bytes(b"".join(parts) + bytes(512))
    assert correlations(read(recorded("eager.rank0.json.gz"))) == correlations(read(tmp_path / "x.gz"))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"nothing", b'{"traceEvents": 7}', b"\0" * 100, b'{"a": "\\"traceEvents": [']
)
def test_a_file_without_events_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UsageError, match="no events in this file"):
        read_bytes(tmp_path, data)


def test_an_endless_file_is_left_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(trace(*(kernel(one) for one in range(20_000)))))
    with pytest.raises(UsageError, match=r"more than 1 MiB decompressed"):
        read(path, max_bytes=1 << 20)


def test_a_gzip_bomb_is_left_as_soon_as_it_has_grown_like_no_trace_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_RATIO_FROM_BYTES", 1 << 20)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (8 << 20)))
    with pytest.raises(UsageError, match="grows like no trace does"):
        read(path)


@pytest.mark.parametrize("event", ["1", "}, {"])
def test_a_list_of_anything_but_events_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    monkeypatch.setattr(blocks, "_MAX_SKIPPED", 1_000)
    with pytest.raises(UsageError, match="hardly any event in this file can be read"):
        read_bytes(tmp_path, f'{{"traceEvents": [{",".join([event] * 400_000)}]}}'.encode())


def test_many_broken_events_among_more_good_ones_are_read_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_MAX_SKIPPED", 10)
    rows = [row_text for one in range(3000) for row_text in (json.dumps(kernel(one)), KERNEL, '{"broken"}')]
    capture = read_bytes(tmp_path, in_kineto_layout(rows))
    assert (6000, 3000) == (len(capture.operations), capture.quarantine.num_skipped)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the reader tried to find the end of an event, in bodies that cannot be decoded at once."""
    tried: list[int] = []
    find = blocks._end_of_event

    def counted(chars: str, at: int) -> tuple[int | None, int]:
        tried.append(at)
        return find(chars, at)

    monkeypatch.setattr(blocks, "_end_of_event", counted)
    return tried


@pytest.mark.parametrize("depth", [200, 20_000])
def test_what_seems_an_event_in_each_of_many_levels_is_given_up_soon(
    tmp_path: Path, looks: list[int], depth: int
) -> None:
    nested = '{"a":[{},' * depth + "!"
    capture = read_bytes(tmp_path, f'{{"traceEvents":[{KERNEL},{nested}}},{KERNEL}]}}'.encode())
    assert len(looks) < 50
    assert 9 == capture.operations[0].correlation
    assert "given up" in capture.quarantine.first[-1].reason


def test_after_what_was_given_up_events_are_read_again(tmp_path: Path, looks: list[int]) -> None:
    nested = '{"a":[{},' * 200 + "!"
    rows = [f"{nested}}},{KERNEL}" for _ in range(3)]
    assert [9, 9, 9] == correlations(read_bytes(tmp_path, f'{{"traceEvents":[{",".join(rows)}]}}'.encode()))
    assert len(looks) < 75


def test_broken_events_after_a_very_long_one_are_given_up_soon(
    tmp_path: Path, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_MAX_LOOKED_BYTES", 100 << 20)
    long = '{"a": "' + "x" * (8 << 20) + '"}'
    read_bytes(tmp_path, f'{{"traceEvents":[{long},{",".join(["{!}"] * 10_000)},{KERNEL}]}}'.encode())
    assert len(looks) < 50


def test_an_event_of_any_depth_is_passed_over_or_skipped_and_offsets_are_right(tmp_path: Path) -> None:
    bad = json.dumps(kernel(9, dur=-1))
    for depth in range(500, 1100):
        deep = f'{{"ph": "X", "cat": "cpu_op", "name": "x", "args": {{"x": {"[" * depth}{"]" * depth}}}}}'
        data = f'{{"traceEvents": [{deep}, {bad}, {KERNEL}]}}'.encode()
        capture = read_bytes(tmp_path, data)
        assert [9] == correlations(capture)
        assert data.index(bad.encode()) in [skipped.offset for skipped in capture.quarantine.first]


@pytest.mark.parametrize(("num_broken", "expected"), [(7, 3), (8, None)])
def test_of_many_broken_descriptions_of_the_job_the_first_few_are_tried(
    tmp_path: Path, num_broken: int, expected: int | None
) -> None:
    tail = ', "distributedInfo": {x' * num_broken + ', "distributedInfo": {"rank": 3}'
    assert expected == read_bytes(tmp_path, f'{{"traceEvents": [{KERNEL}]{tail}}}'.encode()).origin.rank


# -- anything --------------------------------------------------------------------------------------------------------

EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=12)), min_size=1, max_size=5)
SNIPPETS = st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"},{", b"\n  },\n  {", b"NaN", b"-", b"1e999"])


@ONE_FOLDER
@given(edits=EDITS, snippets=st.lists(st.tuples(st.floats(0, 1), SNIPPETS), max_size=5), compressed=st.booleans())
@pytest.mark.parametrize("name", ["ar_then_slice", "cuda_graph"])
def test_a_trace_with_any_damage_gives_a_capture_or_a_refusal(
    recorded: Find,
    tmp_path: Path,
    name: str,
    edits: list[tuple[float, int, bytes]],
    snippets: list[tuple[float, bytes]],
    compressed: bool,
) -> None:
    data = gzip.decompress(recorded(f"{name}.rank0.json.gz").read_bytes())
    for where, length, instead in [*edits, *((where, 0, snippet) for where, snippet in snippets)]:
        at = int(where * len(data))
        data = data[:at] + instead + data[at + length :]
    try:
        capture = read_bytes(tmp_path, data, compressed=compressed)
    except UsageError:
        return
    assert 0 <= capture.quarantine.num_skipped <= capture.quarantine.num_seen
    assert all(0 <= skipped.offset <= len(data) for skipped in capture.quarantine.first)


@ONE_FOLDER
@given(where=st.floats(0, 1), instead=st.binary(min_size=1, max_size=8))
def test_a_damaged_compressed_file_gives_a_capture_or_a_refusal(
    recorded: Find, tmp_path: Path, where: float, instead: bytes
) -> None:
    stored = recorded("launch_only.rank0.json.gz").read_bytes()
    at = int(where * len(stored))
    (tmp_path / "x.gz").write_bytes(stored[:at] + instead + stored[at + len(instead) :])
    try:
        capture = read(tmp_path / "x.gz")
    except UsageError:
        return
    assert len(capture.operations) <= 6
