"""What the backend can do, tried: each collective x operator x dtype once, in a process that may be sacrificed.

Before each attempt a "trying" row is written, so that whoever reads the rows of a crashed process knows at what it
crashed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rsag.carriers.torch_api import api
from rsag.carriers.torch_types import torch_op
from rsag.collectives import Kind
from rsag.rank.inputs import count_wrong, fill, oracle
from rsag.records.capability import Ability, Attempt, Capability
from rsag.reduction import DType, ReduceOp, why_undefined


def attempts(dtypes: Sequence[DType] = tuple(DType)) -> list[Attempt]:
    """Everything worth trying, in one order on all ranks; what may crash comes last."""
    cases: list[tuple[Kind, ReduceOp | None, DType, str]] = [
        (collective, op, dtype, "1-D")
        for collective in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER)
        for op in ReduceOp
        for dtype in dtypes
        if why_undefined(op, dtype) is None
    ]
    cases += [(collective, None, dtype, "1-D") for collective in (Kind.ALL_GATHER, Kind.BROADCAST) for dtype in dtypes]
    cases += [
        (Kind.ALL_REDUCE, ReduceOp.SUM, DType.FLOAT32, "0-dim"),
        (Kind.ALL_GATHER, None, DType.FLOAT32, "0-dim"),
        (Kind.REDUCE_SCATTER, ReduceOp.SUM, DType.FLOAT32, "0-dim"),
    ]
    return [
        Attempt(index=index, collective=collective, op=op, dtype=dtype, shape=shape)
        for index, (collective, op, dtype, shape) in enumerate(cases)
    ]


def probe(
    todo: Sequence[Attempt],
    *,
    rank: int,
    world_size: int,
    device: torch.device,
    write: Callable[[Attempt | Capability], None],
) -> list[Capability]:
    """Try `todo` on the default group, writing a row before and after each."""
    found = []
    for attempt in todo:
        write(attempt)
        capability = _try(attempt, rank, world_size, device)
        write(capability)
        found.append(capability)
    return found


def _try(attempt: Attempt, rank: int, world_size: int, device: torch.device) -> Capability:
    ability, reason = Ability.SUPPORTED, ""
    try:
        wrong, first = _call(attempt, rank, world_size, device)
        if wrong:
            ability, reason = Ability.WRONG, f"ends with wrong values: {first}"
    except Exception as error:  # noqa: BLE001 - whatever the backend raises is what we are here to see
        text = str(error).strip().splitlines() or [""]
        ability, reason = Ability.REFUSED, f"{type(error).__name__}: {text[0]}"
    return Capability(
        collective=attempt.collective,
        op=attempt.op,
        dtype=attempt.dtype,
        shape=attempt.shape,
        ability=ability,
        reason=reason,
    )


def _call(attempt: Attempt, rank: int, world_size: int, device: torch.device) -> tuple[int, str]:
    """Make the call, and count the wrong elements of what it leaves."""
    op = attempt.op or ReduceOp.SUM
    q = 1 if attempt.shape == "0-dim" else 2
    numel = q * world_size
    full = fill(op, attempt.dtype, world_size, rank, numel, device)
    if attempt.collective is Kind.ALL_REDUCE:
        tensor = _shaped(full[:1] if attempt.shape == "0-dim" else full, attempt)
        api().all_reduce(tensor, torch_op(op.value), None, False)
        want = oracle(op, attempt.dtype, world_size, tensor.numel())
        return count_wrong(tensor.reshape(-1), want, op, attempt.dtype, world_size)
    if attempt.collective is Kind.REDUCE_SCATTER:
        shard = _shaped(torch.zeros(q, dtype=full.dtype, device=device), attempt)
        api().reduce_scatter(shard, full, torch_op(op.value), None, False)
        want = oracle(op, attempt.dtype, world_size, numel)[rank * q : (rank + 1) * q]
        return count_wrong(shard.reshape(-1), want, op, attempt.dtype, world_size)
    host = torch.device("cpu")
    sources = [fill(op, attempt.dtype, world_size, source, q, host).tolist() for source in range(world_size)]
    mine = _shaped(fill(op, attempt.dtype, world_size, rank, q, device), attempt)
    if attempt.collective is Kind.BROADCAST:
        api().broadcast(mine, 0, None, False)
        return count_wrong(mine.reshape(-1), sources[0], op, attempt.dtype, world_size)
    api().all_gather(full, mine, None, False)
    return count_wrong(full, [value for source in sources for value in source], op, attempt.dtype, world_size)


def _shaped(tensor: Tensor, attempt: Attempt) -> Tensor:
    return tensor.reshape(()) if attempt.shape == "0-dim" else tensor
