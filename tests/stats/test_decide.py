"""Blocks, rounds, and the decision at a look."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.stats import (
    ERROR,
    LOOKS,
    PRECISE,
    Decision,
    Interval,
    Look,
    Stop,
    balanced_order,
    decide,
    hodges_lehmann,
    interval,
    p_at_look,
    round_value,
)

TIMES = st.lists(st.tuples(*[st.integers(1, 10**9)] * 4), min_size=1, max_size=8)


def spread(centre: float, width: float, count: int = 40) -> list[float]:
    """Rounds that lie evenly around `centre`, no two alike, every stretch of them balanced."""
    return [centre + width * (0.5 + index / count) * (-1) ** index for index in range(count)]


# ------------------------------------------------------------------------------------------------------------- order


@given(st.integers(1, 6), st.integers(0, 12), st.integers(0, 2**64))
def test_a_block_is_a_permutation_and_its_mirror_image(num_arms: int, num_blocks: int, seed: int) -> None:
    cycles = balanced_order(num_arms, num_blocks, seed)
    assert 2 * num_blocks == len(cycles)
    for first, second in zip(cycles[0::2], cycles[1::2]):
        assert tuple(range(num_arms)) == tuple(sorted(first))
        assert first[::-1] == second


def test_the_order_is_the_seeds_alone() -> None:
    assert balanced_order(4, 20, 7) == balanced_order(4, 20, 7)
    assert balanced_order(4, 20, 7) != balanced_order(4, 20, 8)


def test_every_order_comes_as_often_as_any_other() -> None:
    counts = Counter(balanced_order(3, 6000, 1)[0::2])
    assert 6 == len(counts)
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 20.5  # 0.1 % of fair coins are further off


# ------------------------------------------------------------------------------------------------------------- rounds


@given(TIMES)
def test_swapping_the_arms_turns_the_sign(blocks: list[tuple[int, ...]]) -> None:
    one = [time for first, second, *_ in blocks for time in (first, second)]
    other = [time for *_, third, fourth in blocks for time in (third, fourth)]
    assert -round_value(one, other) == pytest.approx(round_value(other, one), abs=1e-12)


@given(TIMES, st.integers(1, 1000))
def test_the_unit_of_time_does_not_matter(blocks: list[tuple[int, ...]], unit: int) -> None:
    one = [time for first, second, *_ in blocks for time in (first, second)]
    other = [time for *_, third, fourth in blocks for time in (third, fourth)]
    scaled = round_value([unit * time for time in one], [unit * time for time in other])
    assert round_value(one, other) == pytest.approx(scaled, abs=1e-12)


def test_a_round_of_one_ratio_has_that_ratio() -> None:
    assert math.log(1.25) == pytest.approx(round_value([100, 200, 300, 400], [125, 250, 375, 500]))


def test_what_favours_the_first_of_a_cycle_cancels_in_a_block() -> None:
    slow_first = 1.05
    reference, other = [100 * slow_first, 100.0], [100.0, 100 * slow_first]
    assert round_value(reference, other) == pytest.approx(0)


# ----------------------------------------------------------------------------------------------------------- decisions


def test_the_errors_of_the_looks_add_up_to_five_percent() -> None:
    assert sum(look.error for look in LOOKS) == pytest.approx(0.05)


def test_each_look_can_find_something() -> None:
    for look in LOOKS:
        assert math.isfinite(interval(spread(0, 1, look.rounds), look.error).half_width)


def test_before_the_first_look_there_is_no_decision() -> None:
    values = spread(5, 0.01, 11)
    assert Decision(11, Interval(hodges_lehmann(values), -math.inf, math.inf), None) == decide(values, None)


@pytest.mark.parametrize(("centre", "sign"), [(0.5, 1), (-0.5, -1)])
def test_a_clear_direction_stops_at_the_first_look(centre: float, sign: int) -> None:
    decision = decide(spread(centre, 0.2), None)
    assert (12, Stop.DIRECTION) == (decision.rounds, decision.stop)
    assert sign * decision.interval.low > 0 < sign * decision.interval.high


def test_an_interval_inside_the_margin_is_equivalence_even_if_it_leaves_one_out() -> None:
    values = spread(0.004, 0.001)
    assert Stop.EQUIVALENT is decide(values, 0.01).stop
    assert Stop.DIRECTION is decide(values, None).stop


def test_a_precise_interval_that_holds_one_stops_without_a_direction() -> None:
    decision = decide(spread(0, 0.01), None)
    assert (12, Stop.PRECISE) == (decision.rounds, decision.stop)
    assert decision.interval.half_width <= PRECISE


def test_without_any_of_them_the_last_look_is_the_budget() -> None:
    assert [(12, None), (20, None), (40, Stop.BUDGET)] == [
        (decision.rounds, decision.stop) for decision in (decide(spread(0, 1)[:n], None) for n in (19, 39, 40))
    ]


def test_a_small_effect_is_found_at_a_later_look() -> None:
    decision = decide(spread(0.06, 0.09), None)
    assert (40, Stop.DIRECTION) == (decision.rounds, decision.stop)


def test_what_is_wanted_precisely_goes_on_past_a_direction() -> None:
    values = spread(0.5, 0.2)
    assert None is decide(values[:20], None, precisely=True).stop
    assert (40, Stop.DIRECTION) == (
        decide(values, None, precisely=True).rounds,
        decide(values, None, precisely=True).stop,
    )


@pytest.mark.parametrize(
    ("family", "rounds"), [(1, 12), (4, 12), (20, 12), (21, 20), (24, 20), (1000, 20), (10_000, 40)]
)
def test_a_direction_must_be_claimable_in_its_family_to_stop(family: int, rounds: int) -> None:
    decision = decide(spread(0.5, 0.2), None, family=family)
    assert (rounds, Stop.DIRECTION) == (decision.rounds, decision.stop)
    assert p_at_look(spread(0.5, 0.2)[:rounds]) * family <= ERROR


def test_before_it_is_claimable_the_interval_has_its_direction_already() -> None:
    alone, among_many = (decide(spread(0.5, 0.2, 12), None, family=family) for family in (1, 24))
    assert (Stop.DIRECTION, None) == (alone.stop, among_many.stop)
    assert alone.interval == among_many.interval


def test_a_precise_direction_that_is_not_claimable_goes_on() -> None:
    decision = decide(spread(0.5, 0.001, 12), None, family=24)
    assert decision.interval.half_width <= PRECISE
    assert decision.stop is None


def test_at_the_last_look_a_direction_is_one_whatever_the_family() -> None:
    assert Stop.DIRECTION is decide(spread(0.5, 0.2), None, LOOKS[:1], family=10_000).stop


@pytest.mark.parametrize(("margin", "stop"), [(None, Stop.PRECISE), (0.05, Stop.EQUIVALENT)])
def test_without_a_direction_the_family_plays_no_part(margin: float | None, stop: Stop) -> None:
    values = spread(0, 0.01)
    assert stop is decide(values, margin, family=10_000).stop
    assert decide(values, margin) == decide(values, margin, family=10_000)


def test_a_look_is_paid_for_and_anything_else_is_none() -> None:
    for look in LOOKS:
        assert p_at_look(spread(5, 1, look.rounds)) == pytest.approx(2 / 2**look.rounds * 0.05 / look.error)
    assert 1.0 == p_at_look(spread(5, 1, 13))


def test_a_budget_of_one_look_ends_there() -> None:
    assert Stop.BUDGET is decide(spread(0, 1, 10), None, [Look(10, 0.05)]).stop


@given(
    st.lists(st.floats(-0.2, 0.2), min_size=12, max_size=50),
    st.sampled_from([None, 0.01, 0.05]),
    st.booleans(),
    st.floats(-0.1, 0.1),
    st.sampled_from([1, 4, 24, 500]),
)
def test_once_stopped_a_decision_never_changes(
    noise: list[float], margin: float | None, precisely: bool, centre: float, family: int
) -> None:
    values = [centre + value for value in noise]
    stopped = None
    for count in range(12, len(values) + 1):
        decision = decide(values[:count], margin, precisely=precisely, family=family)
        assert stopped is None or stopped == decision
        stopped = decision if decision.stop is not None else None


@given(st.lists(st.floats(-0.1, 0.3), min_size=40, max_size=40), st.sampled_from([1, 4, 24]), st.integers(2, 100))
def test_a_larger_family_never_stops_earlier(values: list[float], family: int, factor: int) -> None:
    assert decide(values, None, family=family).rounds <= decide(values, None, family=family * factor).rounds


@given(st.lists(st.floats(-0.2, 0.2), min_size=12, max_size=45))
def test_between_looks_nothing_is_decided_anew(values: list[float]) -> None:
    looked = max(look.rounds for look in LOOKS if look.rounds <= len(values))
    assert decide(values[:looked], None) == decide(values, None)


@given(st.lists(st.floats(-0.2, 0.2), min_size=12, max_size=45), st.sampled_from([None, 0.02]))
def test_the_decision_on_the_inverse_ratio_is_the_mirror_image(values: list[float], margin: float | None) -> None:
    one, other = decide(values, margin), decide([-value for value in values], margin)
    assert (one.rounds, one.stop) == (other.rounds, other.stop)
    assert (one.interval.low, one.interval.high) == pytest.approx((-other.interval.high, -other.interval.low))
