"""What is timed: by default, on request, by the chapter's schedule; and in which order the arms of a round run."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from rsag.errors import UsageError
from rsag.plan.latency import plan_chapter_latency, plan_latency
from rsag.records.latency import ArmRole, Buffers, Clock, Gate, LatencyPlan, Order, cycle_order, round_seed
from rsag.records.plan import Backend
from rsag.reduction import DType, ReduceOp
from rsag.units import GIB, KIB, MIB


def planned(world_size: int = 4, backend: Backend = Backend.GLOO, **asked: Any) -> LatencyPlan:
    return plan_latency(world_size=world_size, backend=backend, **asked)


def sizes(plan: LatencyPlan) -> list[int]:
    return [case.bytes for case in plan.cases]


# ------------------------------------------------------------------------------------------------------- what is timed


def test_gloo_by_default_times_four_sizes_on_the_cpus_clock_one_call_each() -> None:
    plan = planned()
    assert [KIB, 64 * KIB, MIB, 16 * MIB] == sizes(plan)
    assert {(DType.FLOAT32, ReduceOp.SUM, Clock.CPU, 1)} == {(c.dtype, c.op, c.clock, c.calls) for c in plan.cases}
    assert (2, 2, 40, Gate.ROUNDS, Order.BALANCED) == (
        plan.blocks,
        plan.warmup_cycles,
        plan.max_rounds,
        plan.gate,
        plan.order,
    )


def test_nccl_by_default_times_six_sizes_as_graphs_and_then_eagerly_with_calls_that_fit_the_size() -> None:
    plan = planned(backend=Backend.NCCL)
    each = [(KIB, 10), (64 * KIB, 10), (MIB, 10), (16 * MIB, 10), (256 * MIB, 2), (GIB, 1)]
    assert [(clock, *one) for clock in (Clock.GRAPH, Clock.EAGER) for one in each] == [
        (case.clock, case.bytes, case.calls) for case in plan.cases
    ]
    assert 8 == plan.blocks


@pytest.mark.parametrize(
    ("backend", "candidates"),
    [(Backend.GLOO, ["rs_ag_in_place"]), (Backend.NCCL, ["rs_ag_naive", "rs_ag_in_place"])],
)
def test_the_candidates_stand_between_the_direct_arm_and_its_control(backend: Backend, candidates: list[str]) -> None:
    plan = planned(backend=backend)
    assert [
        (ArmRole.DIRECT, "all_reduce"),
        *((ArmRole.CANDIDATE, name) for name in candidates),
        (ArmRole.CONTROL, "all_reduce"),
        (ArmRole.NULL, ""),
    ] == [(arm.role, arm.composition) for arm in plan.arms]


def test_every_kind_of_buffers_has_its_own_direct_arm_and_control_and_all_share_the_empty_call() -> None:
    kinds = (Buffers.PLAIN, Buffers.SYMMETRIC)
    plan = planned(backend=Backend.NCCL, candidates=("rs_ag_in_place",), buffers=kinds)
    roles = [ArmRole.DIRECT, ArmRole.CANDIDATE, ArmRole.CONTROL]
    assert [*((kind, role) for kind in kinds for role in roles), (Buffers.PLAIN, ArmRole.NULL)] == [
        (arm.buffers, arm.role) for arm in plan.arms
    ]
    assert [0, 0, 0, 3, 3, 3] == [plan.reference(arm) for arm in range(6)]


def test_gloo_has_plain_buffers_only() -> None:
    with pytest.raises(UsageError, match="Gloo knows no registered memory"):
        planned(buffers=(Buffers.PLAIN, Buffers.REGISTERED))


def test_what_is_asked_for_is_timed_in_its_order() -> None:
    plan = planned(
        sizes=(MIB, KIB),
        candidates=("rs_ag_chunked", "rs_ag_naive"),
        dtype=DType.BFLOAT16,
        op=ReduceOp.MAX,
        margin=0.01,
        precisely=True,
        max_rounds=12,
    )
    assert [(MIB, DType.BFLOAT16, ReduceOp.MAX), (KIB, DType.BFLOAT16, ReduceOp.MAX)] == [
        (case.bytes, case.dtype, case.op) for case in plan.cases
    ]
    assert ["rs_ag_chunked", "rs_ag_naive"] == [arm.composition for arm in plan.arms[1:-2]]
    assert (0.01, True, 12) == (plan.margin, plan.precisely, plan.max_rounds)


@pytest.mark.parametrize(
    ("world_size", "dtype", "asked", "fitted"),
    [
        (3, DType.FLOAT32, KIB, 1020),
        (3, DType.FLOAT32, MIB, 1048572),
        (6, DType.FLOAT64, KIB, 1008),
        (7, DType.BFLOAT16, KIB, 1022),
        (8, DType.FLOAT32, 4, 32),  # at least an element for each rank
        (4, DType.FLOAT32, KIB, KIB),
    ],
)
def test_a_size_is_rounded_down_to_whole_shards(world_size: int, dtype: DType, asked: int, fitted: int) -> None:
    assert [fitted] == sizes(planned(world_size, sizes=(asked,), dtype=dtype))


def test_what_is_asked_for_twice_is_timed_once() -> None:
    plan = planned(3, sizes=(MIB, MIB, KIB, 1020), candidates=("rs_ag_naive",) * 2, clocks=(Clock.CPU,) * 2)
    assert [1048572, 1020] == sizes(plan)
    assert [ArmRole.DIRECT, ArmRole.CANDIDATE, ArmRole.CONTROL, ArmRole.NULL] == [arm.role for arm in plan.arms]


def test_the_wire_is_read_once_at_each_size_from_the_smallest() -> None:
    plan = planned(backend=Backend.NCCL, sizes=(MIB, KIB))
    assert [KIB, MIB] == [case.bytes for case in plan.wire_cases]


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"sizes": (1022,)}, "a size is a multiple of the dtype's; got 1022 B; expected a multiple of 4 B (float32)"),
        ({"sizes": (1001,), "dtype": DType.BFLOAT16}, "got 1001 B; expected a multiple of 2 B (bfloat16)"),
        ({"sizes": (0,)}, "got 0 B"),
        ({"sizes": (-4,)}, "got -4 B"),
        ({"sizes": ()}, "there is nothing to time; got no size or clock"),
        ({"candidates": ()}, "there is nothing to time; got no composition"),
        ({"clocks": ()}, "there is nothing to time"),
        ({"max_rounds": 0}, "too few rounds for any conclusion; got 0; expected at least 12, the first look"),
        ({"max_rounds": 11}, "too few rounds for any conclusion; got 11"),
        ({"margin": 0.0}, "an equivalence margin is a ratio above 0; got 0.0; expected for example 0.01"),
        ({"margin": -0.01}, "got -0.01"),
        ({"margin": float("nan")}, "got nan"),
        ({"margin": float("inf")}, "got inf"),
        ({"clocks": (Clock.GRAPH,)}, "gloo has no such clock; got graph; expected cpu"),
        ({"backend": Backend.NCCL, "clocks": (Clock.CPU,)}, "nccl has no such clock; got cpu; expected graph, eager"),
        ({"candidates": ("rs_ag_inplace",)}, "unknown composition; got 'rs_ag_inplace'; did you mean rs_ag_in_place"),
        (
            {"candidates": ("peer",)},
            "peer cannot be run here; it reads peers' memory: proved and counted, not carrie",
        ),
        (
            {"candidates": ("ring_all_reduce",), "op": ReduceOp.AVG},
            "ring_all_reduce cannot be run here; ring_all_reduce combines pairwise, and an average cannot be folded",
        ),
        ({"op": ReduceOp.BAND}, "band of float32 cannot be run; bitwise operators are for integers and bool"),
        ({"dtype": DType.COMPLEX64}, "sum of complex64 cannot be run; complex numbers are not checked"),
    ],
)
def test_what_no_rank_could_run_is_refused_with_the_reason(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        planned(**asked)
    assert words in str(refused.value)


# ---------------------------------------------------------------------------------------------------------- the chapter


def test_the_chapter_times_five_sizes_in_ten_cycles_after_three() -> None:
    plan = plan_chapter_latency(world_size=4, backend=Backend.GLOO)
    assert [KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB] == sizes(plan)
    assert (3, 10, 1) == (plan.warmup_cycles, 2 * plan.blocks, plan.max_rounds)
    assert (Gate.CV, Order.ALTERNATING, None) == (plan.gate, plan.order, plan.margin)
    assert [(ArmRole.DIRECT, "all_reduce"), (ArmRole.CANDIDATE, "rs_ag_naive")] == [
        (arm.role, arm.composition) for arm in plan.arms
    ]


@pytest.mark.parametrize(("backend", "clock"), [(Backend.GLOO, Clock.CPU), (Backend.NCCL, Clock.EAGER)])
def test_the_chapter_times_single_calls_of_float32_from_the_host(backend: Backend, clock: Clock) -> None:
    plan = plan_chapter_latency(world_size=2, backend=backend)
    assert {(DType.FLOAT32, ReduceOp.SUM, clock, 1)} == {(c.dtype, c.op, c.clock, c.calls) for c in plan.cases}


def test_the_chapters_sizes_fit_other_world_sizes_too() -> None:
    assert [1020, 65532, 1048572, 16777212, 268435452] == sizes(
        plan_chapter_latency(world_size=3, backend=Backend.GLOO)
    )


def test_even_counted_cycles_run_the_direct_arm_first_and_odd_ones_the_other() -> None:
    order = cycle_order(plan_chapter_latency(world_size=4, backend=Backend.GLOO), seed=0, case=0, round_number=0)
    assert 13 == len(order)
    assert [(0, 1), (1, 0)] * 5 == list(order[3:])


# ---------------------------------------------------------------------------------------------------------- cycle_order

BALANCED = planned()
ALTERNATING = dataclasses.replace(BALANCED, order=Order.ALTERNATING)
SEEDS = [(seed, case, number) for seed in (0, 7) for case in (0, 3) for number in range(10)]


@pytest.mark.parametrize("warmup_cycles", [0, 1, 2, 3])
@pytest.mark.parametrize("where", SEEDS)
def test_every_block_is_a_permutation_and_its_mirror_image(warmup_cycles: int, where: tuple[int, int, int]) -> None:
    plan = dataclasses.replace(BALANCED, warmup_cycles=warmup_cycles, blocks=3)
    order = cycle_order(plan, *where)
    assert warmup_cycles + 6 == len(order)
    assert {(0, 1, 2, 3)} == {tuple(sorted(arms)) for arms in order}
    counted = order[warmup_cycles:]
    assert [arms[::-1] for arms in counted[0::2]] == list(counted[1::2])


def test_blocks_cases_and_rounds_have_permutations_of_their_own() -> None:
    orders = [cycle_order(dataclasses.replace(BALANCED, blocks=8), *where) for where in SEEDS]
    assert len(SEEDS) == len(set(orders))
    assert any(order[2] != order[4] for order in orders)
    assert 24 == len({arms for order in orders for arms in order})


def test_where_a_round_starts_is_shared_by_no_other_round_case_or_seed() -> None:
    starts = [round_seed(seed, case, number) for seed in range(5) for case in range(20) for number in range(40)]
    assert len(starts) == len(set(starts))


@pytest.mark.parametrize("warmup_cycles", [0, 1, 2, 3, 4])
def test_alternating_order_starts_forwards_at_the_first_cycle_that_counts(warmup_cycles: int) -> None:
    order = cycle_order(dataclasses.replace(ALTERNATING, warmup_cycles=warmup_cycles), 5, 0, 0)
    forwards = (0, 1, 2, 3)
    assert warmup_cycles + 4 == len(order)
    assert [forwards, forwards[::-1]] * 2 == list(order[warmup_cycles:])
    assert all(one == other[::-1] for one, other in itertools.pairwise(order))
