"""Which worlds a proof is asked for: rank counts and payload sizes, as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rsag.errors import UsageError

DEFAULT_RANKS = "1-8"
DEFAULT_NUMELS = "0,1,N-1,N,N+1,2N+1,3N"

_RANGE = re.compile(r"(\d+)-(\d+)\Z")
_LINEAR = re.compile(r"(\d*)N(?:([+-])(\d+))?\Z")


def parse_ranks(text: str) -> tuple[int, ...]:
    """Rank counts: numbers and ranges, for example `1-8` or `2,4,8,16`."""
    sizes: set[int] = set()
    for part in text.replace(" ", "").split(","):
        found = _RANGE.match(part)
        if found:
            sizes.update(range(int(found[1]), int(found[2]) + 1))
        elif part.isdigit():
            sizes.add(int(part))
        else:
            raise UsageError("not a list of rank counts", got=repr(text), expected="for example 1-8 or 2,4,8")
    if not sizes or min(sizes) < 1:
        raise UsageError("a world has at least one rank", got=repr(text), expected="counts from 1 up")
    return tuple(sorted(sizes))


@dataclass(frozen=True, slots=True)
class Numels:
    """Payload sizes that may depend on the number of ranks: each term is (factor of N, constant)."""

    text: str
    terms: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> Numels:
        """Numbers, ranges and expressions in N: `0,1,N-1,N,2N+1` or `1-40`."""
        terms: list[tuple[int, int]] = []
        for part in text.replace(" ", "").split(","):
            linear, span = _LINEAR.match(part), _RANGE.match(part)
            if linear:
                constant = int(linear[3] or 0) * (-1 if linear[2] == "-" else 1)
                terms.append((int(linear[1] or 1), constant))
            elif span and int(span[1]) <= int(span[2]):
                terms.extend((0, numel) for numel in range(int(span[1]), int(span[2]) + 1))
            elif part.isdigit():
                terms.append((0, int(part)))
            else:
                raise UsageError("not a list of sizes", got=repr(text), expected="for example 0,1,N-1,N,2N+1 or 1-40")
        return cls(text, tuple(terms))

    def at(self, world_size: int) -> tuple[int, ...]:
        """The distinct sizes on `world_size` ranks, negative ones left out."""
        sizes = {factor * world_size + constant for factor, constant in self.terms}
        return tuple(sorted(size for size in sizes if size >= 0))
