"""Under torchrun there is no shared file system to rely on: rows travel over the group to rank 0's directory."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from rsag.carriers.torch_api import api
from rsag.rank.process import Place
from rsag.records.rundir import rank_file


def collect(out: Path, place: Place, control: Any) -> None:
    """Write into rank 0's `out` the rows of every rank that are not there already. Collective over `control`."""
    mine = rank_file(out, place.rank).read_bytes()
    size = torch.tensor([len(mine)], dtype=torch.int64)
    sizes = torch.empty(place.world_size, dtype=torch.int64)
    api().all_gather(sizes, size, control, False)
    longest = int(sizes.max())
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    everyone = torch.empty(longest * place.world_size, dtype=torch.uint8)
    api().all_gather(everyone, padded, control, False)
    if place.rank != 0:
        return
    for rank, length in enumerate(sizes.tolist()):
        path = rank_file(out, rank)
        if not path.exists():
            path.write_bytes(ctypes.string_at(everyone.data_ptr() + rank * longest, length))
