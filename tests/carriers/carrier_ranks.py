"""What four real ranks do with groups and agreements. Imported in ranks only, by name."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rsag.carriers.agreement import Intent, agree
from rsag.carriers.groups import Groups
from rsag.carriers.owning import run_owning
from rsag.carriers.pooled import Pooled
from rsag.carriers.torch_api import api
from rsag.compositions import find
from rsag.errors import AgreementError
from rsag.programs import record_all
from rsag.reduction import DType, ReduceOp

NUM_ROUNDS = 20


def main(arguments: Sequence[str]) -> None:
    """Leaves what this rank saw in the directory named."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ["RSAG_STORE"], world_size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    seen = {
        "open files": _open_files(rank, world_size),
        "consumed": _consumed(rank, world_size),
        "base group": _base_group(rank),
        "disagreements": _disagreements(rank),
    }
    (Path(arguments[0]) / f"rank-{rank:04d}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


def _open_files(rank: int, world_size: int) -> list[int]:
    """Open file descriptors after each round of making, using and closing the four subgroups of two_level."""
    programs = record_all(find("two_level"), world_size=world_size, numel=8, op=ReduceOp.SUM)
    counts = []
    for _ in range(NUM_ROUNDS):
        with Groups(programs) as groups:
            bound = Pooled(programs[rank], groups, dtype=torch.int64)
            bound.input.fill_(rank)
            bound()
            assert bound.result.tolist() == [6] * 8
            del bound
        counts.append(len(os.listdir("/proc/self/fd")))
    return counts


def _consumed(rank: int, world_size: int) -> dict[str, Any]:
    programs = record_all(find("rs_ag_early_release"), world_size=world_size, numel=8, op=ReduceOp.SUM)
    given = torch.arange(8) + 100 * rank
    with Groups(programs) as groups:
        result = run_owning(programs[rank], given, groups)
    return {"result": result.tolist(), "left": given.untyped_storage().nbytes()}


def _base_group(rank: int) -> dict[str, list[int]]:
    """In a group of ranks 3 and 1, in this order: program rank i is the i-th of them, also as a root and as a peer."""
    base = api().new_group([3, 1])
    if rank not in (1, 3):
        return {}
    results = {}
    for name in ("reduce_scatter", "reduce_broadcast", "ring_all_reduce"):
        programs = record_all(find(name), world_size=2, numel=4, op=ReduceOp.SUM)
        with Groups(programs, base) as groups:
            results[name] = run_owning(programs[groups.rank], torch.arange(4) + 100 * rank, groups).tolist()
    dist.destroy_process_group(base)
    return results


def _disagreements(rank: int) -> dict[str, str]:
    usual: dict[str, Any] = {"op": ReduceOp.SUM, "dtype": DType.FLOAT32, "numel": 64}
    odd: dict[str, dict[str, Any]] = {
        "none": {},
        "op": {"op": ReduceOp.PRODUCT},
        "dtype": {"dtype": DType.INT32},
        "numel": {"numel": 65},
        "op and numel": {"op": ReduceOp.MAX, "numel": 0},
    }
    texts = {name: _text_of(Intent(**usual | (change if rank == 2 else {}))) for name, change in odd.items()}
    pair = dist.new_group([1, 2])
    if rank in (1, 2):
        texts["in a group"] = _text_of(Intent(**usual | (odd["op"] if rank == 2 else {})), pair)
    return texts


def _text_of(intent: Intent, group: Any = None) -> str:
    try:
        agree(intent, group)
    except AgreementError as error:
        return str(error)
    return ""
