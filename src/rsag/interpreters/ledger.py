"""What a composition costs, read off its programs before anything runs: calls, steps, wire bytes, memory by role.

Wire bytes are the ideal ring's, per rank; what peers read through each other's memory counts as received by the reader
and sent by the owner. Memory is what the composition allocates and what the caller gave it, from allocation to release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from rsag.collectives import COLLECTIVES, Kind
from rsag.errors import ProgramError
from rsag.interpreters import machine
from rsag.interpreters.algebra import Cells
from rsag.interpreters.refuted import Refuted
from rsag.programs import Alloc, Local, Program, Release, Role, Start, View


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
    def peak(self) -> Moment:
        """The first moment at which the most is live."""
        return max(self.timeline, key=lambda moment: moment.total_bytes)

    @property
    def peak_bytes(self) -> int:
        return self.peak.total_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All ranks' costs, and the length of the longest message chain through them."""

    steps: int
    ranks: tuple[RankLedger, ...]


def ledger(programs: Sequence[Program], itemsize: int) -> Ledger:
    """The costs of running `programs` (one per rank, in rank order) on elements of `itemsize` bytes.

    Raises ProgramError for programs that do not come to an end, or use memory that is not theirs.
    """
    read_by_peers = [0 for _ in programs]
    for program in programs:
        for view in _peers_views(program):
            read_by_peers[view.rank] += len(view) * itemsize
    alone = [rank_ledger(program, itemsize) for program in programs]
    rows = tuple(replace(row, sent_bytes=row.sent_bytes + more) for row, more in zip(alone, read_by_peers))
    try:
        steps = max(machine.run(programs, _NoValues()).steps)
    except Refuted as found:
        raise ProgramError(f"no costs of a program that is wrong: {found.message}", do="prove it first") from found
    return Ledger(steps=steps, ranks=rows)


def rank_ledger(program: Program, itemsize: int | Mapping[Role, Fraction], *, start: int = 0) -> RankLedger:
    """One rank's costs from its program alone, so at any scale; what peers read of its memory they alone know.

    `itemsize` may differ by role. Instructions before `start` prepare: their memory counts, as the timeline's first
    moment, and what they send does not.
    """
    sizes = {role: Fraction(itemsize) for role in Role} if isinstance(itemsize, int) else itemsize
    roles = {step.view.buffer: step.role for step in program.code if isinstance(step, Alloc)}
    calls = [step for step in program.code[start:] if isinstance(step, Start)]
    sent = received = Fraction(0)
    for call in calls:
        used = call.inp or call.out
        if used is not None:
            out, inp = _traffic(call, program.rank)
            sent += out * sizes[roles[used.buffer]]
            received += inp * sizes[roles[used.buffer]]
    for view in _peers_views(program, start):
        received += len(view) * sizes[roles[view.buffer]]
    return RankLedger(
        rank=program.rank,
        calls=dict(Counter(call.kind for call in calls)),
        sent_bytes=float(sent),
        received_bytes=float(received),
        timeline=_timeline(program, sizes, start),
    )


def _peers_views(program: Program, start: int = 0) -> Iterator[View]:
    """What `program` reads of other ranks' memory."""
    for step in program.code[start:]:
        if isinstance(step, Local):
            yield from (view for view in step.src if view.rank != program.rank)


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


def _timeline(program: Program, sizes: Mapping[Role, Fraction], start: int) -> tuple[Moment, ...]:
    roles: dict[int, Role] = {}
    live: Counter[Role] = Counter()
    moments = []
    for position, step in enumerate(program.code):
        if position == start > 0:
            moments = [Moment(what="begin", site="caller", live_bytes=dict(live))]
        if isinstance(step, Alloc):
            roles[step.view.buffer] = step.role
            live[step.role] += int(len(step.view) * sizes[step.role])
        elif isinstance(step, Release):
            live[roles[step.view.buffer]] -= int(len(step.view) * sizes[roles[step.view.buffer]])
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
