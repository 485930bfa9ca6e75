"""Who is the cause, on made-up deaths: what no real run shows reliably."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from rsag.launch import LaunchReport, RankDeath, failure
from rsag.launch.cause import find_cause
from rsag.launch.messages import GroupEnd, Outcome, RunCommand, decode, encode

START_NS = 1_000


def death(
    out: Path,
    rank: int,
    at_ns: int,
    *,
    exit_code: int | None = 1,
    signal: int | None = None,
    signalled_at_ns: int | None = None,
) -> RankDeath:
    return RankDeath(
        rank=rank,
        pid=100 + rank,
        exit_code=exit_code if signal is None else None,
        signal=signal,
        at_ns=at_ns,
        signalled_at_ns=signalled_at_ns,
        log=out / f"rank-{rank:04d}.log",
        log_bytes=0,
        core_cut=False,
    )


def cause(*deaths: RankDeath) -> int | None:
    found = find_cause(deaths, since_ns=START_NS)
    return None if found is None else found.rank


def test_nobody_is_the_cause_when_all_are_well(tmp_path: Path) -> None:
    assert cause(death(tmp_path, 0, 2_000, exit_code=0)) is None


def test_among_exceptions_the_first_to_be_reaped_is_the_cause(tmp_path: Path) -> None:
    assert cause(death(tmp_path, 0, 3_000), death(tmp_path, 1, 2_000)) == 1


def test_a_signal_beats_an_earlier_exception(tmp_path: Path) -> None:
    assert cause(death(tmp_path, 0, 2_000), death(tmp_path, 1, 3_000, signal=signal.SIGSEGV)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_who_ended_after_our_signal_is_never_the_cause(number: int, tmp_path: Path) -> None:
    ours = death(tmp_path, 0, 2_000, signal=number, signalled_at_ns=1_500)
    assert cause(ours, death(tmp_path, 1, 3_000)) == 1


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ('{"kind": "failed", "at_ns": 1100}\n', 1),
        ('{"kind": "sample"}\n{"kind": "failed", "at_ns": 1100}\n', 1),
        ('{"kind": "failed", "at_ns": 1100}\n{"kind": "sample"}\n', 0),
        ('{"kind": "failed", "at_ns": 11', 0),
        ('{"kind": "failed", "at_ns": 900}\n', 0),
        ('{"kind": "failed"}\n', 0),
        ("[]\n", 0),
        ("\xff\n", 0),
        ("", 0),
    ],
    ids=[
        "failed",
        "failed-last",
        "failed-not-last",
        "torn",
        "of-another-run",
        "no-time",
        "no-object",
        "no-json",
        "empty",
    ],
)
def test_the_last_line_of_a_record_may_date_the_failure(record: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "rank-0001.jsonl").write_text(record, encoding="latin-1")
    assert cause(death(tmp_path, 0, 2_000), death(tmp_path, 1, 3_000)) == expected


def test_who_could_not_record_its_failure_comes_before_those_who_did(tmp_path: Path) -> None:
    for rank in (0, 2):
        (tmp_path / f"rank-{rank:04d}.jsonl").write_text(json.dumps({"kind": "failed", "at_ns": 1_900 + rank}))
    (tmp_path / "rank-0001.jsonl").write_text('{"kind": "sample"}\n')
    deaths = [death(tmp_path, rank, 2_000 + 10 * rank) for rank in range(3)]
    assert cause(*deaths) == 1


def test_a_crash_comes_before_who_could_not_record_its_failure(tmp_path: Path) -> None:
    (tmp_path / "rank-0000.jsonl").write_text('{"kind": "sample"}\n')
    assert cause(death(tmp_path, 0, 2_000), death(tmp_path, 1, 3_000, signal=signal.SIGSEGV)) == 1


def test_a_failure_recorded_after_our_signal_is_no_cause(tmp_path: Path) -> None:
    (tmp_path / "rank-0000.jsonl").write_text(json.dumps({"kind": "failed", "at_ns": 2_500}))
    ours = death(tmp_path, 0, 3_000, signalled_at_ns=2_400)
    assert cause(ours, death(tmp_path, 1, 2_600)) == 1


@pytest.mark.parametrize(
    ("number", "core_cut", "text"),
    [
        (signal.SIGSEGV, False, "got SIGSEGV; "),
        (signal.SIGBUS, False, "df /dev/shm"),
        (40, False, "got signal 40; "),
        (signal.SIGKILL, True, "got a crash whose core file took too long"),
    ],
)
def test_the_error_says_what_a_signal_usually_means(number: int, core_cut: bool, text: str, tmp_path: Path) -> None:
    culprit = replace(death(tmp_path, 0, 2_000, signal=number), core_cut=core_cut)
    report = LaunchReport(world_size=1, deadline_s=1, outcome=Outcome.RANK_DIED, deaths=(culprit,), cause=culprit)
    assert text in str(failure(report))


def test_messages_survive_the_pipe(tmp_path: Path) -> None:
    command = RunCommand(
        entry="a:b", arguments=["ß\n"], world_size=2, out="o", deadline_s=0.5, environment={"NAME": "two\nlines\udcff"}
    )
    for message in (command, death(tmp_path, 0, 2_000, signal=9), GroupEnd(outcome=Outcome.DEADLINE)):
        assert decode(encode(message)) == message
        assert encode(message).count(b"\n") == 1
