"""The exact signed-rank test, its interval, and the laws that any estimate of a centre keeps."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.stats import coefficient_of_variation, hodges_lehmann, holm, interval, num_dropped, quantile, signed_rank_p

VALUES = st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=14, unique=True)


def enumerated_p(values: list[float]) -> float:
    """Two-sided, over all 2^n signs: how often a rank sum lies as far from its centre as this one. No ties."""
    n = len(values)
    centre = n * (n + 1) / 4
    seen = abs(sum(rank for rank, value in enumerate(sorted(values, key=abs), start=1) if value > 0) - centre)
    sums = (sum(itertools.compress(range(1, n + 1), signs)) for signs in itertools.product((0, 1), repeat=n))
    return sum(abs(total - centre) >= seen for total in sums) / 2.0**n


@pytest.mark.parametrize("n", range(1, 13))
def test_p_is_that_of_all_sign_patterns(n: int) -> None:
    coin = random.Random(n)
    values = [coin.gauss(0.4, 1) for _ in range(n)]
    assert enumerated_p(values) == signed_rank_p(values)


@pytest.mark.parametrize(("n", "error"), [(6, 0.05), (8, 0.01), (9, 0.01), (10, 0.05), (11, 0.02), (12, 0.01)])
def test_the_interval_is_the_test_inverted(n: int, error: float) -> None:
    coin = random.Random(n)
    values = [coin.gauss(0.02, 0.1) for _ in range(n)]
    found = interval(values, error)
    nudge = 1e-9
    for end, outwards in ((found.low, -nudge), (found.high, nudge)):
        assert enumerated_p([value - (end + outwards) for value in values]) <= error
        assert enumerated_p([value - (end - outwards) for value in values]) > error


@pytest.mark.parametrize(
    ("n", "error", "critical"),
    [
        *((n, 0.05, t) for n, t in zip(range(6, 21), (0, 2, 3, 5, 8, 10, 13, 17, 21, 25, 29, 34, 40, 46, 52))),
        *((n, 0.01, t) for n, t in zip(range(8, 21), (0, 1, 3, 5, 7, 9, 12, 15, 19, 23, 27, 32, 37))),
        (25, 0.05, 89),
        (25, 0.01, 68),
        (30, 0.05, 137),
        (30, 0.02, 120),
    ],
)
def test_as_many_are_dropped_as_the_published_critical_value_and_one(n: int, error: float, critical: int) -> None:
    assert critical + 1 == num_dropped(n, error)  # the table's T is rejected, and T counts from 0


@pytest.mark.parametrize(("n", "error"), [(1, 0.05), (5, 0.05), (7, 0.01), (8, 0.005)])
def test_too_few_values_give_an_interval_without_ends(n: int, error: float) -> None:
    found = interval([float(value) for value in range(n)], error)
    assert (-math.inf, (n - 1) / 2, math.inf) == (found.low, found.estimate, found.high)


@given(VALUES)
def test_values_all_of_one_sign_are_as_unlikely_as_can_be(values: list[int]) -> None:
    positive = [abs(value) + 1 for value in values]
    assert min(1.0, 2 / 2 ** len(positive)) == signed_rank_p(positive)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_with_ties_and_zeros_no_p_comes_up_more_often_than_it_says(sizes: list[int]) -> None:
    patterns = itertools.product((-1, 1), repeat=len(sizes))
    found = Counter(signed_rank_p([size * sign for size, sign in zip(sizes, signs)]) for signs in patterns)
    so_far = 0
    for p, count in sorted(found.items()):
        so_far += count
        assert so_far / 2 ** len(sizes) <= p


def test_zeros_say_nothing() -> None:
    assert signed_rank_p([1, 2, -3]) == signed_rank_p([0, 1, 0, 2, -3])
    assert 1.0 == signed_rank_p([0, 0])


@given(VALUES)
def test_a_mirrored_sample_has_the_same_p(values: list[int]) -> None:
    assert signed_rank_p(values) == signed_rank_p([-value for value in values])


# ------------------------------------------------------------------------------------------------------ Hodges-Lehmann


@given(VALUES, st.integers(-1000, 1000))
def test_the_centre_moves_with_the_sample(values: list[int], shift: int) -> None:
    assert hodges_lehmann(values) + shift == hodges_lehmann([value + shift for value in values])


@given(VALUES, st.integers(-8, 8))
def test_the_centre_scales_with_the_sample(values: list[int], scale: int) -> None:
    assert scale * hodges_lehmann(values) == hodges_lehmann([scale * value for value in values])


@given(VALUES)
def test_the_centre_lies_in_the_interval_whatever_its_error(values: list[int]) -> None:
    for error in (0.5, 0.05, 0.01):
        found = interval(values, error)
        assert found.low <= found.estimate <= found.high
        assert hodges_lehmann(values) == found.estimate


@given(VALUES)
def test_a_smaller_error_never_narrows_an_interval(values: list[int]) -> None:
    wide, narrow = interval(values, 0.01), interval(values, 0.1)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


def test_a_single_wild_value_of_eight_hardly_moves_the_centre() -> None:
    calm = [-0.03, -0.02, -0.01, 0.0, 0.01, 0.02, 0.03]
    assert abs(hodges_lehmann([*calm, 1e9])) < 0.02


# --------------------------------------------------------------------------------------------------------------- others


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=60), st.floats(0, 1))
def test_the_quantile_is_type_7(values: list[int], share: float) -> None:
    assert quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-12, abs=1e-9)


def test_the_coefficient_of_variation_divides_by_one_less() -> None:
    assert coefficient_of_variation([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)
    assert 0.0 == coefficient_of_variation([7.0])


def test_holm_on_a_worked_example() -> None:
    assert [0.03, 0.06, 0.06, 0.02] == pytest.approx(holm([0.01, 0.04, 0.03, 0.005]))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_no_correction_and_bonferronis(p_values: list[float]) -> None:
    for p, adjusted in zip(p_values, holm(p_values)):
        assert p <= adjusted <= min(1.0, len(p_values) * p)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_does_not_care_in_which_order_cases_come(p_values: list[float], coin: random.Random) -> None:
    order = list(range(len(p_values)))
    coin.shuffle(order)
    adjusted = holm(p_values)
    assert [adjusted[index] for index in order] == holm([p_values[index] for index in order])
