"""What became of a group of ranks, as a value and as the error that explains it."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from rsag.errors import RunFailedError
from rsag.launch.messages import Outcome, RankDeath
from rsag.units import format_seconds

_NUM_TAIL_LINES = 15
_TAIL_BYTES = 1 << 14
_TORCH_MISSING = re.compile(r"ModuleNotFoundError: No module named 'torch\b")
_INNERMOST_FRAME = re.compile(r'^\s*Current thread .*\n\s+File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_USUAL_REASONS = {
    int(signal.SIGKILL): " (often the kernel's out-of-memory killer: see dmesg)",
    int(signal.SIGBUS): " (often a full /dev/shm: see df /dev/shm)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReport:
    """How `world_size` ranks ended; `deaths` in the order of reaping, `cause` the one that failed first by itself."""

    world_size: int
    deadline_s: float
    outcome: Outcome
    deaths: tuple[RankDeath, ...]
    cause: RankDeath | None

    @property
    def ended_by_launcher(self) -> tuple[RankDeath, ...]:
        """The ranks that still ran when the launcher began to end the group, in rank order."""
        return tuple(sorted((d for d in self.deaths if d.signalled_at_ns is not None), key=lambda d: d.rank))

    @property
    def num_killed(self) -> int:
        return len(self.ended_by_launcher)

    @property
    def message(self) -> str:
        """What happened, in one line."""
        if self.outcome is Outcome.OK:
            return f"all {self.world_size} ranks ended well"
        if self.cause is not None:
            return f"rank {self.cause.rank} of {self.world_size} failed"
        running = ", ".join(f"rank {death.rank}" for death in self.ended_by_launcher)
        limit = format_seconds(self.deadline_s)
        return f"the deadline of {limit} passed with {running} of {self.world_size} still running"


def failure(report: LaunchReport) -> RunFailedError:
    """The error for a report that is not ok: the first failing rank and the end of its log, or who hung and where."""
    cause = report.cause
    if cause is not None:
        return RunFailedError(report.message, got=_how(cause), do=log_excerpt(cause.log, end=cause.log_bytes))
    lines = "".join(f"\n  rank {death.rank}: {_last_words(death)}" for death in report.ended_by_launcher)
    do = f"stacks are at the end of {report.deaths[0].log.parent}/rank-*.log; the last line of each rank:{lines}"
    return RunFailedError(report.message, do=do)


def _how(death: RankDeath) -> str:
    if death.signalled_at_ns is not None:
        return "a failure in its record, after which it did not end by itself"
    if death.core_cut:
        return "a crash whose core file took too long to write (ulimit -c 0 turns it off)"
    if death.signal is None:
        return f"exit code {death.exit_code}"
    return f"{signal_name(death.signal)}{_USUAL_REASONS.get(death.signal, '')}"


def _last_words(death: RankDeath) -> str:
    """The last line a rank wrote by itself, and where it stood when the launcher ended it."""
    said = _tail(death.log, end=death.log_bytes, num_lines=1).strip() or "(nothing written)"
    frame = _INNERMOST_FRAME.search(_tail(death.log, start=death.log_bytes, num_lines=1000))
    return f"{said}  [in {frame[3]}, {frame[1]}:{frame[2]}]" if frame else said


def log_excerpt(log: Path, *, end: int | None = None) -> str:
    """The last lines of a log, up to byte `end`, as an error may close with them; before them the remedy, if known."""
    text = _tail(log, end=end)
    hint = "install torch with pip install 'rsag[torch]'; " if _TORCH_MISSING.search(text) else ""
    return f"{hint}its log {log} ends:\n{text}" if text else f"its log {log} is empty"


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11; `signal 40` where there is no name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _tail(log: Path, *, start: int = 0, end: int | None = None, num_lines: int = _NUM_TAIL_LINES) -> str:
    if not log.exists():
        return ""
    end = log.stat().st_size if end is None else end
    with log.open("rb") as file:
        start = max(start, end - _TAIL_BYTES)
        file.seek(start)
        lines = file.read(max(0, end - start)).decode(errors="replace").rstrip().splitlines()
    return "\n".join(f"  {line}" for line in lines[-num_lines:])
