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


def comparer(result: Tensor, pattern: Tensor) -> Callable[[Tensor], None] | None:
    """A call that adds to a count the 4-byte words of `result` that differ from the repeated `pattern`.

    None where the kernel does not apply: no CUDA, no compiler, or memory that is not cut in vectors of 16 bytes.
    """
    if result.device.type != "cuda" or not result.numel():
        return None
    num_bytes, pattern_bytes = result.numel() * result.element_size(), pattern.numel() * pattern.element_size()
    period_bytes = min(num_bytes, pattern_bytes)
    cut = (num_bytes, period_bytes, result.data_ptr(), pattern.data_ptr())
    kernel = _kernel()
    if kernel is None or any(size % VECTOR_BYTES for size in cut):
        return None
    num_vectors, period = num_bytes // VECTOR_BYTES, period_bytes // VECTOR_BYTES
    grid = (-(-period // _BLOCK), 1, 1)

    def compare(total: Tensor) -> None:
        arguments: list[Any] = [result, pattern, total, num_vectors, period]
        kernel(grid=grid, block=(_BLOCK, 1, 1), args=arguments)

    return compare
