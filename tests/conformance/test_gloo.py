"""One law over all interpreters: what symbols prove, exact integers, both carriers and the emitted code agree on.

The first two run here, without torch; the other three on real Gloo ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gloo_cases import CARRIED, Case, cases

from rsag.interpreters import machine
from rsag.interpreters.exact import Exact
from rsag.proofs.world import Prover
from rsag.reduction import DType, ReduceOp

pytestmark = pytest.mark.multirank

NUM_CASES = {3: 150, 4: 100}
SEEDS = {3: 20260710, 4: 20260711}


@functools.cache
def prover(op: ReduceOp) -> Prover:
    return Prover(op)


def exact(case: Case) -> list[list[float]]:
    """Each rank's result, by Python's integers."""
    programs = case.programs()
    outcome = machine.run(programs, Exact(case.op, case.value))
    results = [outcome.read(program.result) for program in programs]
    return [[float(value) for value in result] for result in results]


@pytest.fixture(scope="module", params=sorted(NUM_CASES))
def ran(request: pytest.FixtureRequest, run_gloo: Callable[..., list[Any]]) -> tuple[list[Case], list[Any]]:
    """The cases of one world size, and what each rank got."""
    world_size = request.param
    seed, num_cases = SEEDS[world_size], NUM_CASES[world_size]
    ranks = run_gloo("gloo_cases:main", str(seed), str(num_cases), world_size=world_size)
    return cases(seed, world_size, num_cases), ranks


def test_what_is_proved_is_what_real_ranks_get(ran: tuple[list[Case], list[Any]]) -> None:
    assert [] == list(differences(*ran))


def differences(tried: list[Case], ranks: list[Any]) -> Iterator[str]:
    for index, case in enumerate(tried):
        proof = prover(case.op).prove(case.composition, case.world_size, case.numel)
        if proof.result is not None or proof.shard is not None:
            yield f"{case}: refuted"
        for rank, expected in enumerate(exact(case)):
            for way, got in ranks[rank][index].items():
                if expected != got:
                    yield f"{case}: rank {rank}, {way}: {got} instead of {expected}"


def test_the_cases_reach_every_composition_operator_and_dtype(ran: tuple[list[Case], list[Any]]) -> None:
    tried, ranks = ran
    assert {one.name for one in CARRIED} == {case.composition.name for case in tried}
    assert set(ReduceOp) == {case.op for case in tried}
    assert {dtype for dtype in DType if dtype is not DType.INT16 and not dtype.value.startswith("complex")} == {
        case.dtype for case in tried
    }
    assert [len(tried)] * len(ranks) == [len(rank) for rank in ranks]
    assert all({"pooled", "owning", "emitted"} == row.keys() for rank in ranks for row in rank)
