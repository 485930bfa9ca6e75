"""Identities leave every value alone, and what a dtype can hold exactly is what its bits say."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.errors import UnsupportedError
from rsag.reduction import DType, Family, ReduceOp, Repetition, identity, rounding_bound, why_undefined

PAIRS = [(op, dtype) for op in ReduceOp for dtype in DType]
DEFINED = [pair for pair in PAIRS if why_undefined(*pair) is None]

COMBINE: dict[ReduceOp, Callable[[Any, Any], Any]] = {
    ReduceOp.SUM: operator.add,
    ReduceOp.AVG: operator.add,  # before the one division
    ReduceOp.PRODUCT: operator.mul,
    ReduceOp.MIN: min,
    ReduceOp.MAX: max,
    ReduceOp.BAND: operator.and_,
    ReduceOp.BOR: operator.or_,
    ReduceOp.BXOR: operator.xor,
}


def combine(op: ReduceOp, dtype: DType, left: Any, right: Any) -> Any:
    """`op` in Python's arithmetic; on bool SUM is `or` and PRODUCT `and`."""
    combined = COMBINE[op](left, right)
    return bool(combined) if dtype.family is Family.BOOL else combined


def values(dtype: DType) -> st.SearchStrategy[Any]:
    if dtype.family is Family.BOOL:
        return st.booleans()
    if dtype.family is Family.FLOAT:
        return st.floats(width=32 if dtype is not DType.FLOAT64 else 64, allow_nan=False)
    if dtype.family is Family.COMPLEX:
        return st.complex_numbers(allow_nan=False, allow_infinity=False)
    return st.integers(dtype.smallest, dtype.largest_exact_int)


@given(st.data(), st.sampled_from(DEFINED))
def test_the_identity_is_neutral_on_either_side(data: st.DataObject, pair: tuple[ReduceOp, DType]) -> None:
    op, dtype = pair
    value, neutral = data.draw(values(dtype)), identity(op, dtype)
    assert (value, value) == (combine(op, dtype, value, neutral), combine(op, dtype, neutral, value))


@pytest.mark.parametrize(("op", "dtype"), DEFINED, ids=lambda value: value.value)
def test_an_integer_identity_fits_its_dtype(op: ReduceOp, dtype: DType) -> None:
    neutral = identity(op, dtype)
    if dtype.family in (Family.SIGNED, Family.UNSIGNED):
        assert isinstance(neutral, int)
        assert dtype.smallest <= neutral <= dtype.largest_exact_int
    else:
        assert isinstance(neutral, bool if dtype.family is Family.BOOL else float)


@pytest.mark.parametrize(("op", "dtype"), PAIRS, ids=lambda value: value.value)
def test_what_is_undefined_has_no_identity(op: ReduceOp, dtype: DType) -> None:
    if why_undefined(op, dtype) is None:
        assert identity(op, dtype) is not None
    else:
        with pytest.raises(UnsupportedError, match=why_undefined(op, dtype)):
            identity(op, dtype)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (ReduceOp.MIN, DType.COMPLEX64),
        (ReduceOp.MAX, DType.COMPLEX128),
        (ReduceOp.BAND, DType.FLOAT32),
        (ReduceOp.BXOR, DType.COMPLEX64),
        (ReduceOp.AVG, DType.INT32),
        (ReduceOp.AVG, DType.BOOL),
    ],
)
def test_operators_without_meaning_say_why(op: ReduceOp, dtype: DType) -> None:
    assert why_undefined(op, dtype)


@given(st.data(), st.sampled_from([pair for pair in DEFINED if pair[0].zero_is_identity]))
def test_zero_is_harmless_where_it_is_said_to_be(data: st.DataObject, pair: tuple[ReduceOp, DType]) -> None:
    op, dtype = pair
    value = data.draw(values(dtype))
    assert value == combine(op, dtype, value, False if dtype.family is Family.BOOL else 0)


@pytest.mark.parametrize("op", [op for op in ReduceOp if not op.zero_is_identity])
def test_zero_harms_where_it_is_not(op: ReduceOp) -> None:
    assert any(combine(op, DType.INT8, value, 0) != value for value in (-3, 3))


@given(st.sampled_from([op for op in ReduceOp if op is not ReduceOp.AVG]), st.integers(2, 127))
def test_repetition_is_what_reducing_twice_does(op: ReduceOp, value: int) -> None:
    twice = COMBINE[op](value, value)
    expected = {Repetition.ABSORBED: twice == value, Repetition.CANCELS: twice == 0}
    assert expected.get(op.repetition, twice not in (0, value))


@pytest.mark.parametrize(
    ("dtype", "itemsize", "eps", "largest"),
    [
        (DType.BOOL, 1, None, 1),
        (DType.UINT8, 1, None, 255),
        (DType.INT8, 1, None, 127),
        (DType.INT16, 2, None, 2**15 - 1),
        (DType.INT32, 4, None, 2**31 - 1),
        (DType.INT64, 8, None, 2**63 - 1),
        (DType.FLOAT16, 2, 2.0**-10, 2048),
        (DType.BFLOAT16, 2, 2.0**-7, 256),
        (DType.FLOAT32, 4, 2.0**-23, 2**24),
        (DType.FLOAT64, 8, 2.0**-52, 2**53),
        (DType.COMPLEX64, 8, 2.0**-23, 2**24),
        (DType.COMPLEX128, 16, 2.0**-52, 2**53),
    ],
    ids=lambda value: value.value if isinstance(value, DType) else None,
)
def test_sizes_gaps_and_exact_integers(dtype: DType, itemsize: int, eps: float | None, largest: int) -> None:
    assert (itemsize, eps, largest) == (dtype.itemsize, dtype.eps, dtype.largest_exact_int)


def test_float16_is_exact_up_to_its_largest_exact_int_and_not_beyond() -> None:
    def held(value: int) -> bool:
        return bool(struct.unpack("e", struct.pack("e", float(value)))[0] == value)

    largest = DType.FLOAT16.largest_exact_int
    assert (all(held(value) for value in range(largest + 1)), held(largest + 1)) == (True, False)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.family in (Family.SIGNED, Family.UNSIGNED)])
def test_an_integer_dtype_has_as_many_values_as_its_bits_allow(dtype: DType) -> None:
    assert 2 ** (8 * dtype.itemsize) == dtype.largest_exact_int - dtype.smallest + 1


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=16))
def test_any_order_of_summing_stays_within_the_rounding_bound(numbers: list[float]) -> None:
    forward, exact = sum(numbers), math.fsum(numbers)
    assert abs(forward - exact) <= rounding_bound(len(numbers), DType.FLOAT64) * sum(map(abs, numbers))


@pytest.mark.parametrize("dtype", [DType.INT32, DType.BOOL])
def test_exact_arithmetic_has_no_rounding_bound(dtype: DType) -> None:
    assert rounding_bound(8, dtype) == 0
