"""All ranks' programs run together, in one schedule, over whatever algebra the values come from.

Programs are straight lines, calls are matched deterministically, and communication is under rendezvous: a call ends
only when its partners have come, and a rank's calls go one at a time in the order of issue, whatever their groups (more
than that NCCL does not promise). So if no race is found, every execution gives these values, and if no rank gets stuck,
none does under any buffering. Values are taken when a call starts; if anyone could see the difference, that is a race.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from rsag.interpreters.algebra import Algebra, Cells
from rsag.interpreters.call_semantics import hears, read_by, refuse_overlap, written_by
from rsag.interpreters.communication import Call, Communication, Issue, ShardState
from rsag.interpreters.memory import Memory, Use
from rsag.interpreters.order import AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.programs import Alloc, Instruction, Local, LocalKind, Program, Release, Start, View, Wait
from rsag.records.proof import Contract
from rsag.reduction import ReduceOp


@dataclass(slots=True)
class Outcome:
    """What the programs leave: per rank its buffers and its longest message chain; the shards in between."""

    memory: list[dict[int, Cells]]
    steps: list[int]
    shards: list[ShardState]

    def read(self, view: View) -> Cells:
        return self.memory[view.rank][view.buffer][view.start : view.stop]


def run(programs: Sequence[Program], algebra: Algebra, log: AccessLog | None = None) -> Outcome:
    """Run all ranks to their end and check order where a log is given. Raises Refuted."""
    machine = _Machine(programs, algebra, log)
    try:
        outcome = machine.run()
    except Refuted:
        if log is not None:
            log.check()  # a race is the cause, a strange value its effect
        raise
    if log is not None:
        log.check()
    return outcome


def needs_order(programs: Iterable[Program]) -> bool:
    """Whether anything could be unordered: something is started, or a peer's memory is read."""
    for program in programs:
        for step in program.code:
            if isinstance(step, Local):
                if step.token is not None or any(view.rank != program.rank for view in step.src):
                    return True
            elif isinstance(step, Start) and not step.blocking:
                return True
    return False


@dataclass(slots=True)
class _Pending:
    """What was started and not waited for yet. Only a call keeps its rank waiting, and orders it after others."""

    use: Use
    call: Call | None = None
    hears: tuple[int, ...] = ()


class _Machine:
    def __init__(self, programs: Sequence[Program], algebra: Algebra, log: AccessLog | None) -> None:
        self.programs, self.algebra, self.log = programs, algebra, log
        self.memory = Memory(programs, algebra, log)
        self.communication = Communication(len(programs), algebra, self.memory.store)
        self.position = [0 for _ in programs]
        self.pending: list[dict[int, _Pending]] = [{} for _ in programs]
        self.depth = [0 for _ in programs]
        for program in programs:
            self._tick(program.rank)
            self.memory.lend(program)

    # ---------------------------------------------------------------------------------------------- the schedule

    def run(self) -> Outcome:
        live = list(range(len(self.programs)))
        while live:
            moved = False
            for rank in tuple(live):
                moved = self.communication.advance(rank) or moved
                code = self.programs[rank].code
                while self.position[rank] < len(code) and self._step(rank, code[self.position[rank]]):
                    self.position[rank] += 1
                    moved = True
                if self.position[rank] == len(code):
                    self._return(rank)
                    live.remove(rank)
                    moved = True
            if not moved:
                self._stuck(live)
        return Outcome(self.memory.buffers, self.depth, self.communication.shards)

    def _step(self, rank: int, step: Instruction) -> bool:
        """Run `rank`'s next instruction; False where it has to wait for others."""
        if isinstance(step, Wait):
            return self._wait(rank, step)
        self._tick(rank)
        if isinstance(step, Start):
            self._start(rank, step)
        elif isinstance(step, Local):
            self._local(rank, step)
        elif isinstance(step, Alloc):
            self.memory.allocate(rank, step)
        elif isinstance(step, Release):
            self.memory.release(rank, step)
        return True

    def _return(self, rank: int) -> None:
        self._tick(rank)
        self.memory.give_back(rank)
        for pending in self.pending[rank].values():
            message = f"rank {rank} returns without waiting for its {pending.use.what}"
            raise Refuted(Contract.ORDER, message, rank=rank)

    def _stuck(self, live: list[int]) -> NoReturn:
        waiting = {}
        for rank in live:
            step = self.programs[rank].code[self.position[rank]]
            assert isinstance(step, Wait)
            waiting[rank] = self.pending[rank][step.token].use.what, step.site
        raise Refuted(
            Contract.PROGRESS,
            "no rank can go on: " + ", ".join(f"rank {rank} waits in {what}" for rank, (what, _) in waiting.items()),
            rank=live[0],
            sites=tuple(dict.fromkeys(site for _, site in waiting.values())),
        )

    def _tick(self, rank: int) -> None:
        if self.log is not None:
            self.log.tick(rank)

    # ---------------------------------------------------------------------------------------------- instructions

    def _start(self, rank: int, step: Start) -> None:
        use = Use(rank, step.kind.value, step.site, open_ended=True)
        inp, out = read_by(rank, step), written_by(rank, step)
        if inp is not None:
            self.memory.note_read(use, inp)
        if out is not None:
            self.memory.note_write(use, out)
        refuse_overlap(rank, step)
        cells = [] if inp is None else self.memory.load(use, inp)
        clock = () if self.log is None else tuple(self.log.clocks[rank])
        call = self.communication.issue(Issue(rank, step, cells, self.depth[rank], clock))
        self.pending[rank][step.token] = _Pending(use, call, hears(rank, step))

    def _local(self, rank: int, step: Local) -> None:
        use = Use(rank, step.kind.value, step.site, open_ended=step.token is not None)
        columns = []
        for view in step.src if step.kind is not LocalKind.COMBINE else (step.dst, *step.src):
            self.memory.note_read(use, view)
            columns.append(self.memory.load(use, view))
        cells = self._computed(step, columns)
        self.memory.note_write(use, step.dst)
        self.memory.store(step.dst, cells)
        if step.token is not None:
            self.pending[rank][step.token] = _Pending(use)

    def _computed(self, step: Local, columns: Sequence[Cells]) -> Cells:
        if step.kind is LocalKind.COPY:
            return columns[0]
        if step.kind is LocalKind.COMBINE:
            assert isinstance(step.argument, ReduceOp)
            return self.algebra.reduce(step.argument, columns)
        if step.kind is LocalKind.FILL:
            assert isinstance(step.argument, (str, int, float))
            return self.algebra.constant(step.argument, len(step.dst))
        return self.algebra.apply(str(step.argument), columns)

    def _wait(self, rank: int, step: Wait) -> bool:
        pending = self.pending[rank][step.token]
        call = pending.call
        if call is not None:
            if call.needed:
                return False
            self.depth[rank] = max(self.depth[rank], call.depth + call.steps)
        del self.pending[rank][step.token]
        if self.log is not None:
            if call is not None:
                for other in pending.hears:
                    self.log.hear(rank, call.members[other].clock)
            self.log.tick(rank)
            self.log.close(rank, pending.use.accesses)
        return True
