"""Inputs and expected results of timed cases: a short position-coded pattern, tiled, so that checking needs one chunk of memory.

The pattern's length is a prime: a shard that ends up in the wrong place starts at the wrong phase and differs in almost every element.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rsag.carriers.torch_types import torch_dtype
from rsag.collectives import Kind
from rsag.programs import Program
from rsag.rank.inputs import contribution, oracle
from rsag.reduction import DType, ReduceOp

PERIOD = 1009
CHUNK_PERIODS = 4096


class Tiles:
    """What `rank` contributes to, and expects of, a case; real dtypes only."""

    def __init__(self, op: ReduceOp, dtype: DType, world_size: int, device: torch.device) -> None:
        self._dtype, self._device = torch_dtype(dtype.value), device
        self._inputs = [
            [contribution(op, dtype, world_size, rank, element) for element in range(PERIOD)]
            for rank in range(world_size)
        ]
        self._reduced = [value.real for value in oracle(op, dtype, world_size, PERIOD)]

    def contributed(self, rank: int, numel: int) -> Tensor:
        """The first elements of `rank`'s input: at most a chunk, to be repeated."""
        return self._tile(self._inputs[rank], 0, numel)

    def promised(self, program: Program) -> list[tuple[int, int, Tensor]]:
        """What the result must hold: parts (start, stop, chunk to be repeated), by the target's postcondition."""
        n, q = program.world_size, program.numel // program.world_size
        if program.target is Kind.ALL_GATHER:
            return [(rank * q, (rank + 1) * q, self.contributed(rank, q)) for rank in range(n)]
        if program.target is Kind.REDUCE_SCATTER:
            return [(0, q, self._tile(self._reduced, program.rank * q, q))]
        return [(0, program.numel, self._tile(self._reduced, 0, program.numel))]

    def _tile(self, pattern: list[int] | list[float], phase: int, numel: int) -> Tensor:
        shift = phase % PERIOD
        turned = torch.tensor(pattern[shift:] + pattern[:shift], dtype=self._dtype, device=self._device)
        periods = min(CHUNK_PERIODS, -(-numel // PERIOD))
        return turned.repeat(periods)


class Pieces:
    """A tensor cut into pieces that a chunk is copied into or compared with: views made once, outside of any round."""

    def __init__(self, tensor: Tensor, chunk: Tensor) -> None:
        step = max(chunk.numel(), 1)
        pieces = [tensor[start : start + step] for start in range(0, tensor.numel(), step)]
        self._pairs = [(piece, chunk[: piece.numel()]) for piece in pieces]

    def fill(self) -> None:
        for piece, source in self._pairs:
            piece.copy_(source)

    def count_wrong(self, mask: Tensor, total: Tensor) -> None:
        """Add to `total`, on the device, the elements that differ; `mask` is a chunk of bool to work in."""
        for piece, wanted in self._pairs:
            differs = torch.ne(piece, wanted, out=mask[: piece.numel()])
            total.add_(differs.sum())
