"""A bench that measures nothing and writes down what it is asked to do, one short word each.

`o2 c2` open arm 2, capture it; `!` all are ready; `r2 | t2 k2` reset it, line up, time it, check it; `n` how many were
wrong; `x` close.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Script:
    """The words in `said`; an arm takes what `time_of(arm)` says, and as many elements of its result are wrong."""

    def __init__(self, num_arms: int = 3, time_of: Callable[[int], int] = lambda arm: 1000 + arm) -> None:
        self.said: list[str] = []
        self._num_arms, self._time_of = num_arms, time_of

    def open(self, arm: int, coin: random.Random) -> None:
        coin.random()  # as for a pad
        self.said.append(f"o{arm}")

    def capture(self, arm: int) -> None:
        self.said.append(f"c{arm}")

    def ready(self) -> None:
        self.said.append("!")

    def reset(self, arm: int) -> None:
        self.said.append(f"r{arm}")

    def line_up(self) -> None:
        self.said.append("|")

    def time_ns(self, arm: int) -> int:
        self.said.append(f"t{arm}")
        return self._time_of(arm)

    def check(self, arm: int) -> None:
        self.said.append(f"k{arm}")

    def num_wrong(self) -> list[int]:
        self.said.append("n")
        return list(range(self._num_arms))

    def close(self) -> None:
        self.said.append("x")
