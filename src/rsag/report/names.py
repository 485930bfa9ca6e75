"""How an arm and a case are called wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rsag.records.latency import ArmRole, Buffers, Clock, WireVerdict, named, unusual
from rsag.reduction import DType, ReduceOp
from rsag.units import format_bytes


class ArmLike(Protocol):
    """A TimedArm, or a row about one."""

    @property
    def role(self) -> ArmRole: ...
    @property
    def composition(self) -> str: ...
    @property
    def buffers(self) -> Buffers: ...
    @property
    def settings(self) -> dict[str, str]: ...


class CaseLike(Protocol):
    """A Case, or a row about one."""

    @property
    def bytes(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def op(self) -> ReduceOp: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def calls(self) -> int: ...


def arm_name(arm: ArmLike) -> str:
    """`rs_ag_in_place`, `all_reduce (again)`, `(empty)`; with buffers and settings that are not the usual ones."""
    if arm.role is ArmRole.NULL:
        return "(empty)"
    return named(arm.composition, arm.buffers, arm.settings, *(["again"] if arm.role is ArmRole.CONTROL else []))


def wire_name(row: WireVerdict) -> str:
    """The composition whose bytes were counted; with buffers that are not the usual ones."""
    return named(row.composition, row.buffers, {})


def apart_name(arm: ArmLike) -> str:
    """What an arm shares with the direct one that it is compared with, as far as it is not the usual: `symmetric`."""
    return ", ".join(unusual(arm.buffers, arm.settings))


def case_name(case: CaseLike) -> str:
    """`64 KiB float32 sum, graph x10`."""
    return f"{format_bytes(case.bytes)} {kind_name(case)}, {case.clock.value} x{case.calls}"


def kind_name(case: CaseLike) -> str:
    """What is reduced, and how: `float32 sum`."""
    return f"{case.dtype.value} {case.op.value}"


def case_heading(case: CaseLike, among: Iterable[CaseLike]) -> str:
    """The name of `case`, without what all of `among` share: `64 KiB, graph x10`."""
    if len({kind_name(other) for other in among}) > 1:
        return case_name(case)
    return f"{format_bytes(case.bytes)}, {case.clock.value} x{case.calls}"
