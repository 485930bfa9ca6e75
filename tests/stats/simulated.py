"""Simulated machines: the logarithm of every time is the noise of its slot, and what its arm and its buffers add."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rsag.stats import LOOKS, balanced_order

Array = NDArray[np.float64]

NUM_RUNS = 1000
NUM_ARMS = 3
DIRECT, CANDIDATE = 0, 2
NOISE = 0.10


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What is wrong with a machine beside 10 % noise.

    `outliers` is the share of times with a Pareto factor of infinite variance; `drifts`: 30 % over the run, either way,
    and clock steps of 20 %; `autocorrelation` is that of one slot with the next; `first_slot` what the first of a cycle
    costs; `placement` the sd of an offset that every arm's buffers keep for a round.
    """

    outliers: float = 0.0
    drifts: bool = False
    autocorrelation: float = 0.0
    first_slot: float = 0.0
    num_ranks: int = 1
    placement: float = 0.0


MACHINES = {
    "iid": Machine(),
    "heavy tails": Machine(outliers=0.03),
    "drift and clock steps": Machine(drifts=True),
    "autocorrelated": Machine(autocorrelation=0.95),
    "first slot slower": Machine(first_slot=0.05),
    "maximum of 8 ranks": Machine(num_ranks=8),
    "placement": Machine(placement=0.01),
    "all together": Machine(
        outliers=0.03, drifts=True, autocorrelation=0.95, first_slot=0.05, num_ranks=8, placement=0.01
    ),
}


def round_values(machine: Machine, *, effect: float, blocks: int, seed: int) -> Array:
    """Every run's log-ratios of candidate over direct as [run, round]; `effect` 0.03 is 3 % slower."""
    num_rounds = LOOKS[-1].rounds
    times = log_times(machine, num_rounds, blocks, np.random.default_rng(seed))
    times[..., CANDIDATE] += math.log1p(effect)
    return rounds_of(times[..., DIRECT], times[..., CANDIDATE], blocks)


def rounds_of(reference: Array, other: Array, blocks: int) -> Array:
    """`rsag.stats.round_value` of every round in arrays of log times [run, cycle]."""
    ratios = (other - reference).reshape(len(reference), -1, blocks, 2).mean(axis=3)
    one, two = np.triu_indices(blocks)
    centres: Array = np.median((ratios[..., one] + ratios[..., two]) / 2, axis=-1)
    return centres


def log_times(machine: Machine, num_rounds: int, blocks: int, rng: np.random.Generator) -> Array:
    """Log times as [run, cycle, arm], from noise in the order of slots and the order in which the arms ran."""
    num_cycles = 2 * blocks * num_rounds
    slots = _slot_noise(machine, num_cycles * NUM_ARMS, rng).reshape(NUM_RUNS, num_cycles, NUM_ARMS)
    slots[..., 0] += math.log1p(machine.first_slot)
    times: Array = np.take_along_axis(slots, _slots_of_arms(num_cycles), axis=2)
    if machine.placement:
        offsets = rng.normal(0, machine.placement, (NUM_RUNS, num_rounds, NUM_ARMS))
        times += np.repeat(offsets, 2 * blocks, axis=1)
    return times


def _slot_noise(machine: Machine, num_slots: int, rng: np.random.Generator) -> Array:
    shape = (NUM_RUNS, num_slots)
    if machine.num_ranks > 1:
        noise = _maxima(machine.num_ranks, shape, rng)
    else:
        noise = rng.normal(0, NOISE, shape)
    if machine.outliers:
        noise += (rng.random(shape) < machine.outliers) * np.log1p(rng.pareto(1.2, shape))
    if machine.drifts:
        noise += np.linspace(0, math.log1p(0.30), num_slots) * rng.choice([-1, 1], (NUM_RUNS, 1))
        noise += math.log1p(0.20) * (np.cumsum(rng.random(shape) < 0.02, axis=1) % 2)
    if machine.autocorrelation:
        noise = noise / 2 + _autoregression(machine.autocorrelation, shape, rng)
    return noise


def _maxima(num_ranks: int, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """The critical rank's noise; with a tail on every rank, so that the maximum again varies by 10 %."""
    slowest = np.full(shape, -np.inf)
    for _ in range(num_ranks):
        np.maximum(slowest, rng.normal(0, 0.05, shape) + rng.exponential(0.08, shape), out=slowest)
    return slowest


def _autoregression(correlation: float, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    steps = rng.normal(0, NOISE, shape)
    steps[:, 1:] *= math.sqrt(1 - correlation**2)
    for slot in range(1, shape[1]):
        steps[:, slot] += correlation * steps[:, slot - 1]
    return steps


@cache
def _slots_of_arms(num_cycles: int) -> NDArray[np.int64]:
    """Which slot each arm has in each cycle of each run, [run, cycle, arm], as the ranks would draw it."""
    order = balanced_order(NUM_ARMS, NUM_RUNS * num_cycles // 2, seed=11)
    return np.argsort(np.array(order), axis=1).reshape(NUM_RUNS, num_cycles, NUM_ARMS)
