"""Which of several dead ranks is the cause, and which are its victims."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from rsag.launch.messages import RankDeath

_TAIL_BYTES = 1 << 16


def find_cause(deaths: Iterable[RankDeath], *, since_ns: int) -> RankDeath | None:
    """The rank that failed first by itself; None if none did.

    A signal that the launcher did not send beats an exception: the peers of a Gloo rank that aborts fail with
    "Connection reset by peer", and often are reaped before it. Among exceptions the earliest counts, by the time in the
    rank's own record where there is one: a rank may take long to end, and be ended by us, after it has failed. What a
    record says of a time before `since_ns`, the start of the run, is of another run. A rank that could not even record
    its failure, as on a full disk, failed before all that could: nobody knows when, and they are its victims.
    """
    candidates = [(at_ns, death) for death in deaths if (at_ns := _failed_at_ns(death, since_ns)) is not None]
    recorded_ns = [at_ns for at_ns, death in candidates if _recorded_failure_ns(_record(death), since_ns) is not None]

    def order(candidate: tuple[int, RankDeath]) -> tuple[bool, int, bool]:
        at_ns, death = candidate
        if not _crashed(death) and _is_open(_record(death)):
            return True, min([at_ns, *recorded_ns]), False
        return not _crashed(death), at_ns, True

    return min(candidates, key=order)[1] if candidates else None


def _record(death: RankDeath) -> Path:
    return death.log.with_suffix(".jsonl")


def _crashed(death: RankDeath) -> bool:
    return death.signal is not None and death.signalled_at_ns is None


def _failed_at_ns(death: RankDeath, since_ns: int) -> int | None:
    if not death.failed:
        return None
    if _crashed(death):
        return death.at_ns
    recorded_ns = _recorded_failure_ns(_record(death), since_ns)
    if death.signalled_at_ns is None:
        return death.at_ns if recorded_ns is None else recorded_ns
    return recorded_ns if recorded_ns is not None and recorded_ns < death.signalled_at_ns else None


def _recorded_failure_ns(record: Path, since_ns: int) -> int | None:
    """`at_ns` of the record's last line if that says `failed`; None for no such line, a torn one or no record."""
    last = _last_line(record)
    at_ns = last.get("at_ns") if last is not None and last.get("kind") == "failed" else None
    return at_ns if isinstance(at_ns, int) and at_ns >= since_ns else None


def _is_open(record: Path) -> bool:
    """Whether there is a record that says neither `end` nor `failed`."""
    last = _last_line(record)
    return record.exists() and (last is None or last.get("kind") not in ("end", "failed"))


def _last_line(record: Path) -> dict[str, object] | None:
    try:
        with record.open("rb") as file:
            file.seek(max(0, record.stat().st_size - _TAIL_BYTES), os.SEEK_SET)
            last = json.loads(file.read().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return None
    return last if isinstance(last, dict) else None
