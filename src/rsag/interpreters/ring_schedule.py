"""A ring's programs side by side, step by step: who sends which chunk to whom, and what every rank holds afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from rsag.collectives import Kind
from rsag.errors import UsageError
from rsag.interpreters.words import count_words, sendrecvs, words
from rsag.programs import Alloc, Instruction, Local, LocalKind, Program, Release, Start, View

Holdings = dict[int, tuple[int, ...]]
"""Chunk -> the ranks whose contributions are in it, for all chunks in a rank's memory; of many copies the fullest."""


class Phase(str, Enum):
    """What a step does with the chunk that arrives: combine it, or keep it."""

    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """One rank's side of a step. `word` begins with what arrives in it and ends with what the next step sends."""

    rank: int
    sends: int
    dest: int
    receives: int
    source: int
    word: str
    holds: Holdings


@dataclass(frozen=True, slots=True, kw_only=True)
class RingStep:
    """One sendrecv on every rank and the local work that follows it; `step` counts from 1."""

    step: int
    phase: Phase
    ranks: tuple[RankStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSchedule:
    """The whole ring. `chunks` are element ranges of the full payload, `opening` is each rank's first word, a send."""

    collective: Kind
    world_size: int
    numel: int
    in_place: bool
    chunks: tuple[tuple[int, int], ...]
    initial: tuple[Holdings, ...]
    opening: tuple[str, ...]
    steps: tuple[RingStep, ...]
    words: tuple[dict[str, int], ...]

    @property
    def wire_fraction(self) -> Fraction:
        """What each rank sends, as a part of the full payload: one chunk a step."""
        return Fraction(len(self.steps), self.world_size)


def ring_schedule(programs: Sequence[Program]) -> RingSchedule:
    """The schedule of all ranks' `programs`, in rank order, found by walking them in lock step.

    Raises UsageError where they are no ring: another collective, a step that is not one chunk each way, or one whose
    sender and receiver do not mean each other.
    """
    first = programs[0]
    q = first.numel // first.world_size
    if q == 0:
        raise UsageError("a ring without elements has no schedule", got=first.numel, expected="a chunk for each rank")
    steps = _steps(programs, q)
    names = [words(program) for program in programs]
    arrivals = [[word.name for word in said if word.received] for said in names]
    ranks = [_Rank(program, q) for program in programs]
    for rank, program in zip(ranks, programs):
        end = sendrecvs(program)[0][0] if steps else len(program.code)
        rank.local(program.code[:end])
    initial = tuple(rank.holds() for rank in ranks)
    return RingSchedule(
        collective=first.target,
        world_size=first.world_size,
        numel=first.numel,
        in_place=first.in_place,
        chunks=tuple((chunk * q, (chunk + 1) * q) for chunk in range(first.world_size)),
        initial=initial,
        opening=tuple(said[0].name for said in names if said),
        steps=tuple(
            _walk(index, column, ranks, [said[index] for said in arrivals]) for index, column in enumerate(steps)
        ),
        words=tuple(count_words(program) for program in programs),
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    chunk: int
    contributors: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Side:
    """One rank's sendrecv and the instructions up to its next."""

    inp: View
    out: View
    source: int
    dest: int
    after: tuple[Instruction, ...]


class _Rank:
    """One rank's memory, a piece for every q elements."""

    def __init__(self, program: Program, q: int) -> None:
        self.q = q
        self.given = program.input.buffer
        self.memory: dict[int, list[_Piece | None]] = {}
        rank, gathers = program.rank, program.target is Kind.ALL_GATHER
        for slot in range(len(program.input) // q):
            chunk = rank if gathers and not program.in_place else slot
            own = not gathers or chunk == rank
            pieces = self.memory.setdefault(self.given, [])
            pieces.append(_Piece(chunk, frozenset({rank})) if own else None)

    def read(self, view: View) -> _Piece:
        piece = self.memory[view.buffer][view.start // self.q]
        if piece is None:
            raise UsageError("a ring step reads memory that nobody wrote", got=view, do="prove the composition first")
        return piece

    def write(self, view: View, piece: _Piece) -> None:
        self.memory[view.buffer][view.start // self.q] = piece

    def local(self, code: Sequence[Instruction]) -> None:
        for step in code:
            if isinstance(step, Alloc) and step.view.buffer != self.given:
                self.memory[step.view.buffer] = [None] * (len(step.view) // self.q)
            elif isinstance(step, Release):
                del self.memory[step.view.buffer]
            elif isinstance(step, Local):
                reads = (step.dst, *step.src) if step.kind is LocalKind.COMBINE else step.src
                pieces = [self.read(view) for view in reads]
                self.write(step.dst, _Piece(pieces[0].chunk, frozenset().union(*(p.contributors for p in pieces))))

    def holds(self) -> Holdings:
        fullest: dict[int, frozenset[int]] = {}
        for pieces in self.memory.values():
            for piece in pieces:
                if piece is not None and len(piece.contributors) > len(fullest.get(piece.chunk, ())):
                    fullest[piece.chunk] = piece.contributors
        return {chunk: tuple(sorted(fullest[chunk])) for chunk in sorted(fullest)}


def _walk(index: int, column: Sequence[_Side], ranks: Sequence[_Rank], names: Sequence[str]) -> RingStep:
    sent = [rank.read(side.inp) for rank, side in zip(ranks, column)]
    rows = []
    for number, (rank, side) in enumerate(zip(ranks, column)):
        rank.write(side.out, sent[side.source])
        rank.local(side.after)
        rows.append(
            RankStep(
                rank=number,
                sends=sent[number].chunk,
                dest=side.dest,
                receives=sent[side.source].chunk,
                source=side.source,
                word=names[number],
                holds=rank.holds(),
            )
        )
    phase = Phase.REDUCE_SCATTER if "reduce" in names[0] else Phase.ALL_GATHER
    return RingStep(step=index + 1, phase=phase, ranks=tuple(rows))


def _steps(programs: Sequence[Program], q: int) -> list[tuple[_Side, ...]]:
    """Step -> every rank's side of it."""
    sides = [_sides(program, q) for program in programs]
    if len({len(own) for own in sides}) > 1:
        raise _no_ring(programs[0], "ranks take different numbers of steps")
    steps = list(zip(*sides))
    for column in steps:
        for rank, side in enumerate(column):
            if column[side.dest].source != rank:
                raise _no_ring(programs[0], f"rank {side.dest} does not expect what rank {rank} sends")
    return steps


def _sides(program: Program, q: int) -> list[_Side]:
    steps = sendrecvs(program)
    if len(steps) != sum(isinstance(step, Start) for step in program.code):
        raise _no_ring(program, "it issues other collectives")
    for step in program.code:
        if isinstance(step, Local) and (step.kind not in (LocalKind.COPY, LocalKind.COMBINE) or len(step.dst) != q):
            raise _no_ring(program, f"rank {program.rank} does other work than on whole chunks at {step.site}")
    ends = [position for position, _ in steps[1:]] + [len(program.code)]
    sides = []
    for (position, start), end in zip(steps, ends):
        inp, out, source, dest = start.inp, start.out, start.source, start.dest
        if inp is None or out is None or source is None or dest is None:
            raise _no_ring(program, f"rank {program.rank} is idle at {start.site}")
        if any(len(view) != q or view.start % q for view in (inp, out)):
            raise _no_ring(program, f"rank {program.rank} moves other than whole chunks at {start.site}")
        sides.append(_Side(inp, out, source, dest, program.code[position + 1 : end]))
    return sides


def _no_ring(program: Program, why: str) -> UsageError:
    return UsageError(f"{program.composition} is no ring: {why}", expected="sendrecvs of one chunk each way")
