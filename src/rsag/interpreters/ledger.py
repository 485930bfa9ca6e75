"""What a composition costs, read off its programs before anything runs: calls, steps, wire bytes, memory by role.

Wire bytes are the ideal ring's, per rank; what peers read through each other's memory counts as received by the reader
and sent by the owner. Memory is what the composition allocates and what the caller gave it, from allocation to release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from rsag.collectives import COLLECTIVES, Kind
from rsag.errors import ProgramError
from rsag.interpreters import machine
from rsag.interpreters.algebra import Cells
from rsag.interpreters.refuted import Refuted
from rsag.programs import Alloc, Local, Program, Release, Role, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is live after one allocation or release: bytes by role, and the source line that changed it."""

    what: str
    site: str
    live_bytes: dict[Role, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.live_bytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLedger:
    """One rank's costs; `calls` counts by kind, bytes may be fractions where the payload does not divide."""

    rank: int
    calls: dict[Kind, int]
    sent_bytes: float
    received_bytes: float
    timeline: tuple[Moment, ...]

    @property
    def steady_bytes(self) -> int:
        """Live at the end, the result included."""
        return self.timeline[-1].total_bytes

    @property
    def peak_bytes(self) -> int:
        return max(moment.total_bytes for moment in self.timeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All ranks' costs, and the length of the longest message chain through them."""

    steps: int
    ranks: tuple[RankLedger, ...]


def ledger(programs: Sequence[Program], itemsize: int) -> Ledger:
    """The costs of running `programs` (one per rank, in rank order) on elements of `itemsize` bytes.

    Raises ProgramError for programs that do not come to an end, or use memory that is not theirs.
    """
    sent = [Fraction(0) for _ in programs]
    received = [Fraction(0) for _ in programs]
    for program in programs:
        for step in program.code:
            if isinstance(step, Start):
                out, inp = _traffic(step, program.rank)
                sent[program.rank] += out * itemsize
                received[program.rank] += inp * itemsize
            elif isinstance(step, Local):
                for view in step.src:
                    if view.rank != program.rank:
                        sent[view.rank] += len(view) * itemsize
                        received[program.rank] += len(view) * itemsize
    rows = tuple(
        RankLedger(
            rank=program.rank,
            calls=dict(Counter(step.kind for step in program.code if isinstance(step, Start))),
            sent_bytes=float(sent[program.rank]),
            received_bytes=float(received[program.rank]),
            timeline=_timeline(program, itemsize),
        )
        for program in programs
    )
    try:
        steps = max(machine.run(programs, _NoValues()).steps)
    except Refuted as found:
        raise ProgramError(f"no costs of a program that is wrong: {found.message}", do="prove it first") from found
    return Ledger(steps=steps, ranks=rows)


def _traffic(step: Start, rank: int) -> tuple[Fraction, Fraction]:
    """Elements that `rank` sends and receives for one call, in an ideal ring (a chain from or to the root)."""
    if step.kind is Kind.SENDRECV:
        return Fraction(len(step.inp or ())), Fraction(len(step.out or ()))
    size = len(step.group)
    payload = max(len(step.inp or ()), len(step.out or ()))
    each = COLLECTIVES[step.kind].wire_bytes(payload, size)
    if step.root is None:
        return each, each
    index, root = step.group.index(rank), step.group.index(step.root)
    if step.kind is Kind.BROADCAST:
        last = (root - 1) % size
        return each * (index != last), each * (index != root)
    first = (root + 1) % size
    return each * (index != root), each * (index != first)


def _timeline(program: Program, itemsize: int) -> tuple[Moment, ...]:
    roles: dict[int, Role] = {}
    live: Counter[Role] = Counter()
    moments = []
    for step in program.code:
        if isinstance(step, Alloc):
            roles[step.view.buffer] = step.role
            live[step.role] += len(step.view) * itemsize
        elif isinstance(step, Release):
            live[roles[step.view.buffer]] -= len(step.view) * itemsize
        else:
            continue
        what = f"{'allocate' if isinstance(step, Alloc) else 'release'} {roles[step.view.buffer].value}"
        moments.append(Moment(what=what, site=step.site, live_bytes=dict(live)))
    return tuple(moments)


class _Nothing:
    """Elements that nobody looks at, however many they are."""

    def __getitem__(self, _: slice) -> _Nothing:
        return self

    def __setitem__(self, _: slice, value: object) -> None:
        pass

    def __add__(self, _: object) -> _Nothing:
        return self

    def __len__(self) -> int:
        return 0


_NOTHING = cast(Cells, _Nothing())


class _NoValues:
    """The algebra for those who only want to know who waits for whom."""

    def inputs(self, *_: Any) -> Cells:
        return _NOTHING

    unwritten = released = constant = reduce = apply = inputs

    def why_unreadable(self, _: Cells) -> None:
        return None
