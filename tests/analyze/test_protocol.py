"""NCCL's own log beside the times."""

from __future__ import annotations

from rsag.analyze.protocol import with_protocols
from rsag.records.latency import ArmRole, Buffers, Clock, LatencyRow, ReasonCode
from rsag.records.protocol import Choice, ProtocolRow, Protocols
from rsag.reduction import DType, ReduceOp

LINE = "host:6:6 [0] NCCL INFO {}: {} Bytes -> Algo RING proto {} channel{{Lo..Hi}}={{0..{}}}"


def row(composition: str, role: ArmRole) -> LatencyRow:
    return LatencyRow(
        bytes=1024,
        dtype=DType.FLOAT32,
        op=ReduceOp.SUM,
        composition=composition,
        role=role,
        buffers=Buffers.PLAIN,
        settings={},
        clock=Clock.GRAPH,
        calls=1,
        outcome=None,
        ratio=None,
        interval=None,
        rounds=0,
        stop=None,
        round_values=(),
        cv_ratio=None,
        predicted=None,
        reasons=(),
    )


def protocols(**chosen: tuple[Choice, ...]) -> Protocols:
    return Protocols(
        rows=tuple(ProtocolRow(bytes=1024, composition=name, choices=choices) for name, choices in chosen.items())
    )


def choice(function: str, protocol: str) -> Choice:
    parsed = Choice.parse(LINE.format(function, 512, protocol, 3))
    assert parsed is not None
    return parsed


def test_a_tuning_line_gives_function_algorithm_protocol_and_channels() -> None:
    assert Choice(function="AllReduce", bytes=1024, algorithm="RING", protocol="LL", channels=24) == Choice.parse(
        LINE.format("AllReduce", 1024, "LL", 23)
    )


def test_any_other_line_of_the_log_gives_nothing() -> None:
    assert Choice.parse("host:6:6 [0] NCCL INFO CC Off, workFifoBytes 1048576") is None


def test_unlike_protocols_are_a_reason_on_the_candidate() -> None:
    rows = (row("all_reduce", ArmRole.DIRECT), row("rs_ag_in_place", ArmRole.CANDIDATE))
    log = protocols(
        all_reduce=(choice("AllReduce", "SIMPLE"),),
        rs_ag_in_place=(choice("ReduceScatter", "LL"), choice("AllGather", "LL")),
    )

    direct, candidate = with_protocols(rows, log)

    assert direct.reasons == ()
    assert [ReasonCode.PROTOCOLS_DIFFER] == [reason.code for reason in candidate.reasons]
    assert ("ReduceScatter RING LL x4", "AllGather RING LL x4") == candidate.protocols


def test_like_protocols_are_no_reason() -> None:
    rows = (row("all_reduce", ArmRole.DIRECT), row("rs_ag_in_place", ArmRole.CANDIDATE))
    log = protocols(all_reduce=(choice("AllReduce", "LL"),), rs_ag_in_place=(choice("ReduceScatter", "LL"),))

    assert () == with_protocols(rows, log)[1].reasons


def test_a_pass_that_saw_nothing_says_nothing() -> None:
    rows = (row("all_reduce", ArmRole.DIRECT), row("rs_ag_in_place", ArmRole.CANDIDATE))

    assert [()] * 2 == [one.reasons for one in with_protocols(rows, protocols())]
