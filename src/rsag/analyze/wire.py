"""Bytes on the wire, counted and predicted: where they agree, and what explains it where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rsag.collectives import Kind
from rsag.records.latency import (
    ArmRole,
    Case,
    PredictedCost,
    PredictionOutcome,
    Reason,
    ReasonCode,
    TimedArm,
    WireRow,
    WireVerdict,
)
from rsag.records.plan import Backend, Plan, Prediction
from rsag.records.protocol import Choice, Protocols

TOLERANCE = 0.01

HEADER_BYTES_PER_STEP = 512
"""What Gloo may send beside the payload. Measured on four ranks: 1,824 B for an AllReduce of 6 steps and 2,688 B for
ReduceScatter and AllGather, at every size: each message's preamble, and the messages that say that a buffer is free."""

MAX_HEADER_SHARE = 0.25
"""Where the allowance for headers is more than this part of the payload, agreement would mean nothing."""

LINK_BYTES_PER_CALL = 64
"""What NVLink's counters may show beside an NCCL call: 32 B of 2,080 at 1 KiB on two H200, the counters' own grain."""

_FACTORS = (
    (1.0, "SIMPLE", None, "the payload alone, as SIMPLE sends it"),
    (
        16 / 15,
        "LL128",
        ReasonCode.PROTOCOL_LL128,
        "16/15 of the payload, as LL128 sends it: 8 bytes of flags in every 128",
    ),
    (2.0, "LL", ReasonCode.PROTOCOL_LL, "twice the payload, as LL sends it: a flag beside every word"),
)
"""NCCL's protocols by what they put on the wire, in payloads, and as its log calls them."""


def judge_wire(
    plan: Plan, records: Mapping[int, Iterable[WireRow]], protocols: Protocols | None = None
) -> tuple[WireVerdict, ...]:
    """A verdict on the bytes sent per row, by cases, arms and ranks; the control and the null arm have none.

    A protocol that the bytes tell of must be the one that NCCL's own log tells of, where `protocols` has it.
    """
    timing = plan.latency
    if timing is None:
        return ()
    rows = [(row.case, row.arm, rank, row) for rank, own in records.items() for row in own]
    return tuple(
        _judge(plan, timing.wire_cases[case], timing.arms[arm], rank, row, protocols)
        for case, arm, rank, row in sorted(rows, key=lambda found: found[:3])
        if timing.arms[arm].role in (ArmRole.DIRECT, ArmRole.CANDIDATE)
    )


def predict(plan: Plan, composition: str, rank: int, payload_bytes: int) -> PredictedCost | None:
    """The plan's prediction, scaled from the payload that it was made for; None where it predicts nothing."""
    row = plan.prediction(composition, rank)
    if row is None:
        return None
    return PredictedCost(steps=row.steps, sent_bytes=row.sent_bytes * payload_bytes / _payload_bytes(plan, row))


def bytes_differ(plan: Plan, one: WireVerdict, other: WireVerdict) -> bool:
    """Whether two arms sent other bytes on one rank, at one payload: by more than counters and headers explain.

    Both were measured, and the plan predicts both.
    """
    allowances = []
    for row in (one, other):
        cost = predict(plan, row.composition, row.rank, row.bytes)
        steps = 0 if cost is None else cost.steps
        allowances.append(HEADER_BYTES_PER_STEP * steps if plan.backend is Backend.GLOO else LINK_BYTES_PER_CALL)
    few, many = sorted(row.measured_bytes or 0.0 for row in (one, other))
    return not _is_near(many, few, max(allowances))


def _payload_bytes(plan: Plan, row: Prediction) -> int:
    return row.numel * plan.dtype.itemsize


def _judge(plan: Plan, case: Case, arm: TimedArm, rank: int, row: WireRow, protocols: Protocols | None) -> WireVerdict:
    composition = arm.composition
    cost = predict(plan, composition, rank, case.bytes)
    if row.sent_bytes is None:
        outcome, reasons = _cannot_tell(ReasonCode.NOT_MEASURED, row.reason or "no counter, and no word why")
    elif cost is None:
        outcome, reasons = _cannot_tell(ReasonCode.NOT_PREDICTED, f"the plan predicts nothing for {composition}")
    elif plan.backend is Backend.GLOO:
        outcome, reasons = _on_gloo(plan, case, cost, row.sent_bytes, scatters=_scatters(plan, composition))
    else:
        logged = () if protocols is None else protocols.of(case.bytes, arm)
        outcome, reasons = _on_nccl(case, cost, row.sent_bytes, logged)
    return WireVerdict(
        composition=composition,
        buffers=arm.buffers,
        rank=rank,
        bytes=case.bytes,
        predicted_bytes=None if cost is None else cost.sent_bytes,
        measured_bytes=row.sent_bytes,
        outcome=outcome,
        reasons=reasons,
    )


_Judgement = tuple[PredictionOutcome, tuple[Reason, ...]]


def _cannot_tell(code: ReasonCode, message: str) -> _Judgement:
    return PredictionOutcome.CANNOT_TELL, (Reason(code=code, message=message),)


def _on_gloo(plan: Plan, case: Case, cost: PredictedCost, sent_bytes: float, *, scatters: bool) -> _Judgement:
    headers = HEADER_BYTES_PER_STEP * cost.steps
    if headers > MAX_HEADER_SHARE * cost.sent_bytes > 0:
        message = f"headers may be {headers:,} B beside the {cost.sent_bytes:,.0f} B predicted"
        return _cannot_tell(ReasonCode.HEADERS, message)
    if _is_near(sent_bytes, cost.sent_bytes, headers):
        return PredictionOutcome.AGREES, ()
    # Gloo's ReduceScatter is a whole AllReduce, of which a slice is kept: it sends its own share a second time.
    twice = cost.sent_bytes + case.bytes * (plan.world_size - 1) / plan.world_size
    if scatters and _is_near(sent_bytes, twice, headers):
        message = f"Gloo's ReduceScatter moves a whole AllReduce: {_multiples(case, cost, sent_bytes)}"
        return PredictionOutcome.DIFFERS, (Reason(code=ReasonCode.GLOO_REDUCE_SCATTER, message=message),)
    return _differs(case, cost, sent_bytes)


def _on_nccl(case: Case, cost: PredictedCost, sent_bytes: float, logged: Sequence[Choice]) -> _Judgement:
    """`logged` is what NCCL says it took, nothing where it was not asked."""
    kernels = {choice.symmetric_kernel for choice in logged if choice.symmetric_kernel is not None}
    if kernels:  # of a method of their own, which no protocol's factor speaks of
        if _is_near(sent_bytes, cost.sent_bytes, LINK_BYTES_PER_CALL):
            return PredictionOutcome.AGREES, ()
        message = f"{_multiples(case, cost, sent_bytes)} on a ring, by the symmetric {' and '.join(sorted(kernels))}"
        return PredictionOutcome.DIFFERS, (Reason(code=ReasonCode.BYTES_DIFFER, message=message),)
    protocols = {choice.protocol for choice in logged if choice.protocol is not None}
    for factor, protocol, code, message in _FACTORS:
        if _is_near(sent_bytes, factor * cost.sent_bytes, LINK_BYTES_PER_CALL):
            if protocols and protocols != {protocol}:
                message = f"{message}, and NCCL's own log says {' and '.join(sorted(protocols))}"
                return PredictionOutcome.DIFFERS, (Reason(code=ReasonCode.BYTES_DIFFER, message=message),)
            reasons = () if code is None else (Reason(code=code, message=message),)
            return PredictionOutcome.AGREES, reasons
    return _differs(case, cost, sent_bytes)


def _differs(case: Case, cost: PredictedCost, sent_bytes: float) -> _Judgement:
    message = f"nothing known explains {_multiples(case, cost, sent_bytes)}"
    return PredictionOutcome.DIFFERS, (Reason(code=ReasonCode.BYTES_DIFFER, message=message),)


def _is_near(sent_bytes: float, wanted: float, headers: float = 0) -> bool:
    return (1 - TOLERANCE) * wanted <= sent_bytes <= (1 + TOLERANCE) * wanted + headers


def _multiples(case: Case, cost: PredictedCost, sent_bytes: float) -> str:
    return f"{sent_bytes / case.bytes:.2f} M against {cost.sent_bytes / case.bytes:.2f} M"


def _scatters(plan: Plan, composition: str) -> bool:
    row = plan.prediction(composition, rank=0)
    return row is not None and Kind.REDUCE_SCATTER.value in row.calls
