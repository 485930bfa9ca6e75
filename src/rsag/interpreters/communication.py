"""Who meets whom: the calls of a group in the order of issue, the messages of a channel in the order of sending.

A rank's calls go one at a time, whatever their groups: a call arrives once what its rank issued before is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rsag.collectives import COLLECTIVES, Kind
from rsag.interpreters.algebra import Algebra, Cells
from rsag.interpreters.call_semantics import received, refuse_disagreement, refuse_unequal_sizes, written_by
from rsag.programs import Start, View

Group = tuple[int, ...]
Channel = tuple[Group, int, int]
"""(group, sender, receiver): messages of different communicators never meet."""


@dataclass(slots=True)
class Issue:
    """One rank's side of a call: what it sends, its longest message chain until then, and what it knew (a clock)."""

    rank: int
    step: Start
    cells: Cells
    depth: int
    clock: tuple[int, ...]


@dataclass(slots=True)
class Call:
    """One collective, or one side of a sendrecv, on its way: over when nothing is `needed` any more.

    `members` are those whose data it takes, `depth` is the longest message chain before it, `steps` its own length.
    """

    needed: int
    steps: int
    depth: int = 0
    members: dict[int, Issue] = field(default_factory=dict)


Side = tuple[Call, Issue]
"""A call as one of its ranks has issued it."""


@dataclass(slots=True)
class ShardState:
    """What one rank's shard holds when a reduce_scatter over all ranks has ended."""

    rank: int
    cells: Cells
    site: str


class Communication:
    """Every call of all ranks; what it delivers goes to `store`."""

    def __init__(self, world_size: int, algebra: Algebra, store: Callable[[View, Cells], None]) -> None:
        self.shards: list[ShardState] = []
        self._world_size, self._algebra, self._store = world_size, algebra, store
        self._lines: list[deque[Side]] = [deque() for _ in range(world_size)]
        self._num_calls: dict[tuple[Group, int], int] = {}
        self._calls: dict[tuple[Group, int], Call] = {}
        self._chains: dict[tuple[Group, int], int] = {}
        self._channels: dict[Channel, tuple[deque[Side], deque[Side]]] = {}

    # ----------------------------------------------------------------------------------- one rank's calls in turn

    def issue(self, issue: Issue) -> Call:
        """Put a call in line behind what its rank has issued before."""
        call = self._message(issue) if issue.step.kind is Kind.SENDRECV else self._join(issue)
        line = self._lines[issue.rank]
        line.append((call, issue))
        if len(line) == 1:
            self._arrive(call, issue)
        else:
            self.advance(issue.rank)
        return call

    def advance(self, rank: int) -> bool:
        """Let those of `rank`'s calls arrive that waited behind one that is over; whether there was one."""
        line, moved = self._lines[rank], False
        while line and line[0][0].needed == 0:
            line.popleft()
            moved = True
            if line:
                self._arrive(*line[0])
        return moved

    def _arrive(self, call: Call, issue: Issue) -> None:
        rank, step = issue.rank, issue.step
        if step.kind is not Kind.SENDRECV:
            call.needed -= 1
            if call.needed == 0:
                self._deliver(call, step.group)
            return
        if step.dest is not None:
            channel = step.group, rank, step.dest
            self._ends(channel)[0].append((call, issue))
            self._meet(channel)
        if step.source is not None:
            channel = step.group, step.source, rank
            self._ends(channel)[1].append((call, issue))
            self._meet(channel)

    # ------------------------------------------------------------------------------------------------ collectives

    def _join(self, issue: Issue) -> Call:
        """The group's call that `issue` is this rank's side of: the n-th of each member is one."""
        rank, step = issue.rank, issue.step
        key = step.group, rank
        index = self._num_calls[key] = self._num_calls.get(key, -1) + 1
        call = self._calls.get((step.group, index))
        if call is None:
            call = Call(needed=len(step.group), steps=COLLECTIVES[step.kind].steps(len(step.group)))
            self._calls[step.group, index] = call
        else:
            other, theirs = next(iter(call.members.items()))
            refuse_disagreement(index, other, theirs.step, rank, step)
        call.members[rank] = issue
        # One communicator runs its calls in order: a chain goes on from the group's last call, waited for or not.
        call.depth = max(call.depth, issue.depth, self._chains.get(key, 0))
        self._chains[key] = call.depth + call.steps
        return call

    def _deliver(self, call: Call, group: Group) -> None:
        members = [call.members[rank] for rank in group]
        results = received(members[0].step, [member.cells for member in members], self._algebra)
        for member, cells in zip(members, results):
            rank, step = member.rank, member.step
            self._chains[group, rank] = call.depth + call.steps
            out = written_by(rank, step)
            if out is None:
                continue
            self._store(out, cells)
            if step.kind is Kind.REDUCE_SCATTER and 1 < len(group) == self._world_size:
                self.shards.append(ShardState(rank, cells, step.site))

    # --------------------------------------------------------------------------------------------------- messages

    def _message(self, issue: Issue) -> Call:
        num_sides = (issue.step.inp is not None) + (issue.step.out is not None)
        return Call(needed=num_sides, steps=1, depth=issue.depth)

    def _ends(self, channel: Channel) -> tuple[deque[Side], deque[Side]]:
        """Sends without a receive, and receives without a send."""
        return self._channels.setdefault(channel, (deque(), deque()))

    def _meet(self, channel: Channel) -> None:
        sends, receives = self._ends(channel)
        if not sends or not receives:
            return
        (sender, sent), (receiver, expected) = sends.popleft(), receives.popleft()
        refuse_unequal_sizes(sent.rank, sent.step, expected.rank, expected.step)
        assert expected.step.out is not None
        self._store(expected.step.out, sent.cells)
        receiver.members[sent.rank] = sent
        receiver.depth = max(receiver.depth, sender.depth)
        sender.needed -= 1
        receiver.needed -= 1
