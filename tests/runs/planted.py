"""Rank programs in which one thing goes wrong, and nothing else: what a run must see, or must not mind.

Each is an entry for the launcher, with the arguments of the rank program.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from unittest import mock

from rsag.carriers.pooled import Pooled
from rsag.rank.__main__ import main
from rsag.rank.bench import CpuBench

WRONG_RANK = LATE_RANK = 1
LATE_S = 0.005


def wrong(arguments: Sequence[str]) -> int:
    """The last element of what more than one call ends in is one too much on a rank; so the direct arm is right."""
    run = Pooled.__call__

    def run_wrongly(bound: Pooled) -> None:
        run(bound)
        if _rank() == WRONG_RANK and len(bound._calls) > 1:
            bound.result[-1] += 1

    with mock.patch.object(Pooled, "__call__", run_wrongly):
        return main(arguments)


def late(arguments: Sequence[str]) -> int:
    """One rank comes late to every call of every arm, after all were lined up."""
    line_up = CpuBench.line_up

    def line_up_late(bench: CpuBench) -> None:
        line_up(bench)
        if _rank() == LATE_RANK:
            time.sleep(LATE_S)

    with mock.patch.object(CpuBench, "line_up", line_up_late):
        return main(arguments)


def _rank() -> int:
    return int(os.environ["RANK"])
