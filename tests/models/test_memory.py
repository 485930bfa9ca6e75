"""Predicted memory and wire: against closed formulas, and against the whole ledger where that can be had."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rsag.compositions import COMPOSITIONS, find
from rsag.compositions.training import TRAINING_STEPS, TrainingStep, find_steps
from rsag.compositions.training.fully_shard import FullyShard, fully_shard
from rsag.errors import UsageError
from rsag.interpreters.ledger import ledger
from rsag.models.memory import (
    LiveBytes,
    MemoryRow,
    Optimizer,
    TrainingSizes,
    equal_layers,
    predict_composition,
    predict_step,
)
from rsag.programs import Composition, record_all
from rsag.reduction import DType, ReduceOp
from rsag.units import GIB, MIB

L, P = 8, 1 << 20
"""Layers, and bytes of one layer's parameters."""
M = L * P


def sizes(
    *, grad_dtype: DType = DType.FLOAT32, param_dtype: DType = DType.FLOAT32, activation_bytes: int = 0
) -> TrainingSizes:
    return TrainingSizes(
        num_layers=L,
        layer_numel=P // param_dtype.itemsize,
        param_dtype=param_dtype,
        grad_dtype=grad_dtype,
        optimizer_dtype=DType.FLOAT32,
        optimizer=Optimizer.ADAM,
        activation_bytes=activation_bytes,
    )


def row_of(name: str, n: int, **options: object) -> MemoryRow:
    (step,) = find_steps(name)
    return predict_step(step, world_size=n, sizes=sizes(**options))  # type: ignore[arg-type]


def live(moment: LiveBytes | None) -> dict[str, int]:
    assert moment is not None
    return moment.by_role


# ------------------------------------------------------------------------------------------------------ compositions


@pytest.mark.parametrize(
    ("name", "steady", "peak"),
    [
        ("all_reduce", 256, 256),
        ("rs_ag_naive", 256, 576),
        ("rs_ag_early_release", 256, 320),
        ("rs_ag_in_place", 256, 256),
    ],
)
def test_four_lifetimes_on_four_ranks(name: str, steady: int, peak: int) -> None:
    row = predict_composition(find(name), world_size=4, num_bytes=256 * MIB, dtype=DType.FLOAT32)
    assert row.steady is not None
    assert row.peak is not None
    assert (steady * MIB, peak * MIB) == (row.steady.total_bytes, row.peak.total_bytes)
    assert 384 * MIB == row.wire_bytes


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_one_ranks_program_says_what_all_say_together(composition: Composition, world_size: int) -> None:
    numel = 16 * world_size
    row = predict_composition(composition, world_size=world_size, num_bytes=4 * numel, dtype=DType.FLOAT32)
    whole = ledger(record_all(composition, world_size=world_size, numel=numel, op=ReduceOp.SUM), 4).ranks[0]
    assert row.steady is not None
    assert row.peak is not None
    assert (whole.steady_bytes, whole.peak_bytes) == (row.steady.total_bytes, row.peak.total_bytes)
    assert max(whole.sent_bytes, whole.received_bytes) == row.wire_bytes


def test_a_size_that_is_not_claimed_is_a_row_without_costs() -> None:
    row = predict_composition(find("rs_ag_naive"), world_size=3, num_bytes=16, dtype=DType.FLOAT32)
    assert (None, None) == (row.steady, row.wire_bytes)
    assert "rs_ag_naive takes a multiple of 3 elements on 3 ranks, not 4" == row.not_claimed


# ---------------------------------------------------------------------------------------------------- training steps


@pytest.mark.parametrize("n", [1, 2, 4, 1024])
@pytest.mark.parametrize(
    ("name", "in_m"),
    [("ddp", 2), ("zero1", 2), ("zero2", 2), ("mistake", 2), ("fsdp", 3), ("fsdp_kept", 2), ("torch_fully_shard", 3)],
)
def test_bytes_on_the_wire(name: str, in_m: int, n: int) -> None:
    assert float(in_m * Fraction(n - 1, n) * M) == row_of(name, n).wire_bytes


def test_gradients_and_parameters_travel_in_their_own_dtypes() -> None:
    def wire(name: str) -> float | None:
        return row_of(name, 2, param_dtype=DType.BFLOAT16, grad_dtype=DType.FLOAT32).wire_bytes

    half_params, half_grads = M / 2, M
    assert 2 * half_grads == wire("ddp")
    assert half_grads + half_params == wire("zero2")
    assert half_grads + 2 * half_params == wire("fsdp")


def test_layers_that_are_not_resharded_are_gathered_once() -> None:
    (base,) = find_steps("torch_fully_shard")
    step = TrainingStep(name="tried", summary="", prepare=base.prepare, run=fully_shard(FullyShard(num_kept=3)))
    assert M / 2 * (3 - 3 / L) == predict_step(step, world_size=2, sizes=sizes()).wire_bytes


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("ddp", {"parameter", "gradient", "optimizer"}),
        ("mistake", {"parameter", "gradient", "optimizer"}),
        ("zero1", {"parameter", "gradient"}),
        ("zero2", {"parameter"}),
        ("fsdp", set()),
        ("torch_fully_shard", set()),
    ],
)
def test_what_is_left_after_the_update_is_whole_or_a_shard(name: str, whole: set[str], n: int) -> None:
    states = {"parameter": M, "gradient": M, "optimizer": 2 * M}
    expected = {role: count if role in whole else count // n for role, count in states.items()}
    assert expected == live(row_of(name, n).steady)


def test_torchs_ddp_holds_gradients_twice() -> None:
    assert {"parameter": M, "gradient": M, "optimizer": 2 * M, "staging": M} == live(row_of("torch_ddp", 2).steady)


def test_bucket_views_save_a_copy_of_all_gradients_but_one_layers() -> None:
    assert {"parameter": M, "gradient": M + P, "optimizer": 2 * M} == live(row_of("torch_ddp_views", 2).peak)


def test_zero_redundancy_optimizer_owns_whole_layers() -> None:
    shares = [
        live(predict_step(find_steps("torch_zero")[0], world_size=3, sizes=sizes(), rank=rank).steady)["optimizer"]
        for rank in range(3)
    ]
    assert [6 * P, 6 * P, 4 * P] == shares


def test_fully_shard_holds_four_layers_at_its_peak() -> None:
    """Parameters, their prefetched successor, gradients, and the reduce-scatter's input of the layer before."""
    n = 4
    assert {
        "parameter": M // n + P,
        "gathered": P,
        "gradient": P + (L - 2) * P // n,
        "staging": P,
        "optimizer": 2 * M // n,
    } == live(row_of("torch_fully_shard", n).peak)


def test_the_mistake_has_ddps_value_and_more_than_ddps_memory() -> None:
    mistake, ddp = row_of("mistake", 4), row_of("ddp", 4)
    assert live(ddp.steady) == live(mistake.steady)
    assert {"parameter": M, "gradient": M + P + P // 4, "optimizer": 2 * M} == live(mistake.peak)


def test_activations_are_counted_by_the_bytes_that_are_given() -> None:
    kept, upstream = (L + 1) * 4096, 4096  # each layer's input and the output; what comes back
    row = predict_step(find_steps("ddp")[0], world_size=2, sizes=sizes(activation_bytes=4096), timeline=True)
    assert kept + upstream == max(moment.by_role["activation"] for moment in row.timeline)


def test_padding_counts() -> None:
    odd = TrainingSizes(
        num_layers=2,
        layer_numel=5,
        param_dtype=DType.FLOAT32,
        grad_dtype=DType.FLOAT32,
        optimizer_dtype=DType.FLOAT32,
        optimizer=Optimizer.SGD,
    )
    row = predict_step(find_steps("fsdp")[0], world_size=4, sizes=odd)
    assert {"parameter": 2 * 2 * 4, "gradient": 2 * 2 * 4} == live(row.steady)


@pytest.mark.parametrize("step", TRAINING_STEPS, ids=lambda step: step.name)
def test_any_scale_is_one_ranks_program(step: TrainingStep) -> None:
    huge = TrainingSizes(
        num_layers=64,
        layer_numel=equal_layers(1024 * GIB, 64, DType.FLOAT32),
        param_dtype=DType.FLOAT32,
        grad_dtype=DType.FLOAT32,
        optimizer_dtype=DType.FLOAT32,
        optimizer=Optimizer.ADAM,
    )
    row = predict_step(step, world_size=1024, sizes=huge)
    assert row.peak is not None
    assert row.peak.total_bytes >= 4 * GIB  # a thousandth of parameters, gradients and Adam's two


def test_layers_that_do_not_come_out_are_refused_with_a_size_that_does() -> None:
    with pytest.raises(UsageError, match=r"3 layers of equal size .*--bytes 1032"):
        equal_layers(1024, 3, DType.FLOAT32)
