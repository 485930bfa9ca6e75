"""Where hand-written code goes wrong: subgroups, layouts of tensors, and ranks that do not agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from rsag.carriers.agreement import Intent, agree
from rsag.carriers.groups import Groups
from rsag.carriers.owning import run_owning
from rsag.carriers.torch_api import api
from rsag.compositions import find
from rsag.errors import AgreementError, UnsupportedError
from rsag.programs import record_all
from rsag.rank.context import Context
from rsag.records.contracts import Observation
from rsag.reduction import DType, ReduceOp

SHARD_NUMEL = 3


def observe_edges(context: Context) -> None:
    for name, ranks in _subgroups(context.world_size):
        observation = _observe_subgroup(context, name, ranks)
        if observation is not None:
            context.observe(observation)
    for name, make in _LAYOUTS.items():
        context.observe(_observe_layout(context, name, make))
    context.observe(_observe_shared_elements(context))
    for name, intent in _INTENTS.items():
        context.observe(_observe_disagreement(context, name, intent))


# --------------------------------------------------------------------------------------------------------- subgroups


def _subgroups(world_size: int) -> list[tuple[str, list[int]]]:
    """An offset group, and one whose ranks do not ascend: the owner of shard i is its i-th rank, not rank i."""
    if world_size < 3:
        return []
    offset = list(range(1, world_size))
    return [("subgroup/offset", offset), ("subgroup/unsorted", [*offset[1:], offset[0]])]


def _observe_subgroup(context: Context, name: str, ranks: Sequence[int]) -> Observation | None:
    """None for a rank outside: it makes the group, as all must, and observes nothing."""
    try:
        group = api().new_group(ranks)
    except UnsupportedError as error:
        return Observation(contract=name, unsupported=str(error)) if context.rank in ranks else None
    if context.rank not in ranks:
        return None
    numel = SHARD_NUMEL * len(ranks)
    full = torch.arange(numel, dtype=torch.int64, device=context.device) + 100 * context.rank
    shard = torch.zeros(SHARD_NUMEL, dtype=torch.int64, device=context.device)
    gathered = torch.zeros_like(full)
    api().reduce_scatter(shard, full, dist.ReduceOp.SUM, group, False)
    api().all_gather(gathered, shard, group, False)
    order = api().group_ranks(group)
    dist.destroy_process_group(group)
    return Observation(
        contract=name,
        values={
            "ranks": tuple(ranks),
            "order": tuple(order),
            "shard": tuple(shard.tolist()),
            "gathered": tuple(gathered.tolist()),
        },
    )


# ----------------------------------------------------------------------------------------------------------- layouts


def _strided(base: Tensor) -> Tensor:
    return base.view(-1, 2)[:, 0]


def _transposed(base: Tensor) -> Tensor:
    return base.view(2, -1).t()


def _zero_dim(base: Tensor) -> Tensor:
    return base[0]


_LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "layout/strided": _strided,
    "layout/transposed": _transposed,
    "layout/0-dim": _zero_dim,
}


def _observe_layout(context: Context, name: str, make: Callable[[Tensor], Tensor]) -> Observation:
    """A tensor that is no flat run of memory, reduced in place: its elements hold the sum, its gaps nothing new."""
    base = torch.arange(24, dtype=torch.int64, device=context.device) + 100 * context.rank
    tensor = make(base)
    untouched = make(torch.arange(24, device=context.device))
    programs = record_all(find("all_reduce"), world_size=context.world_size, numel=tensor.numel(), op=ReduceOp.SUM)
    with Groups(programs) as groups:
        run_owning(programs[context.rank], tensor, groups)
    return Observation(
        contract=name,
        values={
            "positions": tuple(untouched.reshape(-1).tolist()),
            "reduced": tuple(tensor.reshape(-1).tolist()),
            "base": tuple(base.tolist()),
        },
    )


def _observe_shared_elements(context: Context) -> Observation:
    """An expanded tensor has several elements in one number: no collective can write it, so it must be refused."""
    tensor = torch.zeros(1, dtype=torch.int64, device=context.device).expand(2)
    programs = record_all(find("all_reduce"), world_size=context.world_size, numel=tensor.numel(), op=ReduceOp.SUM)
    refused = ""
    try:
        with Groups(programs) as groups:
            run_owning(programs[context.rank], tensor, groups)
    except UnsupportedError as error:
        refused = str(error)
    return Observation(contract="layout/expanded-refused", facts={"refused": refused})


# --------------------------------------------------------------------------------------------------------- agreement


def _intent(odd: bool, **change: ReduceOp | DType | int) -> Intent:
    fields: dict[str, ReduceOp | DType | int] = {"op": ReduceOp.SUM, "dtype": DType.FLOAT32, "numel": 64}
    return Intent(**(fields | (change if odd else {})))  # type: ignore[arg-type]


_INTENTS: dict[str, Callable[[bool], Intent]] = {
    "operator": lambda odd: _intent(odd, op=ReduceOp.PRODUCT),
    "dtype": lambda odd: _intent(odd, dtype=DType.INT32),
    "numel": lambda odd: _intent(odd, numel=65),
}


def _observe_disagreement(context: Context, name: str, intent: Callable[[bool], Intent]) -> Observation:
    """Rank 0 is about to do something else: every rank must say so before anything is sent."""
    contract = f"disagreement/{name}-refused"
    if context.world_size == 1:
        return Observation(contract=contract, unsupported="one rank cannot disagree")
    refused = ""
    try:
        agree(intent(context.rank == 0), context.control)
    except AgreementError as error:
        refused = error.what
    agree(intent(False), context.control)
    return Observation(contract=contract, facts={"refused": refused})
