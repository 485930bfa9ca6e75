"""The gate with its stop rule on simulated machines, 1,000 runs each: what it finds in nothing, and in 3 %."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from simulated import MACHINES, NUM_RUNS, Machine, log_times, round_values, rounds_of

from rsag.stats import decide, round_value

BLOCKS_ON_GPUS, BLOCKS_ON_GLOO = 8, 2


@dataclass(frozen=True)
class Tally:
    """Shares of runs: what was found, in the wrong direction, and the intervals at the stop that hold the truth."""

    found: float
    wrong: float
    covered: float
    mean_rounds: float


@cache
def tally(machine: Machine, effect: float, blocks: int = BLOCKS_ON_GPUS) -> Tally:
    seed = 1000 * list(MACHINES.values()).index(machine) + 10 * round(100 * effect) + blocks
    runs = round_values(machine, effect=effect, blocks=blocks, seed=seed).tolist()
    decisions = [decide(values, None) for values in runs]
    truth = math.log1p(effect)
    intervals = [decision.interval for decision in decisions]
    return Tally(
        found=sum(one.low > 0 or one.high < 0 for one in intervals) / NUM_RUNS,
        wrong=sum(one.high < 0 for one in intervals) / NUM_RUNS if effect > 0 else 0.0,
        covered=sum(one.low <= truth <= one.high for one in intervals) / NUM_RUNS,
        mean_rounds=sum(decision.rounds for decision in decisions) / NUM_RUNS,
    )


on_every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())


def test_rounds_in_arrays_are_the_round_values_that_ranks_compute() -> None:
    times = log_times(MACHINES["all together"], 3, BLOCKS_ON_GPUS, np.random.default_rng(1))[:5]
    reference, other = np.exp(times[..., 0]), np.exp(times[..., 1])
    expected = [
        [round_value(one[start : start + 16], two[start : start + 16]) for start in (0, 16, 32)]
        for one, two in zip(reference.tolist(), other.tolist())
    ]
    assert expected == pytest.approx(rounds_of(np.log(reference), np.log(other), BLOCKS_ON_GPUS))


@on_every_machine
def test_two_identical_arms_differ_in_at_most_5_percent_of_runs(machine: Machine) -> None:
    assert tally(machine, 0.0).found <= 0.05


@on_every_machine
def test_3_percent_are_found_in_at_least_90_percent_of_runs(machine: Machine) -> None:
    assert tally(machine, 0.03).found >= 0.90


@on_every_machine
def test_the_wrong_sign_comes_up_in_at_most_2_runs_of_1000(machine: Machine) -> None:
    assert tally(machine, 0.03).wrong <= 0.002


@on_every_machine
@pytest.mark.parametrize("effect", [0.0, 0.03])
def test_the_interval_at_the_stop_holds_the_truth_in_at_least_95_percent(machine: Machine, effect: float) -> None:
    assert tally(machine, effect).covered >= 0.95


@on_every_machine
def test_with_the_short_rounds_of_gloo_identical_arms_differ_as_rarely(machine: Machine) -> None:
    assert tally(machine, 0.0, BLOCKS_ON_GLOO).found <= 0.05


@on_every_machine
def test_with_the_short_rounds_of_gloo_10_percent_are_found(machine: Machine) -> None:
    assert tally(machine, 0.10, BLOCKS_ON_GLOO).found >= 0.95
