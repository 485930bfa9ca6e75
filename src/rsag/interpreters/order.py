"""The one happens-before rule: two accesses to the same elements, one of them a write, must be ordered.

Vector clocks (Fidge 1988, Mattern 1989), one component per rank. What orders: a rank's own program; the wait for what
was started; and a communication's data flow, in its direction only (a broadcast orders the root before the others, not
the reverse). An access lasts from the call to the wait for it, a release is a write, and so is the return of a buffer
to the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from rsag.interpreters.refuted import Refuted
from rsag.programs import View
from rsag.records.proof import Contract

RETURN = "return to the caller"


@dataclass(slots=True)
class Access:
    """A read or a write of elements [start, stop) of one buffer, from `actor`'s clock `began` to its epoch `ended`."""

    writes: bool
    start: int
    stop: int
    actor: int
    began: tuple[int, ...]
    ended: float
    what: str
    site: str


class AccessLog:
    """Every access of one run of the machine, buffer by buffer."""

    def __init__(self, world_size: int) -> None:
        self.clocks = [[0] * world_size for _ in range(world_size)]
        self._accesses: dict[tuple[int, int], list[Access]] = {}

    def tick(self, rank: int) -> None:
        self.clocks[rank][rank] += 1

    def add(self, actor: int, view: View, *, writes: bool, what: str, site: str, open_ended: bool = False) -> Access:
        """Note an access that is over at once, or only when `close` says so."""
        clock = self.clocks[actor]
        ended = math.inf if open_ended else clock[actor]
        access = Access(writes, view.start, view.stop, actor, tuple(clock), ended, what, site)
        if view.start < view.stop:
            self._accesses.setdefault((view.rank, view.buffer), []).append(access)
        return access

    def hear(self, rank: int, clock: tuple[int, ...]) -> None:
        """`rank` learns what was known at `clock`."""
        mine = self.clocks[rank]
        for other, epoch in enumerate(clock):
            if epoch > mine[other]:
                mine[other] = epoch

    def close(self, rank: int, accesses: list[Access]) -> None:
        epoch = self.clocks[rank][rank]
        for access in accesses:
            access.ended = epoch

    def writers(self, view: View, element: int) -> list[Access]:
        """Who wrote `element` of `view`, the latest first; the return, a write for the caller's sake, is left out."""
        position = view.start + element
        log = self._accesses.get((view.rank, view.buffer), [])
        return [
            access
            for access in reversed(log)
            if access.writes and access.what != RETURN and access.start <= position < access.stop
        ]

    def check(self) -> None:
        """Raise Refuted for the first pair of conflicting accesses that nothing orders."""
        for (owner, buffer), log in self._accesses.items():
            for index, later in enumerate(log):
                for earlier in log[:index]:
                    if _conflict(earlier, later) and not _ordered(earlier, later):
                        _race(owner, buffer, earlier, later)


def _conflict(a: Access, b: Access) -> bool:
    if not (a.writes or b.writes) or a.stop <= b.start or b.stop <= a.start:
        return False
    return not (a.actor == b.actor and a.began == b.began)  # one call that reads and writes, in place


def _ordered(a: Access, b: Access) -> bool:
    return b.began[a.actor] >= a.ended or a.began[b.actor] >= b.ended


def _race(owner: int, buffer: int, a: Access, b: Access) -> NoReturn:
    first, last = max(a.start, b.start), min(a.stop, b.stop)
    raise Refuted(
        Contract.ORDER,
        f"race on elements {first}:{last} of rank {owner}'s buffer {buffer}: nothing orders "
        f"rank {a.actor}'s {a.what} and rank {b.actor}'s {b.what}",
        rank=owner,
        element=first,
        sites=(a.site, b.site),
    )
