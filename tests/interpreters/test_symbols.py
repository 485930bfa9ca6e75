"""Normal forms: what is equal up to the order of reducing, and what is not. Exact numbers agree."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.interpreters.algebra import Algebra, Cells
from rsag.interpreters.exact import RELEASED, UNWRITTEN, Exact, Number, fold
from rsag.interpreters.symbols import EMPTY, Symbols, as_cells
from rsag.programs import IDENTITY
from rsag.reduction import ReduceOp

FOLDABLE = [op for op in ReduceOp if op is not ReduceOp.AVG]


def reduced(op: ReduceOp, *ranks: int) -> dict[str, int | Fraction]:
    """What x[r][0] over `ranks`, reduced in one go, is made of."""
    symbols = Symbols(op)
    return symbols.contributions(symbols.reduce(op, [symbols.inputs(rank, 1) for rank in ranks])[0])


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ReduceOp.SUM, {"x[0][0]": 2, "x[1][0]": 1}),
        (ReduceOp.PRODUCT, {"x[0][0]": 2, "x[1][0]": 1}),
        (ReduceOp.MAX, {"x[0][0]": 1, "x[1][0]": 1}),
        (ReduceOp.MIN, {"x[0][0]": 1, "x[1][0]": 1}),
        (ReduceOp.BAND, {"x[0][0]": 1, "x[1][0]": 1}),
        (ReduceOp.BOR, {"x[0][0]": 1, "x[1][0]": 1}),
        (ReduceOp.BXOR, {"x[1][0]": 1}),
        (ReduceOp.AVG, {"x[0][0]": Fraction(2, 3), "x[1][0]": Fraction(1, 3)}),
    ],
)
def test_a_contribution_that_comes_twice(op: ReduceOp, expected: dict[str, int | Fraction]) -> None:
    assert expected == reduced(op, 0, 1, 0)


def test_an_average_of_averages_weighs_by_group() -> None:
    symbols = Symbols(ReduceOp.AVG)
    one, two, three = (symbols.inputs(rank, 1) for rank in range(3))
    pair = symbols.reduce(ReduceOp.AVG, [one, two])
    everyone = symbols.reduce(ReduceOp.AVG, [pair, three])
    assert {"x[0][0]": Fraction(1, 4), "x[1][0]": Fraction(1, 4), "x[2][0]": Fraction(1, 2)} == symbols.contributions(
        everyone[0]
    )


def test_an_average_of_equal_groups_is_the_average() -> None:
    symbols = Symbols(ReduceOp.AVG)
    columns = [symbols.inputs(rank, 1) for rank in range(4)]
    pairs = [symbols.reduce(ReduceOp.AVG, columns[first : first + 2]) for first in (0, 2)]
    assert symbols.reduce(ReduceOp.AVG, columns) == symbols.reduce(ReduceOp.AVG, pairs)


@given(st.sampled_from(FOLDABLE), st.permutations(range(5)), st.integers(1, 4))
def test_order_and_grouping_are_forgotten(op: ReduceOp, ranks: list[int], cut: int) -> None:
    symbols = Symbols(op)
    columns = [symbols.inputs(rank, 2) for rank in ranks]
    parts = [symbols.reduce(op, columns[:cut]), symbols.reduce(op, columns[cut:])]
    in_rank_order = [symbols.inputs(rank, 2) for rank in range(5)]
    assert symbols.reduce(op, in_rank_order) == symbols.reduce(op, parts)


@given(st.sampled_from(list(ReduceOp)), st.integers(0, 3), st.integers(0, 3))
def test_other_contributions_are_another_value(op: ReduceOp, left: int, right: int) -> None:
    symbols = Symbols(op)
    base = symbols.inputs(4, 1)
    first, second = (symbols.reduce(op, [base, symbols.inputs(rank, 1)]) for rank in (left, right))
    assert (left == right) == (first == second)


@pytest.mark.parametrize(
    ("op", "value", "is_identity"),
    [
        *((op, IDENTITY, True) for op in ReduceOp),
        *((op, 0, op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.BOR, ReduceOp.BXOR)) for op in ReduceOp),
        *((op, 1, op is ReduceOp.PRODUCT) for op in ReduceOp),
        (ReduceOp.SUM, 0.0, True),
        (ReduceOp.PRODUCT, 1.0, True),
        (ReduceOp.SUM, 2, False),
    ],
)
def test_which_constants_are_the_identity(op: ReduceOp, value: str | float, is_identity: bool) -> None:
    assert is_identity == (Symbols(op).constant(value, 1) == [EMPTY])


@pytest.mark.parametrize("op", FOLDABLE)
def test_the_identity_changes_nothing(op: ReduceOp) -> None:
    symbols = Symbols(op)
    cells = symbols.inputs(0, 1)
    assert cells == symbols.reduce(op, [symbols.constant(IDENTITY, 1), cells, symbols.constant(IDENTITY, 1)])


def test_under_an_average_the_identity_still_counts_as_a_contributor() -> None:
    symbols = Symbols(ReduceOp.AVG)
    cells = symbols.reduce(ReduceOp.AVG, [symbols.inputs(0, 1), symbols.constant(IDENTITY, 1)])
    assert {"x[0][0]": Fraction(1, 2)} == symbols.contributions(cells[0])


def test_a_constant_that_is_no_identity_is_one_more_contribution() -> None:
    symbols = Symbols(ReduceOp.MAX)
    cells = symbols.reduce(ReduceOp.MAX, [symbols.inputs(0, 1), symbols.constant(0, 1)])
    assert {"x[0][0]": 1, "constant 0": 1} == symbols.contributions(cells[0])


def test_another_operator_is_opaque() -> None:
    symbols = Symbols(ReduceOp.SUM)
    columns = [symbols.inputs(rank, 1) for rank in range(2)]
    cells = symbols.reduce(ReduceOp.MAX, columns)
    assert {"max(x[0][0], x[1][0])": 1} == symbols.contributions(cells[0])
    assert cells == symbols.reduce(ReduceOp.MAX, columns[::-1])


def test_an_opaque_value_is_reduced_like_any_contribution() -> None:
    symbols = Symbols(ReduceOp.SUM)
    opaque = symbols.reduce(ReduceOp.MAX, [symbols.inputs(rank, 1) for rank in range(2)])
    assert {"max(x[0][0], x[1][0])": 2} == symbols.contributions(symbols.reduce(ReduceOp.SUM, [opaque, opaque])[0])


def test_a_function_is_known_by_its_name_and_the_order_of_its_arguments() -> None:
    symbols = Symbols(ReduceOp.SUM)
    columns = [symbols.inputs(rank, 1) for rank in range(2)]
    values = [
        symbols.apply("adam", columns),
        symbols.apply("adam", columns),
        symbols.apply("adam", columns[::-1]),
        symbols.apply("sgd", columns),
        symbols.apply("max", columns),
        symbols.reduce(ReduceOp.MAX, columns),
    ]
    assert values[0] == values[1]
    assert 5 == len({as_cells(cells)[0] for cells in values})


@pytest.mark.parametrize(("kind", "expected"), [("unwritten", "unwritten"), ("released", "released"), ("inputs", None)])
def test_what_nobody_may_read(kind: str, expected: str | None) -> None:
    symbols = Symbols(ReduceOp.SUM)
    rest = {"unwritten": symbols.unwritten(1), "released": symbols.released(1), "inputs": symbols.inputs(1, 1)}
    assert expected == symbols.why_unreadable([*symbols.inputs(0, 1), *rest[kind]])


# --------------------------------------------------------------------------------------------- exact numbers


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ReduceOp.SUM, 13),
        (ReduceOp.AVG, Fraction(13, 3)),
        (ReduceOp.PRODUCT, 60),
        (ReduceOp.MIN, 2),
        (ReduceOp.MAX, 6),
        (ReduceOp.BAND, 6 & 5 & 2),
        (ReduceOp.BOR, 6 | 5 | 2),
        (ReduceOp.BXOR, 6 ^ 5 ^ 2),
    ],
)
def test_a_fold_is_exact(op: ReduceOp, expected: Number) -> None:
    assert expected == fold(op, [6, 5, 2])


@given(st.sampled_from(FOLDABLE), st.integers(-(2**60), 2**60))
def test_the_exact_identity_is_neutral(op: ReduceOp, value: int) -> None:
    exact = Exact(op, lambda rank, element: value)
    assert [value] == exact.reduce(op, [exact.inputs(0, 1), exact.constant(IDENTITY, 1)])


def test_memory_without_a_value_holds_something_else_than_inputs() -> None:
    exact = Exact(ReduceOp.SUM, lambda rank, element: 0)
    assert ([UNWRITTEN], [RELEASED], None) == (exact.unwritten(1), exact.released(1), exact.why_unreadable([UNWRITTEN]))


@given(st.data())
def test_equal_symbols_are_equal_numbers_and_different_ones_differ(data: st.DataObject) -> None:
    """Two ways to combine the same five inputs: the forms agree exactly where generic numbers do."""
    op = data.draw(st.sampled_from([ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.BXOR, ReduceOp.AVG]))
    codes = [3, 5 * 2**10, 7 * 2**20, 11 * 2**30, 13 * 2**40]
    symbols, exact = Symbols(op), Exact(op, lambda rank, _: codes[rank])
    shape = st.recursive(st.integers(0, 4), lambda inner: st.lists(inner, min_size=2, max_size=3), max_leaves=7)

    def evaluate(algebra: Algebra, tree: int | list[Any]) -> Cells:
        if isinstance(tree, list):
            return algebra.reduce(op, [evaluate(algebra, part) for part in tree])
        return algebra.inputs(tree, 1)

    left, right = data.draw(shape), data.draw(shape)
    same_form = evaluate(symbols, left) == evaluate(symbols, right)
    assert same_form == (evaluate(exact, left) == evaluate(exact, right))
