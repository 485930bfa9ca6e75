"""The pure parts of `benchmarks/overhead.py`: how its samples are taken and what it concludes from them."""

from __future__ import annotations

import importlib
import itertools
import random
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def overhead(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("overhead")


@pytest.mark.parametrize("seed", range(5))
def test_a_round_runs_every_arm_in_some_order_and_then_in_its_mirror_image(overhead: ModuleType, seed: int) -> None:
    ran: list[str] = []
    arms = {name: lambda name=name: ran.append(name) for name in "abc"}
    overhead.time_round(arms, 1, random.Random(seed))
    assert ["a", "b", "c"] == sorted(ran[:3])
    assert ran[:3] == ran[:2:-1]


def test_a_round_gives_the_time_of_one_run(overhead: ModuleType) -> None:
    ticks = itertools.count(step=100)  # every block seems to last 100 ns
    assert {"a": 10.0, "b": 10.0} == overhead.time_round(
        {"a": int, "b": int}, 10, random.Random(0), clock=lambda: next(ticks)
    )


@pytest.mark.parametrize(("num_values", "low", "high"), [(6, 1, 6), (20, 6, 15), (100, 40, 61)])
def test_the_interval_of_the_median_is_the_sign_tests(
    overhead: ModuleType, num_values: int, low: int, high: int
) -> None:
    values = random.Random(0).sample(range(1, num_values + 1), num_values)
    assert (low, high) == overhead.median_interval(values)


def test_five_values_give_no_interval(overhead: ModuleType) -> None:
    with pytest.raises(ValueError, match="six values or more, got 5"):
        overhead.median_interval([1.0] * 5)


@pytest.mark.parametrize(
    ("low_us", "high_us", "said"), [(0.2, 0.3, "kept"), (1.1, 1.2, "MISSED"), (0.9, 1.1, "cannot tell")]
)
def test_the_verdict_is_what_the_whole_interval_says(
    overhead: ModuleType, low_us: float, high_us: float, said: str
) -> None:
    assert said == overhead.verdict(low_us, high_us)
