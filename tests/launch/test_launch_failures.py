"""Ranks that fail: the others end soon, and the one that failed first is named."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from conftest import Launch, living_members, wait_until

from rsag.errors import ExitCode, RunFailedError
from rsag.launch import ForkServer, LaunchReport, Outcome, RankDeath, RankStart, failure, run_ranks


def cause_of(report: LaunchReport) -> tuple[Outcome, int, int | None, int | None]:
    assert report.cause is not None
    return report.outcome, report.cause.rank, report.cause.exit_code, report.cause.signal


def test_a_killed_rank_ends_the_others_within_5_s_and_is_named_with_its_last_words(launch: Launch) -> None:
    start_s = time.monotonic()
    report = launch("kill_itself_on", "2", world_size=4)
    assert time.monotonic() - start_s < 5
    assert (Outcome.RANK_DIED, 2, None, signal.SIGKILL) == cause_of(report)
    assert report.num_killed == 3
    text = str(failure(report))
    assert "rank 2 of 4 failed; got SIGKILL (often the kernel's out-of-memory killer" in text
    assert text.endswith("rank-0002.log ends:\n  last words")


def test_an_exception_is_shown_with_its_traceback(launch: Launch) -> None:
    report = launch("fail_on", "1")
    assert (Outcome.RANK_DIED, 1, 1, None) == cause_of(report)
    assert str(failure(report)).endswith("ValueError: no such luck")
    assert ExitCode.RUN_FAILED is failure(report).exit_code


def test_a_wrong_entry_name_is_shown(launch: Launch) -> None:
    assert str(failure(launch("nonesuch"))).endswith("AttributeError: module 'toys' has no attribute 'nonesuch'")


def test_a_victim_that_fails_before_the_culprit_aborts_is_not_the_cause(launch: Launch, tmp_path: Path) -> None:
    report = launch("victim_before_culprit", str(tmp_path))
    assert [0, 1] == [death.rank for death in report.deaths]
    assert (Outcome.RANK_DIED, 1, None, signal.SIGABRT) == cause_of(report)


def test_a_rank_that_recorded_its_failure_but_could_not_end_is_the_cause(launch: Launch, tmp_path: Path) -> None:
    report = launch("slow_culprit", str(tmp_path))
    assert (Outcome.RANK_DIED, 1, None, signal.SIGTERM) == cause_of(report)
    text = str(failure(report))
    assert "did not end by itself" in text
    assert text.endswith("about to hang"), "what our own signal made it print is left out"


def test_the_others_have_time_to_write_their_records(launch: Launch, tmp_path: Path) -> None:
    report = launch("record_when_told", str(tmp_path))
    assert (Outcome.RANK_DIED, 0) == (report.outcome, report.num_killed)
    assert "{}\n" == (tmp_path / "rank-0001.jsonl").read_text()


def test_ranks_that_ignore_sigterm_are_killed_within_5_s(launch: Launch) -> None:
    start_s = time.monotonic()
    report = launch("ignore_sigterm", "0", world_size=3)
    assert time.monotonic() - start_s < 5
    assert {(0, None), (1, signal.SIGKILL), (2, signal.SIGKILL)} == {(d.rank, d.signal) for d in report.deaths}


def test_past_the_deadline_all_are_ended_and_the_error_says_who_hung_and_where(launch: Launch) -> None:
    report = launch("hang", deadline_s=0.3)
    assert (Outcome.DEADLINE, None, 2) == (report.outcome, report.cause, report.num_killed)
    text = str(failure(report))
    assert "the deadline of 300 ms passed with rank 0, rank 1 of 2 still running" in text
    for rank in (0, 1):
        assert f"rank {rank}: about to hang  [in hang, " in text


def test_a_full_disk_names_the_rank_that_met_it(launch: Launch, tmp_path: Path) -> None:
    report = launch("fill_disk", str(tmp_path))
    assert (Outcome.RANK_DIED, 1, 1, None) == cause_of(report)
    assert "File too large" in str(failure(report))


def test_a_rank_that_cannot_be_forked_ends_those_before_it(tmp_path: Path, environment: dict[str, str]) -> None:
    pids: list[int] = []
    with pytest.raises(
        RunFailedError, match="rank 2 of 4 could not be started; got .*temporarily unavailable"
    ) as error:
        run_ranks(
            entry="toys:hang",
            arguments=[],
            world_size=4,
            out=tmp_path,
            deadline_s=20,
            environment=environment,
            preload=["no_more_forks"],
            on_event=lambda event: pids.append(event.pid),
        )
    assert "ulimit -u" in str(error.value)
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    ("module", "source", "text"),
    [
        ("broken", "raise OSError('libcudart.so.12: cannot open')", "libcudart.so.12: cannot open"),
        ("crashing", "import os; os.abort()", "got SIGABRT"),
        ("torchless", "import sys; sys.modules['torch'] = None; import torch", "got exit code 1"),
        ("no_torch", "raise ModuleNotFoundError(\"No module named 'torch'\")", r"pip install 'rsag\[torch\]'"),
    ],
)
def test_a_preload_that_fails_is_shown(
    module: str, source: str, text: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / f"{module}.py").write_text(source)
    environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    with (
        pytest.raises(RunFailedError, match=f"(?s)ended while importing {module}.*{text}"),
        ForkServer(out=tmp_path, environment=environment, preload=[module]),
    ):
        pass


def test_a_preload_that_hangs_ends_at_its_deadline(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sleepy.py").write_text("import time; time.sleep(600)")
    environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    server = ForkServer(out=tmp_path, environment=environment, preload=["sleepy"], preload_deadline_s=0.2)
    with pytest.raises(RunFailedError, match="stuck while importing sleepy"), server:
        pass


def test_ranks_die_with_the_fork_server(launch: Launch) -> None:
    sessions: set[int] = set()

    def kill_fork_server(event: RankStart | RankDeath) -> None:
        if event.rank == 1 and isinstance(event, RankStart):
            sessions.add(os.getsid(event.pid))
            os.kill(os.getsid(event.pid), signal.SIGKILL)

    with pytest.raises(RunFailedError, match="the fork server ended while running 2 ranks; got SIGKILL"):
        launch("hang", on_event=kill_fork_server)
    [session] = sessions
    wait_until(lambda: not living_members(session))


@pytest.mark.multirank
def test_an_abort_inside_gloo_is_not_blamed_on_its_peer(tmp_path: Path, environment: dict[str, str]) -> None:
    report = run_ranks(
        entry="toys:abort_inside_all_reduce",
        arguments=[],
        world_size=2,
        out=tmp_path,
        deadline_s=60,
        environment=environment,
        preload=["torch.distributed"],
    )
    assert (Outcome.RANK_DIED, 1, None, signal.SIGABRT) == cause_of(report)
    assert "abort_inside_all_reduce" in str(failure(report)), "the stack at the abort is in the log"
