"""How much a large run writes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rsag.records.codec import encode
from rsag.records.jsonl import RowWriter
from rsag.records.latency import RoundRow

NUM_CASES, NUM_RANKS, NUM_ROUNDS, NUM_CYCLES, NUM_ARMS = 1000, 8, 10, 16, 4

DIRECT_US = (8.8, 12.0, 15.5, 75.7, 895.6, 3264.0)
"""AllReduce at 1 KiB, 64 KiB, 1 MiB, 16 MiB, 256 MiB and 1 GiB on two H200; ten calls a timing up to 16 MiB."""

FACTORS = (1.0, 1.4, 1.0)
NULL_NS = 2900
RESET_AND_CHECK_US = 400


def one_case(direct_us: float) -> Iterator[RoundRow]:
    """Ten rounds as one rank writes them: direct, candidate, control, null."""
    coin = random.Random(0)
    calls = 10 if direct_us < 100 else 1
    now_us = 10**12  # of a machine that has been up for days
    for number in range(NUM_ROUNDS):
        ns: list[list[int]] = [[] for _ in range(NUM_ARMS)]
        starts: list[int] = []
        elapsed_us = 0.0
        for _ in range(NUM_CYCLES):
            starts.append(round(elapsed_us))
            for arm in coin.sample(range(NUM_ARMS), NUM_ARMS):
                noise = math.exp(coin.gauss(0, 0.03))
                time_ns = NULL_NS if arm == len(FACTORS) else round(1e3 * direct_us * FACTORS[arm] * noise)
                ns[arm].append(time_ns)
                elapsed_us += RESET_AND_CHECK_US + calls * time_ns / 1e3
        yield RoundRow(
            case=NUM_CASES // 2,
            round=number,
            start_ns=1000 * now_us,
            ns=tuple(map(tuple, ns)),
            started_us=tuple(starts),
            wrong=(0,) * NUM_ARMS,
        )
        now_us += round(elapsed_us)


def written_bytes(path: Path) -> int:
    """One case of each size, without the frame of the file."""
    with RowWriter(path, start={}) as writer:
        before = path.stat().st_size
        for direct_us in DIRECT_US:
            for row in one_case(direct_us):
                writer.write(cast("dict[str, object]", encode(row)))
        return path.stat().st_size - before


def test_a_thousand_cases_on_eight_ranks_take_under_60_mb(tmp_path: Path) -> None:
    total = written_bytes(tmp_path / "rank-0000.jsonl") / len(DIRECT_US) * NUM_CASES * NUM_RANKS
    assert total < 60e6, f"{total / 1e6:.1f} MB"


def test_a_timing_takes_at_most_eleven_bytes(tmp_path: Path) -> None:
    num_timings = len(DIRECT_US) * NUM_ROUNDS * NUM_CYCLES * NUM_ARMS
    assert written_bytes(tmp_path / "rank-0000.jsonl") <= 11 * num_timings
