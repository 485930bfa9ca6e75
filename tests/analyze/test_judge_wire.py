"""Counted bytes against the ledger's."""

from __future__ import annotations

import dataclasses

import pytest
from timed import ARMS, CANDIDATE, CASE, CONTROL, DIRECT, NULL, plan_of, timing

from rsag.analyze.wire import judge_wire, predict
from rsag.records.latency import ArmRole, PredictedCost, PredictionOutcome, ReasonCode, TimedArm, WireRow, WireVerdict
from rsag.records.plan import Backend, Plan
from rsag.records.protocol import Choice, ProtocolRow, Protocols
from rsag.units import KIB, MIB

AGREES, DIFFERS, CANNOT_TELL = PredictionOutcome
PLAN = plan_of(timing(), world_size=4)


def counted(arm: int, sent: float | None, *, case: int = 0, reason: str = "") -> WireRow:
    return WireRow(case=case, arm=arm, calls=3, counter="", sent_bytes=sent, received_bytes=sent, reason=reason)


def verdict_on(arm: int, sent: float | None, plan: Plan = PLAN, *, reason: str = "") -> WireVerdict:
    (verdict,) = judge_wire(plan, {2: [counted(arm, sent, reason=reason)]})
    return verdict


def on(size: int, *, backend: Backend = Backend.GLOO, world_size: int = 4) -> Plan:
    return plan_of(timing(cases=[dataclasses.replace(CASE, bytes=size)]), world_size=world_size, backend=backend)


def codes(verdict: WireVerdict) -> list[ReasonCode]:
    return [reason.code for reason in verdict.reasons]


# ---------------------------------------------------------------------------------------------------------- predictions


def test_predictions_scale_with_the_payload() -> None:
    assert PredictedCost(steps=6, sent_bytes=1.5 * MIB) == predict(PLAN, "all_reduce", 2, MIB)
    assert PredictedCost(steps=6, sent_bytes=24.0 * MIB) == predict(PLAN, "rs_ag_in_place", 0, 16 * MIB)


def test_what_the_plan_does_not_know_is_not_predicted() -> None:
    assert None is predict(PLAN, "mine", 0, MIB)
    plan = plan_of(timing(arms=[*ARMS[:1], TimedArm(role=ArmRole.CANDIDATE, composition="mine")]), world_size=4)
    verdict = verdict_on(1, 1e6, plan)
    assert (CANNOT_TELL, None, [ReasonCode.NOT_PREDICTED]) == (verdict.outcome, verdict.predicted_bytes, codes(verdict))


# ----------------------------------------------------------------------------------------------------------------- Gloo


@pytest.mark.parametrize("sent", [1.5 * MIB, 1.502 * MIB, 1.486 * MIB])
def test_within_a_percent_and_headers_gloo_agrees(sent: float) -> None:
    verdict = verdict_on(DIRECT, sent)
    assert (AGREES, (), 1.5 * MIB, sent) == (
        verdict.outcome,
        verdict.reasons,
        verdict.predicted_bytes,
        verdict.measured_bytes,
    )


@pytest.mark.parametrize("size", [MIB, 16 * MIB])
def test_gloos_reduce_scatter_comes_out_by_itself(size: int) -> None:
    verdict = verdict_on(CANDIDATE, 2.25 * size + 2600, on(size))
    assert (DIFFERS, [ReasonCode.GLOO_REDUCE_SCATTER]) == (verdict.outcome, codes(verdict))
    assert "Gloo's ReduceScatter moves a whole AllReduce: 2.25 M against 1.50 M" == verdict.reasons[0].message


def test_what_has_no_reduce_scatter_is_not_explained_by_it() -> None:
    verdict = verdict_on(DIRECT, 2.25 * MIB)
    assert (DIFFERS, [ReasonCode.BYTES_DIFFER]) == (verdict.outcome, codes(verdict))
    assert "nothing known explains 2.25 M against 1.50 M" == verdict.reasons[0].message


@pytest.mark.parametrize("multiple", [1.0, 2.0, 2.4])
def test_other_multiples_are_not_gloos_reduce_scatter_either(multiple: float) -> None:
    assert [ReasonCode.BYTES_DIFFER] == codes(verdict_on(CANDIDATE, multiple * MIB))


def test_where_headers_outweigh_the_payload_nothing_can_be_told() -> None:
    verdict = verdict_on(DIRECT, 3.19 * KIB, on(KIB))
    assert (CANNOT_TELL, [ReasonCode.HEADERS]) == (verdict.outcome, codes(verdict))
    assert "headers may be 3,072 B beside the 1,536 B predicted" == verdict.reasons[0].message


def test_64_kib_are_enough_to_tell() -> None:
    assert AGREES is verdict_on(DIRECT, 1.5 * 64 * KIB + 1900, on(64 * KIB)).outcome
    assert [ReasonCode.GLOO_REDUCE_SCATTER] == codes(verdict_on(CANDIDATE, 2.25 * 64 * KIB + 2600, on(64 * KIB)))


def test_one_rank_sends_nothing() -> None:
    (verdict,) = judge_wire(on(MIB, world_size=1), {0: [counted(DIRECT, 0.0)]})
    assert (AGREES, 0.0) == (verdict.outcome, verdict.predicted_bytes)


# ----------------------------------------------------------------------------------------------------------------- NCCL


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, []), (1.0001, []), (16 / 15, [ReasonCode.PROTOCOL_LL128]), (2.0, [ReasonCode.PROTOCOL_LL])],
)
def test_on_nccl_the_factor_is_evidence_of_the_protocol(factor: float, expected: list[ReasonCode]) -> None:
    verdict = verdict_on(CANDIDATE, factor * 1.5 * MIB, on(MIB, backend=Backend.NCCL))
    assert (AGREES, expected) == (verdict.outcome, codes(verdict))


@pytest.mark.parametrize("factor", [0.5, 1.03, 1.5])
def test_a_factor_of_no_protocol_is_a_difference(factor: float) -> None:
    verdict = verdict_on(CANDIDATE, factor * 1.5 * MIB, on(MIB, backend=Backend.NCCL))
    assert (DIFFERS, [ReasonCode.BYTES_DIFFER]) == (verdict.outcome, codes(verdict))


def logged(*names: str) -> Protocols:
    """NCCL's log of the candidate's calls, one protocol each."""
    choices = tuple(Choice(function="f", bytes=1, algorithm="RING", protocol=name, channels=1) for name in names)
    return Protocols(rows=(ProtocolRow(bytes=MIB, composition="rs_ag_in_place", choices=choices),))


FACTORS = {"SIMPLE": 1.0, "LL128": 16 / 15, "LL": 2.0}


@pytest.mark.parametrize("protocol", FACTORS)
@pytest.mark.parametrize("log", [["SIMPLE"], ["LL128"], ["LL", "LL"], ["SIMPLE", "LL"]])
def test_bytes_of_one_protocol_agree_only_where_the_log_tells_of_it_alone(protocol: str, log: list[str]) -> None:
    row = counted(CANDIDATE, FACTORS[protocol] * 1.5 * MIB)
    (verdict,) = judge_wire(on(MIB, backend=Backend.NCCL), {2: [row]}, logged(*log))
    assert (AGREES if {protocol} == set(log) else DIFFERS) is verdict.outcome


def test_a_log_that_contradicts_the_bytes_is_the_reason() -> None:
    (verdict,) = judge_wire(on(MIB, backend=Backend.NCCL), {2: [counted(CANDIDATE, 3.0 * MIB)]}, logged("SIMPLE"))
    message = "twice the payload, as LL sends it: a flag beside every word, and NCCL's own log says SIMPLE"
    assert [(ReasonCode.BYTES_DIFFER, message)] == [(reason.code, reason.message) for reason in verdict.reasons]


def test_a_log_of_other_arms_says_nothing() -> None:
    (verdict,) = judge_wire(on(MIB, backend=Backend.NCCL), {2: [counted(DIRECT, 3.0 * MIB)]}, logged("SIMPLE"))
    assert (AGREES, [ReasonCode.PROTOCOL_LL]) == (verdict.outcome, codes(verdict))


# ----------------------------------------------------------------------------------------------------------------- rows


def test_without_a_counter_its_reason_is_given() -> None:
    verdict = verdict_on(DIRECT, None, reason="nvidia-ml-py is not installed")
    assert (CANNOT_TELL, None, 1.5 * MIB) == (verdict.outcome, verdict.measured_bytes, verdict.predicted_bytes)
    assert ["nvidia-ml-py is not installed"] == [reason.message for reason in verdict.reasons]


def test_verdicts_come_by_arm_then_rank_without_control_and_null() -> None:
    rows = [counted(arm, 1.5 * MIB) for arm in (NULL, CONTROL, CANDIDATE, DIRECT)]
    verdicts = judge_wire(PLAN, {1: rows, 0: rows})
    assert [("all_reduce", 0), ("all_reduce", 1), ("rs_ag_in_place", 0), ("rs_ag_in_place", 1)] == [
        (verdict.composition, verdict.rank) for verdict in verdicts
    ]


def test_without_a_plan_of_times_nothing_was_counted() -> None:
    assert () == judge_wire(dataclasses.replace(PLAN, latency=None), {0: [counted(DIRECT, 1.0)]})
