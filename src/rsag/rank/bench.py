"""The act of measuring behind a narrow interface: fresh buffers, reset, line up, time, check.

The order in which a round uses it is in `rank.rounds`, tested on a bench that only writes down what it is asked to do.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rsag.carriers.groups import Groups
from rsag.carriers.memory import Memory, Plain, Registered, aligned
from rsag.carriers.pooled import Pooled
from rsag.carriers.torch_api import api
from rsag.errors import UnsupportedError
from rsag.programs import Alloc, Program
from rsag.rank.tiles import BITS, Pieces, Scratch, Tiles, check_bytes
from rsag.records.latency import Buffers, Case

SMALL_PAD_BYTES, LARGE_PAD_BYTES = 1 << 20, 64 << 20
"""A pad must be of its buffers' kind: CUDA's caching allocator keeps requests up to 1 MiB in a pool of their own."""


class Bench(Protocol):
    """One case's arms."""

    def open(self, arm: int, coin: random.Random) -> None:
        """Fresh buffers for `arm`, behind a random pad."""

    def capture(self, arm: int) -> None:
        """Make ready what is made once a round: a graph, where the clock has graphs."""

    def ready(self) -> None:
        """Return when every rank has opened and captured all its arms."""

    def reset(self, arm: int) -> None:
        """The inputs as the caller gives them, and nothing right in the results."""

    def line_up(self) -> None:
        """Let no rank start before the others can."""

    def time_ns(self, arm: int) -> int:
        """Nanoseconds that one call of `arm` takes, on the clock of the case."""

    def check(self, arm: int) -> None:
        """Compare every element of the result with what was promised, off the clock."""

    def num_wrong(self) -> list[int]:
        """Elements found wrong since the round was opened, per arm."""

    def close(self) -> None:
        """Give up the round's buffers and graphs."""


class Arm:
    """One arm's buffers in one round: `calls` sets, all reset before a timing and all checked after it.

    What was right a cycle, a round or an arm ago must not pass for what a call did: `reset` makes every element of a
    result wrong, and sets every bit of the buffers in between, a shard's for one. A result that lies in the input is
    left to hold the input, which two ranks or more have chosen so that it differs from the result (`rank.inputs`): not
    on every rank for every operator (MAX gives its owner what it had), but a collective that does nothing does so on
    all. On one rank the input is the result, and nothing can be seen.
    """

    def __init__(
        self,
        program: Program,
        groups: Groups,
        tiles: Tiles,
        case: Case,
        device: torch.device,
        *,
        calls: int = 1,
        buffers: Buffers = Buffers.PLAIN,
        pad_bytes: int = 0,
    ) -> None:
        dtype: torch.dtype = getattr(torch, case.dtype.value)
        self._memory = memory_for(program, groups, dtype, device, calls, buffers, pad_bytes)
        self.sets = [Pooled(program, groups, dtype=dtype, device=device, memory=self._memory) for _ in range(calls)]
        promised = tiles.promised(program)
        given = [_given(program, bound.input) for bound in self.sets]
        chunk = tiles.contributed(program.rank, given[0].numel())
        self._inputs = [Pieces(tensor, chunk) for tensor in given]
        self._results = [
            Pieces(bound.result[start:stop], wanted) for bound in self.sets for start, stop, wanted in promised
        ]
        self._spoiled = [] if _lies_in(self.sets[0].result, given[0]) else self._results
        self._between = [tensor.view(BITS[dtype.itemsize]) for bound in self.sets for tensor in bound.between]
        self._scratch = Scratch(max(wanted.numel() for _, _, wanted in promised), dtype, device)
        self._wrong = torch.zeros((), dtype=torch.int64, device=device)

    def reset(self) -> None:
        for pieces in self._spoiled:
            pieces.spoil()
        for bits in self._between:
            bits.fill_(-1)
        for pieces in self._inputs:  # last, for of an AllGather in place the input lies in the result
            pieces.fill()

    def call(self) -> None:
        """Every set once, one after the other."""
        for bound in self.sets:
            bound()

    def check(self) -> None:
        for pieces in self._results:
            pieces.count_wrong(self._scratch, self._wrong)

    def num_wrong(self) -> int:
        return int(self._wrong)

    def close(self) -> None:
        """Give up the buffers and every view of them; the device must be done with them."""
        for views in (self.sets, self._inputs, self._results, self._spoiled, self._between):
            views.clear()
        self._memory.close()

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def memory_for(
    program: Program,
    groups: Groups,
    dtype: torch.dtype,
    device: torch.device,
    calls: int,
    buffers: Buffers,
    pad_bytes: int,
) -> Memory:
    """Room for `calls` sets of the program's buffers, behind a pad, in the kind of memory that is asked for."""
    if buffers is Buffers.PLAIN:
        return Plain(device, pad_bytes)
    per_call = sum(aligned(len(step.view) * dtype.itemsize) for step in program.code if isinstance(step, Alloc))
    used = groups.used_by(program)
    symmetric = buffers is Buffers.SYMMETRIC
    return Registered(calls * per_call, used, device, symmetric=symmetric, pad_bytes=pad_bytes)


def _given(program: Program, buffer: Tensor) -> Tensor:
    """The part of the input buffer that the caller writes: all of it, but for an AllGather in place."""
    q = program.numel // program.world_size
    if buffer.numel() == program.numel and program.target.value == "all_gather":
        return buffer[program.rank * q : (program.rank + 1) * q]
    return buffer


def _lies_in(result: Tensor, given: Tensor) -> bool:
    """Whether all of `result` is memory that the caller writes."""
    start, stop = given.data_ptr(), given.data_ptr() + given.nbytes
    return start <= result.data_ptr() and result.data_ptr() + result.nbytes <= stop


def pad_bytes(case: Case) -> int:
    """No pad has as many."""
    return max(SMALL_PAD_BYTES, min(case.bytes, LARGE_PAD_BYTES))


def most_bytes(case: Case, program: Program | None, device: torch.device) -> int:
    """No open arm keeps more: its pad, the buffers of its calls, and what filling and checking them takes."""
    if program is None:
        return pad_bytes(case)
    numel = sum(len(step.view) for step in program.code if isinstance(step, Alloc))
    return pad_bytes(case) + case.calls * numel * case.dtype.itemsize + check_bytes(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One case on one rank. A program of None is the null arm, which does nothing; `buffers` are the arms' kinds.

    `groups` are on the communicator that is timed, `control` is the group that carries CPU tensors.
    """

    case: Case
    programs: Sequence[Program | None]
    buffers: Sequence[Buffers]
    groups: Groups
    tiles: Tiles
    device: torch.device
    control: Any


class ArmsBench:
    """What the benches share: arms on pooled buffers."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.arms: dict[int, Arm] = {}

    def open(self, arm: int, coin: random.Random) -> None:
        on = self.setup
        pad, program = coin.randrange(1, pad_bytes(on.case)), on.programs[arm]
        if program is not None:
            self.arms[arm] = Arm(
                program,
                on.groups,
                on.tiles,
                on.case,
                on.device,
                calls=on.case.calls,
                buffers=on.buffers[arm],
                pad_bytes=pad,
            )

    def reset(self, arm: int) -> None:
        if arm in self.arms:
            self.arms[arm].reset()

    def check(self, arm: int) -> None:
        if arm in self.arms:
            self.arms[arm].check()

    def num_wrong(self) -> list[int]:
        return [self.arms[arm].num_wrong() if arm in self.arms else 0 for arm in range(len(self.setup.programs))]

    def close(self) -> None:
        for arm in self.arms.values():
            arm.close()
        self.arms.clear()

    def call(self, arm: int) -> None:
        """All calls of one timing, one after the other."""
        if arm in self.arms:
            self.arms[arm].call()


class CpuBench(ArmsBench):
    """The monotonic clock around one call, after a barrier."""

    def capture(self, arm: int) -> None:
        pass

    def ready(self) -> None:
        self.line_up()

    def line_up(self) -> None:
        api().barrier(None, False)

    def time_ns(self, arm: int) -> int:
        began = time.perf_counter_ns()
        self.call(arm)
        return (time.perf_counter_ns() - began) // self.setup.case.calls


class EagerBench(ArmsBench):
    """CUDA events around back-to-back host calls: what a host-bound loop sees.

    The ranks are lined up on the device by a one-element AllReduce on the timed stream, with no host synchronisation
    between it and the start event.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._one = torch.zeros(1, device=setup.device)
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def capture(self, arm: int) -> None:
        """Nothing to capture, but the first call of a size sets things up."""
        self.call(arm)

    def ready(self) -> None:
        self.line_up()
        torch.cuda.synchronize()

    def line_up(self) -> None:
        torch.distributed.all_reduce(self._one)

    def time_ns(self, arm: int) -> int:
        self._start.record()
        self.launch(arm)
        self._end.record()
        self._end.synchronize()
        elapsed_ms: float = self._start.elapsed_time(self._end)
        return round(elapsed_ms * 1e6 / self.setup.case.calls)

    def launch(self, arm: int) -> None:
        self.call(arm)


class GraphBench(EagerBench):
    """CUDA events around the replay of a graph of calls: device time, without the host.

    The groups are on the graphs' own communicator; the line-up stays on the eager one. Whether all ranks could capture
    is agreed before any replay, for a graph is a collective property.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._failed = ""

    def capture(self, arm: int) -> None:
        self.call(arm)  # communicators are made at the first call, which must not be in a capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # the null arm's is meant to be
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    self.call(arm)
            self._graphs[arm] = graph
        except RuntimeError as error:
            self._failed = str(error).splitlines()[0]

    def ready(self) -> None:
        failed = torch.tensor([int(bool(self._failed))])
        torch.distributed.all_reduce(failed, group=self.setup.control)
        if failed.item():
            why = self._failed or "on another rank"
            raise UnsupportedError(
                f"{int(failed)} ranks could not capture their graphs", got=why, do="use the eager clock"
            )
        super().ready()

    def launch(self, arm: int) -> None:
        self._graphs[arm].replay()

    def close(self) -> None:
        self._graphs.clear()
        super().close()
