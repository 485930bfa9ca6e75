"""Training steps on symbols: what each makes of the parameters is what plain data parallelism makes of them."""

from __future__ import annotations

import pytest

from rsag.compositions.training import TRAINING_STEPS, Stack, TrainingStep, find_steps, record_steps
from rsag.compositions.training.fully_shard import FullyShard, fully_shard
from rsag.compositions.training.mutants import TRAINING_MUTANTS, TrainingMutant
from rsag.errors import UsageError
from rsag.proofs.training import TrainingProver
from rsag.records.proof import Contract
from rsag.reduction import ReduceOp

PROVERS = {op: TrainingProver(op) for op in (ReduceOp.SUM, ReduceOp.AVG)}
CLAIMED = [step for step in TRAINING_STEPS if step.claims_ddp_value]


@pytest.mark.parametrize("op", PROVERS, ids=lambda op: op.value)
@pytest.mark.parametrize("step", CLAIMED, ids=lambda step: step.name)
def test_every_step_has_data_parallelisms_parameters_afterwards(step: TrainingStep, op: ReduceOp) -> None:
    refuted = [
        found
        for world_size in range(1, 5)
        for numel in sorted({1, world_size, world_size + 1, 2 * world_size + 1})
        for num_layers in (1, 3)
        if (found := PROVERS[op].prove(step, world_size, Stack(num_layers=num_layers, layer_numel=numel)))
    ]
    assert [] == refuted


@pytest.mark.parametrize("num_states", [0, 1, 3])
def test_the_proof_holds_for_any_optimizer_that_works_by_element(num_states: int) -> None:
    stack = Stack(num_layers=2, layer_numel=5, num_states=num_states)
    assert [None] * len(CLAIMED) == [PROVERS[ReduceOp.AVG].prove(step, 2, stack) for step in CLAIMED]


@pytest.mark.parametrize(
    "settings",
    [
        FullyShard(num_kept=1),
        FullyShard(num_kept=4, num_prefetched=0),
        FullyShard(num_prefetched=3),
        FullyShard(num_inputs=2),
    ],
    ids=str,
)
def test_fully_shard_is_right_and_in_order_under_other_settings(settings: FullyShard) -> None:
    (base,) = find_steps("torch_fully_shard")
    step = TrainingStep(name="tried", summary="", prepare=base.prepare, run=fully_shard(settings))
    assert PROVERS[ReduceOp.AVG].prove(step, 3, Stack(num_layers=4, layer_numel=7)) is None


@pytest.mark.parametrize("mutant", TRAINING_MUTANTS, ids=lambda mutant: mutant.step.name)
def test_every_planted_fault_is_refuted_against_the_contract_it_breaks(mutant: TrainingMutant) -> None:
    found = PROVERS[ReduceOp.AVG].prove(mutant.step, 3, Stack(num_layers=3, layer_numel=7))
    assert found is not None
    assert mutant.breaks is found.contract


def test_a_refutation_names_the_operand_that_differs() -> None:
    (mutant,) = (one for one in TRAINING_MUTANTS if one.step.name == "unreduced_gradient")
    found = PROVERS[ReduceOp.SUM].prove(mutant.step, 2, Stack(num_layers=1, layer_numel=2))
    assert found is not None
    assert (
        "rank 0 layer 0 element 0, operand of state 0 of update: "
        "gradient(x[0][0], batch 0(x[0][0]), loss(layer(x[0][0], batch 0(x[0][0])))); data parallelism has "
        "gradient(x[0][0], batch 0(x[0][0]), loss(layer(x[0][0], batch 0(x[0][0])))) + "
        "gradient(x[0][0], batch 1(x[0][0]), loss(layer(x[0][0], batch 1(x[0][0]))))"
    ) == found.message


def test_a_gather_of_stale_parameters_shows_one_step_later() -> None:
    (mutant,) = (one for one in TRAINING_MUTANTS if one.step.name == "stale_prefetch")
    stack = Stack(num_layers=2, layer_numel=4)
    assert PROVERS[ReduceOp.SUM].prove(mutant.step, 2, stack, num_steps=1) is None
    found = PROVERS[ReduceOp.SUM].prove(mutant.step, 2, stack, num_steps=2)
    assert found is not None
    assert Contract.RESULT is found.contract


def test_gradients_are_reduced_with_sum_or_avg_only() -> None:
    with pytest.raises(UsageError, match="got max; expected sum or avg"):
        record_steps(CLAIMED[0], rank=0, world_size=2, stack=Stack(num_layers=1, layer_numel=2), op=ReduceOp.MAX)


def test_a_name_may_be_the_beginning_of_several() -> None:
    assert ["zero1", "zero2"] == [step.name for step in find_steps("zero")]
    assert ["ddp"] == [step.name for step in find_steps("ddp")]
    with pytest.raises(UsageError, match="unknown training step; got 'zero9'; did you mean zero"):
        find_steps("zero9")
