"""Judgements of memory on rows made by hand: each difference by its name, or as unexplained."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rsag.analyze.memory import judge_memory, judge_state
from rsag.plan import make_plan
from rsag.plan.memory import plan_memory
from rsag.records.latency import PredictionOutcome, ReasonCode
from rsag.records.memory import (
    MemoryArm,
    MemoryLedger,
    MemoryMoment,
    MemoryReading,
    MemoryRow,
    MemoryVerdict,
    Thread,
)
from rsag.records.plan import Backend, Experiment, Plan
from rsag.records.verdict import Holds, Meaning
from rsag.units import MIB

M = 16 * MIB
AGREES, DIFFERS, CANNOT_TELL = PredictionOutcome.AGREES, PredictionOutcome.DIFFERS, PredictionOutcome.CANNOT_TELL
CLONE, OUTPUT = ReasonCode.GLOO_REDUCE_SCATTER_CLONE, ReasonCode.GLOO_ALL_GATHER_OUTPUT
ROUNDING, UNEXPLAINED = ReasonCode.ALLOCATOR_ROUNDING, ReasonCode.UNEXPLAINED

Change = tuple[str, int, Thread, int]
"""(instruction, bytes, thread, payload of its collective)"""


def plan_of(*compositions: str, backend: Backend = Backend.GLOO, world_size: int = 4) -> Plan:
    memory = plan_memory(world_size=world_size, backend=backend, size=M, compositions=compositions)
    return make_plan(world_size=world_size, backend=backend, experiments=[Experiment.MEMORY], memory=memory)


def own(arm: MemoryArm) -> list[Change]:
    """Just what the ledger says."""
    totals = [0, *(sum(moment.live_bytes.values()) for moment in arm.predicted[0].timeline)]
    return [
        (moment.what, after - before, Thread.CALLER, 0)
        for moment, before, after in zip(arm.predicted[0].timeline, totals, totals[1:])
    ]


def copy_in(kind: str, size: int = M, thread: Thread = Thread.CALLER) -> list[Change]:
    """The backend's own, allocated and freed at once."""
    return [(kind, size, thread, M), (kind, -size, thread, M)]


def row_of(changes: list[Change], arm: int = 0, **readings: tuple[int, int]) -> MemoryRow:
    """A row that was measured so; `readings` are further ledgers, as (steady, peak)."""
    moments: list[MemoryMoment] = []
    alive: dict[int, int] = {}
    live = 0
    for number, (what, size, thread, payload) in enumerate(changes):
        live += size
        block: int | None = number
        if size > 0:
            alive[number] = size
        else:
            block = next((at for at, held in reversed(alive.items()) if held == -size), None)
            alive.pop(number if block is None else block, None)
        moments.append(
            MemoryMoment(what=what, bytes=size, live_bytes=live, thread=thread, payload_bytes=payload, block=block)
        )
    peak = max((moment.live_bytes for moment in moments), default=0)
    ledgers = {"requested": (live, peak), **readings}
    return MemoryRow(
        arm=arm,
        method="by hand",
        timeline=tuple(moments),
        readings=tuple(
            MemoryReading(ledger=MemoryLedger(name), baseline_bytes=0, steady_bytes=steady, peak_bytes=most)
            for name, (steady, most) in ledgers.items()
        ),
    )


def judged(plan: Plan, row: MemoryRow) -> MemoryVerdict:
    """Of rank 0."""
    return judge_memory(plan, {0: [row]})[0]


def arm_of(plan: Plan, index: int = 0) -> MemoryArm:
    assert plan.memory is not None
    return plan.memory.arms[index]


def codes(verdict: MemoryVerdict) -> list[ReasonCode]:
    return [reason.code for reason in verdict.reasons]


# ---------------------------------------------------------------------------------------------------------- by name


@pytest.mark.parametrize("composition", ["all_reduce", "rs_ag_naive", "rs_ag_early_release", "rs_ag_staged"])
def test_what_the_ledger_says_agrees(composition: str) -> None:
    plan = plan_of(composition)
    verdict = judged(plan, row_of(own(arm_of(plan))))
    assert (AGREES, ()) == (verdict.outcome, verdict.reasons)
    assert (verdict.predicted_steady_bytes, verdict.predicted_peak_bytes) == (
        verdict.measured_steady_bytes,
        verdict.measured_peak_bytes,
    )


def test_gloo_s_two_copies_come_out_by_name_thread_and_time() -> None:
    plan = plan_of("rs_ag_in_place")
    changes = [*own(arm_of(plan)), *copy_in("reduce_scatter"), *copy_in("all_gather", thread=Thread.WORKER)]
    verdict = judged(plan, row_of(changes))
    assert (DIFFERS, M, 2 * M) == (verdict.outcome, verdict.predicted_peak_bytes, verdict.measured_peak_bytes)
    assert {
        CLONE: "Gloo's ReduceScatter clones its whole input: 16 MiB in reduce_scatter, on the caller's thread; "
        "32 MiB in all at that time",
        OUTPUT: "Gloo's AllGather has a flat output of its own: 16 MiB in all_gather, on the worker's thread; "
        "32 MiB in all at that time",
    } == {reason.code: reason.message for reason in verdict.reasons}


def test_a_copy_below_the_peak_is_named_and_agrees() -> None:
    plan = plan_of("rs_ag_padded")
    first, second, third = own(arm_of(plan))
    numel = sum(arm_of(plan).predicted[0].timeline[-1].live_bytes.values())
    clone = [("reduce_scatter", numel, Thread.CALLER, numel), ("reduce_scatter", -numel, Thread.CALLER, numel)]
    verdict = judged(plan, row_of([first, second, third, *clone]))
    assert [CLONE] == codes(verdict)
    assert verdict.measured_peak_bytes == verdict.predicted_peak_bytes + numel - arm_of(plan).bytes


def test_the_same_copies_under_nccl_are_unexplained() -> None:
    plan = plan_of("rs_ag_in_place", backend=Backend.NCCL)
    verdict = judged(plan, row_of([*own(arm_of(plan)), *copy_in("reduce_scatter")]))
    assert (DIFFERS, [UNEXPLAINED]) == (verdict.outcome, codes(verdict))
    assert verdict.reasons[0].message.startswith("16 MiB at most; the first on the caller's thread in reduce_scatter")


@pytest.mark.parametrize(
    "strange",
    [
        copy_in("reduce_scatter", M // 2),
        copy_in("all_reduce"),
        copy_in("copy", 8),
        [("allocate shard", 8, Thread.WORKER, 0), ("allocate shard", -8, Thread.WORKER, 0)],
    ],
    ids=["half a clone", "in all_reduce", "8 bytes in a copy", "another thread"],
)
def test_what_has_no_name_is_unexplained(strange: list[Change]) -> None:
    plan = plan_of("rs_ag_in_place")
    verdict = judged(plan, row_of([*own(arm_of(plan)), *strange]))
    assert (DIFFERS, [UNEXPLAINED]) == (verdict.outcome, codes(verdict))


def late(changes: list[Change]) -> list[Change]:
    return [*changes[:2], *changes[3:], changes[2]]


def larger(changes: list[Change]) -> list[Change]:
    (what, size, thread, payload), *others = changes[1:]
    return [changes[0], (what, size + 4, thread, payload), *others]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (late, "the ledger has release input (-16,777,216 B), where allocate gathered (+16,777,216 B) was measured"),
        (larger, "the ledger has allocate shard (+4,194,304 B), where allocate shard (+4,194,308 B) was measured"),
        (lambda changes: changes[:3], "the ledger has allocate gathered (+16,777,216 B), where nothing more"),
    ],
    ids=["a release that comes late", "a buffer that is larger", "a buffer that is missing"],
)
def test_a_timeline_that_departs_from_the_ledger_s_says_where(
    spoil: Callable[[list[Change]], list[Change]], message: str
) -> None:
    plan = plan_of("rs_ag_early_release")
    changes = own(arm_of(plan))
    verdict = judged(plan, row_of(spoil(changes)))
    assert (DIFFERS, UNEXPLAINED) == (verdict.outcome, verdict.reasons[0].code)
    assert verdict.reasons[0].message.startswith(message)


def test_a_peak_that_its_timeline_does_not_reach_is_unexplained() -> None:
    plan = plan_of("all_reduce")
    row = row_of(own(arm_of(plan)), requested=(M, M + 512))
    assert [UNEXPLAINED] == codes(judged(plan, row))


# ---------------------------------------------------------------------------------------------------- other ledgers


@pytest.mark.parametrize(
    ("allocated", "expected"),
    [
        ((M, M), (AGREES, [])),
        ((M + 512, M + 512), (AGREES, [ROUNDING])),
        ((M + MIB, M + MIB), (AGREES, [ROUNDING])),
        ((M + MIB + 512, M + MIB + 512), (DIFFERS, [UNEXPLAINED])),
    ],
    ids=["none", "small blocks", "an unsplit large block", "more than a block can be"],
)
def test_allocated_bytes_may_be_rounded_by_a_block_for_each_buffer(
    allocated: tuple[int, int], expected: tuple[PredictionOutcome, list[ReasonCode]]
) -> None:
    plan = plan_of("all_reduce", backend=Backend.NCCL)
    verdict = judged(plan, row_of(own(arm_of(plan)), allocated=allocated, reserved=(2 * M, 2 * M)))
    assert expected == (verdict.outcome, codes(verdict))


# ------------------------------------------------------------------------------------------------- nothing to judge


def test_a_rank_without_a_row_cannot_tell() -> None:
    verdicts = judge_memory(plan_of("all_reduce"), {})
    assert [(rank, CANNOT_TELL, [ReasonCode.NO_RECORDS]) for rank in range(4)] == [
        (one.rank, one.outcome, codes(one)) for one in verdicts
    ]


def test_an_arm_that_was_refused_cannot_tell_and_says_why() -> None:
    verdict = judged(plan_of("all_reduce"), MemoryRow(arm=0, method="", reason="does not fit"))
    assert (CANNOT_TELL, None, [("not-measured", "does not fit")]) == (
        verdict.outcome,
        verdict.measured_peak_bytes,
        [(reason.code.value, reason.message) for reason in verdict.reasons],
    )


def test_without_a_plan_of_memory_there_is_no_verdict() -> None:
    plan = make_plan(world_size=2, backend=Backend.GLOO, experiments=[Experiment.CONTRACTS])
    assert () == judge_memory(plan, {})
    assert Holds.CANNOT_TELL is judge_state(plan, ()).holds


# --------------------------------------------------------------------------------------------------------- the state


def state_of(*compositions: str, world_size: int = 4) -> tuple[Holds, str]:
    """Where all ranks measure just what the ledger says."""
    plan = plan_of(*compositions, world_size=world_size)
    rows = [row_of(own(arm_of(plan, index)), index) for index in range(len(compositions))]
    found = judge_state(plan, judge_memory(plan, dict.fromkeys(range(world_size), rows)))
    assert Meaning.STATE is found.meaning
    return found.holds, found.evidence


def test_the_same_memory_in_place_and_a_shard_in_between_is_not_the_same_state() -> None:
    holds, evidence = state_of("all_reduce", "rs_ag_in_place", "rs_ag_naive", "reduce_scatter_only")
    assert Holds.NO is holds
    assert (
        "all_reduce 16 MiB at the peak (as measured); rs_ag_in_place 16 MiB at the peak (as measured); "
        "rs_ag_naive 36 MiB at the peak (as measured); between the halves a rank holds a shard, a state "
        "that AllReduce never has: reduce_scatter_only keeps 4 MiB of 16 MiB"
    ) == evidence


def test_on_one_rank_the_shard_is_the_whole_and_the_state_the_same() -> None:
    holds, evidence = state_of("all_reduce", "rs_ag_in_place", "reduce_scatter_only", world_size=1)
    assert Holds.YES is holds
    assert evidence.endswith("holds a shard, the whole tensor: reduce_scatter_only keeps 16 MiB of 16 MiB")


@pytest.mark.parametrize(
    ("compositions", "why"),
    [
        (("all_reduce", "rs_ag_in_place"), "whether a shard exists between the halves was not measured"),
        (("all_reduce", "rs_ag_naive"), "the memory of rs_ag_in_place was not measured"),
    ],
)
def test_what_was_not_measured_is_no_evidence(compositions: tuple[str, ...], why: str) -> None:
    holds, evidence = state_of(*compositions)
    assert Holds.CANNOT_TELL is holds
    assert why in evidence
