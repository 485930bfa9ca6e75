"""What is odd about times is said when it was planted, and hardly ever otherwise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from rsag.analyze.diagnose import bimodal, diagnose, drift, order_effect, outliers, skew
from rsag.records.latency import ReasonCode

Draw = Callable[[random.Random], float]

BELL: Draw = lambda coin: coin.gauss(0, 0.1)  # noqa: E731
SHAPES: dict[str, Draw] = {
    "bell": BELL,
    "uniform": lambda coin: coin.uniform(-0.3, 0.3),
    "one-sided": lambda coin: coin.expovariate(10),
    "heavy": lambda coin: coin.gauss(0, 0.05) * coin.choice((1, 1, 1, 6)),
    "narrow": lambda coin: coin.gauss(0, 0.003),
}


def times(
    draw: Draw = BELL, *, count: int = 192, seed: int = 0, factor: Callable[[int], float] = lambda _: 1
) -> list[int]:
    """Microseconds around 100, in ns; `factor` of the cycle's number."""
    coin = random.Random(seed)
    return [round(100_000 * factor(cycle) * math.exp(draw(coin))) for cycle in range(count)]


def in_turn(count: int, places: int = 3) -> list[int]:
    return [cycle % places for cycle in range(count)]


# ------------------------------------------------------------------------------------------------------------- planted


def test_skew_is_counted_in_cycles() -> None:
    maxima = times()
    minima = [time * 8 // 10 if cycle % 4 == 0 else time for cycle, time in enumerate(maxima)]
    assert "ranks differ by more than 10 % in 48 of 192 cycles" == skew(maxima, minima)


def test_a_few_skewed_cycles_are_no_reason() -> None:
    maxima = times()
    assert None is skew(maxima, [maxima[0] // 2, *maxima[1:]])


@pytest.mark.parametrize(("over_the_run", "said"), [(0.30, "+30%"), (-0.20, "-20%")])
def test_a_trend_is_given_from_first_to_last(over_the_run: float, said: str) -> None:
    drifting = times(SHAPES["narrow"], factor=lambda cycle: (1 + over_the_run) ** (cycle / 191))
    assert f"{said} from the first cycle to the last" == drift(drifting)


def test_a_trend_is_seen_through_outliers() -> None:
    drifting = times(factor=lambda cycle: 1.3 ** (cycle / 191) * (40 if cycle % 20 == 7 else 1))
    assert drift(drifting) is not None


def test_a_step_back_and_forth_is_no_trend() -> None:
    assert None is drift(times(factor=lambda cycle: 1.2 if cycle // 32 % 2 else 1.0))


def test_outliers_are_counted_in_medians() -> None:
    longest = times(SHAPES["narrow"], factor=lambda cycle: 44 if cycle == 9 else 5 if cycle == 99 else 1)
    assert "2 of 192 cycles beyond 3 medians, the longest 44" == outliers(longest)


def test_one_outlier_in_many_cycles_is_no_reason() -> None:
    assert None is outliers(times(factor=lambda cycle: 44 if cycle == 9 else 1))


def test_two_states_of_a_clock_are_seen() -> None:
    said = bimodal(times(lambda coin: coin.gauss(0, 0.02), factor=lambda cycle: 1.2 if cycle % 3 == 0 else 1.0))
    assert said is not None
    assert said.startswith("two states, 64 of 192 cycles 2")


def test_two_states_within_the_noise_are_not_told_apart() -> None:
    assert None is bimodal(times(factor=lambda cycle: 1.2 if cycle % 3 == 0 else 1.0))


def test_outliers_are_no_second_state() -> None:
    assert None is bimodal(times(SHAPES["narrow"], factor=lambda cycle: 10 if cycle % 4 == 0 else 1))


def test_a_slow_place_in_the_cycle_is_named() -> None:
    slow_first = times(SHAPES["narrow"], factor=lambda cycle: 1.1 if cycle % 3 == 0 else 1.0)
    said = order_effect(slow_first, in_turn(192))
    assert said is not None
    assert said.startswith("place 1 in the cycle is 10% slower than place ")


def test_a_place_effect_below_five_percent_is_no_reason() -> None:
    assert None is order_effect(times(SHAPES["narrow"], factor=lambda c: 1.04 if c % 3 == 0 else 1.0), in_turn(192))


def test_diagnoses_come_with_their_codes() -> None:
    odd = times(
        SHAPES["narrow"], factor=lambda c: (1.4 if c % 3 == 0 else 1.0) * 1.2 ** (c / 191) * (9 if c % 30 == 1 else 1)
    )
    found = diagnose(odd, [time // 2 for time in odd], in_turn(192))
    assert {ReasonCode.SKEW, ReasonCode.DRIFT, ReasonCode.OUTLIERS, ReasonCode.BIMODAL, ReasonCode.ORDER_EFFECT} >= {
        reason.code for reason in found
    }
    assert [ReasonCode.SKEW, ReasonCode.DRIFT, ReasonCode.OUTLIERS, ReasonCode.ORDER_EFFECT] == [
        reason.code for reason in found if reason.code is not ReasonCode.BIMODAL
    ]


# -------------------------------------------------------------------------------------------------------- false alarms


@pytest.mark.parametrize("count", [10, 48, 192])
@pytest.mark.parametrize("draw", SHAPES.values(), ids=SHAPES.keys())
def test_steady_times_of_any_shape_are_hardly_ever_called_odd(draw: Draw, count: int) -> None:
    alarms = 0
    for seed in range(200):
        steady = times(draw, count=count, seed=seed)
        alarms += any((drift(steady), bimodal(steady), order_effect(steady, in_turn(count))))
    assert alarms <= 4


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_handful_of_times_says_nothing(count: int) -> None:
    few = times(SHAPES["narrow"], count=count)
    assert () == diagnose(few, few, in_turn(count))
