"""What a plan predicts, and the sizes and faults it chooses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rsag.compositions import COMPOSITIONS, find
from rsag.errors import UsageError
from rsag.plan import make_plan, write_plan
from rsag.plan.kernels import plan_kernels
from rsag.programs.document import load_programs
from rsag.records.codec import dump_document, load_document
from rsag.records.plan import Backend, Experiment, Plan, Planted, Prediction
from rsag.records.rundir import PROGRAMS
from rsag.reduction import DType, ReduceOp
from rsag.units import MIB


def plan_of(world_size: int, **change: object) -> Plan:
    return make_plan(world_size=world_size, backend=Backend.GLOO, **change)  # type: ignore[arg-type]


def prediction(world_size: int, composition: str, rank: int = 0) -> Prediction:
    [found] = [row for row in plan_of(world_size).predictions if (row.composition, row.rank) == (composition, rank)]
    return found


@pytest.mark.parametrize(
    ("composition", "steady_mib", "peak_mib"),
    [
        ("all_reduce", 256, 256),
        ("rs_ag_naive", 256, 576),
        ("rs_ag_early_release", 256, 320),
        ("rs_ag_in_place", 256, 256),
        ("rs_ag_padded_naive", 256, 576),
        ("rs_ag_padded", 256, 512),
        ("rs_ag_chunked", 256, 256),
        ("reduce_scatter", 320, 320),
        ("ring_all_reduce", 256, 320),
    ],
)
def test_memory_at_256_mib_on_four_ranks(composition: str, steady_mib: int, peak_mib: int) -> None:
    for rank in range(4):
        row = prediction(4, composition, rank)
        assert (steady_mib * MIB, peak_mib * MIB) == (row.steady_bytes, row.peak_bytes)


@pytest.mark.parametrize(("world_size", "naive_mib", "early_mib"), [(1, 768, 512), (2, 640, 384), (8, 544, 288)])
def test_memory_of_the_lifetimes_is_2m_and_m_over_n_and_m_and_m_over_n(
    world_size: int, naive_mib: int, early_mib: int
) -> None:
    assert naive_mib * MIB == prediction(world_size, "rs_ag_naive").peak_bytes
    assert early_mib * MIB == prediction(world_size, "rs_ag_early_release").peak_bytes


@pytest.mark.parametrize(
    ("composition", "steps", "payloads"),
    [
        ("all_reduce", 6, 1.5),
        ("rs_ag_naive", 6, 1.5),
        ("rs_ag_in_place", 6, 1.5),
        ("ring_all_reduce", 6, 1.5),
        ("reduce_scatter", 3, 0.75),
        ("all_gather", 3, 0.75),
    ],
)
def test_steps_and_wire_bytes_on_four_ranks(composition: str, steps: int, payloads: float) -> None:
    row = prediction(4, composition)
    wire = payloads * 256 * MIB
    assert (steps, wire, wire) == (row.steps, row.sent_bytes, row.received_bytes)


def test_calls_are_counted_by_kind() -> None:
    assert {"reduce_scatter": 1, "all_gather": 1} == prediction(4, "rs_ag_naive").calls
    assert {"sendrecv": 6} == prediction(4, "ring_all_reduce").calls


def test_a_payload_that_does_not_divide_is_rounded_down_to_whole_shards() -> None:
    assert 64 * MIB // 3 * 3 == prediction(3, "all_reduce").numel


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_every_composition_is_an_arm_and_predicted_on_every_rank(world_size: int) -> None:
    plan = plan_of(world_size)
    names = [composition.name for composition in COMPOSITIONS]
    assert names == [arm.composition for arm in plan.arms]
    assert [(name, rank) for name in names for rank in range(world_size)] == [
        (row.composition, row.rank) for row in plan.predictions
    ]


@pytest.mark.parametrize(("world_size", "numel"), [(2, 1003), (4, 1003), (8, 1003), (16, 1003), (17, 1004), (59, 1004)])
def test_the_padded_size_never_divides(world_size: int, numel: int) -> None:
    assert numel == plan_of(world_size).contracts.padded_numel
    assert numel % world_size


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_sizes_hold_the_awkward_ones_once_and_in_order(world_size: int) -> None:
    contracts = plan_of(world_size).contracts
    assert {0, 1, world_size - 1, world_size, world_size + 1} <= set(contracts.sizes)
    assert list(contracts.sizes) == sorted(set(contracts.sizes))
    assert 5 * world_size == contracts.exact_numel
    assert (tuple(ReduceOp), tuple(DType)) == (contracts.ops, contracts.dtypes)


def test_the_chapters_three_faults_are_planted_unless_told_otherwise() -> None:
    assert tuple(Planted) == plan_of(4).contracts.planted
    assert plan_of(4, planted=()).contracts.planted == ()


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    plan = plan_of(3, seed=7, deadline_s=1.5, experiments=(Experiment.CONTRACTS,))
    dump_document(plan, tmp_path / "plan.json")
    assert plan == load_document(Plan, tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"world_size": 0}, "at least one rank; got 0"),
        ({"world_size": -1}, "at least one rank; got -1"),
        ({"deadline_s": 0.0}, "a deadline lies ahead; got 0.0"),
        ({"deadline_s": float("nan")}, "a deadline lies ahead; got nan"),
        ({"deadline_s": float("inf")}, "a deadline lies ahead; got inf"),
    ],
)
def test_an_impossible_plan_is_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan_of(**{"world_size": 4, **change})  # type: ignore[arg-type]


def test_a_composition_with_a_multiple_of_its_own_can_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file and one line: whatever sizes it takes, plans and programs.json must find one."""
    by_bucket = dataclasses.replace(
        find("rs_ag_in_place"), name="by_bucket", multiple_of=lambda world_size: 2 * world_size
    )
    compositions = (*COMPOSITIONS, by_bucket)
    monkeypatch.setattr("rsag.plan.make.COMPOSITIONS", compositions)
    monkeypatch.setattr("rsag.compositions.COMPOSITIONS", compositions)
    write_plan(make_plan(world_size=3, backend=Backend.GLOO, experiments=[Experiment.CONTRACTS]), tmp_path)
    recorded = [one for one in load_programs(tmp_path / PROGRAMS) if one.composition == "by_bucket"]
    assert [18, 18, 18] == [one.numel for one in recorded]


def test_kernels_are_looked_at_in_what_was_asked_for() -> None:
    plan = plan_kernels(
        world_size=3,
        backend=Backend.GLOO,
        size=100,
        composition="rs_ag_naive",
        dtype=DType.BFLOAT16,
        op=ReduceOp.MAX,
    )
    assert (96, DType.BFLOAT16, ReduceOp.MAX) == (plan.bytes, plan.dtype, plan.op)
    assert [("direct", "all_reduce"), ("decomposed", "rs_ag_naive")] == [
        (arm.range, arm.composition) for arm in plan.arms
    ]
