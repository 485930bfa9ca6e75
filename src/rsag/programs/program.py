"""Compositions, and the programs that recording them gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rsag.collectives import COLLECTIVES, Kind
from rsag.errors import ProgramError, UsageError
from rsag.programs.instructions import Instruction, Role, View
from rsag.programs.recorder import Recorder, Tape
from rsag.reduction import ReduceOp

Run = Callable[[Recorder, View, str], View]
"""A composition's body, `run(m, full, op)`, from one rank's point of view: it returns the view with the result."""


def any_numel(_: int) -> int:
    return 1


def world_size_multiple(world_size: int) -> int:
    return world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A way to reach what the target collective promises. Ownership is part of the type.

    `run` gets the target's send buffer: M elements, or M/N where the target is all_gather (in place the whole M, of
    which the rank's own slice is written). The caller keeps that input: at the end it is as it was, and the result lies
    outside it. With `in_place` the result lies inside it instead: it is the input, of a reduce_scatter the rank's own
    slice of it, and the rest is undefined. With `consumes` the input is given away: it may be changed, released, or
    hold the result.

    `symmetric`: the input must lie in memory that peers can read. `multiple_of(N)`: M must be a multiple of it.
    `folds`: values are combined pairwise outside of collectives, which an average does not survive.
    """

    name: str
    run: Run
    summary: str
    target: Kind = Kind.ALL_REDUCE
    consumes: bool = False
    symmetric: bool = False
    in_place: bool = False
    folds: bool = False
    multiple_of: Callable[[int], int] = world_size_multiple

    def why_refused(self, numel: int, world_size: int, op: ReduceOp) -> str | None:
        """Why it makes no claim about this size and operator, or None where it makes one."""
        if self.folds and op is ReduceOp.AVG:
            return f"{self.name} combines pairwise, and an average cannot be folded"
        multiple = self.multiple_of(world_size)
        if numel % multiple:
            return f"{self.name} takes a multiple of {multiple} elements on {world_size} ranks, not {numel}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One rank's straight line.

    `rank` is global, `numel` the full logical payload M, `input` and `result` are views of the rank's own buffers.
    """

    composition: str
    target: Kind
    rank: int
    world_size: int
    numel: int
    op: ReduceOp
    consumes: bool
    in_place: bool
    input: View
    result: View
    code: tuple[Instruction, ...]


def input_numel(composition: Composition, numel: int, world_size: int) -> int:
    """Elements of the buffer that `composition` is given for a full payload of `numel`: the target's send buffer.

    Only an all_gather in place is given its receive buffer, which the send buffer is a slice of.
    """
    if composition.target is Kind.ALL_GATHER and not composition.in_place:
        return COLLECTIVES[Kind.ALL_GATHER].count(numel, world_size)
    return numel


def record(composition: Composition, *, rank: int, world_size: int, numel: int, op: ReduceOp) -> Program:
    """Run `composition` once, as `rank` sees it, and keep what it does.

    Raises ProgramError where it breaks a rule that needs no other rank to see, UsageError where it does not take
    `numel`.
    """
    reason = composition.why_refused(numel, world_size, op)
    if reason is not None:
        raise UsageError(reason, do="pad the payload, or choose another composition (rsag prove lists them)")
    tape = Tape(rank)
    full = tape.allocate(input_numel(composition, numel, world_size), Role.INPUT, composition.symmetric, "caller")
    if not composition.consumes:
        tape.borrowed = full.buffer
    result = composition.run(Recorder(tape, range(world_size)), full, op.value)
    if not isinstance(result, View):
        raise ProgramError("a composition returns the view that holds its result", got=repr(result))
    if result.rank != rank:
        raise ProgramError("the result lies in a peer's memory", got=f"rank {result.rank}'s", expected="one's own")
    if composition.in_place and result != (place := _place(composition.target, full, rank, world_size)):
        raise ProgramError("in place, yet the result is elsewhere", got=result, expected=place)
    return Program(
        composition=composition.name,
        target=composition.target,
        rank=rank,
        world_size=world_size,
        numel=numel,
        op=op,
        consumes=composition.consumes,
        in_place=composition.in_place,
        input=full,
        result=result,
        code=tuple(tape.code),
    )


def _place(target: Kind, full: View, rank: int, world_size: int) -> View:
    """Where the result of an in-place composition lies: in its input, for a reduce_scatter in the rank's own slice."""
    if target is not Kind.REDUCE_SCATTER:
        return full
    q = len(full) // world_size
    return full[rank * q : (rank + 1) * q]


def record_all(composition: Composition, *, world_size: int, numel: int, op: ReduceOp) -> tuple[Program, ...]:
    """Every rank's program, in rank order."""
    return tuple(
        record(composition, rank=rank, world_size=world_size, numel=numel, op=op) for rank in range(world_size)
    )
