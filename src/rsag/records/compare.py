"""Two runs side by side; what `rsag compare --json` prints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rsag.records.contracts import ContractOutcome
from rsag.records.latency import Case, TimedArm, TimeOutcome
from rsag.records.source import RunSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """In what two runs differ apart from their numbers. Of lists, only what the other one has not."""

    field: str
    a: str
    b: str


class RatioChange(str, Enum):
    """How the ratio over the direct arm of B stands to that of A."""

    HIGHER = "higher"  # the interval of B lies above that of A
    LOWER = "lower"
    OVERLAP = "overlap"  # no change is shown
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one run says of an arm; its ratio is None where that run refused it."""

    median_us: float | None
    outcome: TimeOutcome | None
    ratio: float | None
    interval: tuple[float, float] | None
    rounds: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRow:
    """One arm of one case in both runs; a side is None where its run has no such arm.

    `median_change` is B's median over A's, as measured: between two launches it has no error that could be known.
    `ratio_change` is None for an arm that is not compared; `why` says why it cannot be told.
    """

    case: Case
    arm: TimedArm
    a: Side | None
    b: Side | None
    median_change: float | None
    ratio_change: RatioChange | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractChange:
    """One contract on one rank that came out differently; None where the run has no such row."""

    contract: str
    rank: int
    a: ContractOutcome | None
    b: ContractOutcome | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """What one composition held at its peak on one rank, where the runs differ; None where nothing was measured."""

    composition: str
    bytes: int
    rank: int
    a_peak_bytes: int | None
    b_peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`differences` is empty for two launches of one plan on one kind of machine."""

    schema: ClassVar[str] = "compare"
    version: ClassVar[int] = 1

    a: RunSource
    b: RunSource
    differences: tuple[Difference, ...]
    rows: tuple[CompareRow, ...]
    contracts: tuple[ContractChange, ...]
    num_same_contracts: int
    memory: tuple[MemoryChange, ...] = ()
    num_same_memory: int = 0
