"""What programs cost, counted by hand on small worlds."""

from __future__ import annotations

import pytest

from rsag.collectives import Kind
from rsag.compositions import COMPOSITIONS, find
from rsag.interpreters.ledger import Ledger, Moment, ledger
from rsag.programs import Composition, Recorder, Role, View, record_all
from rsag.reduction import ReduceOp

ITEMSIZE = 4


def ledger_of(composition: Composition | str, world_size: int, numel: int) -> Ledger:
    found = find(composition) if isinstance(composition, str) else composition
    return ledger(record_all(found, world_size=world_size, numel=numel, op=ReduceOp.SUM), ITEMSIZE)


def live(moment: Moment) -> dict[Role, int]:
    """Elements by role, empty roles left out."""
    return {role: num_bytes // ITEMSIZE for role, num_bytes in moment.live_bytes.items() if num_bytes}


def test_the_timeline_of_naive_tells_roles_and_source_lines() -> None:
    timeline = ledger_of("rs_ag_naive", 4, 20).ranks[1].timeline
    assert [
        ("allocate input", {Role.INPUT: 20}),
        ("allocate shard", {Role.INPUT: 20, Role.SHARD: 5}),
        ("allocate gathered", {Role.INPUT: 20, Role.SHARD: 5, Role.GATHERED: 20}),
        ("release input", {Role.SHARD: 5, Role.GATHERED: 20}),
        ("release shard", {Role.GATHERED: 20}),
    ] == [(moment.what, live(moment)) for moment in timeline]
    caller, *others = [moment.site for moment in timeline]
    assert caller == "caller"
    assert all(site.startswith("compositions/reduce_scatter_all_gather.py:") for site in others)


def test_early_release_never_holds_input_and_gathered_at_once() -> None:
    for moment in ledger_of("rs_ag_early_release", 4, 20).ranks[0].timeline:
        assert not {Role.INPUT, Role.GATHERED} <= live(moment).keys()


def test_in_place_has_one_moment() -> None:
    [only] = ledger_of("rs_ag_in_place", 4, 20).ranks[0].timeline
    assert {Role.INPUT: 20} == live(only)


def test_padding_is_a_role_of_its_own_and_goes_over_the_wire() -> None:
    rank = ledger_of("rs_ag_padded", 4, 1003).ranks[3]
    assert [{Role.INPUT: 1003}, {Role.INPUT: 1003, Role.PADDING: 1004}, {Role.PADDING: 1004}] == [
        live(moment) for moment in rank.timeline
    ]
    assert 1004 * ITEMSIZE * 6 / 4 == rank.sent_bytes == rank.received_bytes
    assert ((1003 + 1004) * ITEMSIZE, 1004 * ITEMSIZE) == (rank.peak_bytes, rank.steady_bytes)


def test_what_peers_read_is_received_by_the_reader_and_sent_by_the_owner() -> None:
    costs = ledger_of("peer", 4, 20)
    slices = 2 * 3 * 5 * ITEMSIZE
    assert [(slices, slices)] * 4 == [(row.sent_bytes, row.received_bytes) for row in costs.ranks]
    assert {Kind.BARRIER: 3} == costs.ranks[0].calls


def test_one_reader_makes_the_others_send() -> None:
    def run(m: Recorder, full: View, op: str) -> View:
        m.barrier()
        if m.rank == 0:
            m.copy(full, m.peer(full, 2))
        m.barrier()
        return full

    costs = ledger_of(Composition(name="reader", run=run, summary="", symmetric=True), 3, 6)
    assert [0, 0, 24] == [row.sent_bytes for row in costs.ranks]
    assert [24, 0, 0] == [row.received_bytes for row in costs.ranks]


def test_reduce_and_broadcast_are_chains_to_and_from_the_root() -> None:
    """Reduce: 1 -> 2 -> 3 -> 0. Broadcast: 0 -> 1 -> 2 -> 3. The root does each half, its neighbours an end each."""
    costs = ledger_of("reduce_broadcast", 4, 20)
    payload = 20 * ITEMSIZE
    assert [1, 2, 2, 1] == [row.sent_bytes / payload for row in costs.ranks]
    assert [1, 1, 2, 2] == [row.received_bytes / payload for row in costs.ranks]


def test_a_ring_sends_a_chunk_a_step() -> None:
    costs = ledger_of("ring_reduce_scatter", 4, 20)
    assert (3, {Kind.SENDRECV: 3}) == (costs.steps, costs.ranks[2].calls)
    assert (3 * 5 * ITEMSIZE, 3 * 5 * ITEMSIZE) == (costs.ranks[2].sent_bytes, costs.ranks[2].received_bytes)


def test_two_levels_are_shorter_chains_for_the_same_bytes() -> None:
    assert (4, 6) == (ledger_of("two_level", 4, 20).steps, ledger_of("all_reduce", 4, 20).steps)
    assert ledger_of("two_level", 4, 20).ranks[0].sent_bytes == ledger_of("all_reduce", 4, 20).ranks[0].sent_bytes


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_what_is_sent_is_received(composition: Composition, world_size: int) -> None:
    costs = ledger_of(composition, world_size, 2 * world_size)
    assert sum(row.sent_bytes for row in costs.ranks) == pytest.approx(sum(row.received_bytes for row in costs.ranks))


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_nothing_moves_on_one_rank(composition: Composition) -> None:
    costs = ledger_of(composition, 1, 8)
    [row] = costs.ranks
    assert (0, 0, 0) == (costs.steps, row.sent_bytes, row.received_bytes)
