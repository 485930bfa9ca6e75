"""A launcher with short words for the tests, and what they look at in /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

import rsag
from rsag.launch import LaunchReport, OnEvent, run_ranks

PATH = os.pathsep.join([str(Path(rsag.__file__).parents[1]), str(Path(__file__).parent)])


class Launch(Protocol):
    def __call__(
        self, entry: str, *arguments: str, world_size: int = 2, deadline_s: float = 20, on_event: OnEvent | None = None
    ) -> LaunchReport: ...


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which ranks find `toys`, and in which stores end up below `tmp_path`."""
    return {**os.environ, "PYTHONPATH": PATH, "TMPDIR": str(tmp_path)}


@pytest.fixture
def launch(tmp_path: Path, environment: dict[str, str]) -> Launch:
    """Runs a toy in `tmp_path`."""

    def run(
        entry: str, *arguments: str, world_size: int = 2, deadline_s: float = 20, on_event: OnEvent | None = None
    ) -> LaunchReport:
        return run_ranks(
            entry=f"toys:{entry}",
            arguments=arguments,
            world_size=world_size,
            out=tmp_path,
            deadline_s=deadline_s,
            environment=environment,
            on_event=on_event,
        )

    return run


def wait_until(condition: Callable[[], object], *, limit_s: float = 5.0) -> None:
    """Returns once `condition()` holds; fails the test if it does not within `limit_s`."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "still not so"
        time.sleep(0.01)


def living_members(session: int) -> list[int]:
    """The processes of `session`, without zombies, which wait for a parent that is not ours."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state ppid pgrp session ..."; the name may hold anything.
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its_session) == session and state not in "ZX":
            members.append(int(stat.parent.name))
    return members


def listening_ports(pid: int) -> set[int]:
    """The TCP ports on which `pid` listens."""
    links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return {port for inode, port in _listeners().items() if f"socket:[{inode}]" in links}


def all_listening_ports() -> set[int]:
    """The TCP ports on which anybody listens."""
    return set(_listeners().values())


def _listeners() -> dict[str, int]:
    lines = [line for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    rows = [line.split() for line in lines]
    return {row[9]: int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
