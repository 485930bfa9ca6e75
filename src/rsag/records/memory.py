"""What the memory experiment plans, records and concludes. Bytes are one rank's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from rsag.records.latency import PredictionOutcome, Reason
from rsag.reduction import DType, ReduceOp


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMoment:
    """What the ledger has live after one allocation or release, by role, and the source line that changed it."""

    what: str
    site: str
    live_bytes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMemory:
    """One rank's lifetimes by the ledger. Steady is live at the end, the result included; peak the most at once."""

    rank: int
    steady_bytes: int
    peak_bytes: int
    timeline: tuple[PredictedMoment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryArm:
    """One composition at the full logical payload `bytes`, with every rank's prediction in rank order."""

    composition: str
    bytes: int
    predicted: tuple[PredictedMemory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What is run once, on the carrier that allocates and frees for real.

    `bytes` is the payload M; an arm that pads has one element more, so that there is something to pad.
    """

    bytes: int
    dtype: DType
    op: ReduceOp
    arms: tuple[MemoryArm, ...]


class MemoryLedger(str, Enum):
    """Whose count it is. They are never added up."""

    REQUESTED = "requested"  # what was asked of torch's allocator
    ALLOCATED = "allocated"  # the blocks that it gave, rounded up
    RESERVED = "reserved"  # what it holds of the device, free blocks included
    OUTSIDE = "outside"  # device memory that it does not hold: contexts, communicators


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """One ledger of one run. Steady and peak are above the baseline.

    The baseline is what was there when the groups existed and the composition had run once; of OUTSIDE what has come
    since before the group was made.
    """

    ledger: MemoryLedger
    baseline_bytes: int
    steady_bytes: int
    peak_bytes: int


class Thread(str, Enum):
    """Who allocated or freed."""

    CALLER = "caller"
    WORKER = "worker"  # a thread of the backend's own


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMoment:
    """One change of what is held: `bytes` more, or less, and `live_bytes` above the baseline after it.

    `what` is the instruction during which it came: `allocate shard`, `release input`, `all_gather`, `wait`.
    `payload_bytes` is the full side of that collective, 0 where it is none. A free carries the `block` number of its
    allocation; where only sums were sampled there are no blocks. What is not `seen` is a free that came from a
    backend's thread after its work, where torch's profiler does not look: it stands at the end of the collective.
    """

    what: str
    bytes: int
    live_bytes: int
    thread: Thread = Thread.CALLER
    payload_bytes: int = 0
    block: int | None = None
    seen: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One rank's run of one arm; without readings `reason` says why it was not run."""

    kind: Literal["memory"] = "memory"
    arm: int
    method: str
    readings: tuple[MemoryReading, ...] = ()
    timeline: tuple[MemoryMoment, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """One composition on one rank: the ledger's steady and peak, and those of the requested bytes.

    `readings` are all the ledgers that were read; None measured where nothing was.
    """

    composition: str
    rank: int
    bytes: int
    predicted_steady_bytes: int
    predicted_peak_bytes: int
    measured_steady_bytes: int | None
    measured_peak_bytes: int | None
    outcome: PredictionOutcome
    readings: tuple[MemoryReading, ...]
    reasons: tuple[Reason, ...]
