"""One group of ranks inside the fork server: forked, watched, ended in order."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from rsag.launch.child import become_rank, log_path
from rsag.launch.leftovers import SharedMemoryFiles, is_dumping_core, kill_session, session_members
from rsag.launch.messages import GroupEnd, Outcome, RankDeath, RankNotStarted, RankStart, RunCommand
from rsag.launch.wires import Wires

GRACE_S = 1.0  # from the first failure to SIGTERM: time for the others to write their own records
TERM_S = 2.0  # from SIGTERM to SIGKILL

_Schedule = list[tuple[float, signal.Signals]]


def run_group(command: RunCommand, wires: Wires) -> None:
    """Runs the ranks of `command` and reports each start, each death and the end; nothing of them is left afterwards.

    The first failure, the deadline or closed wires end all ranks: SIGTERM, after a failure with a grace, then SIGKILL.
    """
    spare = session_members(os.getpid())  # the fork server, and what a preloaded module may have started
    shared_memory = SharedMemoryFiles()
    group = _RankGroup(command, shared_memory)
    try:
        outcome = _watch(group, wires) if group.start(wires) else None
    finally:
        group.kill_and_reap()
        kill_session(os.getpid(), spare=spare)
        shared_memory.remove()
    if outcome is not None:
        wires.send(GroupEnd(outcome=outcome))


def _watch(group: _RankGroup, wires: Wires) -> Outcome:
    outcome, stopping = Outcome.OK, False
    schedule = _ending(time.monotonic() + group.deadline_s)
    while group.living:
        wires.wait(schedule[0][0] if schedule else None)
        for death in group.reap():
            wires.send(death)
            if death.failed and outcome is Outcome.OK:
                outcome = Outcome.RANK_DIED
                group.note_shared_memory()
                schedule = _ending(time.monotonic() + GRACE_S)
        if wires.closed and not stopping:
            stopping = True
            schedule = _ending(time.monotonic())
        while schedule and schedule[0][0] <= time.monotonic():
            _, number = schedule.pop(0)
            group.signal(number)
            if outcome is Outcome.OK:
                outcome = Outcome.DEADLINE
    return outcome


def _ending(at_s: float) -> _Schedule:
    return [(at_s, signal.SIGTERM), (at_s + TERM_S, signal.SIGKILL)]


@dataclass(slots=True, kw_only=True)
class _LivingRank:
    rank: int
    log: Path
    signalled_at_ns: int | None = None
    log_bytes: int = 0
    core_cut: bool = False


class _RankGroup:
    def __init__(self, command: RunCommand, shared_memory: SharedMemoryFiles) -> None:
        self._command = command
        self._shared_memory = shared_memory
        self.deadline_s = command.deadline_s
        self.living: dict[int, _LivingRank] = {}

    def start(self, wires: Wires) -> bool:
        """Forks all ranks; False, with a report, if one cannot be forked."""
        parent = os.getpid()
        for rank in range(self._command.world_size):
            try:
                pid = os.fork()
            except OSError as error:
                wires.send(RankNotStarted(rank=rank, reason=str(error)))
                return False
            if pid == 0:
                become_rank(self._command, wires, rank=rank, parent=parent)
            self.living[pid] = _LivingRank(rank=rank, log=log_path(self._command.out, rank))
            wires.send(RankStart(rank=rank, pid=pid))
        return True

    def reap(self) -> list[RankDeath]:
        return [death for pid in list(self.living) if (death := self._reap_one(pid, os.WNOHANG)) is not None]

    def _reap_one(self, pid: int, options: int) -> RankDeath | None:
        reaped, status = os.waitpid(pid, options)
        if reaped == 0:
            return None
        at_ns = time.monotonic_ns()
        code = os.waitstatus_to_exitcode(status)
        ended = self.living.pop(pid)
        return RankDeath(
            rank=ended.rank,
            pid=pid,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            at_ns=at_ns,
            signalled_at_ns=ended.signalled_at_ns,
            log=ended.log,
            log_bytes=_size(ended.log) if ended.signalled_at_ns is None else ended.log_bytes,
            core_cut=ended.core_cut,
        )

    def note_shared_memory(self) -> None:
        self._shared_memory.note(self.living)

    def signal(self, number: signal.Signals) -> None:
        """Sends `number` to all living ranks; one that is dumping core still counts as ended by itself."""
        self.note_shared_memory()
        for pid, living in self.living.items():
            if is_dumping_core(pid):
                living.core_cut = number == signal.SIGKILL
            elif living.signalled_at_ns is None:
                living.signalled_at_ns, living.log_bytes = time.monotonic_ns(), _size(living.log)
            # A child that is not reaped keeps its pid, so this cannot hit a stranger.
            os.kill(pid, number)

    def kill_and_reap(self) -> None:
        self.signal(signal.SIGKILL)
        for pid in list(self.living):
            self._reap_one(pid, 0)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
