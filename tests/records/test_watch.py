"""Following a file that is being written: every whole row once, in order, up to the last."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from launching import wait_until
from rsag.records.jsonl import RowWriter
from rsag.records.watch import watched

Rows = list[Mapping[str, object]]
POLL_S = 0.005
NEVER_S = 1e6
"""Nothing is seen but what is there at the end."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank-0000.jsonl"


def numbers(rows: Rows) -> list[object]:
    return [row["number"] for row in rows if "number" in row]


def test_rows_are_seen_while_the_file_is_written(path: Path) -> None:
    seen: Rows = []
    with RowWriter(path, start={}) as writer, watched(path, seen.append, POLL_S):
        for number in range(3):
            writer.write({"kind": "round", "number": number})
            wait_until(lambda expected=number: numbers(seen)[-1:] == [expected])
    assert [0, 1, 2] == numbers(seen)


def test_the_file_may_come_later_than_its_watcher(path: Path) -> None:
    seen: Rows = []
    with watched(path, seen.append, POLL_S):
        with RowWriter(path, start={}) as writer:
            writer.write({"number": 7})
        wait_until(lambda: numbers(seen))
    assert [7] == numbers(seen)


def test_what_was_written_last_is_not_missed(path: Path) -> None:
    seen: Rows = []
    with watched(path, seen.append, NEVER_S), RowWriter(path, start={}) as writer:
        for number in range(1000):
            writer.write({"number": number})
        writer.end()
    assert list(range(1000)) == numbers(seen)
    assert ["start", "end"] == [row["kind"] for row in seen if "kind" in row]


def test_each_row_is_seen_once(path: Path) -> None:
    seen: Rows = []
    with watched(path, seen.append, POLL_S), path.open("wb", buffering=0) as file:
        for number in range(200):
            line = b'{"number":%d}\n' % number
            file.write(line[:5])  # a look between the two halves sees half a row
            file.write(line[5:])
        wait_until(lambda: len(seen) == 200)
    assert list(range(200)) == numbers(seen)


def test_a_row_in_two_halves_is_seen_when_it_is_whole(path: Path) -> None:
    seen: Rows = []
    with watched(path, seen.append, POLL_S), path.open("wb", buffering=0) as file:
        file.write(b'{"number":1}\n{"num')
        wait_until(lambda: numbers(seen) == [1])
        file.write(b'ber":2}\n')
        wait_until(lambda: numbers(seen) == [1, 2])
    assert [1, 2] == numbers(seen)


def test_a_torn_line_and_one_that_is_no_json_are_left_to_strict_readers(path: Path) -> None:
    seen: Rows = []
    path.write_bytes(b'{"number":1}\n{"number":\n\n{"number":3}\n{"number":4')
    with watched(path, seen.append, NEVER_S):
        pass
    assert [1, 3] == numbers(seen)


def test_a_file_that_never_came_is_no_error(path: Path) -> None:
    seen: Rows = []
    with watched(path, seen.append, POLL_S):
        pass
    assert [] == seen


def test_an_error_inside_passes_through_after_the_last_look(path: Path) -> None:
    seen: Rows = []

    def dies() -> None:
        with watched(path, seen.append, NEVER_S):
            path.write_bytes(b'{"number":1}\n')
            raise RuntimeError("a rank died")

    with pytest.raises(RuntimeError, match="a rank died"):
        dies()
    assert [1] == numbers(seen)
