"""One CUDA kernel, for one purpose: to compare a long result with a short pattern at the speed at which it can be read.

torch's own operations take two passes over what they compare, and reach a third of `torch.sum`'s bandwidth where this
reaches all of it (benchmarks/scan.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

VECTOR_BYTES = 16
_BLOCK = 256
_LARGEST_INT = 2**31 - 1
"""torch's launcher makes a C int of every Python int, and takes no notice of what is lost."""

# A thread keeps its part of the pattern in registers and runs down the result, so that the pattern is read once.
_SOURCE = r"""
extern "C" __global__ void count_differing(
    const uint4* got, const uint4* wanted, unsigned long long* total, int num_vectors, int period) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= period) return;
  uint4 want = wanted[column];
  unsigned int differing = 0;
  #pragma unroll 8
  for (long long i = column; i < num_vectors; i += period) {
    uint4 have = got[i];
    differing += (have.x != want.x) + (have.y != want.y) + (have.z != want.z) + (have.w != want.w);
  }
  if (differing) atomicAdd(total, (unsigned long long)differing);
}
"""


@functools.cache
def _kernel() -> Callable[..., None] | None:
    """The compiled kernel; None where this torch (before 2.9) cannot compile one, or has no NVRTC."""
    compiler = getattr(torch.cuda, "_compile_kernel", None)
    if compiler is None:
        return None
    try:
        kernel: Callable[..., None] = compiler(_SOURCE, "count_differing")
    except (RuntimeError, OSError):
        return None
    return kernel


def cut_in_vectors(num_bytes: int, pattern_bytes: int, *addresses: int) -> tuple[int, int] | None:
    """Vectors of a result and of the pattern that it repeats; None where the kernel cannot take them.

    Sizes and addresses must be multiples of 16 bytes. Vectors and threads must be countable in a C int: below 32 GiB.
    """
    period_bytes = min(num_bytes, pattern_bytes)
    if not num_bytes or any(number % VECTOR_BYTES for number in (num_bytes, period_bytes, *addresses)):
        return None
    num_vectors, period = num_bytes // VECTOR_BYTES, period_bytes // VECTOR_BYTES
    if max(num_vectors, _num_blocks(period) * _BLOCK) > _LARGEST_INT:
        return None
    return num_vectors, period


def _num_blocks(period: int) -> int:
    return -(-period // _BLOCK)


def comparer(result: Tensor, pattern: Tensor) -> Callable[[Tensor], None] | None:
    """A call that adds to a count the 4-byte words of `result` that differ from the repeated `pattern`.

    None where the kernel does not apply: no CUDA, no compiler, or memory that it cannot take (`cut_in_vectors`).
    """
    if result.device.type != "cuda":
        return None
    cut = cut_in_vectors(result.nbytes, pattern.nbytes, result.data_ptr(), pattern.data_ptr())
    if cut is None:
        return None
    kernel = _kernel()
    if kernel is None:
        return None
    num_vectors, period = cut
    grid = (_num_blocks(period), 1, 1)

    def compare(total: Tensor) -> None:
        arguments: list[Any] = [result, pattern, total, num_vectors, period]
        kernel(grid=grid, block=(_BLOCK, 1, 1), args=arguments)

    return compare
