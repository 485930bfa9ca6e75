"""Ranks agree on what they are about to do before they do it.

No layer below carries the reduction operator across ranks: SUM on one and PRODUCT on another passes silently on Gloo
and NCCL alike, and different sizes crash or hang.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rsag.carriers.torch_api import api
from rsag.errors import AgreementError
from rsag.reduction import DType, ReduceOp

_OPS, _DTYPES = tuple(ReduceOp), tuple(DType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What one rank is about to reduce."""

    op: ReduceOp
    dtype: DType
    numel: int


def agree(intent: Intent, group: Any = None, device: torch.device | str = "cpu") -> None:
    """Return when all ranks of `group` have the same `intent`; else raise AgreementError on all, before any call.

    One gather of three integers; `device` is one that the group's backend carries.
    """
    torch_api = api()
    ranks = torch_api.group_ranks(group)
    mine = torch.tensor(
        [_OPS.index(intent.op), _DTYPES.index(intent.dtype), intent.numel], dtype=torch.int64, device=device
    )
    gathered = torch.empty(3 * len(ranks), dtype=torch.int64, device=device)
    torch_api.all_gather(gathered, mine, group, False)
    rows = [tuple(row) for row in gathered.view(-1, 3).tolist()]
    if len(set(rows)) == 1:
        return
    intents = {
        rank: Intent(op=_OPS[op], dtype=_DTYPES[dtype], numel=numel) for rank, (op, dtype, numel) in zip(ranks, rows)
    }
    differing = [
        field for field in ("op", "dtype", "numel") if len({getattr(one, field) for one in intents.values()}) > 1
    ]
    raise AgreementError(
        f"ranks disagree on {' and '.join(differing)}",
        got=", ".join(f"rank {rank}: {one.op.value} {one.dtype.value} x {one.numel}" for rank, one in intents.items()),
        expected="one operator, dtype and size on all ranks",
        do="nothing was sent; find the rank whose call differs",
    )
