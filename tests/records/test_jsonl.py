"""Rank-local files: whole lines while a rank lives, and a plain word on how it ended."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.errors import RecordError, RunFailedError, UsageError
from rsag.records.jsonl import RankFile, RowWriter, read_rows

START = '{"kind":"start","schema":"rank","version":2,"rank":3}\n'
ROW = '{"kind":"round","ns":[1,2]}\n'
END = '{"kind":"end","num_rounds":1}\n'
FAILED = '{"kind":"failed","at_ns":7,"error":"ValueError","message":"bad"}\n'

rows = st.dictionaries(
    st.text(max_size=4).filter(lambda key: key != "kind"),
    st.none() | st.integers() | st.text(max_size=4) | st.lists(st.integers(), max_size=3),
    max_size=3,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank-0003.jsonl"


@contextmanager
def disk_with_room_for(num_bytes: int) -> Iterator[None]:
    """The kernel refuses what lies beyond `num_bytes` of a file, after a short write, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _writer(path: Path) -> RowWriter:
    return RowWriter(path, start={"rank": 3}, now_ns=lambda: 7)


def _write_and_end(path: Path, *rows: dict[str, object]) -> None:
    with _writer(path) as writer:
        for row in rows:
            writer.write(row)
        writer.end(num_rounds=len(rows))


def test_lines_are_compact_and_in_order(path: Path) -> None:
    _write_and_end(path, {"kind": "round", "ns": (1, 2)})
    assert path.read_text() == START + ROW + END


def test_a_row_is_in_the_file_when_write_returns(path: Path) -> None:
    with _writer(path) as writer:
        writer.write({"kind": "round", "ns": (1, 2)})
        assert path.read_text() == START + ROW


def test_an_error_becomes_the_last_line_and_goes_on(path: Path) -> None:
    with pytest.raises(ValueError, match="bad"), _writer(path):
        raise ValueError("bad")
    assert path.read_text() == START + FAILED


def test_an_interrupt_is_recorded_like_an_error(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), _writer(path):
        raise KeyboardInterrupt
    assert read_rows(path).failed == {"at_ns": 7, "error": "KeyboardInterrupt", "message": ""}


def test_an_error_after_the_end_line_adds_nothing(path: Path) -> None:
    writer = _writer(path)
    writer.end(num_rounds=1)
    with pytest.raises(ValueError, match="bad"), writer:
        raise ValueError("bad")
    assert path.read_text() == START + END


def test_leaving_without_the_end_line_writes_none(path: Path) -> None:
    with _writer(path):
        pass
    assert path.read_text() == START


def test_an_existing_file_is_not_written_over(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(UsageError, match=r"rank-0003\.jsonl: already there; give each run a directory of its own"):
        _writer(path)
    assert path.read_text() == "precious"


def test_a_directory_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"rank-0003\.jsonl: cannot be opened; got No such file"):
        _writer(tmp_path / "none" / "rank-0003.jsonl")


@pytest.mark.parametrize("kind", ["start", "end", "failed"])
def test_a_row_cannot_pass_for_the_frame(path: Path, kind: str) -> None:
    with _writer(path) as writer, pytest.raises(RecordError, match=f"a row of kind '{kind}'"):
        writer.write({"kind": kind})


def test_start_fields_cannot_hide_the_schema(path: Path) -> None:
    with pytest.raises(RecordError, match="fields named schema, version"):
        RowWriter(path, start={"schema": "mine", "version": 2})


def test_a_number_that_is_not_finite_is_refused_and_nothing_written(path: Path) -> None:
    with _writer(path) as writer, pytest.raises(RecordError, match=r"rank-0003\.jsonl: ns\[1\]: not a finite number"):
        writer.write({"ns": [1.0, float("nan")]})
    assert path.read_text() == START


def test_on_a_full_disk_the_rows_before_stay_whole(path: Path) -> None:
    row: dict[str, object] = {"kind": "round", "ns": (1, 2)}
    with disk_with_room_for(len(START + ROW) + 5), pytest.raises(RunFailedError, match="a row cannot be written"):
        _write_and_end(path, row, row)
    assert path.read_text() == START + ROW


def test_on_a_full_disk_the_failed_line_is_written_if_it_fits(path: Path) -> None:
    with disk_with_room_for(len(START) + 300), pytest.raises(RunFailedError):
        _write_and_end(path, {"ns": list(range(200))})
    found = read_rows(path)
    assert (found.failed and found.failed["error"], found.rows) == ("RunFailedError", ())


def test_on_a_full_disk_the_error_under_way_is_the_one_seen(path: Path) -> None:
    with disk_with_room_for(len(START)), pytest.raises(ValueError, match="bad"), _writer(path):
        raise ValueError("bad")


def test_a_full_disk_at_the_first_line_is_an_error(path: Path) -> None:
    with disk_with_room_for(5), pytest.raises(RunFailedError, match="a row cannot be written; got File too large"):
        _writer(path)


@given(start=rows, written=st.lists(rows, max_size=3))
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, start: dict[str, object], written: list[dict[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("ranks") / "rank-0000.jsonl"
    with RowWriter(path, start=start) as writer:
        for row in written:
            writer.write(row)
        writer.end(num_rows=len(written))
    expected = RankFile(
        path=path, start=start, rows=tuple(written), end={"num_rows": len(written)}, failed=None, problems=()
    )
    assert expected == read_rows(path)


def test_a_rank_that_ended_well_has_no_problems(path: Path) -> None:
    path.write_text(START + ROW + END)
    assert (read_rows(path).ended, read_rows(path).problems) == (True, ())


def test_a_rank_without_end_line_keeps_its_rows(path: Path) -> None:
    path.write_text(START + ROW)
    found = read_rows(path)
    rows = ({"kind": "round", "ns": [1, 2]},)
    assert (rows, False, ("no end line: the rank was killed, or still runs",)) == (
        found.rows,
        found.ended,
        found.problems,
    )


def test_a_rank_that_failed_says_why(path: Path) -> None:
    path.write_text(START + ROW + FAILED)
    found = read_rows(path)
    failed = {"at_ns": 7, "error": "ValueError", "message": "bad"}
    assert (failed, False, ("the rank failed: ValueError: bad",)) == (found.failed, found.ended, found.problems)


@pytest.mark.parametrize("length", range(len(START), len(START + ROW + END)))
def test_a_file_cut_anywhere_behind_its_first_line_keeps_the_whole_rows(path: Path, length: int) -> None:
    text = (START + ROW + END)[:length]
    path.write_text(text)
    whole = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    num_rows = sum(line["kind"] == "round" for line in whole)
    found = read_rows(path)
    assert (num_rows, whole[-1]["kind"] == "end") == (len(found.rows), found.ended)


def test_a_cut_last_line_is_a_problem(path: Path) -> None:
    path.write_text(START + ROW + ROW[:9])
    assert read_rows(path).problems[0] == "line 3 is truncated: the rank was killed while writing it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (START + ROW[:9] + "\n" + END, "truncated, the JSON ends early: line 2, column "),
        (START + "x\n" + END, "not JSON: line 2, column 1: Expecting value"),
        (START + ROW + "\n" + END, "truncated, the JSON ends early: line 3, column 1"),
        (START + "[1]\n" + END, "line 2: not an object; got list"),
        (START + '{"s": NaN}\n', "line 2: not JSON that rsag writes; got the number NaN"),
        (START + '{"s": -Infinity}\n', "line 2: not JSON that rsag writes; got the number -Infinity"),
        (START + '{"s": 1, "s": 2}\n', "line 2: not JSON that rsag writes; got the key 's' twice"),
        (START + END + ROW, "line 3: a row after the end line"),
        (START + FAILED + ROW, "line 3: a row after the failed line"),
        (START + START, "line 2: a second start line; two ranks may have shared one file"),
        ("", "truncated, no whole line"),
        (START[:20], "truncated, no whole line"),
        (ROW, "line 1: missing key 'schema'"),
        ('{"kind":"start","schema":"rank"}\n', "line 1: missing key 'version'"),
        (
            '{"kind":"start","schema":"plan","version":2}\n',
            'line 1: another schema; got string "plan"; expected "rank"',
        ),
        ('{"kind":"start","schema":"rank","version":99}\n', "line 1: another version; got integer 99; expected 2"),
        ('{"kind":"round","schema":"rank","version":2}\n', "line 1: not the start line"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(RecordError) as caught:
        read_rows(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_that_is_not_there_is_said_to_be_so(path: Path) -> None:
    with pytest.raises(RecordError, match=r"rank-0003\.jsonl: not there"):
        read_rows(path)
