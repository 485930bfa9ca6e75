"""All ranks' programs run together, in one schedule, over whatever algebra the values come from.

Programs are straight lines, calls are matched deterministically, and communication is under rendezvous: a call ends
only when its partners have come, and a rank's calls go one at a time in the order of issue, whatever their groups (more
than that NCCL does not promise). So if no race is found, every execution gives these values, and if no rank gets stuck,
none does under any buffering. Values are taken when a call starts; if anyone could see the difference, that is a race.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from rsag.collectives import COLLECTIVES, Kind
from rsag.interpreters.order import RETURN, Access, AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.programs import Alloc, Local, LocalKind, Program, Release, Start, View, Wait
from rsag.records.proof import Contract
from rsag.reduction import ReduceOp

Cells = list[Any]
"""One value per element; of which type is the algebra's business."""


class Algebra(Protocol):
    """Where values come from and how they are reduced."""

    def inputs(self, rank: int, numel: int) -> Cells:
        """What the caller of `rank` contributes."""

    def unwritten(self, numel: int) -> Cells: ...

    def released(self, numel: int) -> Cells: ...

    def constant(self, value: str | float, numel: int) -> Cells: ...

    def reduce(self, op: ReduceOp, columns: Sequence[Cells]) -> Cells:
        """Element by element over the columns, one column per contributor."""

    def apply(self, name: str, columns: Sequence[Cells]) -> Cells: ...

    def why_unreadable(self, cells: Cells) -> str | None:
        """Why no program may read these, or None."""


@dataclass(slots=True)
class ShardState:
    """What one rank's shard holds when a reduce_scatter over all ranks has ended."""

    rank: int
    cells: Cells
    site: str


@dataclass(slots=True)
class Outcome:
    """What the programs leave: per rank its buffers and its longest message chain; the shards in between."""

    memory: list[dict[int, Cells]]
    steps: list[int]
    shards: list[ShardState]

    def read(self, view: View) -> Cells:
        return self.memory[view.rank][view.buffer][view.start : view.stop]


_Channel = tuple[tuple[int, ...], int, int]
"""(group, sender, receiver): messages of one communicator meet in the order of issue."""


@dataclass(slots=True)
class _Call:
    """One collective, or one side of a sendrecv, on its way."""

    needed: int
    group: tuple[int, ...] = ()
    members: dict[int, tuple[Start, Cells]] = field(default_factory=dict)
    clocks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    depth: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Pending:
    what: str
    call: _Call | None
    hears: tuple[int, ...]
    accesses: list[Access]


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


class _Machine:
    def __init__(self, programs: Sequence[Program], algebra: Algebra, log: AccessLog | None) -> None:
        self.programs, self.algebra, self.log = programs, algebra, log
        ranks = range(len(programs))
        self.position = [0 for _ in ranks]
        self.pending: list[dict[int, _Pending]] = [{} for _ in ranks]
        self.outcome = Outcome([{} for _ in ranks], [0 for _ in ranks], [])
        self.memory = self.outcome.memory
        self.depth = self.outcome.steps
        self.num_calls: dict[tuple[tuple[int, ...], int], int] = {}
        self.calls: dict[tuple[tuple[int, ...], int], _Call] = {}
        self.queue: dict[tuple[tuple[int, ...], int], int] = {}
        self.lines: list[deque[tuple[_Call, Callable[[], None]]]] = [deque() for _ in ranks]
        self.channels: dict[_Channel, tuple[list[Any], list[Any]]] = {}
        self.allocs = [
            {step.view.buffer: step for step in program.code if isinstance(step, Alloc)} for program in programs
        ]
        self.released: set[tuple[int, int]] = set()
        self.handlers = {
            Alloc: self._alloc,
            Release: self._release,
            Local: self._local,
            Start: self._start,
        }
        for rank in ranks:
            self._give_input(rank)

    def _give_input(self, rank: int) -> None:
        program = self.programs[rank]
        view, numel = program.input, len(program.input)
        if program.target is Kind.ALL_GATHER and program.in_place:
            shard_numel = numel // program.world_size
            cells = self.algebra.unwritten(numel)
            own = rank * shard_numel
            cells[own : own + shard_numel] = self.algebra.inputs(rank, shard_numel)
        else:
            cells = self.algebra.inputs(rank, numel)
        self.memory[rank][view.buffer] = cells
        if self.log is not None:
            self.log.tick(rank)
            self.log.add(rank, view, writes=True, what="write of the input by the caller", site="caller")

    # ---------------------------------------------------------------------------------------------- the schedule

    def run(self) -> Outcome:
        live = list(range(len(self.programs)))
        while live:
            moved = False
            for rank in tuple(live):
                moved = self._advance(rank) or moved
                code = self.programs[rank].code
                while self.position[rank] < len(code) and self._step(rank):
                    moved = True
                if self.position[rank] == len(code):
                    self._return(rank)
                    live.remove(rank)
                    moved = True
            if not moved:
                self._stuck(live)
        return self.outcome

    def _step(self, rank: int) -> bool:
        """Run `rank`'s next instruction; False where it has to wait for others."""
        step = self.programs[rank].code[self.position[rank]]
        if isinstance(step, Wait):
            if not self._wait(rank, step):
                return False
        else:
            if self.log is not None:
                self.log.tick(rank)
            self.handlers[type(step)](rank, step)  # type: ignore[operator]
        self.position[rank] += 1
        return True

    def _return(self, rank: int) -> None:
        """Anything may follow: the caller has its buffers back, the others are freed or used by the next run."""
        if self.log is not None:
            self.log.tick(rank)
            for alloc in self.allocs[rank].values():
                self.log.add(rank, alloc.view, writes=True, what=RETURN, site="caller")
        for pending in self.pending[rank].values():
            raise Refuted(Contract.ORDER, f"rank {rank} returns without waiting for its {pending.what}", rank=rank)

    def _stuck(self, live: list[int]) -> NoReturn:
        waiting = {}
        for rank in live:
            step = self.programs[rank].code[self.position[rank]]
            assert isinstance(step, Wait)
            waiting[rank] = self.pending[rank][step.token].what, step.site
        raise Refuted(
            Contract.PROGRESS,
            "no rank can go on: " + ", ".join(f"rank {rank} waits in {what}" for rank, (what, _) in waiting.items()),
            rank=live[0],
            sites=tuple(dict.fromkeys(site for _, site in waiting.values())),
        )

    # ------------------------------------------------------------------------------------------------ local work

    def _alloc(self, rank: int, step: Alloc) -> None:
        if step.view == self.programs[rank].input:
            return
        self.memory[rank][step.view.buffer] = self.algebra.unwritten(len(step.view))
        self._note(rank, step.view, "allocation", step.site, writes=True)

    def _release(self, rank: int, step: Release) -> None:
        self._note(rank, step.view, "release", step.site, writes=True)
        self.memory[rank][step.view.buffer] = self.algebra.released(len(step.view))
        self.released.add((rank, step.view.buffer))

    def _local(self, rank: int, step: Local) -> None:
        started = step.token is not None
        accesses: list[Access] = []
        columns = []
        reads = step.src if step.kind is not LocalKind.COMBINE else (step.dst, *step.src)
        for view in reads:
            self._note(rank, view, f"{step.kind.value} (read)", step.site, into=accesses, open_ended=started)
            columns.append(self._read(rank, view, step.kind.value, step.site))
        if step.kind is LocalKind.COPY:
            cells = columns[0]
        elif step.kind is LocalKind.COMBINE:
            assert isinstance(step.argument, ReduceOp)
            cells = self.algebra.reduce(step.argument, columns)
        elif step.kind is LocalKind.FILL:
            assert isinstance(step.argument, (str, int, float))
            cells = self.algebra.constant(step.argument, len(step.dst))
        else:
            cells = self.algebra.apply(str(step.argument), columns)
        what = f"{step.kind.value} (write)"
        self._note(rank, step.dst, what, step.site, writes=True, into=accesses, open_ended=started)
        self._write(step.dst, cells)
        if step.token is not None:
            self.pending[rank][step.token] = _Pending(step.kind.value, None, (), accesses)

    # --------------------------------------------------------------------------------------------- communication

    def _start(self, rank: int, step: Start) -> None:
        accesses: list[Access] = []
        kind = step.kind.value
        writes_out = step.out is not None and not (step.kind is Kind.BROADCAST and rank == step.root)
        reads_inp = step.inp is not None and not (step.kind is Kind.BROADCAST and rank != step.root)
        if reads_inp:
            assert step.inp is not None
            self._note(rank, step.inp, f"{kind} (read)", step.site, into=accesses, open_ended=True)
        if writes_out:
            assert step.out is not None
            self._note(rank, step.out, f"{kind} (write)", step.site, writes=True, into=accesses, open_ended=True)
        _refuse_overlap(rank, step)
        cells = self._read(rank, step.inp, kind, step.site) if reads_inp and step.inp is not None else []
        if step.kind is Kind.SENDRECV:
            self._sendrecv(rank, step, cells, accesses)
        else:
            self._collective(rank, step, cells, accesses)

    def _collective(self, rank: int, step: Start, cells: Cells, accesses: list[Access]) -> None:
        key = (step.group, rank)
        index = self.num_calls[key] = self.num_calls.get(key, -1) + 1
        call = self.calls.get((step.group, index))
        if call is None:
            steps = COLLECTIVES[step.kind].steps(len(step.group))
            call = self.calls[step.group, index] = _Call(len(step.group), step.group, steps=steps)
        for other, (theirs, _) in call.members.items():
            if _signature(theirs) != _signature(step):
                _disagree(index, other, theirs, rank, step)
            break
        call.members[rank] = (step, cells)
        if self.log is not None:
            call.clocks[rank] = tuple(self.log.clocks[rank])
        # One communicator runs its calls in order: a chain goes on from the group's last call, waited for or not.
        call.depth = max(call.depth, self.depth[rank], self.queue.get(key, 0))
        self.queue[key] = call.depth + call.steps
        self.pending[rank][step.token] = _Pending(step.kind.value, call, _hears(rank, step), accesses)
        self._line_up(rank, call, lambda: self._arrive(call))

    def _line_up(self, rank: int, call: _Call, arrive: Callable[[], None]) -> None:
        """Let `call` arrive once what `rank` has issued before is over."""
        line = self.lines[rank]
        line.append((call, arrive))
        if len(line) == 1:
            arrive()
        else:
            self._advance(rank)

    def _advance(self, rank: int) -> bool:
        """Let the calls that wait behind a finished one arrive."""
        line, moved = self.lines[rank], False
        while line and line[0][0].needed == 0:
            line.popleft()
            moved = True
            if line:
                line[0][1]()
        return moved

    def _arrive(self, call: _Call) -> None:
        call.needed -= 1
        if call.needed == 0:
            for member in call.group:
                self.queue[call.group, member] = call.depth + call.steps
            self._deliver(call)

    def _deliver(self, call: _Call) -> None:
        group = call.group
        step = call.members[group[0]][0]
        sent = [call.members[rank][1] for rank in group]
        for rank, cells in zip(group, self._received(step, group, sent)):
            out = call.members[rank][0].out
            if out is None or cells is None:
                continue
            self._write(out, cells)
            if step.kind is Kind.REDUCE_SCATTER and 1 < len(group) == len(self.programs):
                self.outcome.shards.append(ShardState(rank, cells, call.members[rank][0].site))

    def _received(self, step: Start, group: tuple[int, ...], sent: list[Cells]) -> list[Cells | None]:
        """What each member of the group receives; None where its buffer is not written."""
        size = len(group)
        if step.kind is Kind.ALL_REDUCE:
            assert step.op is not None
            return [self.algebra.reduce(step.op, sent)] * size
        if step.kind is Kind.REDUCE_SCATTER:
            assert step.op is not None
            full = self.algebra.reduce(step.op, sent)
            q = len(full) // size
            return [full[index * q : (index + 1) * q] for index in range(size)]
        if step.kind is Kind.ALL_GATHER:
            gathered = sent[0][:0]
            for cells in sent:
                gathered = gathered + cells
            return [gathered] * size
        if step.kind is Kind.BROADCAST:
            assert step.root is not None
            whole = sent[group.index(step.root)]
            return [None if rank == step.root else whole for rank in group]
        if step.kind is Kind.REDUCE:
            assert step.op is not None
            reduced = self.algebra.reduce(step.op, sent)
            undefined = self.algebra.unwritten(len(reduced))  # Gloo leaves partial sums
            return [reduced if rank == step.root else undefined for rank in group]
        return [None] * size

    def _sendrecv(self, rank: int, step: Start, cells: Cells, accesses: list[Access]) -> None:
        call = _Call(int(step.inp is not None) + int(step.out is not None), depth=self.depth[rank], steps=1)
        hears = () if step.source is None or not step.out else (step.source,)
        self.pending[rank][step.token] = _Pending(step.kind.value, call, hears, accesses)
        clock = None if self.log is None else tuple(self.log.clocks[rank])

        def arrive() -> None:
            if step.dest is not None:
                self._post((step.group, rank, step.dest), 0, (call, step, cells, clock))
            if step.source is not None:
                self._post((step.group, step.source, rank), 1, (call, step))

        self._line_up(rank, call, arrive)

    def _post(self, channel: _Channel, side: int, item: tuple[Any, ...]) -> None:
        _, source, dest = channel
        ends = self.channels.setdefault(channel, ([], []))
        ends[side].append(item)
        sends, receives = ends
        while sends and receives:
            sender, send, cells, clock = sends.pop(0)
            receiver, receive = receives.pop(0)
            if len(send.inp) != len(receive.out):
                raise Refuted(
                    Contract.AGREEMENT,
                    f"rank {source} sends {len(send.inp)} elements, rank {dest} expects {len(receive.out)}",
                    rank=dest,
                    sites=(send.site, receive.site),
                )
            self._write(receive.out, cells)
            if clock is not None:
                receiver.clocks[source] = clock
            receiver.depth = max(receiver.depth, sender.depth)
            sender.needed -= 1
            receiver.needed -= 1

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
                    self.log.hear(rank, call.clocks[other])
            self.log.tick(rank)
            self.log.close(rank, pending.accesses)
        return True

    # --------------------------------------------------------------------------------------------------- memory

    def _read(self, rank: int, view: View, what: str, site: str) -> Cells:
        if view.rank != rank:
            self._refuse_strange_peer(rank, view, what, site)
        buffer = self.memory[view.rank].get(view.buffer)
        if buffer is None:
            raise Refuted(
                Contract.ORDER,
                f"rank {rank}'s {what} reads a buffer of rank {view.rank} that does not exist yet",
                rank=rank,
                sites=(site,),
            )
        cells = buffer[view.start : view.stop]
        reason = self.algebra.why_unreadable(cells)
        if reason is not None:
            contract = Contract.ORDER if reason == "released" else Contract.RESULT
            raise Refuted(contract, f"rank {rank}'s {what} reads {reason} memory", rank=rank, sites=(site,))
        return cells

    def _refuse_strange_peer(self, rank: int, view: View, what: str, site: str) -> None:
        """Memory that peers can read is allocated together: same place in the program, same size."""
        ours, theirs = self.allocs[rank][view.buffer], self.allocs[view.rank].get(view.buffer)
        if theirs is None or not theirs.symmetric or len(theirs.view) != len(ours.view):
            raise Refuted(
                Contract.AGREEMENT,
                f"rank {rank}'s {what} reads rank {view.rank}'s buffer {view.buffer}, which is not the counterpart of "
                "its own: both ranks must allocate it symmetric, with one size",
                rank=rank,
                sites=(site, ours.site) if theirs is None else (site, theirs.site),
            )

    def _write(self, view: View, cells: Cells) -> None:
        self.memory[view.rank][view.buffer][view.start : view.stop] = cells

    def _note(
        self,
        rank: int,
        view: View,
        what: str,
        site: str,
        *,
        writes: bool = False,
        open_ended: bool = False,
        into: list[Access] | None = None,
    ) -> None:
        if writes and (view.rank, view.buffer) in self.released:
            raise Refuted(
                Contract.ORDER, f"rank {rank}'s {what} comes after the buffer's release", rank=rank, sites=(site,)
            )
        if self.log is not None:
            access = self.log.add(rank, view, writes=writes, what=what, site=site, open_ended=open_ended)
            if into is not None and open_ended:
                into.append(access)


def _hears(rank: int, step: Start) -> tuple[int, ...]:
    """The ranks that `rank`'s completion depends on: the only order that a collective gives."""
    if step.kind is Kind.BARRIER:
        return step.group
    if not step.inp:
        return ()  # nothing moves, so nothing is ordered
    if step.kind is Kind.BROADCAST:
        assert step.root is not None
        return (step.root,)
    if step.kind is Kind.REDUCE and rank != step.root:
        return ()
    return step.group


def _signature(step: Start) -> tuple[object, ...]:
    return step.kind, len(step.inp or ()), len(step.out or ()), step.op, step.root


def _disagree(index: int, other: int, theirs: Start, rank: int, ours: Start) -> NoReturn:
    def say(step: Start) -> str:
        op = "" if step.op is None else f", {step.op.value}"
        return f"{step.kind.value}({len(step.inp or ())}{op})"

    raise Refuted(
        Contract.AGREEMENT,
        f"call {index} of group {ours.group}: rank {other} issues {say(theirs)}, rank {rank} {say(ours)}",
        rank=rank,
        sites=(theirs.site, ours.site),
    )


def _refuse_overlap(rank: int, step: Start) -> None:
    """In place means NCCL's own slice; any other overlap of output and input is undefined."""
    out, inp = step.out, step.inp
    if out is None or inp is None or not out.overlaps(inp):
        return
    index = step.group.index(rank)
    if step.kind is Kind.REDUCE_SCATTER and out.start == inp.start + index * len(out):
        return
    if step.kind is Kind.ALL_GATHER and inp.start == out.start + index * len(inp):
        return
    if step.kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE) and out == inp:
        return
    raise Refuted(
        Contract.ORDER,
        f"rank {rank}'s {step.kind.value}: the output overlaps the input and is not the rank's own slice",
        rank=rank,
        sites=(step.site,),
    )
