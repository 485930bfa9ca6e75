"""Rank files are of one launch of the plan beside them, and of no other; what else lies there is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from timed import CANDIDATE, plan_of, timing

import saved_runs
from rsag.analyze.recorded import read_recorded
from rsag.errors import RecordError
from rsag.records.codec import encode
from rsag.records.jsonl import RowWriter
from rsag.records.latency import CaseEnd, LookRow, WireRow
from rsag.records.memory import MemoryRow
from rsag.records.run import LaunchMark
from rsag.records.rundir import rank_file

PLAN = plan_of(timing(), world_size=2)
WIRE = WireRow(case=0, arm=CANDIDATE, calls=3, counter="tcp", sent_bytes=1.0, received_bytes=1.0, reason="")


def write(directory: Path, rank: int, *rows: object, start: Mapping[str, object] | None = None) -> None:
    first = {**saved_runs.rank_start(PLAN, rank), **(start or {})}
    with RowWriter(rank_file(directory, rank), start=first) as writer:
        for row in rows:
            writer.write(row if isinstance(row, dict) else encode(row))  # type: ignore[arg-type]
        writer.end()


def refusal(directory: Path) -> str:
    with pytest.raises(RecordError) as caught:
        read_recorded(PLAN, directory)
    return str(caught.value)


def test_rows_come_by_rank_and_kind(tmp_path: Path) -> None:
    write(tmp_path, 0, CaseEnd(case=0, reason="full"), WIRE)
    write(tmp_path, 1, WIRE)
    ranks = read_recorded(PLAN, tmp_path)
    assert {0: [WIRE], 1: [WIRE]} == {rank: own.of(WireRow) for rank, own in ranks.items()}
    assert [CaseEnd(case=0, reason="full")] == ranks[0].of(CaseEnd)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"rank": 1}, "another rank than the file's name and the plan say; got 1; expected 0"),
        ({"world_size": 4}, "another world_size than the file's name and the plan say; got 4; expected 2"),
        ({"backend": "nccl"}, "another backend than the file's name and the plan say; got nccl; expected gloo"),
    ],
)
def test_a_file_of_another_run_is_refused(tmp_path: Path, start: dict[str, object], message: str) -> None:
    write(tmp_path, 0, start=start)
    assert f"rank-0000.jsonl: line 1: {message}" in refusal(tmp_path)


def test_a_rank_beyond_the_world_is_refused(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, rank)
    assert "rank-0002.jsonl: of a rank that the plan does not have; got 2; expected 0 to 1" in refusal(tmp_path)


def test_a_first_line_that_lacks_where_the_rank_ran_is_refused(tmp_path: Path) -> None:
    with RowWriter(rank_file(tmp_path, 0), start={"rank": 0}) as writer:
        writer.end()
    assert "rank-0000.jsonl: line 1: missing key 'world_size'" in refusal(tmp_path)


@pytest.mark.parametrize("row", [{"kind": "rounds", "case": 0}, {"case": 0}])
def test_a_row_of_no_known_kind_is_refused(tmp_path: Path, row: dict[str, object]) -> None:
    write(tmp_path, 0, WIRE, row)
    assert "rank-0000.jsonl: line 3: no row of a run; got kind " in refusal(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (dataclasses.replace(WIRE, arm=99), "arm is out of the plan's list; got 99; expected below 4"),
        (dataclasses.replace(WIRE, arm=-1), "arm is out of the plan's list; got -1; expected below 4"),
        (dataclasses.replace(WIRE, case=1), "case is out of the plan's list; got 1; expected below 1"),
        (CaseEnd(case=1, reason=""), "case is out of the plan's list; got 1; expected below 1"),
        (
            LookRow(case=7, rounds=12, stops=(), went_on=False),
            "case is out of the plan's list; got 7; expected below 1",
        ),
        (MemoryRow(arm=0, method=""), "arm is out of the plan's list; got 0; expected below 0"),
    ],
)
def test_a_row_about_what_the_plan_does_not_have_is_refused(tmp_path: Path, row: object, message: str) -> None:
    write(tmp_path, 0, row)
    assert f"rank-0000.jsonl: line 2: {message}" in refusal(tmp_path)


@pytest.mark.parametrize("launches", [("a", "a"), ("a", None), (None, None)])
def test_files_of_one_launch_or_of_none_that_is_named_are_read(tmp_path: Path, launches: Sequence[str | None]) -> None:
    for rank, launch in enumerate(launches):
        write(tmp_path, rank, *([] if launch is None else [LaunchMark(id=launch)]))
    assert [0, 1] == list(read_recorded(PLAN, tmp_path))


def test_rows_of_an_older_release_are_of_another_launch(tmp_path: Path) -> None:
    write(tmp_path, 0, LaunchMark(id="a"), WIRE)
    write(tmp_path, 1, WIRE)
    message = "got rank-0000.jsonl of launch a, rank-0001.jsonl of a launch without a name; expected one launch"
    assert message in refusal(tmp_path)


def test_files_of_two_launches_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0, LaunchMark(id="a"))
    write(tmp_path, 1, LaunchMark(id="b"))
    message = "rank files of 2 launches; got rank-0000.jsonl of launch a, rank-0001.jsonl of launch b; expected one"
    assert message in refusal(tmp_path)
