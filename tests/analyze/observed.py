"""Observations by hand: what a rank of a faultless backend would write down, to be spoilt one at a time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from rsag.plan import make_plan
from rsag.records.contracts import Observation
from rsag.records.plan import Backend, Experiment, Plan

GLOO_REFUSAL = "Check failed: outputShape[0] * worldSize == inputShape[0]. Actual: 250 * 4 vs 1003"
TORCH_REFUSAL = "input tensor must be the same size as output size times world size"


@functools.cache
def plan_of(world_size: int, *experiments: Experiment) -> Plan:
    """The usual plan, of the contracts alone unless told otherwise."""
    return make_plan(world_size=world_size, backend=Backend.GLOO, experiments=experiments or (Experiment.CONTRACTS,))


def sums(world_size: int, numel: int) -> list[int]:
    """By addition, not by the judge's formula: the sum over ranks of 100 r + i."""
    return [sum(100 * rank + element for rank in range(world_size)) for element in range(numel)]


def chapter(plan: Plan, rank: int) -> list[Observation]:
    """The chapter's five and the one on floats, in their order."""
    return [
        exact_sum(plan, rank),
        wrong_shard_order(plan, rank),
        wrong_op(plan),
        padding(plan, rank),
        no_padding(plan),
        float_sum(plan),
    ]


def exact_sum(plan: Plan, rank: int) -> Observation:
    want = sums(plan.world_size, plan.contracts.exact_numel)
    q = len(want) // plan.world_size
    return observation("exact-sum-equivalence", direct=want, shard=want[rank * q : (rank + 1) * q], gathered=want)


def wrong_shard_order(plan: Plan, rank: int) -> Observation:
    want = sums(plan.world_size, plan.contracts.exact_numel)
    q = len(want) // plan.world_size
    return observation(
        "wrong-shard-order-rejected", shard=want[rank * q : (rank + 1) * q], gathered=want[-q:] + want[:-q]
    )


def wrong_op(plan: Plan) -> Observation:
    maxima = [100 * (plan.world_size - 1) + element for element in range(plan.contracts.exact_numel)]
    return observation("wrong-reduction-op-rejected", gathered=maxima)


def padding(plan: Plan, rank: int) -> Observation:
    want = sums(plan.world_size, plan.contracts.padded_numel)
    padded = want + [0] * (-len(want) % plan.world_size)
    q = len(padded) // plan.world_size
    return observation(
        "padding-and-trim-equivalence", direct=want, shard=padded[rank * q : (rank + 1) * q], gathered=padded
    )


def no_padding(plan: Plan) -> Observation:
    q = plan.contracts.padded_numel // plan.world_size
    seen = observation(
        "nondivisible-without-padding-rejected",
        shard=[-7] * q,
        next=sums(plan.world_size, plan.contracts.exact_numel),
    )
    facts: dict[str, str | bool] = {"raised": True, "exception": "ValueError", "text": TORCH_REFUSAL}
    return with_facts(seen, input=plan.contracts.padded_numel, output=q, **facts)


def float_sum(plan: Plan) -> Observation:
    numel = plan.contracts.float_numel
    return with_facts(
        Observation(contract="float-sum-within-bound-not-bitwise"),
        numel=numel,
        chunks=plan.contracts.float_chunks,
        whole_beyond_bound=0,
        chunked_beyond_bound=0,
        rs_ag_beyond_bound=0,
        chunked_differing_bits=numel // 4 if plan.world_size > 2 else 0,
        rs_ag_differing_bits=0,
    )


def checked(contract: str, *, checked: int = 100, wrong: int = 0, first_wrong: str = "") -> Observation:
    return with_facts(Observation(contract=contract), cases=7, checked=checked, wrong=wrong, first_wrong=first_wrong)


def subgroup(rank: int, ranks: Sequence[int], *, q: int = 3) -> Observation:
    want = [sum(100 * other + element for other in ranks) for element in range(q * len(ranks))]
    index = list(ranks).index(rank)
    return observation(
        "subgroup/unsorted", ranks=ranks, order=ranks, shard=want[index * q : (index + 1) * q], gathered=want
    )


def strided(plan: Plan, rank: int) -> Observation:
    """Every other of eight elements, reduced in place."""
    positions = [0, 2, 4, 6]
    reduced = [sum(100 * other + position for other in range(plan.world_size)) for position in positions]
    base = [100 * rank + position for position in range(8)]
    for position, value in zip(positions, reduced):
        base[position] = value
    return observation("layout/strided", positions=positions, reduced=reduced, base=base)


def refused(contract: str, words: str) -> Observation:
    return with_facts(Observation(contract=contract), refused=words)


# ------------------------------------------------------------------------------------------------------------ spoiling


def observation(contract: str, **values: Sequence[int]) -> Observation:
    return Observation(contract=contract, values={name: tuple(column) for name, column in values.items()})


def with_facts(seen: Observation, **facts: str | int | float | bool) -> Observation:
    return dataclasses.replace(seen, facts={**seen.facts, **facts})


def with_element(seen: Observation, name: str, index: int, value: int) -> Observation:
    """`seen` with one element of one tensor changed."""
    column = list(seen.values[name])
    column[index] = value
    return with_values(seen, **{name: column})


def with_values(seen: Observation, **values: Sequence[int | float]) -> Observation:
    changed = {name: tuple(column) for name, column in values.items()}
    return dataclasses.replace(seen, values={**seen.values, **changed})
