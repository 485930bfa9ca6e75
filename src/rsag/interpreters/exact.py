"""Values as exact integers (and fractions under AVG): the wide oracle, which neither rounds nor overflows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

from rsag.programs import IDENTITY
from rsag.reduction import ReduceOp

Number = int | Fraction
Cells = list[Number]

UNWRITTEN, RELEASED = -77_777_777, -99_999_999
"""What a program finds in memory that nobody wrote, or that was given back: something, as in reality."""

_FOLD: dict[ReduceOp, Callable[[Any, Any], Any]] = {
    ReduceOp.SUM: operator.add,
    ReduceOp.AVG: operator.add,
    ReduceOp.PRODUCT: operator.mul,
    ReduceOp.MIN: min,
    ReduceOp.MAX: max,
    ReduceOp.BAND: operator.and_,
    ReduceOp.BOR: operator.or_,
    ReduceOp.BXOR: operator.xor,
}

_IDENTITY: dict[ReduceOp, int] = {
    ReduceOp.SUM: 0,
    ReduceOp.AVG: 0,
    ReduceOp.PRODUCT: 1,
    ReduceOp.MIN: 1 << 62,
    ReduceOp.MAX: -(1 << 62),
    ReduceOp.BAND: -1,
    ReduceOp.BOR: 0,
    ReduceOp.BXOR: 0,
}
"""MIN's and MAX's stand in for the dtype's largest and smallest: inputs stay inside."""


def fold(op: ReduceOp, values: Sequence[Number]) -> Number:
    """The reduction of `values` under `op`, exactly; AVG divides once by how many there are."""
    total: Number = reduce(_FOLD[op], values)
    return Fraction(total, len(values)) if op is ReduceOp.AVG else total


class Exact:
    """The algebra of exact numbers under one operator; `contribution(rank, element)` gives the inputs.

    An `apply` adds one, whatever its name: a change that a composition cannot hide.
    """

    def __init__(self, op: ReduceOp, contribution: Callable[[int, int], Number]) -> None:
        self._identity, self._contribution = _IDENTITY[op], contribution

    def inputs(self, rank: int, numel: int) -> Cells:
        return [self._contribution(rank, element) for element in range(numel)]

    def unwritten(self, numel: int) -> Cells:
        return [UNWRITTEN] * numel

    def released(self, numel: int) -> Cells:
        return [RELEASED] * numel

    def constant(self, value: str | float, numel: int) -> Cells:
        return [self._identity if value == IDENTITY else int(value)] * numel

    def reduce(self, op: ReduceOp, columns: Sequence[Cells]) -> Cells:
        return [fold(op, row) for row in zip(*columns)]

    def apply(self, name: str, columns: Sequence[Cells]) -> Cells:  # noqa: ARG002 - an unknown function: any will do
        return [sum(row) + 1 for row in zip(*columns)]

    def why_unreadable(self, cells: Cells) -> str | None:  # noqa: ARG002 - it can be read, and what is in it is wrong
        return None
