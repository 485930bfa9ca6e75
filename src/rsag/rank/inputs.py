"""Position-coded inputs, exact in every dtype, and the oracle that reduces them without torch.

A constant in every element cannot see a rotation, a stale buffer or a strided view; here every (rank, element) has a
value of its own, small enough that no partial result rounds or overflows. On two ranks or more inputs are not the
reduced result either, so that a call that does nothing in place is seen: on some rank, at a tenth of the elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rsag.carriers.torch_types import torch_dtype
from rsag.interpreters.exact import fold
from rsag.reduction import DType, Family, ReduceOp


def contribution(op: ReduceOp, dtype: DType, world_size: int, rank: int, element: int) -> int:
    """What `rank` contributes at `element`; of a complex number the real part."""
    limit = dtype.largest_exact_int
    if dtype.family is Family.BOOL:
        if element % 5 in (0, 4):  # all ranks true, or none: else on many ranks AND and OR were constants
            return int(element % 5 == 0)
        return int((rank + element) % 3 == 0)
    if op is ReduceOp.PRODUCT:
        return 2 if rank < 5 and (element >> rank) % 2 else 1  # no two ranks in step: else the product is constant
    if op in (ReduceOp.SUM, ReduceOp.AVG):
        if limit <= world_size**2:  # too few values for all ranks: 0 or 1 each, so that the sum is `ones`
            ones = element % (min(limit, world_size) + 1)
            return int((rank + 3 * element) % world_size < ones)
        return (3 * rank + element) % min(limit // world_size, 1000)
    if op.is_bitwise:
        return (37 * rank + 11 * element + 1) % (min(limit, 1023) + 1)
    code = (7 * rank + 5 * element) % (min(limit, 200) + 1)
    return code if dtype.family is Family.UNSIGNED else code - min(limit, 200) // 2


def imaginary(op: ReduceOp, dtype: DType, rank: int, element: int) -> int:
    """The imaginary part of what `rank` contributes: 0 but for sums of complex numbers."""
    is_complex = dtype.family is Family.COMPLEX and op is not ReduceOp.PRODUCT
    return (rank + 2 * element) % 50 if is_complex else 0


def fill(op: ReduceOp, dtype: DType, world_size: int, rank: int, numel: int, device: torch.device) -> Tensor:
    """`rank`'s input, 1-D."""
    values: list[complex] = [contribution(op, dtype, world_size, rank, element) for element in range(numel)]
    if dtype.family is Family.COMPLEX:
        values = [complex(value.real, imaginary(op, dtype, rank, element)) for element, value in enumerate(values)]
    return torch.tensor(values, dtype=torch_dtype(dtype.value), device=device)


def oracle(op: ReduceOp, dtype: DType, world_size: int, numel: int) -> list[complex]:
    """What every rank must find, exactly, by Python's integers: independent of torch and of every composition."""
    if dtype.family is Family.BOOL:
        op = {ReduceOp.SUM: ReduceOp.BOR, ReduceOp.PRODUCT: ReduceOp.BAND}.get(op, op)
    reduced: list[complex] = []
    for element in range(numel):
        real = fold(op, [contribution(op, dtype, world_size, rank, element) for rank in range(world_size)])
        unreal = fold(op, [imaginary(op, dtype, rank, element) for rank in range(world_size)])
        reduced.append(complex(float(real), float(unreal)) if dtype.family is Family.COMPLEX else float(real))
    return reduced


def count_wrong(got: Tensor, want: Sequence[complex], op: ReduceOp, dtype: DType, world_size: int) -> tuple[int, str]:
    """How many elements differ from the oracle, and the first in words; an average may round, nothing else may."""
    wide = torch.complex128 if dtype.family is Family.COMPLEX else torch.float64
    wanted = torch.tensor(list(want), dtype=wide)
    found = got.detach().cpu()
    if found.dtype is torch.bool:  # torch prints a stored 2 as True; only 0 and 1 are bools
        found = found.view(torch.uint8)
    found = found.to(wide)
    if found.numel() != wanted.numel():
        return max(found.numel(), wanted.numel()), f"{found.numel()} elements instead of {wanted.numel()}"
    slack = world_size * (dtype.eps or 0.0) if op is ReduceOp.AVG else 0.0
    wrong = (found - wanted).abs() > slack * wanted.abs()
    wrong |= found.isnan()
    count = int(wrong.sum())
    if not count:
        return 0, ""
    first = int(wrong.nonzero()[0])
    return count, f"element {first} is {found[first].item()}, not {wanted[first].item()}"
