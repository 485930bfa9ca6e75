"""What the kernels experiment plans and records: two marked ranges, and what was counted around their calls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from rsag.reduction import DType, ReduceOp


class Probe(str, Enum):
    """Who calls."""

    RANKS = "ranks"  # one process for each rank, through torch.distributed
    NATIVE = "native"  # one process for all GPUs, through the library itself


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedArm:
    """A composition, and the name of the range that its calls lie in."""

    range: str
    composition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsPlan:
    """`calls` calls of each arm in its range, after `warmup_calls` outside, at the full payload `bytes`.

    `padded` are compositions that are called once at `padded_numel` elements with the library's log on: what it was
    asked for is in the log, count by count.
    """

    bytes: int
    dtype: DType
    op: ReduceOp
    warmup_calls: int
    calls: int
    arms: tuple[MarkedArm, ...]
    padded_numel: int
    padded: tuple[str, ...]
    native: bool

    @property
    def ranges(self) -> tuple[str, ...]:
        return tuple(arm.range for arm in self.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the profiler and the group counted in one range, over all of its calls; None where there is no such thing.

    `calls` are operators of c10d, `works` the handles that the group gave out.
    """

    calls: int | None
    works: int | None
    launches: int | None
    event_records: int | None
    stream_waits: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRow:
    """One arm on one rank. `wrong` are elements of its results that differ from the oracle."""

    kind: Literal["execution"] = "execution"
    arm: int
    wrong: int
    counted: Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeArm:
    """One arm of the native probe, all GPUs together."""

    range: str
    wrong: int
    counted: Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeProbe:
    """native.json: what the native probe counted, or in `reason` why it was not run."""

    schema: ClassVar[str] = "native"
    version: ClassVar[int] = 1

    num_devices: int
    arms: tuple[NativeArm, ...]
    binding: str = ""
    library: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCount:
    """One call as the library's own log has it: `count` is its API's count argument, elements of `dtype`."""

    composition: str
    numel: int
    function: str
    count: int
    dtype: str


# --------------------------------------------------------------------------------------------------- the verdict's rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryRow:
    """One quantity in both ranges, over all calls of each: of one rank, or of all GPUs of the native probe."""

    probe: Probe
    rank: int | None
    quantity: str
    direct: int | None
    decomposed: int | None

    @property
    def difference(self) -> int | None:
        return None if self.direct is None or self.decomposed is None else self.decomposed - self.direct
