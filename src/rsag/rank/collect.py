"""Under torchrun there is no shared file system to rely on: files travel over the group to rank 0's directory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rsag.carriers.torch_api import api
from rsag.rank.process import Place


def collect(name: Callable[[Path, int], Path], out: Path, place: Place, control: Any) -> None:
    """Write into rank 0's `out` the files of all ranks that are not there already. Collective over `control`."""
    mine = name(out, place.rank).read_bytes()
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
        path = name(out, rank)
        if not path.exists():
            path.write_bytes(ctypes.string_at(everyone.data_ptr() + rank * longest, length))
