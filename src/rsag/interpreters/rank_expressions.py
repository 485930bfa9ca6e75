"""One Python expression for a number that differs between ranks, so that one text serves them all."""

from __future__ import annotations

import math
from collections.abc import Sequence


def expression(values: Sequence[int]) -> str:
    """An expression in `rank` and `world`, the number of values, that is `values[rank]` on every rank.

    The first that fits: a constant; rising evenly, `(rank + 1) * 5`; round a ring, `(rank - 1) % world * 5`; a table.
    """
    if len(set(values)) == 1:
        return str(values[0])
    return _affine(values) or _ring(values) or f"{tuple(values)}[rank]"


def _affine(values: Sequence[int]) -> str | None:
    base, slope = values[0], values[1] - values[0]
    if slope <= 0 or any(value != base + slope * rank for rank, value in enumerate(values)):
        return None
    shift, rest = divmod(base, slope)
    if rest:
        return f"rank * {slope} + {base}" if slope > 1 else f"rank + {base}"
    rank = f"rank + {shift}" if shift else "rank"
    if slope == 1:
        return rank
    return f"({rank}) * {slope}" if shift else f"rank * {slope}"


def _ring(values: Sequence[int]) -> str | None:
    world, base = len(values), min(values)
    unit = math.gcd(*(value - base for value in values))
    places = [(value - base) // unit for value in values]
    ahead = places[0]
    if places != [(rank + ahead) % world for rank in range(world)]:
        return None
    # NCCL's loops count backwards from the own rank; one ahead is the neighbour that is sent to.
    shift = "+ 1" if ahead == 1 else f"- {world - ahead}"
    scaled = f"(rank {shift}) % world" + (f" * {unit}" if unit > 1 else "")
    return f"{scaled} + {base}" if base else scaled
