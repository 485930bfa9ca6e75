"""verdict.json: what a run found, under the four meanings that "AllReduce = ReduceScatter + AllGather" has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rsag.records.contracts import ContractRow
from rsag.records.execution import BoundaryRow, LoggedCount
from rsag.records.kernels import ProbeVerdict
from rsag.records.latency import LatencyRow, WireVerdict
from rsag.records.memory import MemoryVerdict


class Meaning(str, Enum):
    RESULT = "result"  # the same final tensor
    STEPS = "steps"  # the same number of communication steps
    EXECUTION = "execution"  # the same calls, kernels and boundaries
    STATE = "state"  # the same memory and shards in between


class Holds(str, Enum):
    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """Whether the equation holds in one meaning, on which evidence, under which conditions."""

    meaning: Meaning
    holds: Holds
    evidence: str
    conditions: str


class VerdictOutcome(str, Enum):
    PASS = "pass"
    FAIL = "fail"
    INVALID = "invalid"  # records are missing, so that nothing can be said


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one run directory. `sentence` is what may be claimed of all its latency rows together."""

    schema: ClassVar[str] = "verdict"
    version: ClassVar[int] = 1

    outcome: VerdictOutcome
    reasons: tuple[str, ...]
    equivalence: tuple[Equivalence, ...]
    contracts: tuple[ContractRow, ...]
    latency: tuple[LatencyRow, ...] = ()
    wire: tuple[WireVerdict, ...] = ()
    memory: tuple[MemoryVerdict, ...] = ()
    kernels: tuple[ProbeVerdict, ...] = ()
    boundaries: tuple[BoundaryRow, ...] = ()
    logged: tuple[LoggedCount, ...] = ()
    sentence: str = ""
