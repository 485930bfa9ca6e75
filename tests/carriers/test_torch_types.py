"""Names of operators and dtypes go to torch and back, and combining two tensors means what the operator says."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from rsag.carriers.torch_types import (
    combine_into,
    combiner,
    dtype_name,
    identity_of,
    op_name,
    torch_dtype,
    torch_op,
)
from rsag.errors import ProgramError, UnsupportedError, UsageError
from rsag.reduction import DType, ReduceOp, why_undefined

OPS = [op.value for op in ReduceOp]
DTYPES = [dtype.value for dtype in DType]
DEFINED = [
    (op.value, dtype.value)
    for op in ReduceOp
    for dtype in DType
    if op is not ReduceOp.AVG and why_undefined(op, dtype) is None
]


@pytest.mark.parametrize("name", OPS)
def test_an_operator_goes_to_torch_and_back(name: str) -> None:
    assert getattr(dist.ReduceOp, name.upper()) == torch_op(name)
    assert name == op_name(torch_op(name)) == op_name(dist.ReduceOp(torch_op(name)))


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_goes_to_torch_and_back(name: str) -> None:
    assert f"torch.{name}" == str(torch_dtype(name))
    assert name == dtype_name(torch_dtype(name))


def test_an_unknown_operator_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown operator; got 'prod'; did you mean product"):
        torch_op("prod")


def test_an_unknown_dtype_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown dtype; got 'float31'; did you mean float32"):
        torch_dtype("float31")


def test_what_no_composition_carries_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="PREMUL_SUM"):
        op_name(dist.ReduceOp.PREMUL_SUM)
    with pytest.raises(UnsupportedError, match=r"got torch\.float8_e4m3fn"):
        dtype_name(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("sum", [13, 8, -2]),
        ("product", [30, 12, -15]),
        ("min", [3, 2, -5]),
        ("max", [10, 6, 3]),
        ("band", [2, 2, 3]),
        ("bor", [11, 6, -5]),
        ("bxor", [9, 4, -8]),
    ],
)
def test_src_is_reduced_into_dst_and_left_as_it_is(op: str, expected: list[int]) -> None:
    dst, src = torch.tensor([10, 6, -5]), torch.tensor([3, 2, 3])
    address = dst.data_ptr()
    combine_into(dst, src, op)
    assert expected == dst.tolist()
    assert src.tolist() == [3, 2, 3]
    assert address == dst.data_ptr()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("sum", [0, 1, 1, 1]),
        ("product", [0, 0, 0, 1]),
        ("min", [0, 0, 0, 1]),
        ("max", [0, 1, 1, 1]),
        ("band", [0, 0, 0, 1]),
        ("bor", [0, 1, 1, 1]),
        ("bxor", [0, 1, 1, 0]),
    ],
)
@pytest.mark.parametrize("true_byte", [1, 2], ids=["clean", "as Gloo's SUM leaves it"])
def test_bools_are_combined_by_logic_and_stored_as_0_or_1(op: str, expected: list[int], true_byte: int) -> None:
    num_repeats = 64  # past the width of a vector register: torch's tail loop is other code
    dst = torch.tensor([0, 0, true_byte, true_byte] * num_repeats, dtype=torch.uint8)
    src = torch.tensor([0, true_byte, 0, true_byte] * num_repeats, dtype=torch.uint8)
    combine_into(dst.view(torch.bool), src.view(torch.bool), op)
    assert expected * num_repeats == dst.tolist()


@pytest.mark.parametrize(("op", "dtype"), DEFINED)
def test_a_tensor_filled_with_the_identity_changes_nothing(op: str, dtype: str) -> None:
    src = torch.tensor([0, 1, 1, 0]).to(torch_dtype(dtype))
    filled = torch.empty_like(src).fill_(identity_of(op, src.dtype))
    combine_into(filled, src, op)
    assert torch.equal(src, filled)


def test_the_combiner_is_torchs_own_method_where_there_is_one() -> None:
    assert torch.Tensor.add_ is combiner("sum", torch.float32)


def test_a_nan_is_carried_on_by_min_and_max() -> None:
    for op in ("min", "max"):
        dst, src = torch.tensor([1.0, float("nan")]), torch.tensor([float("nan"), 1.0])
        combine_into(dst, src, op)
        assert dst.isnan().all(), op


def test_an_average_is_not_folded_pairwise() -> None:
    with pytest.raises(ProgramError, match="cannot be folded pairwise; got avg; combine with sum"):
        combiner("avg", torch.float32)


@pytest.mark.parametrize(
    ("op", "dtype", "reason"),
    [("band", torch.float32, "bitwise"), ("max", torch.complex64, "no order")],
)
def test_an_operator_without_meaning_on_a_dtype_is_unsupported(op: str, dtype: torch.dtype, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        combiner(op, dtype)


@pytest.mark.parametrize("src", [torch.ones(1), torch.ones(2, dtype=torch.float64)], ids=["broadcast", "converted"])
def test_a_source_that_torch_would_bend_to_fit_is_refused(src: torch.Tensor) -> None:
    with pytest.raises(ProgramError, match="one shape and dtype"):
        combine_into(torch.ones(2), src, "sum")
