"""The happens-before rule, one behaviour at a time.

Most worlds here pass a value by peer memory: rank 0 writes, something may order it, rank 1 reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from small_worlds import Body, programs, refutation, run, verdict

from rsag.programs import Program, Recorder, View
from rsag.records.proof import Contract

Between = Callable[[Recorder, View], object]


def handed_over(between: Between, *, writer: int = 0, numel: int = 1) -> Contract | None:
    """`writer` writes its shared buffer, `between` happens, the other rank reads it; everybody meets at the end."""

    def body(m: Recorder, full: View) -> None:
        shared = m.allocate(numel, symmetric=True)
        m.fill(shared, 0)
        m.barrier()
        if m.rank == writer:
            m.fill(shared, 1)
        between(m, full)
        if m.rank != writer:
            m.copy(full, m.peer(shared, writer))
        m.barrier()

    return verdict(programs(body, numel=numel, symmetric=True))


# ------------------------------------------------------------------------------------------------- what orders, and how


def test_nothing_in_between_is_a_race() -> None:
    assert Contract.ORDER is handed_over(lambda m, full: None)


def test_a_barrier_orders() -> None:
    assert handed_over(lambda m, full: m.barrier()) is None


def test_a_barrier_of_a_subgroup_orders_its_members_only() -> None:
    def by(group: tuple[int, int]) -> Contract | None:
        def body(m: Recorder, full: View) -> None:
            m.barrier()
            if m.rank == 0:
                m.fill(full, 1)
            if m.rank in group:
                m.sub(group).barrier()
            if m.rank == 2:
                m.copy(full, m.peer(full, 0))
            m.barrier()

        return verdict(programs(body, world_size=3, symmetric=True))

    assert (None, Contract.ORDER) == (by((0, 2)), by((0, 1)))


def test_order_is_transitive_through_a_third_rank() -> None:
    def body(m: Recorder, full: View) -> None:
        note = m.allocate(1)
        m.fill(note, 0)
        m.barrier()
        if m.rank == 0:
            m.fill(full, 1)
            m.sendrecv(None, None, note, 1)
        elif m.rank == 1:
            m.sendrecv(note, 0, None, None)
            m.sendrecv(None, None, note, 2)
        else:
            m.sendrecv(note, 1, None, None)
            m.copy(full, m.peer(full, 0))
        m.barrier()

    assert verdict(programs(body, world_size=3, symmetric=True)) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda m, full: m.all_reduce(full, "sum"),
        lambda m, full: m.reduce_scatter(m.allocate(1), full, "sum"),
        lambda m, full: m.all_gather(m.allocate(4), full),
        lambda m, full: m.sendrecv(m.allocate(2), 1 - m.rank, full, 1 - m.rank),
    ],
    ids=["all_reduce", "reduce_scatter", "all_gather", "sendrecv both ways"],
)
def test_data_from_everybody_orders_everybody(call: Between) -> None:
    assert (None, None) == tuple(handed_over(call, writer=writer, numel=2) for writer in range(2))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda m, full: m.broadcast(full, root=0), (None, Contract.ORDER)),
        (lambda m, full: m.broadcast(full, root=1), (Contract.ORDER, None)),
        (lambda m, full: m.reduce(full, "sum", root=0), (Contract.ORDER, None)),
        (
            lambda m, full: m.sendrecv(*((full, 0, None, None) if m.rank else (None, None, full, 1))),
            (None, Contract.ORDER),
        ),
    ],
    ids=["broadcast from 0", "broadcast from 1", "reduce to 0", "0 sends to 1"],
)
def test_data_one_way_orders_one_way(call: Between, expected: tuple[Contract | None, Contract | None]) -> None:
    """Expected: what is found where rank 0 writes and rank 1 reads, and the reverse."""
    assert expected == tuple(handed_over(call, writer=writer) for writer in range(2))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, full: m.all_reduce(full[:0], "sum"),
        lambda m, full: m.all_gather(full[:0], full[:0]),
        lambda m, full: m.sendrecv(full[:0], 1 - m.rank, full[1:], 1 - m.rank),
    ],
    ids=["all_reduce", "all_gather", "sendrecv"],
)
def test_what_moves_nothing_orders_nothing(call: Between) -> None:
    assert Contract.ORDER is handed_over(call)


def test_a_collective_that_was_started_orders_at_its_wait() -> None:
    def body(waits_first: bool) -> Body:
        def inner(m: Recorder, full: View) -> None:
            m.barrier()
            if m.rank == 0:
                m.fill(full[:1], 1)
            token = m.all_reduce(full[1:], "sum", start=True)
            if waits_first:
                m.wait(token)
            if m.rank:
                m.copy(full[:1], m.peer(full[:1], 0))
            if not waits_first:
                m.wait(token)
            m.barrier()

        return inner

    found = [verdict(programs(body(waits_first), numel=2, symmetric=True)) for waits_first in (True, False)]
    assert [None, Contract.ORDER] == found


def test_that_my_collective_has_ended_does_not_mean_that_a_peer_s_result_is_written() -> None:
    def body(m: Recorder, full: View) -> None:
        m.all_reduce(full, "sum")
        if m.rank:
            m.copy(full, m.peer(full, 0))
        m.barrier()

    assert "rank 0's all_reduce (write) and rank 1's copy (read)" in refutation(programs(body, symmetric=True)).message


def test_blocking_calls_of_one_rank_are_in_order() -> None:
    def body(m: Recorder, full: View) -> None:
        m.all_reduce(full, "sum")
        m.fill(full, 0)
        m.broadcast(full, root=0)

    assert verdict(programs(body)) is None


# ----------------------------------------------------------------------------------------------------- before the wait


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda m, full, out: m.copy(m.allocate(2), full), None),
        (lambda m, full, out: m.fill(full, 0), Contract.ORDER),
        (lambda m, full, out: m.copy(m.allocate(1), out), Contract.ORDER),
        (lambda m, full, out: m.fill(out, 0), Contract.ORDER),
        (lambda m, full, out: m.all_reduce(out, "sum"), Contract.ORDER),
    ],
    ids=[
        "input read",
        "input written",
        "output read",
        "output written",
        "output sent on",
    ],
)
def test_what_a_started_call_uses_is_its_own_until_the_wait(
    use: Callable[[Recorder, View, View], object], expected: Contract | None
) -> None:
    def body(m: Recorder, full: View) -> View:
        out, result = m.allocate(1), m.allocate(1)
        m.fill(out, 0)
        token = m.reduce_scatter(out, full, "sum", start=True)
        use(m, full, out)
        m.wait(token)
        return result

    assert expected is verdict(programs(body, numel=2, consumes=True))


@pytest.mark.parametrize("released", ["full", "out"])
def test_a_release_in_flight_is_a_race_in_a_program_that_no_recorder_made(released: str) -> None:
    def body(m: Recorder, full: View) -> View:
        out, result = m.allocate(1), m.allocate(1)
        m.wait(m.reduce_scatter(out, full, "sum", start=True))
        m.release(full if released == "full" else out)
        return result

    def swapped(program: Program) -> Program:
        *before, wait, release = program.code
        return dataclasses.replace(program, code=(*before, release, wait))

    recorded = programs(body, numel=2, consumes=True)
    assert verdict(recorded) is None
    assert Contract.ORDER is verdict(tuple(map(swapped, recorded)))


def test_a_started_copy_holds_both_its_ends() -> None:
    def body(touch: str) -> Body:
        def inner(m: Recorder, full: View) -> None:
            out = m.allocate(1)
            token = m.copy(out, full, start=True)
            if touch == "source":
                m.fill(full, 0)
            elif touch == "destination":
                m.fill(out, 0)
            m.wait(token)

        return inner

    found = [verdict(programs(body(touch))) for touch in ("neither", "source", "destination")]
    assert [None, Contract.ORDER, Contract.ORDER] == found


@pytest.mark.parametrize(
    "start",
    [
        lambda m, full: m.all_reduce(full, "sum", start=True),
        lambda m, full: m.copy(m.allocate(1), full, start=True),
        lambda m, full: m.combine(full, m.peer(full, 1 - m.rank), op="sum", start=True),
    ],
    ids=["collective", "copy", "combine"],
)
def test_what_is_started_is_waited_for(start: Between) -> None:
    assert Contract.ORDER is verdict(programs(start, symmetric=True))


# -------------------------------------------------------------------------------------------------- releases and return


def test_a_release_is_a_write() -> None:
    def body(last_barrier: bool) -> Body:
        def inner(m: Recorder, full: View) -> None:
            shared = m.allocate(1, symmetric=True)
            m.fill(shared, 0)
            m.barrier()
            m.copy(full, m.peer(shared, 1 - m.rank))
            if last_barrier:
                m.barrier()
            m.release(shared)

        return inner

    assert (None, Contract.ORDER) == tuple(verdict(programs(body(there))) for there in (True, False))


def test_the_return_is_a_write_of_the_result() -> None:
    def body(m: Recorder, full: View) -> None:
        m.barrier()
        m.copy(m.allocate(1), m.peer(full, 1 - m.rank))

    assert "return to the caller" in refutation(programs(body, symmetric=True)).message


def test_the_return_is_a_write_of_a_borrowed_input_that_is_not_the_result() -> None:
    def body(m: Recorder, full: View) -> View:
        result = m.allocate(1)
        m.barrier()
        m.copy(result, m.peer(full, 1 - m.rank))
        return result

    assert "return to the caller" in refutation(programs(body, symmetric=True)).message


@pytest.mark.parametrize("consumes", [False, True], ids=["staging", "consumed input"])
def test_the_return_frees_what_was_never_released(consumes: bool) -> None:
    """Freed, or written by the next run, while the peer may still be reading."""

    def body(m: Recorder, full: View) -> View:
        result = m.allocate(1)
        shared = full if consumes else m.allocate(1, symmetric=True)
        m.copy(result, full)
        if not consumes:
            m.copy(shared, full)
        m.barrier()
        m.copy(result, m.peer(shared, 1 - m.rank))
        return result

    assert "return to the caller" in refutation(programs(body, symmetric=consumes, consumes=consumes)).message


def test_the_caller_s_write_comes_before_its_own_rank_only() -> None:
    def body(m: Recorder, full: View) -> None:
        m.copy(m.allocate(1), m.peer(full, 1 - m.rank))
        m.barrier()

    assert "write of the input by the caller" in refutation(programs(body, symmetric=True)).message


def test_an_allocation_comes_before_a_peer_may_read() -> None:
    def body(m: Recorder, full: View) -> None:
        shared = m.allocate(1, symmetric=True)
        m.copy(shared, full)
        m.copy(full, m.peer(shared, 1 - m.rank))
        m.barrier()

    found = refutation(programs(body, symmetric=True))
    assert (Contract.ORDER, True) == (found.contract, "does not exist yet" in found.message)


# ------------------------------------------------------------------------------------------------------------- elements


def test_other_elements_of_a_buffer_are_no_conflict() -> None:
    def body(m: Recorder, full: View) -> None:
        m.barrier()
        m.fill(full[:1], 1)
        m.copy(full[1:2], m.peer(full[2:], 1 - m.rank))
        m.barrier()

    assert verdict(programs(body, numel=3, symmetric=True)) is None


def test_two_reads_are_no_conflict() -> None:
    def body(m: Recorder, full: View) -> None:
        m.barrier()
        m.copy(m.allocate(1), m.peer(full, 1 - m.rank))
        m.copy(m.allocate(1), full)
        m.barrier()

    assert verdict(programs(body, symmetric=True)) is None


def test_a_race_names_its_elements_and_two_source_lines() -> None:
    def body(m: Recorder, full: View) -> None:
        m.barrier()
        m.fill(full[1:3], 1)
        m.copy(m.allocate(2), m.peer(full[2:], 1 - m.rank))
        m.barrier()

    found = refutation(programs(body, numel=4, symmetric=True))
    first = body.__code__.co_firstlineno
    assert "race on elements 2:3 of rank" in found.message
    assert (2, {f"interpreters/test_order.py:{first + line}" for line in (2, 3)}) == (found.element, set(found.sites))


def test_a_race_is_the_cause_even_where_a_strange_value_is_met_first() -> None:
    def body(m: Recorder, full: View) -> View:
        out = m.allocate(1)
        token = m.reduce_scatter(out, full, "sum", start=True)
        result = m.allocate(1)
        m.copy(result, out)
        m.wait(token)
        return result

    found = refutation(programs(body, numel=2))
    assert (Contract.ORDER, True) == (found.contract, "reduce_scatter (write)" in found.message)


def test_ordered_worlds_keep_their_values() -> None:
    def body(m: Recorder, full: View) -> View:
        result = m.allocate(2)
        m.barrier()
        for rank in range(2):
            m.copy(result[rank : rank + 1], m.peer(full, rank))
        m.barrier()
        return result

    assert [[{"x[0][0]": 1}, {"x[1][0]": 1}]] * 2 == run(programs(body, symmetric=True))
