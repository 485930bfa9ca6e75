"""However a run ends, nothing of it stays behind."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launching import Launch, all_listening_ports, is_alive, listening_ports, living_members, wait_until
from rsag.launch import Outcome, run_ranks

SHM = Path("/dev/shm")

DRIVER = """\
import os, signal, sys
from pathlib import Path
from rsag.launch import run_ranks

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
out = Path(sys.argv[1])
run_ranks(
    entry=sys.argv[2], arguments=sys.argv[4:], world_size=2, out=out, deadline_s=120, environment=os.environ,
    preload=sys.argv[3].split(), on_event=lambda event: (out / f"{event.rank}.pid").write_text(f"{event.pid}\\n"),
)
"""


@contextmanager
def driver(out: Path, environment: dict[str, str], *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher in a process group of its own, as a shell gives it; killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(out), *words],
        env=environment,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pids(out: Path) -> list[int]:
    """The ranks that have told the driver that they run."""
    texts = [path.read_text() for path in out.glob("*.pid")]
    return [int(text) for text in texts if text.endswith("\n")]


@pytest.mark.multirank
def test_ctrl_c_inside_an_all_reduce_leaves_nothing_after_5_s(tmp_path: Path, environment: dict[str, str]) -> None:
    with driver(tmp_path, environment, "toys:reduce_forever", "torch.distributed", str(tmp_path), str(SHM)) as process:
        wait_until(lambda: len(list(tmp_path.glob("rank-*.inside"))) == 2, limit_s=60)
        ranks = pids(tmp_path)
        session = os.getsid(ranks[0])
        ports = {port for pid in ranks for port in listening_ports(pid)}
        planted = [SHM / f"rsag-test-{pid}" for pid in ranks]
        assert ports
        assert all(path.exists() for path in planted)

        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=5)

    assert stderr.endswith(b"KeyboardInterrupt\n")
    assert living_members(session) == []
    assert set() == ports & all_listening_ports()
    assert list(tmp_path.glob("rsag-*")) == []
    assert [path for path in planted if path.exists()] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_and_store_go_when_the_launcher_is_signalled(
    number: signal.Signals, tmp_path: Path, environment: dict[str, str]
) -> None:
    with driver(tmp_path, environment, "toys:hang", "") as process:
        wait_until(lambda: len(pids(tmp_path)) == 2, limit_s=20)
        session = os.getsid(pids(tmp_path)[0])
        assert len(living_members(session)) == 3
        assert len(list(tmp_path.glob("rsag-*"))) == 1
        os.kill(process.pid, number)
        process.communicate(timeout=5)
        wait_until(lambda: not living_members(session) and not list(tmp_path.glob("rsag-*")))
    assert process.returncode == -number


def test_ranks_that_ignore_sigterm_go_after_ctrl_c_too(tmp_path: Path, environment: dict[str, str]) -> None:
    with driver(tmp_path, environment, "toys:ignore_sigterm", "", "-1") as process:
        wait_until(lambda: len(pids(tmp_path)) == 2, limit_s=20)
        session = os.getsid(pids(tmp_path)[0])
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=5)
    assert living_members(session) == []


def test_a_process_that_outlives_its_rank_is_ended_with_the_group(launch: Launch, tmp_path: Path) -> None:
    report = launch("leave_a_child", world_size=1)
    child = int((tmp_path / "rank-0000.log").read_text())
    assert Outcome.OK is report.outcome
    wait_until(lambda: not is_alive(child))


@pytest.fixture
def shm_file() -> Iterator[Path]:
    """A path in /dev/shm where nothing is yet."""
    path = SHM / f"rsag-test-{os.getpid()}-{os.urandom(4).hex()}"
    yield path
    path.unlink(missing_ok=True)


def hang_with(path: Path, tmp_path: Path, environment: dict[str, str]) -> Outcome:
    return run_ranks(
        entry="toys:plant_and_hang",
        arguments=[str(path)],
        world_size=2,
        out=tmp_path,
        deadline_s=0.5,
        environment=environment,
    ).outcome


def test_shared_memory_of_killed_ranks_is_removed(shm_file: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    assert Outcome.DEADLINE is hang_with(shm_file, tmp_path, environment)
    assert not shm_file.exists()


def test_shared_memory_that_was_there_before_stays(shm_file: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    shm_file.write_bytes(bytes(mmap.PAGESIZE))
    assert Outcome.DEADLINE is hang_with(shm_file, tmp_path, environment)
    assert shm_file.exists()


def test_shared_memory_that_a_stranger_has_mapped_stays(
    shm_file: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    held: list[mmap.mmap] = []

    def map_it(event: object) -> None:
        wait_until(lambda: shm_file.exists() and shm_file.stat().st_size)
        with shm_file.open("r+b") as file:
            held.append(mmap.mmap(file.fileno(), mmap.PAGESIZE))

    report = run_ranks(
        entry="toys:plant_and_hang",
        arguments=[str(shm_file)],
        world_size=1,
        out=tmp_path,
        deadline_s=0.5,
        environment=environment,
        on_event=map_it,
    )
    assert Outcome.DEADLINE is report.outcome
    assert shm_file.exists()
