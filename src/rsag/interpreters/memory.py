"""The buffers of all ranks: how long they live, what may be read and written in them, and the log of who did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rsag.collectives import Kind
from rsag.interpreters.algebra import Algebra, Cells
from rsag.interpreters.order import RETURN, Access, AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.programs import Alloc, Program, Release, View
from rsag.records.proof import Contract


@dataclass(slots=True)
class Use:
    """One operation's use of memory: over at once, or `open_ended` until somebody closes its `accesses`."""

    rank: int
    what: str
    site: str
    open_ended: bool = False
    accesses: list[Access] = field(default_factory=list)


class Memory:
    """Every rank's buffers by number. A log, where there is one, is told of each use and judges it later."""

    def __init__(self, programs: Sequence[Program], algebra: Algebra, log: AccessLog | None) -> None:
        self.buffers: list[dict[int, Cells]] = [{} for _ in programs]
        self._algebra, self._log = algebra, log
        self._allocs = [
            {step.view.buffer: step for step in program.code if isinstance(step, Alloc)} for program in programs
        ]
        self._released: set[tuple[int, int]] = set()

    # ------------------------------------------------------------------------------------------------- lifetimes

    def lend(self, program: Program) -> None:
        """The caller writes `program`'s input, of an all_gather in place the rank's own slice."""
        rank, view = program.rank, program.input
        if program.target is Kind.ALL_GATHER and program.in_place:
            q = len(view) // program.world_size
            cells = self._algebra.unwritten(len(view))
            cells[rank * q : (rank + 1) * q] = self._algebra.inputs(rank, q)
        else:
            cells = self._algebra.inputs(rank, len(view))
        self.buffers[rank][view.buffer] = cells
        if self._log is not None:
            self._log.add(rank, view, writes=True, what="write of the input by the caller", site="caller")

    def allocate(self, rank: int, step: Alloc) -> None:
        if step.view.buffer in self.buffers[rank]:
            return  # the input, which the caller has lent
        self.buffers[rank][step.view.buffer] = self._algebra.unwritten(len(step.view))
        if self._log is not None:
            self._log.add(rank, step.view, writes=True, what="allocation", site=step.site)

    def release(self, rank: int, step: Release) -> None:
        self._refuse_released(rank, step.view, "release", step.site)
        if self._log is not None:
            self._log.add(rank, step.view, writes=True, what="release", site=step.site)
        self.buffers[rank][step.view.buffer] = self._algebra.released(len(step.view))
        self._released.add((rank, step.view.buffer))

    def give_back(self, rank: int) -> None:
        """Anything may follow: the caller has its buffers back, the others are freed or used by the next run."""
        if self._log is not None:
            for alloc in self._allocs[rank].values():
                self._log.add(rank, alloc.view, writes=True, what=RETURN, site="caller")

    # -------------------------------------------------------------------------------------------------- accesses

    def note_read(self, use: Use, view: View) -> None:
        if self._log is not None:
            self._note(self._log, use, view, f"{use.what} (read)", writes=False)

    def note_write(self, use: Use, view: View) -> None:
        self._refuse_released(use.rank, view, f"{use.what} (write)", use.site)
        if self._log is not None:
            self._note(self._log, use, view, f"{use.what} (write)", writes=True)

    def _note(self, log: AccessLog, use: Use, view: View, what: str, *, writes: bool) -> None:
        access = log.add(use.rank, view, writes=writes, what=what, site=use.site, open_ended=use.open_ended)
        use.accesses.append(access)

    def load(self, use: Use, view: View) -> Cells:
        """The values in `view`; Refuted where they are nobody's to read."""
        if view.rank != use.rank:
            self._refuse_strange_peer(use, view)
        buffer = self.buffers[view.rank].get(view.buffer)
        if buffer is None:
            raise Refuted(
                Contract.ORDER,
                f"rank {use.rank}'s {use.what} reads a buffer of rank {view.rank} that does not exist yet",
                rank=use.rank,
                sites=(use.site,),
            )
        cells = buffer[view.start : view.stop]
        reason = self._algebra.why_unreadable(cells)
        if reason is not None:
            contract = Contract.ORDER if reason == "released" else Contract.RESULT
            message = f"rank {use.rank}'s {use.what} reads {reason} memory"
            raise Refuted(contract, message, rank=use.rank, sites=(use.site,))
        return cells

    def store(self, view: View, cells: Cells) -> None:
        self.buffers[view.rank][view.buffer][view.start : view.stop] = cells

    # -------------------------------------------------------------------------------------------------- refusals

    def _refuse_released(self, rank: int, view: View, what: str, site: str) -> None:
        if (view.rank, view.buffer) in self._released:
            message = f"rank {rank}'s {what} comes after the buffer's release"
            raise Refuted(Contract.ORDER, message, rank=rank, sites=(site,))

    def _refuse_strange_peer(self, use: Use, view: View) -> None:
        """Memory that peers can read is allocated together: same place in the program, same size."""
        ours, theirs = self._allocs[use.rank][view.buffer], self._allocs[view.rank].get(view.buffer)
        if theirs is None or not theirs.symmetric or len(theirs.view) != len(ours.view):
            raise Refuted(
                Contract.AGREEMENT,
                f"rank {use.rank}'s {use.what} reads rank {view.rank}'s buffer {view.buffer}, which is not the "
                "counterpart of its own: both ranks must allocate it symmetric, with one size",
                rank=use.rank,
                sites=(use.site, ours.site) if theirs is None else (use.site, theirs.site),
            )
