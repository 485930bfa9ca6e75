"""Ranks that fail: the others end soon, and the one that failed first is named."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from launching import Launch, is_alive, parent_of, wait_until
from rsag.errors import ExitCode, RunFailedError
from rsag.launch import ForkServer, LaunchReport, Outcome, RankDeath, RankStart, failure, run_ranks

FAKE_TORCH = "import sys, types; torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True))"


def cause_of(report: LaunchReport) -> tuple[Outcome, int, int | None, int | None]:
    assert report.cause is not None
    return report.outcome, report.cause.rank, report.cause.exit_code, report.cause.signal


def test_a_killed_rank_ends_the_others_within_5_s_and_is_named_with_its_last_words(launch: Launch) -> None:
    start_s = time.monotonic()
    report = launch("kill_itself_on", "2", world_size=4)
    assert time.monotonic() - start_s < 5
    assert cause_of(report) == (Outcome.RANK_DIED, 2, None, signal.SIGKILL)
    assert report.num_killed == 3
    text = str(failure(report))
    assert "rank 2 of 4 failed; got SIGKILL (often the kernel's out-of-memory killer" in text
    assert text.endswith("rank-0002.log ends:\n  last words")


def test_an_exception_is_shown_with_its_traceback(launch: Launch) -> None:
    report = launch("fail_on", "1")
    assert cause_of(report) == (Outcome.RANK_DIED, 1, 1, None)
    assert str(failure(report)).endswith("ValueError: no such luck")
    assert ExitCode.RUN_FAILED is failure(report).exit_code


def test_a_wrong_entry_name_is_shown(launch: Launch) -> None:
    assert str(failure(launch("nonesuch"))).endswith("AttributeError: module 'toys' has no attribute 'nonesuch'")


def test_a_victim_that_fails_before_the_culprit_aborts_is_not_the_cause(launch: Launch, tmp_path: Path) -> None:
    report = launch("victim_before_culprit", str(tmp_path))
    assert [death.rank for death in report.deaths] == [0, 1]
    assert cause_of(report) == (Outcome.RANK_DIED, 1, None, signal.SIGABRT)


def test_a_rank_that_recorded_its_failure_but_could_not_end_is_the_cause(launch: Launch, tmp_path: Path) -> None:
    report = launch("slow_culprit", str(tmp_path))
    assert cause_of(report) == (Outcome.RANK_DIED, 1, None, signal.SIGTERM)
    text = str(failure(report))
    assert "did not end by itself" in text
    assert text.endswith("about to hang"), "what our own signal made it print is left out"


def test_the_others_have_time_to_write_their_records(launch: Launch, tmp_path: Path) -> None:
    report = launch("record_when_told", str(tmp_path))
    assert (report.outcome, report.num_killed) == (Outcome.RANK_DIED, 0)
    assert (tmp_path / "rank-0001.jsonl").read_text() == "{}\n"


def test_ranks_that_ignore_sigterm_are_killed_within_5_s(launch: Launch) -> None:
    start_s = time.monotonic()
    report = launch("ignore_sigterm", "0", world_size=3)
    assert time.monotonic() - start_s < 5
    assert {(0, None), (1, signal.SIGKILL), (2, signal.SIGKILL)} == {(d.rank, d.signal) for d in report.deaths}


def test_past_the_deadline_all_are_ended_and_the_error_says_who_hung_and_where(launch: Launch) -> None:
    report = launch("hang", deadline_s=0.3)
    assert (report.outcome, report.cause, report.num_killed) == (Outcome.DEADLINE, None, 2)
    text = str(failure(report))
    assert "the deadline of 300 ms passed with rank 0, rank 1 of 2 still running" in text
    for rank in (0, 1):
        assert f"rank {rank}: about to hang  [in hang, " in text


def test_a_full_disk_names_the_rank_that_met_it(launch: Launch, tmp_path: Path) -> None:
    report = launch("fill_disk", str(tmp_path))
    assert cause_of(report) == (Outcome.RANK_DIED, 1, 1, None)
    assert "File too large" in str(failure(report))


def test_a_rank_that_cannot_be_forked_ends_those_before_it(tmp_path: Path, environment: dict[str, str]) -> None:
    pids: list[int] = []
    with pytest.raises(
        RunFailedError, match=r"rank 2 of 4 could not be started; got .*temporarily unavailable"
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
        ("greedy", f"{FAKE_TORCH}; sys.modules['torch'] = torch", "greedy initialised CUDA"),
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


def test_a_preload_that_hangs_ends_soon_after_its_deadline(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sleepy.py").write_text("import time; time.sleep(600)")
    environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    server = ForkServer(out=tmp_path, environment=environment, preload=["sleepy"], preload_deadline_s=0.2)
    start_s = time.monotonic()
    with pytest.raises(RunFailedError, match="stuck while importing sleepy"), server:
        pass
    assert time.monotonic() - start_s < 2


@pytest.mark.parametrize(
    ("number", "preload", "got"),
    [
        (signal.SIGKILL, [], "SIGKILL"),
        (signal.SIGKILL, ["no_parent_death_signal"], "SIGKILL"),
        (signal.SIGTERM, [], "exit code 0"),
    ],
    ids=["killed", "killed-without-prctl", "told-to-end"],
)
def test_ranks_die_with_the_fork_server(
    number: signal.Signals, preload: list[str], got: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    pids: list[int] = []

    def kill_fork_server(event: RankStart | RankDeath) -> None:
        pids.append(event.pid)
        if len(pids) == 2:
            wait_until(lambda: all("hang" in log.read_text() for log in tmp_path.glob("rank-*.log")))
            os.kill(parent_of(event.pid), number)
            wait_until(lambda: not any(map(is_alive, pids)))

    with pytest.raises(RunFailedError, match=f"the fork server ended while running 2 ranks; got {got}"):
        run_ranks(
            entry="toys:hang",
            arguments=[],
            world_size=2,
            out=tmp_path,
            deadline_s=20,
            environment=environment,
            preload=preload,
            on_event=kill_fork_server,
        )


def test_an_exception_of_the_listener_ends_the_ranks(launch: Launch) -> None:
    pids: list[int] = []

    def refuse(event: RankStart | RankDeath) -> None:
        pids.append(event.pid)
        raise LookupError("not in the mood")

    with pytest.raises(LookupError, match="not in the mood"):
        launch("hang", world_size=1, on_event=refuse)
    assert not is_alive(pids[0])


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
    assert cause_of(report) == (Outcome.RANK_DIED, 1, None, signal.SIGABRT)
    assert "abort_inside_all_reduce" in str(failure(report)), "the stack at the abort is in the log"
