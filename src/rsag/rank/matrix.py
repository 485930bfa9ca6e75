"""Operators x dtypes x sizes, and every composition on both carriers, against the exact oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from rsag.carriers.groups import Groups
from rsag.carriers.owning import run_owning
from rsag.carriers.pooled import Pooled
from rsag.collectives import COLLECTIVES, Kind
from rsag.compositions import COMPOSITIONS, find
from rsag.errors import RsagError
from rsag.programs import Composition, Program, record_all
from rsag.rank.context import Context
from rsag.rank.inputs import count_wrong, fill, oracle
from rsag.records.contracts import Observation
from rsag.reduction import DType, ReduceOp, why_undefined

MATRIX_COMPOSITIONS = ("all_reduce", "rs_ag_padded")


def observe_operators(context: Context) -> None:
    """One observation per operator and dtype: the native AllReduce and the padded decomposition at every size."""
    compositions = [find(name) for name in MATRIX_COMPOSITIONS]
    for op in context.plan.contracts.ops:
        for dtype in context.plan.contracts.dtypes:
            if why_undefined(op, dtype) is None:
                context.observe(_observe_operator(context, compositions, op, dtype))


def _observe_operator(context: Context, compositions: list[Composition], op: ReduceOp, dtype: DType) -> Observation:
    contract = f"operator-matrix/{op.value}/{dtype.value}"
    used = ((Kind.ALL_REDUCE, op), (Kind.REDUCE_SCATTER, op), (Kind.ALL_GATHER, None))
    for collective, reduces in used:
        assert context.capabilities is not None
        unable = context.capabilities.why_unable(collective, reduces, dtype)
        if unable is not None:
            return Observation(contract=contract, unsupported=f"{collective.value}: {unable}")
    cases = (
        (composition, size)
        for composition in compositions
        for size in context.plan.contracts.sizes
        if composition.why_refused(size, context.world_size, op) is None
    )
    return _check_all(contract, (_check(context, one, size, op, dtype, run_pooled) for one, size in cases))


def observe_compositions(context: Context) -> None:
    """One observation per composition and carrier: the sizes it takes, as SUM of int64 and MAX of float32."""
    for composition in COMPOSITIONS:
        for name, run in (("pooled", run_pooled_twice), ("owning", run_owned)):
            contract = f"composition/{composition.name}/{name}"
            if composition.symmetric:
                why = "reads peers' memory: proved and counted, not carried by tensors"
                context.observe(Observation(contract=contract, unsupported=why))
            else:
                context.observe(_check_all(contract, _conformance_cases(context, composition, run)))


Runner = Callable[[Context, Program, Tensor, Groups], Tensor]


def _conformance_cases(context: Context, composition: Composition, run: Runner) -> Iterator[tuple[int, int, str]]:
    n, own = context.world_size, composition.multiple_of(context.world_size)
    for op, dtype, sizes in (
        (ReduceOp.SUM, DType.INT64, {0, 1, n, n + 1, 7 * n, 1003, own, 3 * own}),
        (ReduceOp.MAX, DType.FLOAT32, {n + 1, 7 * n, 3 * own}),
    ):
        for size in sorted(sizes):
            if composition.why_refused(size, n, op) is None:
                yield _check(context, composition, size, op, dtype, run)


def run_pooled(context: Context, program: Program, mine: Tensor, groups: Groups) -> Tensor:
    """The result of `program` on buffers that are kept."""
    bound = Pooled(program, groups, dtype=mine.dtype, device=context.device)
    _run(bound, mine)
    return bound.result


def run_pooled_twice(context: Context, program: Program, mine: Tensor, groups: Groups) -> Tensor:
    """The result of the second run on the same buffers: what the first left behind must not show.

    The first is on other inputs, so that no element in between, of a SUM or MAX, is what the second has to put there.
    """
    bound = Pooled(program, groups, dtype=mine.dtype, device=context.device)
    _run(bound, mine + 1)
    _run(bound, mine)
    return bound.result


def _run(bound: Pooled, mine: Tensor) -> None:
    """Run on `mine`, with all bits of the result set before: memory that is new may hold what an earlier case left.

    No finite float and no bool has all bits set, and of integers not every one.
    """
    bound.result.view(torch.uint8).fill_(0xFF)
    bound.input.copy_(mine)
    bound()


def run_owned(context: Context, program: Program, mine: Tensor, groups: Groups) -> Tensor:  # noqa: ARG001
    """The result of `program` with its buffers allocated and freed."""
    return run_owning(program, mine.clone(), groups)


def _check(
    context: Context, composition: Composition, numel: int, op: ReduceOp, dtype: DType, run: Runner
) -> tuple[int, int, str]:
    """(elements checked, elements wrong, the first wrong one in words) of one composition at one size."""
    n, rank = context.world_size, context.rank
    programs = record_all(composition, world_size=n, numel=numel, op=op)
    mine = _input(context, composition, numel, op, dtype)
    want = _promised(composition, rank, n, numel, op, dtype)
    with Groups(programs) as groups:
        got = run(context, programs[rank], mine, groups)
        wrong, first = count_wrong(got, want, op, dtype, n)
    return len(want), wrong, first and f"{composition.name} at {numel} elements: {first}"


def _input(context: Context, composition: Composition, numel: int, op: ReduceOp, dtype: DType) -> Tensor:
    n, rank = context.world_size, context.rank
    if composition.target is not Kind.ALL_GATHER:
        return fill(op, dtype, n, rank, numel, context.device)
    mine = fill(op, dtype, n, rank, numel // n, context.device)
    if not composition.in_place:
        return mine
    full = torch.zeros(numel, dtype=mine.dtype, device=context.device)
    full[rank * (numel // n) : (rank + 1) * (numel // n)] = mine
    return full


def _promised(composition: Composition, rank: int, n: int, numel: int, op: ReduceOp, dtype: DType) -> list[complex]:
    """What the target collective promises this rank, from the exact oracle."""
    if composition.target is Kind.ALL_GATHER:
        count = COLLECTIVES[Kind.ALL_GATHER].count(numel, n)
        device = torch.device("cpu")
        return [value for source in range(n) for value in fill(op, dtype, n, source, count, device).tolist()]
    full = oracle(op, dtype, n, numel)
    if composition.target is Kind.REDUCE_SCATTER:
        q = COLLECTIVES[Kind.REDUCE_SCATTER].count(numel, n)
        return full[rank * q : (rank + 1) * q]
    return full


def _check_all(contract: str, checks: Iterable[tuple[int, int, str]]) -> Observation:
    """Run the checks and add them up. An exception here is a finding too: the backend said that it could do this."""
    num_checked = num_wrong = num_cases = 0
    first = ""
    try:
        for checked, wrong, what in checks:
            num_cases, num_checked, num_wrong = num_cases + 1, num_checked + checked, num_wrong + wrong
            first = first or what
    except (RuntimeError, RsagError) as error:
        num_wrong += 1
        first = first or f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return Observation(
        contract=contract,
        facts={"cases": num_cases, "checked": num_checked, "wrong": num_wrong, "first_wrong": first},
    )
