"""What is timed by default, and the chapter's own schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rsag.compositions import find
from rsag.errors import UsageError
from rsag.records.latency import ArmRole, Buffers, Case, Clock, Gate, LatencyPlan, Order, TimedArm
from rsag.records.plan import Backend
from rsag.reduction import DType, Family, ReduceOp, why_undefined
from rsag.stats import LOOKS
from rsag.units import GIB, KIB, MIB, format_bytes

SIZES = {
    Backend.GLOO: (KIB, 64 * KIB, MIB, 16 * MIB),
    Backend.NCCL: (KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB),
}
CANDIDATES = {Backend.GLOO: ("rs_ag_in_place",), Backend.NCCL: ("rs_ag_naive", "rs_ag_in_place")}
CLOCKS = {Backend.GLOO: (Clock.CPU,), Backend.NCCL: (Clock.GRAPH, Clock.EAGER)}
BLOCKS = {Backend.GLOO: 2, Backend.NCCL: 8}
CHAPTER_SIZES = (KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB)


def plan_latency(
    *,
    world_size: int,
    backend: Backend,
    sizes: Sequence[int] | None = None,
    candidates: Sequence[str] | None = None,
    clocks: Sequence[Clock] | None = None,
    buffers: Sequence[Buffers] = (Buffers.PLAIN,),
    dtype: DType = DType.FLOAT32,
    op: ReduceOp = ReduceOp.SUM,
    gate: Gate = Gate.ROUNDS,
    max_rounds: int = LOOKS[-1].rounds,
    margin: float | None = None,
    precisely: bool = False,
) -> LatencyPlan:
    """Every size on every clock: AllReduce, the candidates, AllReduce again as control, an empty call.

    With several kinds of `buffers` the first three once in each: what is compared is in one kind.
    """
    if max_rounds < LOOKS[0].rounds:
        raise UsageError(
            "too few rounds for any conclusion", got=max_rounds, expected=f"at least {LOOKS[0].rounds}, the first look"
        )
    if margin is not None and not 0 < margin < math.inf:
        raise UsageError("an equivalence margin is a ratio above 0", got=margin, expected="for example 0.01")
    chosen = tuple(dict.fromkeys(CANDIDATES[backend] if candidates is None else candidates))
    wanted = SIZES[backend] if sizes is None else sizes
    cases = tuple(
        Case(bytes=payload, dtype=dtype, op=op, clock=clock, calls=_calls(payload, clock))
        for clock in dict.fromkeys(CLOCKS[backend] if clocks is None else clocks)
        for payload in dict.fromkeys(fit(size, dtype, world_size) for size in wanted)
    )
    _refuse_impossible(cases, chosen, world_size, backend)
    kinds = tuple(dict.fromkeys(buffers))
    if backend is Backend.GLOO and set(kinds) != {Buffers.PLAIN}:
        got = ", ".join(kind.value for kind in kinds)
        raise UsageError("Gloo knows no registered memory", got=got, expected="plain", do="use --backend nccl")
    return LatencyPlan(
        cases=cases,
        arms=(
            *(arm for kind in kinds for arm in _compared(chosen, kind)),
            TimedArm(role=ArmRole.NULL, composition=""),
        ),
        blocks=BLOCKS[backend],
        warmup_cycles=2,
        max_rounds=max_rounds,
        gate=gate,
        order=Order.BALANCED,
        margin=margin,
        precisely=precisely,
        claimable=True,
        wire_cases=_wire_cases(cases),
    )


def _compared(candidates: Sequence[str], buffers: Buffers) -> Iterator[TimedArm]:
    yield TimedArm(role=ArmRole.DIRECT, composition="all_reduce", buffers=buffers)
    for name in candidates:
        yield TimedArm(role=ArmRole.CANDIDATE, composition=name, buffers=buffers)
    yield TimedArm(role=ArmRole.CONTROL, composition="all_reduce", buffers=buffers)


def plan_chapter_latency(*, world_size: int, backend: Backend) -> LatencyPlan:
    """The chapter's schedule: 3 warm-ups and 10 cycles in alternating order, one round, its CV gate."""
    clock = Clock.CPU if backend is Backend.GLOO else Clock.EAGER
    cases = tuple(
        Case(bytes=fit(size, DType.FLOAT32, world_size), dtype=DType.FLOAT32, op=ReduceOp.SUM, clock=clock, calls=1)
        for size in CHAPTER_SIZES
    )
    return LatencyPlan(
        cases=cases,
        arms=(
            TimedArm(role=ArmRole.DIRECT, composition="all_reduce"),
            TimedArm(role=ArmRole.CANDIDATE, composition="rs_ag_naive"),
        ),
        blocks=5,
        warmup_cycles=3,
        max_rounds=1,
        gate=Gate.CV,
        order=Order.ALTERNATING,
        margin=None,
        precisely=False,
        claimable=True,
        wire_cases=_wire_cases(cases),
    )


def _refuse_impossible(cases: Sequence[Case], candidates: Sequence[str], world_size: int, backend: Backend) -> None:
    """Raise UsageError for what no rank could run."""
    if not cases or not candidates:
        missing = "size or clock" if candidates else "composition"
        raise UsageError("there is nothing to time", got=f"no {missing}", do="leave the option out for the default")
    for case in cases:
        if case.clock not in CLOCKS[backend]:
            known = ", ".join(clock.value for clock in CLOCKS[backend])
            raise UsageError(f"{backend.value} has no such clock", got=case.clock.value, expected=known)
        refuse_uncarried(case, candidates, world_size)


def refuse_uncarried(case: Case, compositions: Sequence[str], world_size: int) -> None:
    """Raise UsageError for a case that no tensors carry, or that one of the compositions does not take."""
    reason = "complex numbers are not checked" if case.dtype.family is Family.COMPLEX else None
    reason = reason or why_undefined(case.op, case.dtype)
    if reason is not None:
        raise UsageError(f"{case.op.value} of {case.dtype.value} cannot be run", do=reason)
    for one in map(find, compositions):
        reason = one.why_refused(case.bytes // case.dtype.itemsize, world_size, case.op)
        if one.symmetric:
            reason = "it reads peers' memory: proved and counted, not carried by tensors"
        if reason is not None:
            raise UsageError(f"{one.name} cannot be run here", do=reason)


def fit(size: int, dtype: DType, world_size: int) -> int:
    """`size`, or the next smaller payload that divides over the ranks: the case says which it is."""
    if size <= 0 or size % dtype.itemsize:
        raise UsageError(
            "a size is a multiple of the dtype's",
            got=format_bytes(size),
            expected=f"a multiple of {dtype.itemsize} B ({dtype.value})",
        )
    step = dtype.itemsize * world_size
    return max(size // step, 1) * step


def _calls(payload: int, clock: Clock) -> int:
    """Calls of one timing: many where a call is short against what surrounds it, one where its buffers are large."""
    if clock is Clock.CPU:
        return 1
    if payload <= 16 * MIB:
        return 10
    return 2 if payload <= 256 * MIB else 1


def _wire_cases(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Each payload once: the wire knows no clock."""
    by_size = {case.bytes: case for case in cases}
    return tuple(by_size[size] for size in sorted(by_size))
