"""All ranks together: who meets whom, who gets stuck, and what may be read and written."""

from __future__ import annotations

import pytest
from small_worlds import programs, refutation, run, verdict

from rsag.interpreters import machine
from rsag.interpreters.symbols import Symbols
from rsag.programs import Recorder, View
from rsag.records.proof import Contract
from rsag.reduction import ReduceOp

# ---------------------------------------------------------------------------------------------------------- agreement


def test_sizes_must_agree() -> None:
    found = refutation(programs(lambda m, full: m.all_reduce(full[: 1 + m.rank], "sum"), numel=2))
    assert (Contract.AGREEMENT, 2) == (found.contract, len(found.sites))
    assert found.message == "call 0 of group (0, 1): rank 0 issues all_reduce(1, sum), rank 1 all_reduce(2, sum)"


def test_operators_must_agree() -> None:
    assert Contract.AGREEMENT is verdict(programs(lambda m, full: m.all_reduce(full, ("sum", "max")[m.rank])))


def test_kinds_must_agree() -> None:
    def body(m: Recorder, full: View) -> None:
        if m.rank:
            m.broadcast(full, root=0)
        else:
            m.all_reduce(full, "sum")

    assert Contract.AGREEMENT is verdict(programs(body))


def test_roots_must_agree() -> None:
    assert Contract.AGREEMENT is verdict(programs(lambda m, full: m.broadcast(full, root=m.rank)))


def test_a_message_has_the_size_that_is_expected() -> None:
    def body(m: Recorder, full: View) -> None:
        if m.rank:
            m.sendrecv(full, 0, None, None)
        else:
            m.sendrecv(None, None, full[:1], 1)

    found = refutation(programs(body, numel=2))
    assert (Contract.AGREEMENT, "rank 0 sends 1 elements, rank 1 expects 2") == (found.contract, found.message)


def test_agreement_is_per_group_and_not_over_the_whole_program() -> None:
    def body(m: Recorder, full: View) -> None:
        m.sub((m.rank,)).all_reduce(full[: m.rank], "sum")
        m.all_reduce(full, "sum")

    assert [[{"x[0][0]": 1, "x[1][0]": 1}]] * 2 == run(programs(body))


# ------------------------------------------------------------------------------------------------------------ matching


def test_calls_of_a_group_meet_in_the_order_of_issue() -> None:
    """A swapped pair of one kind and size completes, with the values crossed."""

    def body(m: Recorder, full: View) -> None:
        halves = (full[:1], full[1:])
        for half in halves if m.rank == 0 else halves[::-1]:
            m.all_reduce(half, "sum")

    mixed = {"x[0][0]": 1, "x[1][1]": 1}, {"x[0][1]": 1, "x[1][0]": 1}
    assert [list(mixed), list(mixed[::-1])] == run(programs(body, numel=2))


def test_the_same_members_in_another_order_are_another_group() -> None:
    def body(m: Recorder, full: View) -> None:
        m.sub((0, 1) if m.rank == 0 else (1, 0)).all_reduce(full, "sum")

    assert Contract.PROGRESS is verdict(programs(body))


def test_messages_of_one_group_never_meet_those_of_another() -> None:
    def body(m: Recorder, full: View) -> None:
        if m.rank == 0:
            m.sendrecv(None, None, full, 1)
        else:
            m.sub((1, 0)).sendrecv(full, 1, None, None)

    assert Contract.PROGRESS is verdict(programs(body))


def test_messages_between_two_ranks_arrive_in_the_order_of_sending() -> None:
    def body(m: Recorder, full: View) -> None:
        for element in range(2):
            if m.rank:
                m.sendrecv(full[element : element + 1], 0, None, None)
            else:
                m.sendrecv(None, None, full[element : element + 1], 1)

    assert [{"x[0][0]": 1}, {"x[0][1]": 1}] == run(programs(body, numel=2))[1]


def test_a_gather_is_in_group_rank_order() -> None:
    def body(m: Recorder, full: View) -> View:
        gathered = m.allocate(3)
        m.sub((2, 0, 1)).all_gather(gathered, full)
        return gathered

    assert [[{"x[2][0]": 1}, {"x[0][0]": 1}, {"x[1][0]": 1}]] * 3 == run(programs(body, world_size=3))


def test_a_broadcast_s_root_counts_within_the_group() -> None:
    def body(m: Recorder, full: View) -> None:
        m.sub((2, 0, 1)).broadcast(full, root=0)

    assert [[{"x[2][0]": 1}]] * 3 == run(programs(body, world_size=3))


def test_a_rank_may_send_to_itself() -> None:
    def body(m: Recorder, full: View) -> None:
        m.sendrecv(full[:1], 0, full[1:], 0)

    assert [[{"x[0][1]": 1}, {"x[0][1]": 1}]] == run(programs(body, world_size=1, numel=2))


# ------------------------------------------------------------------------------------------------------------ progress


def test_sending_before_receiving_ends_nowhere() -> None:
    def body(m: Recorder, full: View) -> None:
        other = 1 - m.rank
        m.sendrecv(None, None, full[:1], other)
        m.sendrecv(full[1:], other, None, None)

    found = refutation(programs(body, numel=2))
    assert (Contract.PROGRESS, 1) == (found.contract, len(found.sites))
    assert "rank 0 waits in sendrecv, rank 1 waits in sendrecv" in found.message


def test_sending_and_receiving_in_one_call_ends() -> None:
    def body(m: Recorder, full: View) -> None:
        m.sendrecv(full[1:], 1 - m.rank, full[:1], 1 - m.rank)

    assert [[{"x[0][0]": 1}, {"x[1][0]": 1}], [{"x[1][0]": 1}, {"x[0][0]": 1}]] == run(programs(body, numel=2))


def test_a_call_that_one_rank_skips_ends_nowhere() -> None:
    found = refutation(programs(lambda m, full: m.barrier() if m.rank else None))
    assert (Contract.PROGRESS, 1) == (found.contract, found.rank)


def test_blocking_calls_on_two_groups_in_crossed_order_end_nowhere() -> None:
    def body(m: Recorder, full: View) -> None:
        groups = [m.sub((0, 1)), m.sub((1, 0))]
        for group in groups if m.rank else groups[::-1]:
            group.all_reduce(full, "sum")

    assert Contract.PROGRESS is verdict(programs(body))


def test_started_calls_on_two_groups_in_crossed_order_end_nowhere() -> None:
    """NCCL may run one call of a rank at a time, so calls on different communicators must be issued in one order."""

    def body(m: Recorder, full: View) -> None:
        groups = [(m.sub((0, 1)), full[:1]), (m.sub((1, 0)), full[1:])]
        tokens = [group.all_reduce(view, "sum", start=True) for group, view in groups[:: 1 if m.rank else -1]]
        for token in tokens:
            m.wait(token)

    assert Contract.PROGRESS is verdict(programs(body, numel=2))


def test_a_started_call_keeps_later_ones_of_its_rank_waiting() -> None:
    """Rank 0's message is behind its all_reduce, which waits for rank 1, which waits for the message."""

    def body(m: Recorder, full: View) -> None:
        if m.rank == 0:
            token = m.all_reduce(full[:1], "sum", start=True)
            m.sendrecv(None, None, full[1:], 1)
            m.wait(token)
        else:
            m.sendrecv(full[1:], 0, None, None)
            m.all_reduce(full[:1], "sum")

    assert Contract.PROGRESS is verdict(programs(body, numel=2))


def test_started_calls_in_one_order_may_be_waited_for_in_any() -> None:
    def body(m: Recorder, full: View) -> None:
        tokens = [m.all_reduce(full[index : index + 1], "sum", start=True) for index in range(2)]
        for token in tokens if m.rank else tokens[::-1]:
            m.wait(token)

    both = [{f"x[{rank}][{element}]": 1 for rank in range(2)} for element in range(2)]
    assert [both, both] == run(programs(body, numel=2))


# -------------------------------------------------------------------------------------------------------------- memory


def test_unwritten_memory_is_not_read() -> None:
    found = refutation(programs(lambda m, full: m.copy(full, m.allocate(1))))
    assert (Contract.RESULT, "rank 0's copy reads unwritten memory") == (found.contract, found.message)


def test_released_memory_is_not_read() -> None:
    def body(m: Recorder, full: View) -> None:
        staging = m.allocate(1)
        m.copy(staging, full)
        m.release(staging)
        m.copy(full, staging)

    assert Contract.ORDER is verdict(programs(body))


@pytest.mark.parametrize("how", ["copy", "all_gather", "sendrecv", "release"])
def test_released_memory_is_not_written_nor_released_again(how: str) -> None:
    def body(m: Recorder, full: View) -> None:
        staging = m.allocate(2)
        m.release(staging)
        if how == "copy":
            m.copy(staging[:1], full)
        elif how == "all_gather":
            m.all_gather(staging, full)
        elif how == "sendrecv":
            m.sendrecv(staging[:1], 1 - m.rank, full, 1 - m.rank)
        else:
            m.release(staging)

    found = refutation(programs(body))
    assert (Contract.ORDER, True) == (found.contract, "after the buffer's release" in found.message)


def test_a_reduce_leaves_nothing_to_read_away_from_its_root() -> None:
    """Gloo leaves partial sums there."""

    def body(m: Recorder, full: View) -> View:
        m.reduce(full, "sum", root=0)
        kept = m.allocate(1)
        m.copy(kept, full)
        return kept

    assert "rank 1's copy reads unwritten memory" == refutation(programs(body)).message


def test_an_undefined_rest_may_be_overwritten() -> None:
    def body(m: Recorder, full: View) -> None:
        m.reduce(full, "sum", root=0)
        m.broadcast(full, root=0)

    assert [[{"x[0][0]": 1, "x[1][0]": 1}]] * 2 == run(programs(body))


# ------------------------------------------------------------------------------------------------------------ in place


def test_in_place_is_the_rank_s_own_slice() -> None:
    def body(m: Recorder, full: View) -> None:
        mine = full[m.rank : m.rank + 1]
        m.reduce_scatter(mine, full, "sum")
        m.all_gather(full, mine)

    assert verdict(programs(body, numel=2)) is None


@pytest.mark.parametrize("call", ["reduce_scatter", "all_gather", "sendrecv"])
def test_any_other_overlap_is_refuted(call: str) -> None:
    def body(m: Recorder, full: View) -> None:
        other = full[1 - m.rank : 2 - m.rank]
        if call == "reduce_scatter":
            m.reduce_scatter(other, full, "sum")
        elif call == "all_gather":
            m.all_gather(full, other)
        else:
            m.sendrecv(other, 1 - m.rank, other, 1 - m.rank)

    found = refutation(programs(body, numel=2))
    assert (Contract.ORDER, True) == (found.contract, "the output overlaps the input" in found.message)


def test_in_a_subgroup_the_own_slice_is_the_group_rank_s() -> None:
    def by(index: int) -> Contract | None:
        def body(m: Recorder, full: View) -> None:
            group = m.sub((1, 0))
            at = group.rank if index == 0 else m.rank
            group.reduce_scatter(full[at : at + 1], full, "sum")
            group.all_gather(full, full[at : at + 1])

        return verdict(programs(body, numel=2))

    assert (None, Contract.ORDER) == (by(0), by(1))


# --------------------------------------------------------------------------------------------------------------- peers


def test_a_peer_s_buffer_has_the_size_of_one_s_own() -> None:
    def body(m: Recorder, full: View) -> None:
        shared = m.allocate(1 + m.rank, symmetric=True)
        m.fill(shared, 0)
        m.barrier()
        if m.rank:
            m.copy(full, m.peer(shared, 0)[1:])
        m.barrier()

    found = refutation(programs(body))
    assert (Contract.AGREEMENT, True) == (found.contract, "not the counterpart" in found.message)


def test_a_peer_s_buffer_must_be_symmetric_there_too() -> None:
    def body(m: Recorder, full: View) -> None:
        shared = m.allocate(1, symmetric=m.rank == 1)
        m.fill(shared, 0)
        m.barrier()
        if m.rank:
            m.copy(full, m.peer(shared, 0))
        m.barrier()

    assert Contract.AGREEMENT is verdict(programs(body))


# --------------------------------------------------------------------------------------------------------------- steps


def test_the_chain_of_a_started_call_goes_on_from_the_group_s_last() -> None:
    def body(m: Recorder, full: View) -> None:
        for token in [m.all_reduce(full[index : index + 1], "sum", start=True) for index in range(2)]:
            m.wait(token)

    recorded = programs(body, world_size=3, numel=2)
    assert [2 * 4] * 3 == machine.run(recorded, Symbols(ReduceOp.SUM)).steps


def test_the_shards_of_a_full_reduce_scatter_are_kept_with_their_ranks() -> None:
    def body(m: Recorder, full: View) -> View:
        mine = m.allocate(1)
        m.sub((1, 0)).reduce_scatter(mine, full, "sum")
        return mine

    symbols = Symbols(ReduceOp.SUM)
    shards = machine.run(programs(body, numel=2), symbols).shards
    held = {shard.rank: symbols.contributions(shard.cells[0]) for shard in shards}
    assert {1: {"x[0][0]": 1, "x[1][0]": 1}, 0: {"x[0][1]": 1, "x[1][1]": 1}} == held


# -------------------------------------------------------------------------------------------------- what needs a log


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda m, full: m.all_reduce(full, "sum"), False),
        (lambda m, full: m.wait(m.all_reduce(full, "sum", start=True)), True),
        (lambda m, full: m.wait(m.copy(m.allocate(1), full, start=True)), True),
        (lambda m, full: m.copy(m.allocate(1), m.peer(full, 1 - m.rank)), True),
    ],
    ids=["blocking", "started call", "started copy", "peer"],
)
def test_order_is_in_question_once_something_is_started_or_a_peer_is_read(body, expected) -> None:  # type: ignore[no-untyped-def]
    assert expected == machine.needs_order(programs(body, symmetric=True))
