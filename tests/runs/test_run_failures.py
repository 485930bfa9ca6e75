"""Runs that end early: exit code 4, the rank named, what was recorded kept, and nothing else left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from running import RSAG, Started, environment_of, interrupt, rsag, started

from launching import all_listening_ports, living_members
from rsag.records.codec import load_document
from rsag.records.jsonl import read_rows
from rsag.records.run import Run, RunOutcome
from rsag.records.rundir import REPORT, RUN, VERDICT, rank_file
from rsag.records.verdict import Verdict, VerdictOutcome

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(120)]


def assert_nothing_is_left(run: Started, tmp_path: Path) -> None:
    """No process, no listening port, no store, no shared memory, no scratch of the probe."""
    assert [] == living_members(run.session)
    assert set() == run.ports & all_listening_ports()
    assert [] == [path.name for path in (tmp_path / "scratch").iterdir() if path.name.startswith("rsag-")]
    assert [] == [path for path in run.shared_memory if path.exists()]
    assert [] == list(run.out.glob(".*"))


def outcome_in(out: Path) -> tuple[RunOutcome, VerdictOutcome]:
    return load_document(Run, out / RUN).outcome, load_document(Verdict, out / VERDICT).outcome


def test_a_killed_rank(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        os.kill(run.pids[1], signal.SIGKILL)
        code, stderr = run.ends(within_s=15)
    assert 4 == code
    assert "rsag: rank 1 of 3 failed; got SIGKILL" in stderr
    assert f"rsag: what was recorded is in {run.out}" in stderr
    assert (RunOutcome.RANK_DIED, VerdictOutcome.INVALID) == outcome_in(run.out)
    reasons = load_document(Verdict, run.out / VERDICT).reasons
    assert "rank 1: no end line: the rank was killed, or still runs" in reasons
    assert not read_rows(rank_file(run.out, 1)).ended
    page = (run.out / REPORT).read_text()
    assert "rank-0001.jsonl</code>: no end line: the rank was killed" in page
    assert_nothing_is_left(run, tmp_path)


def test_a_rank_that_hangs_past_the_deadline(tmp_path: Path) -> None:
    with started(tmp_path, "--deadline", "3s") as run:
        os.kill(run.pids[1], signal.SIGSTOP)
        code, stderr = run.ends(within_s=20)
    assert 4 == code
    assert "rsag: the deadline of 3 s passed with rank 0, rank 1, rank 2 of 3 still running" in stderr
    assert f"rsag: what was recorded is in {run.out}" in stderr
    assert (RunOutcome.DEADLINE, VerdictOutcome.INVALID) == outcome_in(run.out)
    assert_nothing_is_left(run, tmp_path)


def test_a_disk_that_is_full_for_one_rank(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        full = rank_file(run.out, 2).stat().st_size + 500
        resource.prlimit(run.pids[2], resource.RLIMIT_FSIZE, (full, full))
        code, stderr = run.ends(within_s=30)
    assert 4 == code
    assert "rsag: rank 2 of 3 failed; got exit code 4" in stderr
    assert "rank-0002.jsonl: a row cannot be written; got File too large" in stderr
    assert (RunOutcome.RANK_DIED, VerdictOutcome.INVALID) == outcome_in(run.out)
    kept = rank_file(run.out, 2).read_bytes()
    assert kept.endswith(b"}\n")
    assert len(kept) <= full
    assert_nothing_is_left(run, tmp_path)


def test_a_disk_that_cannot_even_hold_the_plan(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RSAG, "run", "--only", "contracts", "--backend", "gloo", "--out", "run"],
        cwd=tmp_path,
        env=environment_of(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10)),
    )
    assert 4 == done.returncode
    assert "run/plan.json: cannot be written; got File too large" in done.stderr
    assert [] == list((tmp_path / "run").iterdir())


def test_ctrl_c_inside_a_collective(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        began_s = time.monotonic()
        interrupt(run)
        code, stderr = run.ends(within_s=10)
        assert time.monotonic() - began_s < 5
    assert 130 == code
    assert [f"rsag: what was recorded is in {run.out}", "rsag: interrupted"] == [*filter(None, stderr.splitlines())][
        -2:
    ]
    assert_nothing_is_left(run, tmp_path)
    assert sorted(run.pids) == [0, 1, 2]
    assert all(read_rows(rank_file(run.out, rank)).start for rank in range(3))
    judged = rsag(tmp_path, "judge", "run")
    assert 3 == judged.returncode
    assert "rank 1: no end line" in judged.stdout
