"""What each collective promises: counts, pre- and postcondition per (rank, element), steps, wire bytes.

`count` is always the collective's own count argument, as in NCCL's API: AllReduce, Broadcast and Reduce count;
ReduceScatter recvcount; AllGather sendcount. `numel` is the full logical payload M.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from rsag.errors import UsageError

Contribution = tuple[int, int]
"""(source rank, element of its send buffer)"""


class Kind(str, Enum):
    """What ranks do together, by torch's names; SENDRECV is one step of a ring and no collective."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    BARRIER = "barrier"
    SENDRECV = "sendrecv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective's promise. N is the number of ranks in the group, all ranks are group ranks."""

    kind: Kind
    reduces: bool
    send_per_count: Callable[[int], int]
    recv_per_count: Callable[[int], int]
    num_steps: Callable[[int], int]
    ring_traffic: Callable[[int], Fraction]

    def send_numel(self, count: int, world_size: int) -> int:
        """Elements of the send buffer: ReduceScatter N*recvcount, the others count (NCCL, ncclFuncSendCount)."""
        return count * self.send_per_count(world_size)

    def recv_numel(self, count: int, world_size: int) -> int:
        """Elements of the receive buffer: AllGather N*sendcount, the others count (NCCL, ncclFuncRecvCount)."""
        return count * self.recv_per_count(world_size)

    def count(self, numel: int, world_size: int) -> int:
        """The count argument for a full payload of `numel` elements.

        Raises UsageError where the payload does not divide: one count serves all ranks, so it must be padded first.
        """
        widest = max(self.send_per_count(world_size), self.recv_per_count(world_size))
        if numel % widest:
            raise UsageError(
                f"{self.kind.value} over {world_size} ranks needs a multiple of {widest} elements",
                got=numel,
                do=f"pad to {-(-numel // widest) * widest}",
            )
        return numel // widest

    def precondition(self, rank: int, element: int) -> Contribution:
        """What must be in `rank`'s send buffer at `element` when the call is made: its own contribution."""
        return rank, element

    def postcondition(
        self, rank: int, element: int, *, count: int, world_size: int, root: int = 0
    ) -> tuple[Contribution, ...] | None:
        """The contributions whose reduction `rank` finds at `element` of its receive buffer.

        None where nothing is promised: at a rank that is not the root of a Reduce.
        """
        everyone = range(world_size)
        if self.kind is Kind.ALL_REDUCE:
            return tuple((source, element) for source in everyone)
        if self.kind is Kind.REDUCE_SCATTER:
            return tuple((source, rank * count + element) for source in everyone)
        if self.kind is Kind.ALL_GATHER:
            return (divmod(element, count),)
        if self.kind is Kind.BROADCAST:
            return ((root, element),)
        if self.kind is Kind.REDUCE and rank == root:
            return tuple((source, element) for source in everyone)
        return None

    def steps(self, world_size: int) -> int:
        """Steps of the ring in NCCL's tuning model (src/graph/tuning.cc): nothing moves on one rank."""
        return self.num_steps(world_size) if world_size > 1 else 0

    def wire_bytes(self, payload_bytes: int, world_size: int) -> Fraction:
        """Bytes that each rank sends, and receives, in an ideal ring for a full payload of `payload_bytes`."""
        return self.ring_traffic(world_size) * payload_bytes


def _one(_: int) -> int:
    return 1


def _world(world_size: int) -> int:
    return world_size


def _world_minus_one(world_size: int) -> int:
    return world_size - 1


def _all_but_own(world_size: int) -> Fraction:
    return Fraction(world_size - 1, world_size)


def _twice_all_but_own(world_size: int) -> Fraction:
    return 2 * _all_but_own(world_size)


def _whole_unless_alone(world_size: int) -> Fraction:
    return Fraction(int(world_size > 1))


def _nothing(_: int) -> Fraction:
    return Fraction(0)


COLLECTIVES: dict[Kind, Collective] = {
    promise.kind: promise
    for promise in (
        Collective(
            kind=Kind.ALL_REDUCE,
            reduces=True,
            send_per_count=_one,
            recv_per_count=_one,
            num_steps=lambda world_size: 2 * (world_size - 1),
            ring_traffic=_twice_all_but_own,
        ),
        Collective(
            kind=Kind.REDUCE_SCATTER,
            reduces=True,
            send_per_count=_world,
            recv_per_count=_one,
            num_steps=_world_minus_one,
            ring_traffic=_all_but_own,
        ),
        Collective(
            kind=Kind.ALL_GATHER,
            reduces=False,
            send_per_count=_one,
            recv_per_count=_world,
            num_steps=_world_minus_one,
            ring_traffic=_all_but_own,
        ),
        Collective(
            kind=Kind.BROADCAST,
            reduces=False,
            send_per_count=_one,
            recv_per_count=_one,
            num_steps=_world,
            ring_traffic=_whole_unless_alone,
        ),
        Collective(
            kind=Kind.REDUCE,
            reduces=True,
            send_per_count=_one,
            recv_per_count=_one,
            num_steps=_world,
            ring_traffic=_whole_unless_alone,
        ),
        Collective(
            kind=Kind.BARRIER,
            reduces=False,
            send_per_count=lambda _: 0,
            recv_per_count=lambda _: 0,
            num_steps=lambda _: 0,
            ring_traffic=_nothing,
        ),
    )
}
