"""What ranks may leave behind, as Linux shows it: processes and files in /dev/shm. Elsewhere all this finds nothing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_SHM = Path("/dev/shm")


def processes() -> list[int]:
    """The pids of all processes that /proc shows."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    return []


def session_members(session: int) -> list[int]:
    """The pids of all processes of `session`."""
    members = []
    for pid in processes():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == session:
                members.append(pid)
    return members


def kill_session(session: int, *, spare: Iterable[int] = ()) -> None:
    """Kills what is left of `session`, for example a compiler or a data loader whose rank is dead, but not `spare`."""
    for pid in set(session_members(session)) - set(spare):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def is_dumping_core(pid: int) -> bool:
    """Whether `pid` has been ended by a signal of its own and is still writing its core file, which can take long."""
    with contextlib.suppress(OSError):
        return "\nCoreDumping:\t1\n" in (_PROC / str(pid) / "status").read_text(errors="replace")
    return False


class SharedMemoryFiles:
    """The files in /dev/shm that ranks made, so that those of a killed rank can be removed.

    A file is taken to be theirs when it was not there at the start, a rank was seen to have it open or mapped, it
    belongs to this user, and no living process has it.
    """

    def __init__(self) -> None:
        self._before = _names_in_shm()
        self._seen: set[Path] = set()

    def note(self, pids: Iterable[int]) -> None:
        """Remembers what `pids` have in /dev/shm; to be called while they live."""
        for pid in pids:
            self._seen |= held_by(pid)

    def remove(self) -> None:
        """Removes what was noted; to be called when all ranks are dead."""
        mine = {path for path in self._seen if self._is_new_and_mine(path)}
        if mine:
            mine = mine.difference(*map(held_by, processes()))
        for path in mine:
            with contextlib.suppress(OSError):
                path.unlink()

    def _is_new_and_mine(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            return path.relative_to(_SHM).parts[0] not in self._before and path.stat().st_uid == os.getuid()
        return False


def _names_in_shm() -> set[str]:
    with contextlib.suppress(OSError):
        return set(os.listdir(_SHM))
    return set()


def held_by(pid: int) -> set[Path]:
    """The files in /dev/shm that `pid` has open or mapped; none where that cannot be read."""
    texts: list[str] = []
    with contextlib.suppress(OSError):
        # "address perms offset dev inode path"; the path may hold spaces.
        maps = (_PROC / str(pid) / "maps").read_text(errors="surrogateescape")
        texts += [fields[5] for line in maps.splitlines() if len(fields := line.split(None, 5)) == 6]
    with contextlib.suppress(OSError):
        for fd in os.listdir(_PROC / str(pid) / "fd"):
            with contextlib.suppress(OSError):
                texts.append(os.readlink(_PROC / str(pid) / "fd" / fd))
    return {Path(text) for text in texts if text.startswith(f"{_SHM}/") and not text.endswith(" (deleted)")}
