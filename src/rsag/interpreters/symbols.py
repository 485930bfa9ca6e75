"""Values as symbols: what has been combined so far, in a normal form that forgets the order of combining.

Under SUM, PRODUCT and AVG a value is a multiset of contributions with weights; under MIN, MAX, BAND and BOR a set, for
a contribution reduced twice changes nothing; under BXOR a set in which twice is never. The operator's identity is the
empty one. Whatever the proof's operator does not explain (another operator, an `apply`, a constant that is no identity)
enters as one opaque contribution. Equal normal forms mean equal values up to the order of reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import cast

from rsag.programs import IDENTITY
from rsag.reduction import ReduceOp, Repetition

Weight = int | Fraction
Form = frozenset[tuple[int, Weight]]
Cells = list[int]

UNWRITTEN, RELEASED, EMPTY = -1, -2, 0
_LONGEST_NAME = 100


class Symbols:
    """The algebra of one operator. Values are small integers that stand for interned normal forms."""

    def __init__(self, op: ReduceOp) -> None:
        self.op = op
        self._names: list[str] = []
        self._atoms: dict[object, int] = {}
        self._forms: list[Form] = [frozenset()]
        self._values: dict[Form, int] = {frozenset(): EMPTY}
        self._reduced: dict[ReduceOp, dict[tuple[int, ...], int]] = {}
        self._inputs: dict[tuple[int, int], Cells] = {}

    # ------------------------------------------------------------------------------------------------ the algebra

    def inputs(self, rank: int, numel: int) -> Cells:
        cells = self._inputs.get((rank, numel))
        if cells is None:
            cells = [self._atom((rank, element), f"x[{rank}][{element}]") for element in range(numel)]
            self._inputs[rank, numel] = cells
        return list(cells)

    def unwritten(self, numel: int) -> Cells:
        return [UNWRITTEN] * numel

    def released(self, numel: int) -> Cells:
        return [RELEASED] * numel

    def constant(self, value: str | float, numel: int) -> Cells:
        return [EMPTY if self._is_identity(value) else self._atom(("constant", value), f"constant {value}")] * numel

    def reduce(self, op: ReduceOp, columns: Sequence[Cells]) -> Cells:
        if len(columns) == 1:
            return list(columns[0])
        memo = self._reduced.setdefault(op, {})
        cells = []
        for row in zip(*columns):
            value = memo.get(row)
            if value is None:
                value = memo[row] = self._reduce_row(op, row)
            cells.append(value)
        return cells

    def apply(self, name: str, columns: Sequence[Cells]) -> Cells:
        return [self._atom(("apply", name, row), self._applied(name, row)) for row in zip(*columns)]

    def why_unreadable(self, cells: Cells) -> str | None:
        if UNWRITTEN in cells:
            return "unwritten"
        return "released" if RELEASED in cells else None

    # ------------------------------------------------------------------------------------------------- for people

    def contributions(self, value: int) -> dict[str, Weight]:
        """What `value` is made of: a name such as x[rank][element] and how often (or with which weight) it is in."""
        if value < 0:
            return {"unwritten" if value == UNWRITTEN else "released": 1}
        return {self._names[atom]: weight for atom, weight in sorted(self._forms[value])}

    # ----------------------------------------------------------------------------------------------- normal forms

    def _is_identity(self, value: str | float) -> bool:
        if value == IDENTITY:
            return True
        return (value == 0 and self.op.zero_is_identity) or (value == 1 and self.op is ReduceOp.PRODUCT)

    def _atom(self, key: object, name: str) -> int:
        value = self._atoms.get(key)
        if value is None:
            self._names.append(name)
            value = self._atoms[key] = self._intern(frozenset({(len(self._names) - 1, 1)}))
        return value

    def _intern(self, form: Form) -> int:
        value = self._values.get(form)
        if value is None:
            value = self._values[form] = len(self._forms)
            self._forms.append(form)
        return value

    def _reduce_row(self, op: ReduceOp, row: tuple[int, ...]) -> int:
        if op is not self.op:
            return self._atom(("reduce", op, tuple(sorted(row))), f"{op.value}({self._brief(row)})")
        total: dict[int, Weight] = {}
        for value in row:
            for atom, weight in self._forms[value]:
                total[atom] = total.get(atom, 0) + weight
        if op.repetition is Repetition.ABSORBED:
            return self._intern(frozenset((atom, 1) for atom in total))
        if op.repetition is Repetition.CANCELS:
            return self._intern(frozenset((atom, 1) for atom, weight in total.items() if weight % 2))
        if op is ReduceOp.AVG:  # a sum whose divisor is the number of contributors, once
            share = Fraction(1, len(row))
            return self._intern(frozenset((atom, weight * share) for atom, weight in total.items()))
        return self._intern(frozenset(total.items()))

    def _applied(self, name: str, row: tuple[int, ...]) -> str:
        """An apply written out, or numbered where that is long: applied to one another, they would grow without end."""
        text = f"{name}({self._brief(row)})"
        return text if len(text) <= _LONGEST_NAME else f"{name}#{len(self._names)}"

    def _brief(self, row: tuple[int, ...]) -> str:
        names = [name for value in row for name in self.contributions(value)]
        return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def as_cells(cells: object) -> Cells:
    """Cells of the machine, whose algebra was `Symbols`."""
    return cast(Cells, cells)
