"""How a tensor of M elements is split over N ranks: who owns what, what is padding, what is empty."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from rsag.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """Equal shards of q = ceil(M/N) elements in rank order, as ReduceScatter and AllGather want them.

    `numel` M counts the user's elements; the last shards may be partly or wholly padding. Ranks are *group* ranks.
    """

    numel: int
    world_size: int

    def __post_init__(self) -> None:
        _check(self.numel, self.world_size)

    @property
    def shard_numel(self) -> int:
        """q, the elements of every shard, padding included."""
        return -(-self.numel // self.world_size)

    @property
    def padded_numel(self) -> int:
        return self.shard_numel * self.world_size

    @property
    def padding(self) -> int:
        """How many elements of padding follow the M logical ones."""
        return self.padded_numel - self.numel

    def slot(self, rank: int) -> tuple[int, int]:
        """The half-open range of padded elements that is `rank`'s shard."""
        q = self.shard_numel
        return _rank(rank, self.world_size) * q, (rank + 1) * q

    def valid_range(self, rank: int) -> tuple[int, int]:
        """The half-open range of *logical* elements in `rank`'s shard; empty (start == stop) where all is padding."""
        start, stop = self.slot(rank)
        return min(start, self.numel), min(stop, self.numel)

    def owner(self, element: int) -> int:
        """The rank whose shard holds logical `element`."""
        return _element(element, self.numel) // self.shard_numel

    def is_empty(self, rank: int) -> bool:
        """Whether `rank` owns no logical element, which happens to the last ranks when M is small against N."""
        start, stop = self.valid_range(rank)
        return start == stop

    def trim(self, padded: Sequence[T]) -> Sequence[T]:
        """The logical elements of a padded sequence."""
        if len(padded) != self.padded_numel:
            raise UsageError("trim of a sequence of another length", got=len(padded), expected=self.padded_numel)
        return padded[: self.numel]


@dataclass(frozen=True, slots=True)
class UnevenLayout:
    """Shards of the sizes given, in rank order, without padding: MPI's vector collectives, FSDP's last rank."""

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        _check(min(self.counts, default=0), len(self.counts))

    @classmethod
    def balanced(cls, numel: int, world_size: int) -> UnevenLayout:
        """Sizes that differ by one at most, the larger first."""
        _check(numel, world_size)
        base, extra = divmod(numel, world_size)
        return cls(tuple(base + (rank < extra) for rank in range(world_size)))

    @classmethod
    def unpadded(cls, layout: ShardLayout) -> UnevenLayout:
        """The valid parts of a padded layout, as `torch.chunk` cuts them: short and empty shards last."""
        ranges = (layout.valid_range(rank) for rank in range(layout.world_size))
        return cls(tuple(stop - start for start, stop in ranges))

    @property
    def numel(self) -> int:
        return sum(self.counts)

    @property
    def world_size(self) -> int:
        return len(self.counts)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each rank's shard starts."""
        return tuple(accumulate(self.counts[:-1], initial=0))

    def valid_range(self, rank: int) -> tuple[int, int]:
        """The half-open range of elements in `rank`'s shard."""
        start = self.offsets[_rank(rank, self.world_size)]
        return start, start + self.counts[rank]

    def owner(self, element: int) -> int:
        """The rank whose shard holds `element`; an empty shard owns none."""
        return bisect_right(tuple(accumulate(self.counts)), _element(element, self.numel))

    def is_empty(self, rank: int) -> bool:
        return self.counts[_rank(rank, self.world_size)] == 0


def _check(numel: int, world_size: int) -> None:
    if world_size < 1:
        raise UsageError("a layout needs at least one rank", got=world_size)
    if numel < 0:
        raise UsageError("a layout cannot have a negative number of elements", got=numel)


def _rank(rank: int, world_size: int) -> int:
    if not 0 <= rank < world_size:
        raise UsageError("no such rank in this layout", got=rank, expected=f"0 to {world_size - 1}")
    return rank


def _element(element: int, numel: int) -> int:
    if not 0 <= element < numel:
        raise UsageError("no such element in this layout", got=element, expected=f"0 to {numel - 1}")
    return element
