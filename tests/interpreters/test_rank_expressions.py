from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.interpreters.rank_expressions import expression


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((7, 7, 7), "7"),
        ((0, 1, 2), "rank"),
        ((0, 5, 10), "rank * 5"),
        ((5, 10, 15), "(rank + 1) * 5"),
        ((3, 8, 13), "rank * 5 + 3"),
        ((8, 9, 10), "rank + 8"),
        ((1, 2, 0), "(rank + 1) % world"),
        ((3, 0, 1, 2), "(rank - 1) % world"),
        ((10, 15, 0, 5), "(rank - 2) % world * 5"),
        ((12, 2, 7), "(rank - 1) % world * 5 + 2"),
        ((1, 0), "(rank + 1) % world"),
        ((0, 10, 0, 10), "(0, 10, 0, 10)[rank]"),
        ((3,), "3"),
    ],
)
def test_the_simplest_form_that_fits_is_chosen(values: tuple[int, ...], text: str) -> None:
    assert text == expression(values)


affine = st.builds(
    lambda world, slope, base: [base + slope * rank for rank in range(world)],
    st.integers(1, 9),
    st.integers(-3, 9),
    st.integers(30, 60),
)
ring = st.builds(
    lambda world, shift, unit, base: [(rank + shift) % world * unit + base for rank in range(world)],
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(1, 9),
    st.integers(0, 9),
)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9) | affine | ring)
def test_an_expression_gives_every_rank_its_value(values: list[int]) -> None:
    text = expression(values)

    assert values == [eval(text, {"rank": rank, "world": len(values)}) for rank in range(len(values))]
