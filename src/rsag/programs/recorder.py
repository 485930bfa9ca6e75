"""The protocol: the seventeen names a composition may use, recorded into a straight-line program.

Allocate, release, view (slicing), copy, fill, combine, apply; all_reduce, reduce_scatter, all_gather, broadcast,
reduce; sendrecv, barrier, peer, sub, wait. Beside them a composition may look at `rank`, `world` and `group`, and at
nothing that depends on data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from rsag.collectives import Kind
from rsag.errors import ProgramError
from rsag.programs.instructions import (
    IDENTITY,
    Alloc,
    Instruction,
    Local,
    LocalKind,
    Release,
    Role,
    Start,
    View,
    Wait,
)
from rsag.reduction import ReduceOp


class Tape:
    """What one rank's recorders share, subgroups included: the code so far and the counters behind it."""

    __slots__ = ("borrowed", "code", "lengths", "num_tokens", "open_tokens", "rank", "symmetric")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.code: list[Instruction] = []
        self.lengths: list[int] = []
        self.symmetric: set[int] = set()
        self.num_tokens = 0
        self.open_tokens: dict[int, tuple[View, ...]] = {}
        self.borrowed: int | None = None

    def allocate(self, numel: int, role: Role, symmetric: bool, site: str) -> View:
        if numel < 0:
            raise ProgramError("a buffer cannot have a negative size", got=numel)
        view = View(self.rank, len(self.lengths), 0, numel)
        self.lengths.append(numel)
        if symmetric:
            self.symmetric.add(view.buffer)
        self.code.append(Alloc(view, role, symmetric, site))
        return view

    def new_token(self, *views: View | None) -> int:
        """A token for what is started on `views`, which are in flight until it is waited for."""
        self.num_tokens += 1
        self.open_tokens[self.num_tokens] = tuple(view for view in views if view)
        return self.num_tokens

    def in_flight(self, buffer: View) -> bool:
        """Whether something that this rank started, and has not waited for, uses an element of `buffer`."""
        return any(view.overlaps(buffer) for views in self.open_tokens.values() for view in views)


class Recorder:
    """One rank's side of a composition, within one group; everything is blocking unless `start=True`."""

    __slots__ = ("_tape", "group", "rank", "world")

    def __init__(self, tape: Tape, group: Sequence[int]) -> None:
        self.group = tuple(group)
        self.rank = self.group.index(tape.rank)
        self.world = len(self.group)
        self._tape = tape

    # ------------------------------------------------------------------------------------------------ buffers

    def allocate(self, numel: int, role: str = "staging", *, symmetric: bool = False) -> View:
        """A new, unwritten buffer of `numel` elements; `symmetric` ones can be read by peers."""
        return self._tape.allocate(numel, _named(Role, role), symmetric, _site())

    def release(self, *views: View) -> None:
        """End the lifetime of whole buffers that this composition allocated, or of an input that it consumes.

        What this rank has started on them must have been waited for; that peers may still read is for the order rule.
        """
        tape = self._tape
        for view in views:
            if view.rank != tape.rank:
                raise ProgramError("release of a peer's buffer", got=f"rank {view.rank}'s", expected="one's own")
            if view.buffer == tape.borrowed:
                raise ProgramError("release of an input that the caller keeps", do="declare consumes=True")
            if len(view) != tape.lengths[view.buffer]:
                raise ProgramError(
                    "release of a part", got=len(view), expected=f"all {tape.lengths[view.buffer]} elements"
                )
            if tape.in_flight(view):
                raise ProgramError("release of a buffer that a started operation uses", got=_site(), do="wait first")
            tape.code.append(Release(view, _site()))

    def peer(self, view: View, rank: int) -> View:
        """The same elements of group rank `rank`'s buffer, to read from; the buffer must be symmetric."""
        if view.buffer not in self._tape.symmetric:
            raise ProgramError("a peer cannot be read here", got="a buffer of one's own", do="make it symmetric")
        return View(self._member(rank), view.buffer, view.start, view.stop)

    # --------------------------------------------------------------------------------------------- local work

    def copy(self, dst: View, src: View, *, start: bool = False) -> int | None:
        """dst = src."""
        return self._local(LocalKind.COPY, dst, (src,), None, start)

    def fill(self, dst: View, value: str | float) -> None:
        """Every element of dst = value, or the operator's identity (`IDENTITY`)."""
        if isinstance(value, str) and value != IDENTITY:
            raise ProgramError("fill with no number", got=repr(value), expected=f"a number or {IDENTITY!r}")
        self._local(LocalKind.FILL, dst, (), value, False)

    def combine(self, dst: View, *src: View, op: str, start: bool = False) -> int | None:
        """dst = dst op src op ...: one fused pass, or a chain of two-operand ones."""
        if op == ReduceOp.AVG:
            raise ProgramError("avg cannot be folded pairwise", do="combine with sum and scale once")
        return self._local(LocalKind.COMBINE, dst, src, _named(ReduceOp, op), start)

    def apply(self, name: str, dst: View, *src: View) -> None:
        """dst = name(src, ...) element by element: a cast, a scale, an optimizer step; nothing is known about it."""
        self._local(LocalKind.APPLY, dst, src, name, False)

    def _local(
        self,
        kind: LocalKind,
        dst: View,
        src: tuple[View, ...],
        argument: ReduceOp | str | float | None,
        start: bool,
    ) -> int | None:
        tape = self._tape
        if dst.rank != tape.rank:
            raise ProgramError(
                f"{kind.value} writes to rank {dst.rank}'s buffer", do="write to your own; peers are read"
            )
        if not src and kind is not LocalKind.FILL:
            raise ProgramError(f"{kind.value} of nothing", expected="at least one source")
        for view in src:
            if len(view) != len(dst):
                raise ProgramError(f"{kind.value} of unequal lengths", got=len(view), expected=len(dst))
            # A combine may be one pass or a chain of them, which an aliased source would tell apart.
            if view.overlaps(dst) and (view != dst or kind is LocalKind.COMBINE):
                raise ProgramError(f"{kind.value} from a view that overlaps its destination", got=view, expected=dst)
        token = tape.new_token(dst, *src) if start else None
        tape.code.append(Local(kind, dst, src, argument, token, _site()))
        return token

    # ------------------------------------------------------------------------------------------ communication

    def all_reduce(self, view: View, op: str, *, start: bool = False) -> int | None:
        """Reduce `view` over the group, in place."""
        return self._start(Kind.ALL_REDUCE, view, view, op=op, start=start)

    def reduce_scatter(self, out: View, inp: View, op: str, *, start: bool = False) -> int | None:
        """out = this rank's shard of the reduced inp."""
        self._divides(Kind.REDUCE_SCATTER, inp, out)
        return self._start(Kind.REDUCE_SCATTER, out, inp, op=op, start=start)

    def all_gather(self, out: View, inp: View, *, start: bool = False) -> int | None:
        """out = every rank's inp, in group rank order."""
        self._divides(Kind.ALL_GATHER, out, inp)
        return self._start(Kind.ALL_GATHER, out, inp, start=start)

    def broadcast(self, view: View, root: int, *, start: bool = False) -> int | None:
        """view = group rank `root`'s view."""
        return self._start(Kind.BROADCAST, view, view, root=self._member(root), start=start)

    def reduce(self, view: View, op: str, root: int, *, start: bool = False) -> int | None:
        """Reduce `view` over the group, in place at group rank `root`; elsewhere it is left undefined, as Gloo does."""
        return self._start(Kind.REDUCE, view, view, op=op, root=self._member(root), start=start)

    def sendrecv(
        self, out: View | None, source: int | None, inp: View | None, dest: int | None, *, start: bool = False
    ) -> int | None:
        """Receive `out` from group rank `source` and send `inp` to `dest` as one operation: one step of a ring.

        One operation because a send that waits for its receive, issued before the receive, never ends (NCCL needs both
        in one group call). Either side may be idle (None, None).
        """
        if (out is None) != (source is None) or (inp is None) != (dest is None):
            raise ProgramError("sendrecv needs a rank for each buffer and a buffer for each rank")
        return self._start(
            Kind.SENDRECV,
            out,
            inp,
            source=None if source is None else self._member(source),
            dest=None if dest is None else self._member(dest),
            start=start,
        )

    def barrier(self) -> None:
        """Nobody leaves before everybody of the group has come."""
        self._start(Kind.BARRIER, None, None)

    def wait(self, token: int | None) -> None:
        """Go on only when the started operation is finished here."""
        tape = self._tape
        if token is None or token not in tape.open_tokens:
            raise ProgramError("wait for nothing", got=token, expected="the token of a started operation, once")
        del tape.open_tokens[token]
        tape.code.append(Wait(token, _site()))

    def sub(self, ranks: Sequence[int]) -> Recorder:
        """The same protocol among the group ranks `ranks`, in that order; the caller must be one of them."""
        tape = self._tape
        group = tuple(self._member(rank) for rank in ranks)
        if tape.rank not in group or len(set(group)) != len(group):
            raise ProgramError("a subgroup has distinct members, the caller among them", got=group)
        return Recorder(tape, group)

    # ------------------------------------------------------------------------------------------------ helpers

    def _member(self, rank: int) -> int:
        """The global rank of group rank `rank`."""
        if not 0 <= rank < self.world:
            raise ProgramError("no such rank in this group", got=rank, expected=f"0 to {self.world - 1}")
        return self.group[rank]

    def _divides(self, kind: Kind, full: View, shard: View) -> None:
        if len(full) != self.world * len(shard):
            raise ProgramError(
                f"{kind.value}: the full side is not {self.world} times the shard",
                got=f"{len(full)} and {len(shard)} elements",
                expected=f"{self.world * len(shard)} and {len(shard)}",
                do="pad with the operator's identity to a multiple of the world size",
            )

    def _start(
        self,
        kind: Kind,
        out: View | None,
        inp: View | None,
        *,
        op: str | None = None,
        root: int | None = None,
        source: int | None = None,
        dest: int | None = None,
        start: bool = False,
    ) -> int | None:
        tape = self._tape
        for view in (out, inp):
            if view is not None and view.rank != tape.rank:
                raise ProgramError("communication uses one's own buffers", got=f"rank {view.rank}'s")
        token = tape.new_token(out, inp)
        site = _site()
        reduce_op = None if op is None else _named(ReduceOp, op)
        tape.code.append(Start(token, kind, out, inp, reduce_op, self.group, root, source, dest, not start, site))
        if start:
            return token
        del tape.open_tokens[token]
        tape.code.append(Wait(token, site))
        return None


E = TypeVar("E", bound=Enum)


def _named(kind: type[E], name: str) -> E:
    """The member of this value; ProgramError with the known ones where there is none."""
    try:
        return kind(name)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise ProgramError(f"unknown {kind.__name__}", got=repr(name), expected=known) from None


_SHORT_NAMES: dict[str, str] = {}


def _site() -> str:
    """The "file:line" of the nearest caller outside this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    filename = frame.f_code.co_filename
    short = _SHORT_NAMES.get(filename)
    if short is None:
        short = _SHORT_NAMES[filename] = os.path.join(*filename.split(os.sep)[-2:])
    return f"{short}:{frame.f_lineno}"
