"""What each reduction operator means for each dtype: identity, repetition, exactness.

NaN policy: SUM and PRODUCT carry a NaN to every rank; under MIN and MAX backends differ (Gloo's answer depends on which
rank holds the NaN and on the chunk it falls into), so NaN is never compared between compositions.
"""

from __future__ import annotations

import math
from enum import Enum

from rsag.errors import UnsupportedError

Scalar = int | float | complex | bool


class Repetition(Enum):
    """What a contribution that is reduced twice does to the result."""

    COUNTS = "counts"  # SUM, PRODUCT, AVG: wrong
    ABSORBED = "absorbed"  # MIN, MAX, BAND, BOR: nothing
    CANCELS = "cancels"  # BXOR: it is gone


class ReduceOp(str, Enum):
    """The reduction operators, by NCCL's and torch's names in lower case."""

    SUM = "sum"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"
    AVG = "avg"

    @property
    def repetition(self) -> Repetition:
        if self in (ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR):
            return Repetition.ABSORBED
        return Repetition.CANCELS if self is ReduceOp.BXOR else Repetition.COUNTS

    @property
    def zero_is_identity(self) -> bool:
        """Whether padding with 0 is harmless whatever the dtype and the values."""
        return self in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.BOR, ReduceOp.BXOR)

    @property
    def is_bitwise(self) -> bool:
        return self in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


class Family(Enum):
    """The arithmetic family of a dtype."""

    BOOL = "bool"
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    FLOAT = "float"
    COMPLEX = "complex"


class DType(str, Enum):
    """The element types, by torch's names."""

    BOOL = "bool"
    UINT8 = "uint8"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"

    @property
    def family(self) -> Family:
        return _TRAITS[self][0]

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _TRAITS[self][1]

    @property
    def significand_bits(self) -> int | None:
        """Bits of the significand, the implicit one included; None for what is not floating point."""
        return _TRAITS[self][2]

    @property
    def eps(self) -> float | None:
        """The gap between 1 and the next number (of each component, if complex); None where arithmetic is exact."""
        bits = self.significand_bits
        return None if bits is None else 2.0 ** (1 - bits)

    @property
    def largest_exact_int(self) -> int:
        """The largest n such that every integer in [0, n], and so every partial sum up to n, is represented exactly."""
        if self.family is Family.BOOL:
            return 1
        bits = self.significand_bits
        if bits is not None:
            return int(2**bits)
        return int(2 ** (8 * self.itemsize - (self.family is Family.SIGNED)) - 1)

    @property
    def smallest(self) -> int:
        """The smallest value of an integer dtype."""
        return -(2 ** (8 * self.itemsize - 1)) if self.family is Family.SIGNED else 0


_TRAITS: dict[DType, tuple[Family, int, int | None]] = {
    DType.BOOL: (Family.BOOL, 1, None),
    DType.UINT8: (Family.UNSIGNED, 1, None),
    DType.INT8: (Family.SIGNED, 1, None),
    DType.INT16: (Family.SIGNED, 2, None),
    DType.INT32: (Family.SIGNED, 4, None),
    DType.INT64: (Family.SIGNED, 8, None),
    DType.FLOAT16: (Family.FLOAT, 2, 11),
    DType.BFLOAT16: (Family.FLOAT, 2, 8),
    DType.FLOAT32: (Family.FLOAT, 4, 24),
    DType.FLOAT64: (Family.FLOAT, 8, 53),
    DType.COMPLEX64: (Family.COMPLEX, 8, 24),
    DType.COMPLEX128: (Family.COMPLEX, 16, 53),
}


def why_undefined(op: ReduceOp, dtype: DType) -> str | None:
    """Why `op` has no meaning on `dtype`, or None where it has one. What a *backend* cannot do is another question."""
    family = dtype.family
    if family is Family.COMPLEX and op in (ReduceOp.MIN, ReduceOp.MAX):
        return "complex numbers have no order"
    if op.is_bitwise and family in (Family.FLOAT, Family.COMPLEX):
        return "bitwise operators are for integers and bool"
    if op is ReduceOp.AVG and family not in (Family.FLOAT, Family.COMPLEX):
        return "an average of integers is not an integer"
    return None


def identity(op: ReduceOp, dtype: DType) -> Scalar:
    """The value that `op` leaves every other value unchanged with, and so the only safe padding.

    AVG is a sum that is divided once by the number of ranks, never by a padded count: its identity is SUM's.
    Raises UnsupportedError where `op` has no meaning on `dtype`.
    """
    reason = why_undefined(op, dtype)
    if reason is not None:
        raise UnsupportedError(f"{op.value} has no identity on {dtype.value}", do=reason)
    family = dtype.family
    if family is Family.BOOL:
        return op in (ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.BAND)
    if op is ReduceOp.BAND:
        return -1 if family is Family.SIGNED else dtype.largest_exact_int
    if op is ReduceOp.PRODUCT:
        return 1 if family in (Family.SIGNED, Family.UNSIGNED) else 1.0
    if op in (ReduceOp.MIN, ReduceOp.MAX):
        if family is Family.FLOAT:
            return math.inf if op is ReduceOp.MIN else -math.inf
        return dtype.largest_exact_int if op is ReduceOp.MIN else dtype.smallest
    return 0 if family in (Family.SIGNED, Family.UNSIGNED) else 0.0


def rounding_bound(num_ranks: int, dtype: DType) -> float:
    """The factor of sum|x| within which any order of summing `num_ranks` numbers stays: (N-1) eps.

    Twice Higham's first-order bound (N-1) u sum|x| (Accuracy and Stability of Numerical Algorithms, section 4.2), since
    eps = 2u; 0 where the arithmetic is exact.
    """
    return (num_ranks - 1) * (dtype.eps or 0.0)
