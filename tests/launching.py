"""A launcher in short words, and what tests wait for and look at in /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rsag.launch import LaunchReport, OnEvent


class Launch(Protocol):
    def __call__(
        self, entry: str, *arguments: str, world_size: int = 2, deadline_s: float = 20, on_event: OnEvent | None = None
    ) -> LaunchReport: ...


def wait_until(condition: Callable[[], object], *, limit_s: float = 5.0) -> None:
    """Returns once `condition()` holds; fails the test if it does not within `limit_s`."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "still not so"
        time.sleep(0.01)


def living_members(session: int) -> list[int]:
    """The processes of `session`."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if is_alive(pid) and _stat(pid)[3:4] == [str(session)]]


def is_alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie, which may wait for a parent that is not ours, does not."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """State, parent, process group, session, ...; empty if there is no such process."""
    try:
        # The name before them may hold anything, also parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


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
