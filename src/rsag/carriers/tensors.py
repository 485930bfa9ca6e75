"""Which tensors may be handed to a collective: one dimension, contiguous, of a dtype we carry.

Backends do not refuse the rest, they fail on it: Gloo crashes on a 0-dim tensor in ReduceScatter and gives wrong
numbers for a strided column in AllReduce (torch 2.13).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rsag.carriers.torch_types import dtype_name
from rsag.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Flat:
    """A tensor as a collective may see it; `copied` says that `tensor` is a copy which must be copied back."""

    tensor: Tensor
    copied: bool

    def copy_back(self, into: Tensor) -> None:
        """Write the elements to where they came from."""
        if self.copied:
            into.copy_(self.tensor.view(into.shape))


def flatten(tensor: Tensor) -> Flat:
    """`tensor` as 1-D and contiguous: a view where that is possible, else a copy.

    Raises UnsupportedError for what no copy can mend: a dtype that no composition carries, a sparse or quantised
    layout, elements that share memory (an expanded tensor), a tensor that requires grad outside no_grad.
    """
    dtype_name(tensor.dtype)
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedError("not a dense tensor", got=tensor.layout, do="gather its values first")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise UnsupportedError("the tensor requires grad and would be changed in place", do="use no_grad or detach()")
    if _shares_elements(tensor):
        raise UnsupportedError(
            "several elements of the tensor are one number in memory",
            got=f"strides {tuple(tensor.stride())}",
            do="clone it first: the collective writes every element",
        )
    if tensor.is_contiguous():
        return Flat(tensor.view(-1), copied=False)
    return Flat(tensor.contiguous().view(-1), copied=True)


def _shares_elements(tensor: Tensor) -> bool:
    """Whether strides may map two indices to one address (sufficient: each stride reaches past all smaller ones)."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride < reach:
                return True
            reach += stride * (size - 1)
    return False
