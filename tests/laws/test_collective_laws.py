"""What each collective promises, and that AllReduce's promise is AllGather's after ReduceScatter's."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.collectives import COLLECTIVES, Contribution, Kind
from rsag.errors import UsageError

AR, RS, AG = (COLLECTIVES[kind] for kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER))

counts = st.integers(0, 20)
world_sizes = st.integers(1, 12)
payloads = st.integers(0, 1 << 30)


@given(counts, world_sizes)
def test_send_and_receive_buffers_are_sized_as_in_nccl(count: int, n: int) -> None:
    sizes = {
        kind: (promise.send_numel(count, n), promise.recv_numel(count, n)) for kind, promise in COLLECTIVES.items()
    }
    assert {
        Kind.ALL_REDUCE: (count, count),
        Kind.REDUCE_SCATTER: (n * count, count),
        Kind.ALL_GATHER: (count, n * count),
        Kind.BROADCAST: (count, count),
        Kind.REDUCE: (count, count),
        Kind.BARRIER: (0, 0),
    } == sizes


@given(counts, world_sizes, st.sampled_from([kind for kind in COLLECTIVES if kind is not Kind.BARRIER]))
def test_the_count_is_recovered_from_the_full_payload(count: int, n: int, kind: Kind) -> None:
    promise = COLLECTIVES[kind]
    full = max(promise.send_numel(count, n), promise.recv_numel(count, n))
    assert count == promise.count(full, n)


@given(counts, st.integers(2, 12), st.data())
def test_a_payload_that_does_not_divide_must_be_padded(count: int, n: int, data: st.DataObject) -> None:
    numel = count * n + data.draw(st.integers(1, n - 1))
    for promise in (RS, AG):
        with pytest.raises(UsageError, match=f"pad to {(count + 1) * n}"):
            promise.count(numel, n)


@given(st.integers(2, 64))
def test_steps_are_those_of_the_ring(n: int) -> None:
    assert {
        Kind.ALL_REDUCE: 2 * (n - 1),
        Kind.REDUCE_SCATTER: n - 1,
        Kind.ALL_GATHER: n - 1,
        Kind.BROADCAST: n,
        Kind.REDUCE: n,
        Kind.BARRIER: 0,
    } == {kind: promise.steps(n) for kind, promise in COLLECTIVES.items()}


@given(st.integers(2, 64), payloads)
def test_wire_bytes_are_those_of_the_ring(n: int, payload: int) -> None:
    assert {
        Kind.ALL_REDUCE: Fraction(2 * (n - 1), n) * payload,
        Kind.REDUCE_SCATTER: Fraction(n - 1, n) * payload,
        Kind.ALL_GATHER: Fraction(n - 1, n) * payload,
        Kind.BROADCAST: payload,
        Kind.REDUCE: payload,
        Kind.BARRIER: 0,
    } == {kind: promise.wire_bytes(payload, n) for kind, promise in COLLECTIVES.items()}


@given(payloads, st.sampled_from(list(COLLECTIVES)))
def test_nothing_moves_on_one_rank(payload: int, kind: Kind) -> None:
    promise = COLLECTIVES[kind]
    assert 0 == promise.steps(1) == promise.wire_bytes(payload, 1)


@given(world_sizes, payloads)
def test_the_halves_cost_what_the_whole_costs(n: int, payload: int) -> None:
    assert (AR.steps(n), AR.wire_bytes(payload, n)) == (
        RS.steps(n) + AG.steps(n),
        RS.wire_bytes(payload, n) + AG.wire_bytes(payload, n),
    )


@given(st.integers(1, 8), world_sizes, st.data())
def test_all_reduce_is_all_gather_after_reduce_scatter(count: int, n: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, n - 1))
    element = data.draw(st.integers(0, n * count - 1))
    whole = AR.postcondition(rank, element, count=n * count, world_size=n)
    gathered = AG.postcondition(rank, element, count=count, world_size=n)
    assert gathered is not None
    halves: list[Contribution] = []
    for source, position in gathered:
        halves += RS.postcondition(source, position, count=count, world_size=n) or ()
    assert list(whole or ()) == halves


@given(st.integers(1, 8), world_sizes, st.data())
def test_all_reduce_is_broadcast_after_reduce_whatever_the_root(count: int, n: int, data: st.DataObject) -> None:
    rank, root = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    element = data.draw(st.integers(0, count - 1))
    sent = COLLECTIVES[Kind.BROADCAST].postcondition(rank, element, count=count, world_size=n, root=root)
    assert sent is not None
    ((source, position),) = sent
    reduced = COLLECTIVES[Kind.REDUCE].postcondition(source, position, count=count, world_size=n, root=root)
    assert AR.postcondition(rank, element, count=count, world_size=n) == reduced


def test_reduce_promises_nothing_away_from_the_root() -> None:
    reduce = COLLECTIVES[Kind.REDUCE]
    promised = [reduce.postcondition(rank, 0, count=1, world_size=3, root=1) for rank in range(3)]
    assert promised == [None, ((0, 0), (1, 0), (2, 0)), None]


@given(st.sampled_from(list(COLLECTIVES)), st.integers(0, 7), st.integers(0, 7))
def test_a_rank_contributes_its_own_element(kind: Kind, rank: int, element: int) -> None:
    assert (rank, element) == COLLECTIVES[kind].precondition(rank, element)
