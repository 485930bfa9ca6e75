"""capabilities.json: what a backend can do on this machine, tried in child processes that may crash."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from rsag.collectives import Kind
from rsag.records.plan import Backend
from rsag.reduction import DType, ReduceOp


class Ability(str, Enum):
    SUPPORTED = "supported"  # ended, with the right values
    REFUSED = "refused"  # raised an exception
    WRONG = "wrong"  # ended, with other values
    CRASHED = "crashed"  # took its process down


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One thing that is tried, written down before it is: the rows of a crashed process end with it."""

    kind: Literal["trying"] = "trying"
    index: int
    collective: Kind
    op: ReduceOp | None
    dtype: DType
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One collective under one operator (None where it reduces nothing) on one dtype. `shape` is "1-D" or "0-dim"."""

    kind: Literal["capability"] = "capability"
    collective: Kind
    op: ReduceOp | None
    dtype: DType
    shape: str
    ability: Ability
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What was tried, on how many ranks of which backend."""

    schema: ClassVar[str] = "capabilities"
    version: ClassVar[int] = 1

    backend: Backend
    world_size: int
    torch: str
    rows: tuple[Capability, ...]

    def why_unable(self, collective: Kind, op: ReduceOp | None, dtype: DType) -> str | None:
        """Why the backend cannot do it, or None where it can."""
        for row in self.rows:
            if (row.collective, row.op, row.dtype, row.shape) == (collective, op, dtype, "1-D"):
                return None if row.ability is Ability.SUPPORTED else row.reason
        return f"{collective.value} of {dtype.value} was not tried"
