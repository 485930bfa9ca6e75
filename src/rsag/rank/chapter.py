"""The chapter's contracts: what AllReduce = ReduceScatter + AllGather needs, and how each missing condition shows.

They call torch.distributed directly and write down what they see; the judge decides, on another day if need be, from
these values alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rsag.carriers.torch_api import api
from rsag.layout import ShardLayout
from rsag.rank.context import Context
from rsag.records.contracts import SENTINEL, Observation
from rsag.records.plan import Planted
from rsag.reduction import DType, rounding_bound

MOOT_ON_ONE_RANK = {
    "wrong-shard-order-rejected": "there is no other order",
    "wrong-reduction-op-rejected": "every operator gives its input",
    "nondivisible-without-padding-rejected": "every size divides",
}


def observe_chapter(context: Context) -> None:
    """Observe all six, in the chapter's order."""
    context.observe(_exact_sum(context))
    if context.world_size == 1:
        for contract, why in MOOT_ON_ONE_RANK.items():
            context.observe(Observation(contract=contract, unsupported=f"on one rank {why}"))
    else:
        context.observe(_wrong_shard_order(context))
        context.observe(_wrong_op(context))
    context.observe(_padding(context))
    if context.world_size > 1:
        context.observe(_no_padding(context))
    context.observe(_float_sum(context))


def _ints(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(value) for value in tensor.tolist())


def _chapter_input(context: Context, numel: int) -> Tensor:
    """x_i = 100 r + i."""
    return torch.arange(numel, dtype=torch.int64, device=context.device) + 100 * context.rank


def _all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
    reduced = tensor.clone()
    api().all_reduce(reduced, op, None, False)
    return reduced


def _scatter_gather(context: Context, full: Tensor, op: Any = dist.ReduceOp.SUM) -> tuple[Tensor, Tensor]:
    """This rank's shard, and the shards of all gathered."""
    shard = torch.full((full.numel() // context.world_size,), SENTINEL, dtype=full.dtype, device=full.device)
    gathered = torch.full_like(full, SENTINEL)
    api().reduce_scatter(shard, full, op, None, False)
    api().all_gather(gathered, shard, None, False)
    return shard, gathered


def _exact_sum(context: Context) -> Observation:
    full = _chapter_input(context, context.plan.contracts.exact_numel)
    direct = _all_reduce(full)
    shard, gathered = _scatter_gather(context, full)
    return Observation(
        contract="exact-sum-equivalence",
        values={"direct": _ints(direct), "shard": _ints(shard), "gathered": _ints(gathered)},
    )


def _wrong_shard_order(context: Context) -> Observation:
    full = _chapter_input(context, context.plan.contracts.exact_numel)
    shard, gathered = _scatter_gather(context, full)
    if Planted.SHARD_ORDER in context.plan.contracts.planted:
        gathered = gathered.reshape(context.world_size, -1).roll(1, dims=0).reshape(-1)
    return Observation(
        contract="wrong-shard-order-rejected", values={"shard": _ints(shard), "gathered": _ints(gathered)}
    )


def _wrong_op(context: Context) -> Observation:
    full = _chapter_input(context, context.plan.contracts.exact_numel)
    planted = Planted.REDUCTION_OP in context.plan.contracts.planted
    _, gathered = _scatter_gather(context, full, dist.ReduceOp.MAX if planted else dist.ReduceOp.SUM)
    return Observation(contract="wrong-reduction-op-rejected", values={"gathered": _ints(gathered)})


def _padding(context: Context) -> Observation:
    layout = ShardLayout(context.plan.contracts.padded_numel, context.world_size)
    full = _chapter_input(context, layout.numel)
    direct = _all_reduce(full)
    padded = torch.zeros(layout.padded_numel, dtype=full.dtype, device=full.device)
    padded[: layout.numel] = full
    shard, gathered = _scatter_gather(context, padded)
    return Observation(
        contract="padding-and-trim-equivalence",
        values={"direct": _ints(direct), "shard": _ints(shard), "gathered": _ints(gathered)},
    )


def _no_padding(context: Context) -> Observation:
    """The size check of the backend itself: nothing may be sent, and the group must be as good as before."""
    layout = ShardLayout(context.plan.contracts.padded_numel, context.world_size)
    planted = Planted.NO_PADDING in context.plan.contracts.planted
    full = _chapter_input(context, layout.numel if planted else layout.padded_numel)
    shard_numel = layout.numel // context.world_size if planted else layout.shard_numel
    shard = torch.full((shard_numel,), SENTINEL, dtype=full.dtype, device=full.device)
    facts: dict[str, str | int | float | bool] = {"raised": False, "input": full.numel(), "output": shard_numel}
    try:
        api().reduce_scatter(shard, full, dist.ReduceOp.SUM, None, False)
    except Exception as error:  # noqa: BLE001 - whatever the backend raises is what we are here to see
        facts |= {"raised": True, "exception": type(error).__name__, "text": str(error).split("\n")[0]}
    after = _all_reduce(_chapter_input(context, context.plan.contracts.exact_numel))
    return Observation(
        contract="nondivisible-without-padding-rejected",
        values={"shard": _ints(shard), "next": _ints(after)},
        facts=facts,
    )


def _float_sum(context: Context) -> Observation:
    """One AllReduce, the same in pieces, and ReduceScatter + AllGather, against a float64 sum of all inputs."""
    plan = context.plan.contracts
    numel = plan.float_numel // context.world_size * context.world_size
    inputs = [_random(context.plan.seed, rank, numel) for rank in range(context.world_size)]
    exact = torch.stack(inputs).to(torch.float64).sum(dim=0)
    factor = rounding_bound(context.world_size, DType.FLOAT32)
    bound = factor * torch.stack(inputs).abs().to(torch.float64).sum(dim=0)
    mine = inputs[context.rank].to(context.device)
    whole = _all_reduce(mine)
    pieces = torch.cat([_all_reduce(piece) for piece in mine.chunk(plan.float_chunks)])
    _, gathered = _scatter_gather(context, mine)

    def worst(reduced: Tensor) -> int:
        return int(((reduced.cpu().to(torch.float64) - exact).abs() > bound).sum())

    def differing(reduced: Tensor) -> int:
        return int((reduced.view(torch.int32) != whole.view(torch.int32)).sum())

    return Observation(
        contract="float-sum-within-bound-not-bitwise",
        facts={
            "numel": numel,
            "chunks": plan.float_chunks,
            "whole_beyond_bound": worst(whole),
            "chunked_beyond_bound": worst(pieces),
            "rs_ag_beyond_bound": worst(gathered),
            "chunked_differing_bits": differing(pieces),
            "rs_ag_differing_bits": differing(gathered),
        },
    )


def _random(seed: int, rank: int, numel: int) -> Tensor:
    """Any rank's random input, made on any rank: the oracle needs no communication."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + rank)
    return torch.randn(numel, generator=generator, dtype=torch.float32)
