"""Our names of operators and dtypes in torch's terms, and what an operator does to two tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from rsag.errors import ProgramError, UnsupportedError, unknown_name
from rsag.reduction import DType, ReduceOp, Scalar, identity, why_undefined

TorchReduceOp = dist.ReduceOp | dist.ReduceOp.RedOpType
Combine = Callable[[Tensor, Tensor], object]

# Our names are torch's, so the tables follow ours and cannot lag behind.
_OPERATORS = {op.value: getattr(dist.ReduceOp, op.name) for op in ReduceOp}
_DTYPES: dict[str, torch.dtype] = {dtype.value: getattr(torch, dtype.value) for dtype in DType}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def torch_op(name: str) -> dist.ReduceOp.RedOpType:
    """torch's operator of this name. Raises UsageError, with the nearest names, where there is none."""
    if name not in _OPERATORS:
        raise unknown_name("operator", name, _OPERATORS)
    op: dist.ReduceOp.RedOpType = _OPERATORS[name]
    return op


def op_name(op: TorchReduceOp) -> str:
    """Our name of torch's operator. Raises UnsupportedError for one that we do not carry, such as PREMUL_SUM."""
    for name, known in _OPERATORS.items():
        if op == known:  # not a dictionary: ReduceOp(SUM) equals SUM from the left side only
            return name
    raise UnsupportedError("an operator that no composition carries", got=op, expected=", ".join(_OPERATORS))


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype of this name. Raises UsageError, with the nearest names, where there is none."""
    if name not in _DTYPES:
        raise unknown_name("dtype", name, _DTYPES)
    return _DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of torch's dtype. Raises UnsupportedError for one that we do not carry, such as float8_e4m3fn."""
    if dtype not in _DTYPE_NAMES:
        raise UnsupportedError("a dtype that no composition carries", got=dtype, expected=", ".join(_DTYPES))
    return _DTYPE_NAMES[dtype]


def identity_of(op: str, dtype: torch.dtype) -> Scalar:
    """What to fill a tensor of `dtype` with so that `op` leaves every contribution as it is."""
    torch_op(op)
    return identity(ReduceOp(op), DType(dtype_name(dtype)))


def combiner(op: str, dtype: torch.dtype) -> Combine:
    """The function of (dst, src) that reduces `src` into `dst`, in place and without allocating.

    It is looked up once and then called in the timed path: both tensors have `dtype` and one shape, unchecked.
    SUM and PRODUCT of bool are logical or and logical and, stored as 0 or 1; MIN and MAX carry a NaN on, which
    collectives need not. Raises ProgramError for AVG, UnsupportedError where `op` has no meaning on `dtype`.
    """
    torch_op(op)
    if op == ReduceOp.AVG:
        raise ProgramError("an average cannot be folded pairwise", got="avg", do="combine with sum, then scale once")
    reason = why_undefined(ReduceOp(op), DType(dtype_name(dtype)))
    if reason is not None:
        raise UnsupportedError(f"{op} cannot combine {dtype_name(dtype)}", do=reason)
    return _BOOL_COMBINERS[op] if dtype is torch.bool else _COMBINERS[op]


def combine_into(dst: Tensor, src: Tensor, op: str) -> None:
    """Reduce `src` into `dst` in place. Raises as `combiner`, and ProgramError where shapes or dtypes differ."""
    if (dst.shape, dst.dtype) != (src.shape, src.dtype):  # torch would broadcast, or convert
        raise ProgramError(
            "combine takes two tensors of one shape and dtype",
            got=f"{tuple(src.shape)} {src.dtype}",
            expected=f"{tuple(dst.shape)} {dst.dtype}",
        )
    combiner(op, dst.dtype)(dst, src)


def _minimum_into(dst: Tensor, src: Tensor) -> None:
    torch.minimum(dst, src, out=dst)


def _maximum_into(dst: Tensor, src: Tensor) -> None:
    torch.maximum(dst, src, out=dst)


_COMBINERS: dict[str, Combine] = {
    "sum": Tensor.add_,
    "product": Tensor.mul_,
    "min": _minimum_into,
    "max": _maximum_into,
    "band": Tensor.bitwise_and_,
    "bor": Tensor.bitwise_or_,
    "bxor": Tensor.bitwise_xor_,
}
_BOOL_COMBINERS: dict[str, Combine] = {
    "sum": Tensor.logical_or_,
    "product": Tensor.logical_and_,
    "min": Tensor.logical_and_,
    "max": Tensor.logical_or_,
    "band": Tensor.logical_and_,
    "bor": Tensor.logical_or_,
    "bxor": Tensor.logical_xor_,
}
