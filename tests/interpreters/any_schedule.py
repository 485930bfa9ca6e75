"""Programs run under one random schedule, element by element: a second opinion on what the machine says of all.

It shares no code with the machine. Every element of every operation is a task, and tasks run in random order. A rank
starts when its caller has written the input. A local operation reads and writes an element at once. A collective reads
each element of a rank's input once, some time after the rank's call begins, and writes an element of the output some
time after the reads that it depends on. In half of the schedules a rank's calls run one after the other, as on a GPU;
in the others all that are started run at once, as Gloo's threads may. Released memory holds rubbish, at once and again
when its next owner writes, and so does in the end all memory of a rank that has returned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rsag.collectives import COLLECTIVES, Kind
from rsag.interpreters.exact import Number, fold
from rsag.programs import IDENTITY, Alloc, Local, LocalKind, Program, Release, Start, View, Wait
from rsag.reduction import ReduceOp

RUBBISH = -55_555_555
NEUTRAL = {ReduceOp.SUM: 0, ReduceOp.MAX: -(1 << 62)}


class HangError(Exception):
    """No rank can go on."""


@dataclass
class Task:
    """One element of something: what to do, once `ready` says so."""

    ready: Callable[[], bool]
    do: Callable[[], None]
    done: bool = False


@dataclass
class Meeting:
    """One collective, or one message: what has been read for it, by (rank, element)."""

    reads: dict[tuple[int, int], Number] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)


class AnySchedule:
    """Run `programs`, once; `results` are the values at each rank's return."""

    def __init__(self, programs: Sequence[Program], inputs: Callable[[int, int], Number], seed: int) -> None:
        self.programs, self.random = programs, random.Random(seed)
        self.one_at_a_time = self.random.random() < 0.5
        self.memory: list[dict[int, list[Number]]] = [{} for _ in programs]
        self.position = [0 for _ in programs]
        self.tasks: list[Task] = []
        self.tokens: list[dict[int, list[Task]]] = [{} for _ in programs]
        self.blocked: list[list[Task]] = [[] for _ in programs]
        self.last_call: list[list[Task]] = [[] for _ in programs]
        self.num_calls: dict[object, int] = {}
        self.meetings: dict[object, Meeting] = {}
        self.results: dict[int, list[Number]] = {}
        for program in programs:
            self._lend(program, inputs)

    def run(self) -> list[list[Number]]:
        ranks = [program.rank for program in self.programs]
        while True:
            ready = [task for task in self.tasks if not task.done and task.ready()]
            free = [rank for rank in ranks if rank not in self.results and self._free(rank)]
            if not ready and not free:
                break
            choices: list[Task | int] = [*ready, *free]
            chosen = self.random.choice(choices)
            if isinstance(chosen, Task):
                chosen.done = True
                chosen.do()
                self.tasks = [task for task in self.tasks if not task.done]
            else:
                self._step(chosen)
        if len(self.results) < len(ranks):
            raise HangError
        return [self.results[rank] for rank in ranks]

    def _lend(self, program: Program, inputs: Callable[[int, int], Number]) -> None:
        """The caller writes the input, of an all_gather in place the own slice."""
        rank, view = program.rank, program.input
        self.memory[rank][view.buffer] = [RUBBISH] * len(view)
        if program.target is Kind.ALL_GATHER and program.in_place:
            q = len(view) // program.world_size
            view = view[rank * q : (rank + 1) * q]
        self.blocked[rank] = [
            Task(lambda: True, lambda index=index: self._put(view, index, inputs(rank, index)))  # type: ignore[misc]
            for index in range(len(view))
        ]
        self.tasks += self.blocked[rank]

    # ------------------------------------------------------------------------------------------------- one rank's line

    def _free(self, rank: int) -> bool:
        if any(not task.done for task in self.blocked[rank]):
            return False
        code = self.programs[rank].code
        step = code[self.position[rank]] if self.position[rank] < len(code) else None
        return not isinstance(step, Wait) or all(task.done for task in self.tokens[rank][step.token])

    def _step(self, rank: int) -> None:
        program = self.programs[rank]
        if self.position[rank] == len(program.code):
            self._return(program)
            return
        step = program.code[self.position[rank]]
        self.position[rank] += 1
        if isinstance(step, Alloc):
            if step.view != program.input:
                self.memory[rank][step.view.buffer] = [RUBBISH] * len(step.view)
        elif isinstance(step, Release):
            self._spoil(rank, step.view.buffer)
            self.tasks.append(Task(lambda: True, lambda: self._spoil(rank, step.view.buffer)))
        elif isinstance(step, Local):
            tasks = [self._element(program, step, index) for index in range(len(step.dst))]
            self.tasks += tasks
            if step.token is None:
                self.blocked[rank] = tasks
            else:
                self.tokens[rank][step.token] = tasks
        elif isinstance(step, Start):
            self._call(rank, step)

    def _return(self, program: Program) -> None:
        rank, view = program.rank, program.result
        self.results[rank] = self.memory[rank][view.buffer][view.start : view.stop]
        self.tasks += [
            Task(lambda: True, lambda buffer=buffer: self._spoil(rank, buffer))  # type: ignore[misc]
            for buffer in self.memory[rank]
        ]

    def _spoil(self, rank: int, buffer: int) -> None:
        self.memory[rank][buffer] = [RUBBISH] * len(self.memory[rank][buffer])

    def _get(self, view: View, index: int) -> Number:
        cells = self.memory[view.rank].get(view.buffer)
        return RUBBISH if cells is None else cells[view.start + index]

    def _put(self, view: View, index: int, value: Number) -> None:
        self.memory[view.rank][view.buffer][view.start + index] = value

    def _element(self, program: Program, step: Local, index: int) -> Task:
        def do() -> None:
            values = [self._get(view, index) for view in step.src]
            if step.kind is LocalKind.COMBINE:
                assert isinstance(step.argument, ReduceOp)
                value = fold(step.argument, [self._get(step.dst, index), *values])
            elif step.kind is LocalKind.FILL:
                value = NEUTRAL[program.op] if step.argument == IDENTITY else int(step.argument or 0)
            else:
                value = values[0] + (step.kind is LocalKind.APPLY)
            self._put(step.dst, index, value)

        return Task(lambda: True, do)

    # --------------------------------------------------------------------------------------------------- communication

    def _meeting(self, *key: object) -> Meeting:
        """The next one on this key, as each side counts."""
        self.num_calls[key] = self.num_calls.get(key, 0) + 1
        return self.meetings.setdefault((*key[1:], self.num_calls[key]), Meeting())

    def _call(self, rank: int, step: Start) -> None:
        before = self.last_call[rank]

        def begins() -> bool:
            return not self.one_at_a_time or all(task.done for task in before)

        if step.kind is Kind.SENDRECV:
            tasks = self._message(rank, step, begins)
        else:
            tasks = self._collective(rank, step, begins)
        self.tasks += tasks
        self.tokens[rank][step.token] = tasks
        self.last_call[rank] = tasks

    def _read(self, rank: int, view: View, index: int, meeting: Meeting, begins: Callable[[], bool]) -> Task:
        def do() -> None:
            meeting.reads[rank, index] = self._get(view, index)

        return Task(begins, do)

    def _message(self, rank: int, step: Start, begins: Callable[[], bool]) -> list[Task]:
        tasks = []
        if step.inp is not None:
            sent = self._meeting("send", step.group, rank, step.dest)
            tasks += [self._read(rank, step.inp, index, sent, begins) for index in range(len(step.inp))]
        if step.out is not None:
            assert step.source is not None
            out, source, got = step.out, step.source, self._meeting("receive", step.group, step.source, rank)
            for index in range(len(out)):
                tasks.append(
                    Task(
                        lambda index=index: begins() and (source, index) in got.reads,  # type: ignore[misc]
                        lambda index=index: self._put(out, index, got.reads[source, index]),  # type: ignore[misc]
                    )
                )
        return tasks

    def _collective(self, rank: int, step: Start, begins: Callable[[], bool]) -> list[Task]:
        group = step.group
        meeting = self._meeting(rank, group)
        begin = Task(begins, lambda: meeting.begun.add(rank))
        if step.kind is Kind.BARRIER:
            return [begin, Task(lambda: meeting.begun == set(group), lambda: None)]
        assert step.inp is not None
        assert step.out is not None
        tasks = [begin]
        tasks += [self._read(rank, step.inp, index, meeting, begins) for index in range(len(step.inp))]
        own_reads = tasks[1:]
        for index in range(len(step.out)):
            tasks.append(self._write(rank, step, index, meeting, begins, own_reads))
        return tasks

    def _write(
        self, rank: int, step: Start, index: int, meeting: Meeting, begins: Callable[[], bool], own_reads: list[Task]
    ) -> Task:
        """An output element, once its contributions are read, and one's own input too: outputs may lie in it."""
        group, out = step.group, step.out
        assert out is not None
        promise = COLLECTIVES[step.kind]
        count = len(out) if step.kind is not Kind.ALL_GATHER else len(out) // len(group)
        root = 0 if step.root is None else group.index(step.root)
        sources = promise.postcondition(group.index(rank), index, count=count, world_size=len(group), root=root)
        needed = [(group[source], element) for source, element in sources or ()]

        def do() -> None:
            values = [meeting.reads[key] for key in needed]
            if not needed:
                self._put(out, index, RUBBISH)
            elif step.op is None:
                self._put(out, index, values[0])
            else:
                self._put(out, index, fold(step.op, values))

        def ready() -> bool:
            own = all(task.done for task in own_reads)
            return begins() and own and all(key in meeting.reads for key in needed)

        return Task(ready, do)
