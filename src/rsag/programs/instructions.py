"""What a recorded program is made of: views of buffers and five frozen instructions.

Each instruction keeps its `site`, the "file:line" of the composition that issued it, so that a refutation names source
lines. Ranks in instructions are always global ranks; `group` lists them in group order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rsag.collectives import Kind
from rsag.errors import ProgramError
from rsag.reduction import ReduceOp

IDENTITY = "identity"
"""As a fill value: the operator's identity, in whatever dtype the run has."""


class Role(str, Enum):
    """What a buffer is for; memory is accounted by role. The last four are a training step's own."""

    INPUT = "input"
    SHARD = "shard"
    GATHERED = "gathered"
    PADDING = "padding"
    STAGING = "staging"
    PARAMETER = "parameter"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"
    ACTIVATION = "activation"


class LocalKind(str, Enum):
    """Work that a rank does on its own: no other rank takes part, though a peer's memory may be read."""

    COPY = "copy"
    FILL = "fill"
    COMBINE = "combine"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class View:
    """Elements [start, stop) of buffer `buffer` of global rank `rank`. Slicing gives a narrower view."""

    rank: int
    buffer: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, key: slice) -> View:
        length = self.stop - self.start
        if not isinstance(key, slice):
            raise ProgramError("a view has no single elements", got=key, expected="a slice: view[a:b]")
        start = 0 if key.start is None else key.start
        stop = length if key.stop is None else key.stop
        if key.step not in (None, 1) or not 0 <= start <= stop <= length:
            raise ProgramError("a view is cut by plain slices inside it", got=key, expected=f"0 <= a <= b <= {length}")
        return View(self.rank, self.buffer, self.start + start, self.start + stop)

    def overlaps(self, other: View) -> bool:
        """Whether the two share an element."""
        same = (self.rank, self.buffer) == (other.rank, other.buffer)
        return same and max(self.start, other.start) < min(self.stop, other.stop)


@dataclass(frozen=True, slots=True)
class Alloc:
    """A buffer comes to life, unwritten (the input is already written by the caller)."""

    view: View
    role: Role
    symmetric: bool
    site: str


@dataclass(frozen=True, slots=True)
class Release:
    """A whole buffer's lifetime ends."""

    view: View
    site: str


@dataclass(frozen=True, slots=True)
class Local:
    """Local work. `argument` is the operator of a combine, the value of a fill, the name of an apply.

    With a token it is started and must be waited for.
    """

    kind: LocalKind
    dst: View
    src: tuple[View, ...]
    argument: ReduceOp | str | float | None
    token: int | None
    site: str


@dataclass(frozen=True, slots=True)
class Start:
    """A collective, or one sendrecv, is issued. `blocking` ones are followed by their Wait at once.

    `root` is a global rank; `source` and `dest` are the global ranks of a sendrecv, None on an idle side.
    """

    token: int
    kind: Kind
    out: View | None
    inp: View | None
    op: ReduceOp | None
    group: tuple[int, ...]
    root: int | None
    source: int | None
    dest: int | None
    blocking: bool
    site: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The rank goes on only when what `token` names is finished here."""

    token: int
    site: str


Instruction = Alloc | Release | Local | Start | Wait
