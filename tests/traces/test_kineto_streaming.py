"""How a file is cut into chunks and blocks, and who reads a block, changes nothing."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import in_kineto_layout, kernel, launch

from rsag.errors import RunFailedError
from rsag.traces import kineto, kineto_helper
from rsag.traces.blocks import Event, EventReader
from rsag.traces.kineto_helper import Helper
from rsag.traces.skips import Skips

Find = Callable[[str], Path]

ARGS = {"correlation": 4, "device": 0, "stream": 1, "x": [{"a": 1}, {"b": [{}, {}]}], "y": "},{"}
NESTED = {**kernel(4), "args": ARGS}
EVENTS = [launch(1), kernel(1), NESTED, kernel(2, ts=1.5), {"ph": "M", "name": "]}", "args": {"name": '\\" },{ ['}}]
BROKEN = '{"ph": "X", "cat": "kernel", "name": "a"b", "ts": 1}'
TEXTS = [json.dumps(event) for event in EVENTS]
FILES = {
    "kineto": in_kineto_layout(TEXTS),
    "kineto, one broken": in_kineto_layout([*TEXTS[:3], BROKEN, *TEXTS[3:]]),
    "minified": json.dumps(
        {"traceEvents": EVENTS, "deviceProperties": [{"id": 0}, {"id": 1}]}, separators=(",", ":")
    ).encode(),
    "indented": json.dumps({"traceEvents": EVENTS, "after": [[{}], [{}, {}]]}, indent=2).encode(),
    "minified, one broken": f'{{"traceEvents":[{",".join([*TEXTS[:3], BROKEN, *TEXTS[3:]])}],"x":[]}}'.encode(),
    "truncated": in_kineto_layout(TEXTS)[:-150],
}


def read_in(pieces: list[bytes]) -> tuple[list[Event], Skips, EventReader]:
    skips = Skips()
    reader = EventReader(skips)
    return [event for block in reader.blocks(pieces) for event in block.events], skips, reader


@pytest.mark.parametrize("data", FILES.values(), ids=FILES.keys())
@given(st.data())
def test_where_a_file_is_cut_into_chunks_makes_no_difference(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=12)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]
    events, skips, reader = read_in([data])
    assert (events, skips.quarantine()) == (read_in(pieces)[0], read_in(pieces)[1].quarantine())
    assert (reader.head, reader.tail, reader.complete) == (
        read_in(pieces)[2].head,
        read_in(pieces)[2].tail,
        read_in(pieces)[2].complete,
    )


@pytest.mark.parametrize("name", ["kineto", "minified", "indented"])
def test_all_events_are_read_whatever_is_nested_in_them(name: str) -> None:
    events, skips, reader = read_in([FILES[name]])
    assert [event["name"] for event in EVENTS] == [event.name for event in events]
    assert (0, True) == (skips.num_skipped, reader.complete)


def test_an_event_without_an_end_does_not_grow_without_bound() -> None:
    begin = b'{"traceEvents": [' + TEXTS[1].encode() + b', {"name": "'
    pieces = [begin, *[b"x" * (1 << 20)] * 20, b'"}, ' + TEXTS[3].encode() + b"]}"]
    events, skips, reader = read_in(pieces)
    assert [EVENTS[1]["name"], EVENTS[3]["name"]] == [event.name for event in events]
    assert "no end of an event in 16 MiB" == skips.quarantine().first[0].reason
    assert reader.complete


# -- the second process ----------------------------------------------------------------------------------------------


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def large(recorded: Find, tmp_path: Path) -> Path:
    """A recording many times over, with a few broken events: some megabytes in Kineto's layout."""
    data = gzip.decompress(recorded("ddp.rank0.json.gz").read_bytes())
    begin, end = data.index(b"\n  {\n", data.index(b'"traceEvents"')), data.rindex(b"\n  ]")
    events = [data[begin:end], data[begin:end].replace(b'"cudaLaunchKernel"', b'"a"b"', 1)]
    path = tmp_path / "large.json"
    path.write_bytes(data[:begin] + b",".join(events[i % 5 == 3] for i in range(30)) + data[end:])
    return path


def test_a_second_process_reads_the_same(two_cores: None, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = kineto.read(large)
    taken = []

    class Watched(Helper):
        def __init__(self) -> None:
            super().__init__(worth_it_bytes=0)

        def offer(self, offset: int, body: bytes) -> bool:
            taken.append(super().offer(offset, body))
            return taken[-1]

    monkeypatch.setattr(kineto, "Helper", Watched)
    assert alone == kineto.read(large)
    assert any(taken)
    assert 6 == alone.quarantine.num_skipped


def test_a_small_file_is_read_by_one_process(two_cores: None) -> None:
    with Helper() as helper:
        assert not helper.offer(1000, b"{}")
        assert [] == helper.finish(Skips())


def test_a_single_core_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with Helper(worth_it_bytes=0) as helper:
        assert not helper.offer(1000, b"{}")


def test_where_pipes_cannot_be_asked_for_their_room_one_process_reads(
    two_cores: None, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = kineto.read(large)
    monkeypatch.setattr(kineto, "Helper", lambda: Helper(worth_it_bytes=0))
    monkeypatch.setattr(kineto_helper, "_CAN_ASK_PIPES", False)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert expected == kineto.read(large)


def test_where_the_cores_of_a_process_are_not_told_those_of_the_machine_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with Helper(worth_it_bytes=0) as helper:
        assert not helper.offer(1000, b"{}")


@pytest.mark.parametrize(
    "missing",
    [
        "sys.modules['fcntl'] = None",
        "sys.modules['termios'] = None",
        "import fcntl; del fcntl.F_SETPIPE_SZ; del os.sched_getaffinity",  # as on macOS
    ],
)
def test_a_system_without_these_calls_reads_all_the_same(large: Path, missing: str) -> None:
    code = f"""
import os, sys
from pathlib import Path
{missing}
from rsag.traces import kineto, kineto_helper
kineto.Helper = lambda: kineto_helper.Helper(worth_it_bytes=0)
print(len(kineto.read(Path({str(large)!r})).operations))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert len(kineto.read(large).operations) == int(output)


def test_the_death_of_the_second_process_is_an_error_and_no_half_answer(
    two_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_helper, "__name__", "rsag.no_such_module")
    with Helper(worth_it_bytes=0) as helper:
        helper.offer(1000, b"{}")
        with pytest.raises(RunFailedError, match="second process"):
            helper.finish(Skips())
