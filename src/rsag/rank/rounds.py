"""One round: nothing is allocated, captured, logged or written between its first timing and its last."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from rsag.rank.bench import Bench
from rsag.rank.throttle import HeldDown
from rsag.records.latency import RoundRow


def run_round(
    bench: Bench,
    *,
    case: int,
    number: int,
    order: Sequence[Sequence[int]],
    seed: int,
    held_down: HeldDown = dict,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> RoundRow:
    """Fresh buffers and captures in random order, then every cycle of `order`; the row is for the caller to write."""
    num_arms = len(order[0])
    coin = random.Random(f"placement {seed}")  # `order` comes from the seed itself, and must tell nothing of places
    arms = list(range(num_arms))
    coin.shuffle(arms)
    for arm in arms:
        bench.open(arm, coin)
    coin.shuffle(arms)
    for arm in arms:
        bench.capture(arm)
    bench.ready()
    times = [[0] * len(order) for _ in arms]
    starts = [0] * len(order)
    before = held_down()
    began = clock_ns()
    for cycle, sequence in enumerate(order):
        starts[cycle] = (clock_ns() - began) // 1000
        for arm in sequence:
            bench.reset(arm)
            bench.line_up()
            times[arm][cycle] = bench.time_ns(arm)
            bench.check(arm)
    wrong = bench.num_wrong()
    ended = clock_ns()
    after = held_down()
    bench.close()
    return RoundRow(
        case=case,
        round=number,
        start_ns=began,
        ns=tuple(tuple(row) for row in times),
        started_us=tuple(starts),
        wrong=tuple(wrong),
        took_us=(ended - began) // 1000,
        held_down_us={cause: us for cause in after if (us := (after[cause] - before.get(cause, 0)) // 1000) > 0},
    )
