"""The protocol's rules: what is refused while a composition is recorded, and what is kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from rsag.collectives import Kind
from rsag.errors import ProgramError, UsageError
from rsag.programs import (
    Alloc,
    Composition,
    Local,
    Program,
    Recorder,
    Release,
    Start,
    View,
    Wait,
    input_numel,
    record,
    record_all,
)
from rsag.programs.program import any_numel
from rsag.reduction import ReduceOp

Body = Callable[[Recorder, View], object]


def program(
    body: Body, *, rank: int = 0, world_size: int = 2, numel: int = 4, op: ReduceOp = ReduceOp.SUM, **flags: bool
) -> Program:
    """`body` recorded on one rank, returning its input; `flags` are the composition's."""

    def run(m: Recorder, full: View, _: str) -> View:
        result = body(m, full)
        return result if isinstance(result, View) else full

    composition = Composition(name="small", run=run, summary="", multiple_of=any_numel, **flags)  # type: ignore[arg-type]
    return record(composition, rank=rank, world_size=world_size, numel=numel, op=op)


def refused(message: str, body: Body, **settings: bool) -> None:
    with pytest.raises(ProgramError, match=message):
        program(body, **settings)  # type: ignore[arg-type]


def test_the_protocol_has_seventeen_names() -> None:
    names = {name for name, _ in inspect.getmembers(Recorder, inspect.isfunction) if not name.startswith("_")}
    assert {
        *("allocate", "release", "copy", "fill", "combine", "apply"),
        *("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"),
        *("sendrecv", "barrier", "peer", "sub", "wait"),
    } == names
    slicing = 1
    assert len(names) + slicing == 17


# --------------------------------------------------------------------------------------------------------------- views


def test_a_slice_of_a_slice_counts_from_the_outer_one() -> None:
    assert View(0, 3, 6, 8) == View(0, 3, 0, 10)[4:9][2:4]


def test_open_ends_of_a_slice_are_the_view_s() -> None:
    view = View(0, 0, 2, 6)
    assert (view, View(0, 0, 2, 3), View(0, 0, 5, 6)) == (view[:], view[:1], view[3:])


@pytest.mark.parametrize("key", [slice(0, 5), slice(-1, 2), slice(3, 2), slice(0, 4, 2), slice(0, -1)])
def test_a_view_cannot_be_cut_outside_itself(key: slice) -> None:
    with pytest.raises(ProgramError, match="plain slices inside"):
        View(0, 0, 0, 4)[key]


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        (View(0, 0, 3, 5), True),
        (View(0, 0, 4, 5), False),
        (View(0, 1, 0, 4), False),
        (View(1, 0, 0, 4), False),
        (View(0, 0, 2, 2), False),
    ],
)
def test_views_overlap_where_they_share_an_element(other: View, shares: bool) -> None:
    view = View(0, 0, 0, 4)
    assert (shares, shares) == (view.overlaps(other), other.overlaps(view))


# ------------------------------------------------------------------------------------------------------------- buffers


def test_a_buffer_cannot_have_a_negative_size() -> None:
    refused("negative size", lambda m, full: m.allocate(-1))


def test_a_borrowed_input_cannot_be_released() -> None:
    refused("the caller keeps", lambda m, full: m.release(full))


def test_a_consumed_input_can_be_released() -> None:
    code = program(lambda m, full: m.release(full), consumes=True).code
    assert [Alloc, Release] == [type(step) for step in code]


def test_a_part_of_a_buffer_cannot_be_released() -> None:
    refused("release of a part", lambda m, full: m.release(m.allocate(4)[1:]))


def test_a_peer_s_buffer_cannot_be_released() -> None:
    refused("release of a peer", lambda m, full: m.release(m.peer(full, 1)), symmetric=True)


@pytest.mark.parametrize("end", ["input", "output"])
def test_what_a_started_collective_uses_cannot_be_released_before_the_wait(end: str) -> None:
    def body(waits_first: bool) -> Body:
        def inner(m: Recorder, full: View) -> View:
            out = m.allocate(2)
            token = m.reduce_scatter(out, full, "sum", start=True)
            if waits_first:
                m.wait(token)
            m.release(full if end == "input" else out)
            return m.allocate(4)

        return inner

    refused("a started operation uses", body(waits_first=False), consumes=True)
    assert program(body(waits_first=True), consumes=True).code


@pytest.mark.parametrize("end", ["source", "destination"])
def test_what_a_started_copy_uses_cannot_be_released_before_the_wait(end: str) -> None:
    def body(m: Recorder, full: View) -> None:
        dst, src = m.allocate(4), m.allocate(4)
        m.copy(dst, src, start=True)
        m.release(dst if end == "destination" else src)

    refused("a started operation uses", body)


def test_another_buffer_can_be_released_meanwhile() -> None:
    def body(m: Recorder, full: View) -> None:
        other = m.allocate(4)
        token = m.all_reduce(full, "sum", start=True)
        m.release(other)
        m.wait(token)

    assert Release in map(type, program(body).code)


def test_only_symmetric_buffers_have_peers() -> None:
    refused("a peer cannot be read here", lambda m, full: m.peer(full, 1))
    refused("a peer cannot be read here", lambda m, full: m.peer(m.allocate(4), 1), symmetric=True)


def test_a_peer_s_view_is_the_same_elements_of_its_buffer() -> None:
    views = []
    program(lambda m, full: views.append(m.peer(full[1:3], 1)), symmetric=True)
    assert [View(1, 0, 1, 3)] == views


def test_the_result_cannot_be_a_peer_s_memory() -> None:
    refused("result lies in a peer's memory", lambda m, full: m.peer(full, 1), symmetric=True)


def test_the_result_is_a_view() -> None:
    composition = Composition(name="small", run=lambda m, full, op: None, summary="")  # type: ignore[arg-type, return-value]
    with pytest.raises(ProgramError, match="returns the view"):
        record(composition, rank=0, world_size=1, numel=1, op=ReduceOp.SUM)


def test_in_place_means_that_the_result_is_the_input() -> None:
    refused("in place, yet the result is elsewhere", lambda m, full: m.allocate(4), in_place=True)


# ---------------------------------------------------------------------------------------------------------- local work


@pytest.mark.parametrize(
    "body",
    [
        lambda m, full: m.copy(m.peer(full, 1), full),
        lambda m, full: m.fill(m.peer(full, 1), 0),
        lambda m, full: m.combine(m.peer(full, 1), full, op="sum"),
        lambda m, full: m.apply("adam", m.peer(full, 1), full),
    ],
    ids=["copy", "fill", "combine", "apply"],
)
def test_nobody_writes_to_a_peer(body: Body) -> None:
    refused("writes to rank 1's buffer", body, symmetric=True)


@pytest.mark.parametrize(
    "body",
    [
        lambda m, full: m.copy(full, m.allocate(3)),
        lambda m, full: m.combine(full, m.allocate(4), m.allocate(5), op="sum"),
        lambda m, full: m.apply("adam", full, full[:2]),
    ],
    ids=["copy", "combine", "apply"],
)
def test_local_work_is_on_equal_lengths(body: Body) -> None:
    refused("unequal lengths", body)


@pytest.mark.parametrize(
    "body",
    [lambda m, full: m.combine(full, op="sum"), lambda m, full: m.apply("random", full)],
    ids=["combine", "apply"],
)
def test_local_work_needs_something_to_work_on(body: Body) -> None:
    refused("of nothing", body)


@pytest.mark.parametrize(
    "body",
    [
        lambda m, full: m.copy(full[1:], full[:3]),
        lambda m, full: m.apply("cast", full[:3], full[1:]),
        lambda m, full: m.combine(full[:3], full[1:], op="sum"),
        lambda m, full: m.combine(full, m.allocate(4), full, op="sum"),
    ],
    ids=["copy", "apply", "combine", "combine with itself"],
)
def test_a_source_does_not_overlap_its_destination(body: Body) -> None:
    refused("overlaps its destination", body)


def test_an_elementwise_function_may_work_in_place() -> None:
    assert isinstance(program(lambda m, full: m.apply("scale", full, full)).code[-1], Local)


def test_an_average_cannot_be_folded() -> None:
    refused("avg cannot be folded", lambda m, full: m.combine(full, m.allocate(4), op="avg"))


def test_a_fill_takes_a_number_or_the_identity() -> None:
    refused("fill with no number", lambda m, full: m.fill(full, "zero"))


# ------------------------------------------------------------------------------------------------------- communication


@pytest.mark.parametrize(
    "body",
    [
        lambda m, full: m.reduce_scatter(m.allocate(1), full, "sum"),
        lambda m, full: m.all_gather(m.allocate(9), full),
        lambda m, full: m.sub((0,)).reduce_scatter(m.allocate(2), full, "sum"),
    ],
    ids=["reduce_scatter", "all_gather", "subgroup"],
)
def test_the_full_side_is_a_shard_per_rank(body: Body) -> None:
    refused("the full side is not", body)


@pytest.mark.parametrize(
    "body",
    [
        lambda m, full: m.all_reduce(m.peer(full, 1), "sum"),
        lambda m, full: m.all_gather(m.allocate(8), m.peer(full, 1)),
        lambda m, full: m.sendrecv(None, None, m.peer(full, 1), 1),
    ],
    ids=["all_reduce", "all_gather", "sendrecv"],
)
def test_communication_uses_one_s_own_buffers(body: Body) -> None:
    refused("one's own buffers", body, symmetric=True)


@pytest.mark.parametrize(
    "body",
    [
        lambda m, full: m.broadcast(full, root=2),
        lambda m, full: m.reduce(full, "sum", root=-1),
        lambda m, full: m.sendrecv(full, -1, None, None),
        lambda m, full: m.sendrecv(None, None, full, 2),
        lambda m, full: m.peer(full, -1),
        lambda m, full: m.sub((0, 2)),
    ],
    ids=["broadcast", "reduce", "source", "dest", "peer", "sub"],
)
def test_ranks_are_those_of_the_group(body: Body) -> None:
    refused("no such rank in this group", body, symmetric=True)


@pytest.mark.parametrize(
    "body",
    [lambda m, full: m.sendrecv(full, None, None, None), lambda m, full: m.sendrecv(None, None, None, 1)],
)
def test_sendrecv_needs_a_rank_for_each_buffer(body: Body) -> None:
    refused("a rank for each buffer", body)


def test_blocking_is_a_start_and_its_wait() -> None:
    _, start, wait = program(lambda m, full: m.all_reduce(full, "sum")).code
    assert isinstance(start, Start)
    assert (True, Wait(start.token, start.site)) == (start.blocking, wait)


def test_what_is_started_is_waited_for_where_the_program_says() -> None:
    def body(m: Recorder, full: View) -> None:
        token = m.all_reduce(full, "sum", start=True)
        m.allocate(1)
        m.wait(token)

    code = program(body).code
    assert [Alloc, Start, Alloc, Wait] == [type(step) for step in code]


def test_nothing_is_waited_for_twice() -> None:
    def body(m: Recorder, full: View) -> None:
        token = m.all_reduce(full, "sum", start=True)
        m.wait(token)
        m.wait(token)

    refused("wait for nothing", body)


def test_a_blocking_call_leaves_nothing_to_wait_for() -> None:
    refused("wait for nothing", lambda m, full: m.wait(m.all_reduce(full, "sum")))


# ----------------------------------------------------------------------------------------------------------- subgroups


@pytest.mark.parametrize("ranks", [(1,), (0, 0), ()])
def test_a_subgroup_has_distinct_members_the_caller_among_them(ranks: tuple[int, ...]) -> None:
    refused("distinct members", lambda m, full: m.sub(ranks))


def test_a_subgroup_s_ranks_count_within_it() -> None:
    seen = []

    def body(m: Recorder, full: View) -> None:
        inner = m.sub((3, 1, 2)).sub((2, 1))
        seen.append((inner.group, inner.rank, inner.world))
        inner.broadcast(full, root=0)

    code = program(body, rank=1, world_size=4).code
    assert seen == [((2, 1), 1, 2)]
    assert isinstance(code[1], Start)
    assert (code[1].group, code[1].root) == ((2, 1), 2)


def test_a_token_can_be_waited_for_through_any_of_the_rank_s_recorders() -> None:
    code = program(lambda m, full: m.wait(m.sub((0, 1)).all_reduce(full, "sum", start=True))).code
    assert isinstance(code[-1], Wait)


# ------------------------------------------------------------------------------------------------------------ recording


def test_a_site_names_the_composition_s_line() -> None:
    def body(m: Recorder, full: View) -> None:
        m.barrier()

    line = inspect.getsourcelines(body)[1] + 1
    step = program(body).code[1]
    assert isinstance(step, Start)
    assert str(Path("programs", f"test_recorder.py:{line}")) == step.site


def test_the_input_is_the_caller_s_allocation() -> None:
    recorded = program(lambda m, full: None, symmetric=True)
    first = recorded.code[0]
    assert isinstance(first, Alloc)
    assert ("caller", recorded.input, True) == (first.site, first.view, first.symmetric)


def test_a_size_that_is_not_claimed_is_not_recorded() -> None:
    composition = Composition(name="small", run=lambda m, full, op: full, summary="")
    with pytest.raises(UsageError, match="small takes a multiple of 3 elements on 3 ranks, not 4"):
        record(composition, rank=0, world_size=3, numel=4, op=ReduceOp.SUM)


def test_a_composition_that_folds_claims_no_average() -> None:
    composition = Composition(name="small", run=lambda m, full, op: full, summary="", folds=True)
    assert (
        "average cannot be folded" in (composition.why_refused(4, 2, ReduceOp.AVG) or ""),
        composition.why_refused(4, 2, ReduceOp.SUM),
    ) == (True, None)


@pytest.mark.parametrize(
    ("target", "in_place", "expected"),
    [
        (Kind.ALL_REDUCE, False, 12),
        (Kind.REDUCE_SCATTER, False, 12),
        (Kind.ALL_GATHER, False, 4),
        (Kind.ALL_GATHER, True, 12),
    ],
)
def test_the_input_has_the_target_s_send_size(target: Kind, in_place: bool, expected: int) -> None:
    composition = Composition(name="small", run=lambda m, full, op: full, summary="", target=target, in_place=in_place)
    assert expected == input_numel(composition, 12, 3)


def test_all_ranks_are_recorded_in_rank_order() -> None:
    composition = Composition(name="small", run=lambda m, full, op: full, summary="")
    programs = record_all(composition, world_size=3, numel=3, op=ReduceOp.MAX)
    assert [(rank, View(rank, 0, 0, 3), ReduceOp.MAX) for rank in range(3)] == [
        (program.rank, program.result, program.op) for program in programs
    ]
