"""Run directories: named by the second, never shared, refused before anything runs."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from rsag.errors import UsageError
from rsag.records.rundir import PLAN, new_run_directory, rank_file, rank_files, rank_log, require_run_directory

STARTED = datetime(2026, 7, 10, 8, 12, 7, 999_999, tzinfo=timezone.utc)


def test_a_directory_is_named_by_its_start(tmp_path: Path) -> None:
    directory = new_run_directory(tmp_path / "runs", started_utc=STARTED)
    assert (tmp_path / "runs" / "20260710T081207Z", True) == (directory, directory.is_dir())


def test_the_name_is_in_utc_whatever_the_zone(tmp_path: Path) -> None:
    local = STARTED.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert tmp_path / "20260710T081207Z" == new_run_directory(tmp_path, started_utc=local)


def test_a_time_without_its_zone_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a time zone"):
        new_run_directory(tmp_path, started_utc=STARTED.replace(tzinfo=None))


def test_runs_within_a_second_are_numbered(tmp_path: Path) -> None:
    names = [new_run_directory(tmp_path, started_utc=STARTED).name for _ in range(3)]
    assert [f"20260710T081207Z{suffix}" for suffix in ("", "-2", "-3")] == names


def test_a_file_that_has_the_name_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "20260710T081207Z").touch()
    assert tmp_path / "20260710T081207Z-2" == new_run_directory(tmp_path, started_utc=STARTED)


def test_a_directory_asked_for_is_made_with_its_parents(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    assert (out, True) == (new_run_directory(tmp_path / "runs", started_utc=STARTED, out=out), out.is_dir())


def test_the_root_is_left_alone_where_a_directory_is_asked_for(tmp_path: Path) -> None:
    new_run_directory(tmp_path / "runs", started_utc=STARTED, out=tmp_path / "out")
    assert not (tmp_path / "runs").exists()


def test_an_empty_directory_will_do_and_stays_empty(tmp_path: Path) -> None:
    new_run_directory(tmp_path, started_utc=STARTED, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_stays_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path("runs/20260710T081207Z") == new_run_directory(Path("runs"), started_utc=STARTED)


def _refused(tmp_path: Path, out: Path) -> str:
    with pytest.raises(UsageError) as caught:
        new_run_directory(tmp_path / "runs", started_utc=STARTED, out=out)
    return str(caught.value)


def test_a_file_on_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "a" / "b"
    expected = f"{out} cannot be a directory; got {tmp_path / 'file'}, which is a file; name another path"
    assert expected == _refused(tmp_path, out)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    out = tmp_path / "file"
    out.touch()
    assert f"{out} cannot be a directory; got {out}, which is a file; name another path" == _refused(tmp_path, out)


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.touch()
    with pytest.raises(UsageError, match=f"got {root}, which is a file"):
        new_run_directory(root, started_utc=STARTED)


@pytest.mark.parametrize(("num_entries", "count"), [(1, "1 entry"), (2, "2 entries")])
def test_a_directory_that_holds_something_is_refused(tmp_path: Path, num_entries: int, count: str) -> None:
    for number in range(num_entries):
        (tmp_path / f".{number}").touch()
    assert _refused(tmp_path, tmp_path).startswith(f"{tmp_path} is not empty; got {count}; name a new or an empty")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    out = Path("/proc/rsag")  # where not even root makes a directory
    assert _refused(tmp_path, out).startswith(f"{out} is not writable; got ")


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_an_empty_directory_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert f"{tmp_path} is not writable; got Permission denied" in _refused(tmp_path / "runs", tmp_path)


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "link"
    out.symlink_to(tmp_path / "nowhere")
    assert _refused(tmp_path, out).startswith(f"{out} is not writable; got File exists")


def test_rank_names_sort_as_ranks_do() -> None:
    names = ("rank-0003.jsonl", "rank-0003.log", "rank-12345.jsonl")
    run = Path("run")
    assert names == (rank_file(run, 3).name, rank_log(run, 3).name, rank_file(run, 12345).name)


def test_rank_files_come_in_the_order_of_ranks(tmp_path: Path) -> None:
    for name in ("rank-10000.jsonl", "rank-9999.jsonl", "rank-0002.jsonl"):
        (tmp_path / name).write_text("{}\n")
    expected = [(rank, rank_file(tmp_path, rank)) for rank in (2, 9999, 10000)]
    assert expected == rank_files(tmp_path)


def test_a_rank_that_left_no_whole_line_left_no_rows(tmp_path: Path) -> None:
    rank_file(tmp_path, 0).touch()
    rank_file(tmp_path, 1).write_text('{"kind": "sta')
    rank_file(tmp_path, 2).write_text("{}\n{")
    assert [(2, rank_file(tmp_path, 2))] == rank_files(tmp_path)


def test_logs_and_strangers_are_no_rank_files(tmp_path: Path) -> None:
    for name in ("rank-0001.log", "rank-1.jsonl", "rank-0001.jsonl.bak", "rank-00x1.jsonl", PLAN):
        (tmp_path / name).touch()
    assert rank_files(tmp_path) == []


def test_a_run_directory_holds_a_plan(tmp_path: Path) -> None:
    (tmp_path / PLAN).touch()
    assert tmp_path == require_run_directory(tmp_path)


def test_a_directory_without_plan_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a run directory; got no plan\.json in it"):
        require_run_directory(tmp_path)


def test_a_run_directory_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none is not there; expected a run directory"):
        require_run_directory(tmp_path / "none")


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / PLAN).touch()
    with pytest.raises(UsageError, match=r"plan\.json is not a directory; expected a run directory"):
        require_run_directory(tmp_path / PLAN)
