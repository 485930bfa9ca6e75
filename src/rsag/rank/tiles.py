"""Inputs and expected results of timed cases: a short position-coded pattern, tiled, so that checking needs a chunk.

The pattern's length is a prime: a shard that ends up in the wrong place starts at the wrong phase and differs in many
elements. It takes the contributions at squares, for their own short periods (64 for bfloat16 sums of 4 ranks) divide
the sizes that people choose.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rsag.carriers.torch_types import torch_dtype
from rsag.collectives import Kind
from rsag.programs import Program
from rsag.rank.compare_kernel import comparer
from rsag.rank.inputs import contribution, oracle
from rsag.reduction import DType, ReduceOp

PERIOD = 1009
_SQUARES = [position * position % PERIOD for position in range(PERIOD)]


BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _chunk_bytes(device: torch.device) -> int:
    """About what stays in a cache while the result streams by, and enough to keep all threads busy."""
    return (16 << 20) if device.type == "cuda" else max(4, torch.get_num_threads()) << 20


def check_bytes(device: torch.device) -> int:
    """The most that filling and checking an arm keeps: a chunk to fill with, one to expect, one to compare in."""
    return 3 * _chunk_bytes(device)


class Tiles:
    """What `rank` contributes to, and expects of, a case; real dtypes only."""

    def __init__(self, op: ReduceOp, dtype: DType, world_size: int, device: torch.device) -> None:
        self._dtype, self._device = torch_dtype(dtype.value), device
        self._inputs = [
            [contribution(op, dtype, world_size, rank, element) for element in _SQUARES] for rank in range(world_size)
        ]
        reduced = [value.real for value in oracle(op, dtype, world_size, PERIOD)]
        self._reduced = [reduced[element] for element in _SQUARES]

    def contributed(self, rank: int, numel: int) -> Tensor:
        """The first elements of `rank`'s input: at most a chunk, to be repeated."""
        return self._tile(self._inputs[rank], 0, numel)

    def promised(self, program: Program) -> list[tuple[int, int, Tensor]]:
        """What the result must hold: parts (start, stop, chunk to be repeated), by the target's postcondition."""
        n, q = program.world_size, program.numel // program.world_size
        if program.target is Kind.ALL_GATHER:
            return [(rank * q, (rank + 1) * q, self._tile(self._inputs[rank], 0, q, share=n)) for rank in range(n)]
        if program.target is Kind.REDUCE_SCATTER:
            return [(0, q, self._tile(self._reduced, program.rank * q, q))]
        return [(0, program.numel, self._tile(self._reduced, 0, program.numel))]

    def _tile(self, pattern: list[int] | list[float], phase: int, numel: int, share: int = 1) -> Tensor:
        """As long as `numel` asks for and the `share`th part of a chunk allows, at least the pattern once."""
        shift = phase % PERIOD
        turned = torch.tensor(pattern[shift:] + pattern[:shift], dtype=self._dtype, device=self._device)
        most = _chunk_bytes(self._device) // share // (PERIOD * self._dtype.itemsize)
        periods = min(max(most // 16 * 16, 1), -(-numel // PERIOD))  # sixteens, so that chunks stay aligned
        return turned.repeat(periods)


class Pieces:
    """A tensor cut into pieces that a chunk is copied into or compared with: views made once, outside of any round.

    Floats are compared by value, so that -0.0 is 0.0 and NaN is wrong; all else by its bits, so that a stored 2 is not
    the bool 1. `comparer`'s kernel goes by the bits of floats too: there -0.0 is not 0.0, but no contribution is -0.0,
    and no reduction of others rounds to it.
    """

    def __init__(self, tensor: Tensor, chunk: Tensor) -> None:
        self._compare = comparer(tensor, chunk)
        bits = BITS[tensor.element_size()]
        self._bits = _cut(tensor.view(bits), chunk.view(bits))
        self._pairs = _cut(tensor, chunk) if tensor.is_floating_point() else self._bits
        self._on_host = tensor.device.type == "cpu"
        self._sums = torch.zeros(len(self._pairs), dtype=torch.int64, device=tensor.device)

    def fill(self) -> None:
        for piece, source in self._pairs:
            piece.copy_(source)

    def spoil(self) -> None:
        """Make every element wrong: the complement of what it should be, which in no dtype counts as right."""
        for piece, wanted in self._bits:
            torch.bitwise_not(wanted, out=piece)

    def count_wrong(self, scratch: Scratch, total: Tensor) -> None:
        """Add to `total` the elements (on a GPU: 4-byte words, perhaps) that differ; a GPU is not waited for."""
        if self._compare is not None:
            self._compare(total)
            return
        if self._on_host:
            for bits, (piece, wanted) in zip(self._bits, self._pairs):
                if scratch.differ(*bits):
                    total.add_((piece != wanted).sum())
            return
        for index, (piece, wanted) in enumerate(self._pairs):
            differs = torch.ne(piece, wanted, out=scratch.mask[: piece.numel()])
            torch.sum(differs, dim=0, out=self._sums[index])
        total.add_(self._sums.sum())


def _cut(tensor: Tensor, chunk: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The pieces of `tensor`, each with the part of `chunk` that belongs to it."""
    step = max(chunk.numel(), 1)
    pieces = [tensor[start : start + step] for start in range(0, tensor.numel(), step)]
    return [(piece, chunk[: piece.numel()]) for piece in pieces]


class Scratch:
    """One chunk of memory to compare in, reused by all pieces of an arm.

    On a CPU exclusive or and minimum-maximum are vectorised, which comparing into bools and summing them is not.
    """

    def __init__(self, numel: int, dtype: torch.dtype, device: torch.device) -> None:
        on_host = device.type == "cpu"
        self.mask = torch.empty(0 if on_host else numel, dtype=torch.bool, device=device)
        self._xor = torch.empty(numel if on_host else 0, dtype=BITS[dtype.itemsize])

    def differ(self, one: Tensor, other: Tensor) -> bool:
        """Whether two host tensors, seen as integers, differ in any bit."""
        xor = self._xor[: one.numel()]
        torch.bitwise_xor(one, other, out=xor)
        low, high = xor.aminmax()
        return bool(low) or bool(high)
