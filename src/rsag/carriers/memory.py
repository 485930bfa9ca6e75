"""Where the tensors of a bound program lie: torch's allocator, or memory that NCCL knows beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from rsag.carriers.torch_api import api

ALIGNMENT_BYTES = 512
"""Where torch's caching allocator puts tensors as well."""


class Memory(Protocol):
    """Gives 1-D tensors, uninitialised, that are its own until it is closed."""

    def empty(self, numel: int, dtype: torch.dtype) -> Tensor: ...

    def close(self) -> None: ...


class Plain:
    """torch's caching allocator; `pad_bytes` are taken first and kept, so that the rest lies elsewhere each time."""

    def __init__(self, device: torch.device, pad_bytes: int = 0) -> None:
        self._device = device
        self._pad = torch.empty(pad_bytes, dtype=torch.uint8, device=device)

    def empty(self, numel: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(numel, dtype=dtype, device=self._device)

    def close(self) -> None:
        del self._pad


class Registered:
    """One piece of NCCL's own memory, registered with the communicators of `groups`; tensors are cut off it.

    `symmetric` registers it as a window as well, for which NCCL has kernels of its own. That is collective: all ranks
    ask for the same bytes in the same order, and a tensor lies at the same offset on each. One piece, since torch
    registers a pool piece by piece in an order of its own.

    `why_not_registered` says beforehand whether this torch can. Close it when the device is done with its tensors,
    and drop them: the memory goes back to the driver.
    """

    def __init__(
        self, num_bytes: int, groups: Sequence[Any], device: torch.device, *, symmetric: bool, pad_bytes: int = 0
    ) -> None:
        self._backends = [_backend(group, device) for group in groups]
        for group in groups:  # a communicator is made at its first call, and memory is registered with made ones
            api().all_reduce(torch.zeros(1, device=device), dist.ReduceOp.SUM, group, False)
        self._pool: Any = torch.cuda.MemPool(self._backends[0].mem_allocator)
        with torch.cuda.use_mem_pool(self._pool):
            self._piece = torch.empty(aligned(pad_bytes) + num_bytes, dtype=torch.uint8, device=device)
        for backend in self._backends:
            backend.register_mem_pool(self._pool, **({"symm": True} if symmetric else {}))
        self._used = aligned(pad_bytes)

    def empty(self, numel: int, dtype: torch.dtype) -> Tensor:
        start, self._used = self._used, self._used + aligned(numel * dtype.itemsize)
        assert self._used <= self._piece.numel(), "more tensors than the memory was made for"
        return self._piece[start : start + numel * dtype.itemsize].view(dtype)

    def close(self) -> None:
        torch.cuda.synchronize()
        for backend in self._backends:
            backend.deregister_mem_pool(self._pool)
        del self._piece, self._pool


def why_not_registered(*, symmetric: bool) -> str | None:
    """What this torch lacks to register memory with NCCL, or None: asked before anything is started."""
    backend = getattr(dist, "ProcessGroupNCCL", None)
    register = getattr(backend, "register_mem_pool", None)
    if register is None:
        return f"torch {torch.__version__} has no register_mem_pool for NCCL"
    if symmetric and "symm" not in (register.__doc__ or ""):
        return f"torch {torch.__version__} registers no symmetric windows"
    return None


def aligned(num_bytes: int) -> int:
    """The bytes that a tensor of `num_bytes` takes in a `Registered` memory."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _backend(group: Any, device: torch.device) -> Any:
    whole: Any = dist.group.WORLD
    return (whole if group is None else group)._get_backend(device)
