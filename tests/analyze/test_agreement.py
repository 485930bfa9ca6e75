"""Ranks are set side by side step by step, and the first difference is named with both sides."""

from __future__ import annotations

import dataclasses

import pytest

from captured import NAMES, OWN, Tracer, described
from rsag.analyze.kernels import read_kernels
from rsag.records.kernels import Agreement, AgreementRow, Rule
from rsag.traces.events import Call, CallSource, Capture, Format, Origin, SummedKernels
from rsag.traces.files import read_trace


def program(*collectives: str, name: str = "step", thread: int = 1, **described_as: object) -> Tracer:
    """A range in which collectives ran, one kernel each, on its own thread or on another."""
    tracer = Tracer()
    add(tracer, *collectives, name=name, thread=thread, **described_as)
    return tracer


def add(tracer: Tracer, *collectives: str, name: str = "step", thread: int = 1, **described_as: object) -> None:
    start = tracer.tick()
    for collective in collectives:
        metadata = described(collective, **described_as)  # type: ignore[arg-type]
        tracer.call(collective, collective, thread=thread, metadata=metadata)
    tracer.mark(name, start)


def agreement(*programs: Tracer, rule: Rule = Rule.SAME_THREAD) -> tuple[AgreementRow, ...]:
    for rank, tracer in enumerate(programs):
        tracer.rank = rank
    return read_kernels([tracer.capture() for tracer in programs], rule=rule).agreement


def only(*programs: Tracer, rule: Rule = Rule.SAME_THREAD) -> AgreementRow:
    (row,) = agreement(*programs, rule=rule)
    return row


AR, RS, AG = "all_reduce", "reduce_scatter", "all_gather"


def test_ranks_that_did_the_same_agree() -> None:
    row = only(program(RS, AG), program(RS, AG))
    assert (Agreement.AGREE, 2, ()) == (row.agreement, row.num_ranks, row.not_compared)
    assert "the same collectives in the same order" == row.message


def test_one_rank_alone_has_nobody_to_agree_with() -> None:
    assert () == agreement(program(AR))


def test_the_same_collectives_in_another_order_differ_at_the_first_position_that_does() -> None:
    row = only(program(AR, AR, RS), program(AR, RS, AR))
    assert Agreement.DIFFER is row.agreement
    expected = (
        "at position 1 rank 0: all_reduce of 1,024 Float in a group of 2; "
        "rank 1: reduce_scatter of 1,024 Float in a group of 2"
    )
    assert expected == row.message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"numel": 4096}, "all_reduce of 4,096 Float in a group of 2"),
        ({"dtype": "Half"}, "all_reduce of 1,024 Half in a group of 2"),
        ({"size": 4}, "all_reduce of 1,024 Float in a group of 4"),
    ],
)
def test_other_counts_dtypes_and_group_sizes_differ(changed: dict[str, object], said: str) -> None:
    row = only(program(AR), program(AR, **changed))
    assert Agreement.DIFFER is row.agreement
    assert f"rank 1: {said}" in row.message


def test_a_rank_that_goes_on_where_another_has_ended_differs() -> None:
    assert "rank 1: nothing more" in only(program(AR, AR), program(AR)).message


@pytest.mark.parametrize("rule", Rule)
def test_what_other_threads_did_in_the_range_is_compared_by_either_rule(rule: Rule) -> None:
    row = only(program(AR, thread=2), program(RS, AG, thread=2), rule=rule)
    assert Agreement.DIFFER is row.agreement
    assert row.message.startswith("on other threads, at position 0 rank 0: all_reduce")


def test_other_threads_that_did_the_same_agree() -> None:
    assert Agreement.AGREE is only(program(AR, thread=2), program(AR, thread=2)).agreement


def test_a_rank_of_which_a_range_holds_nothing_is_named() -> None:
    idle = Tracer()
    idle.mark("step", idle.tick())
    row = only(program(AR), idle, program(AR))
    assert (Agreement.DIFFER, 3) == (row.agreement, row.num_ranks)
    assert "rank 0, rank 2: 1 collective; rank 1: 0 collectives" == row.message


def test_a_rank_without_the_range_is_named() -> None:
    first, _ = agreement(program(AR), program(AR, name="other"))
    assert (Agreement.DIFFER, "rank 0: 1 collective; rank 1: the range is not there") == (
        first.agreement,
        first.message,
    )


def test_instances_are_compared_each_with_its_own_and_by_their_number() -> None:
    one, other, more = program(AR), program(AR), program(AR)
    add(one, RS)
    add(other, AR)
    assert only(one, other).message.startswith("instance 1, at position 0 rank 0: reduce_scatter")
    assert "rank 0: 2 instances; rank 1: 1 instance" == only(other, more).message


def test_a_call_without_a_kernel_differs_from_one_that_ran() -> None:
    row = only(program(AR), in_call_only())
    assert "rank 1: all_reduce of 1,024 Float in a group of 2 (without a kernel)" in row.message


def in_call_only() -> Tracer:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call(AR)
    tracer.mark("step", start)
    return tracer


def test_what_is_not_recorded_is_not_compared_and_named() -> None:
    by_name = Tracer()
    start = by_name.tick()
    by_name.launch(AR)
    by_name.mark("step", start)
    row = only(program(AR), by_name)
    assert (Agreement.AGREE, ("counts", "dtype", "group size")) == (row.agreement, row.not_compared)


def test_kernels_of_unknown_collectives_and_graphs_leave_it_open() -> None:
    def unknown(*, graph: bool) -> Tracer:
        tracer = Tracer()
        start = tracer.tick()
        tracer.graph() if graph else tracer.launch("generic")
        tracer.mark("step", start)
        return tracer

    for graph in (False, True):
        assert Agreement.CANNOT_TELL is only(unknown(graph=graph), unknown(graph=graph)).agreement


def test_sends_and_receives_are_a_rank_s_own() -> None:
    def stage(collective: str) -> Tracer:
        tracer = program(AR)
        start = tracer.tick()
        tracer.call("all_reduce", "sendrecv", metadata=described(collective))
        tracer.mark("pipeline", start)
        return tracer

    assert {Agreement.AGREE} == {row.agreement for row in agreement(stage("send"), stage("recv"))}


def test_devices_of_one_process_are_ranks_of_their_own() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.launch(AR, device=0)
    tracer.launch(RS, device=1)
    tracer.mark("step", start)
    (row,) = read_kernels([tracer.capture()]).agreement
    assert Agreement.DIFFER is row.agreement
    assert "rank 0 pid 100 device 0: all_reduce; rank 0 pid 100 device 1: reduce_scatter" in row.message


def test_two_files_of_one_rank_s_number_are_told_apart() -> None:
    one, other = program(AR).capture(), program(RS).capture()
    (row,) = read_kernels([one, other]).agreement
    assert "rank 0 (file 1): all_reduce" in row.message
    assert "rank 0 (file 2): reduce_scatter" in row.message


# -- sums ------------------------------------------------------------------------------------------------------------


def summed(*kernels: str, process: int) -> tuple[SummedKernels, ...]:
    return tuple(
        SummedKernels(
            range="step",
            style="PushPop",
            process=process,
            thread=1,
            range_instances=1,
            count=2,
            total_ns=10,
            name=NAMES[kernel],
        )
        for kernel in kernels
    )


def test_sums_can_differ_and_cannot_show_that_ranks_did_the_same() -> None:
    alike = Capture(source="a.csv", format=Format.NSYS_CSV, sums=(*summed(AR, process=1), *summed(AR, process=2)))
    (row,) = read_kernels([alike]).agreement
    assert Agreement.CANNOT_TELL is row.agreement
    unlike = Capture(source="a.csv", format=Format.NSYS_CSV, sums=(*summed(AR, process=1), *summed(RS, process=2)))
    (row,) = read_kernels([unlike]).agreement
    assert (Agreement.DIFFER, "file 1 pid 1: 2 all_reduce; file 1 pid 2: 2 reduce_scatter") == (
        row.agreement,
        row.message,
    )


# -- dumps -----------------------------------------------------------------------------------------------------------


def dump(rank: int, *collectives: str, first: int = 1, state: str = "completed", **more: object) -> Capture:
    calls = tuple(
        Call(
            source=CallSource.FLIGHT_RECORDER,
            metadata=dataclasses.replace(described(collective, **more), sequence=first + number),  # type: ignore[arg-type]
            process=None,
            thread=None,
            start_ns=None,
            end_ns=None,
            state=state,
        )
        for number, collective in enumerate(collectives)
    )
    return Capture(source=f"fr{rank}", format=Format.FLIGHT_RECORDER, origin=Origin(rank=rank), calls=calls)


def of_dumps(*dumps: Capture) -> AgreementRow:
    (row,) = read_kernels(dumps).agreement
    return row


def test_swapped_calls_in_dumps_are_found_although_both_say_completed() -> None:
    row = next(iter(read_kernels([read_trace(OWN / f"fr_swapped.rank{rank}.pkl") for rank in (0, 1)]).agreement))
    assert (Agreement.DIFFER, "0 (0, 1)", None) == (row.agreement, row.group, row.range)
    expected = (
        "at sequence number 12 rank 0: all_reduce of 1,048,576 Float in a group of 2 (completed); "
        "rank 1: reduce_scatter of 1,048,576 Float in a group of 2 (completed), although all say completed"
    )
    assert expected == row.message


def test_dumps_of_the_same_calls_agree_from_the_first_that_all_still_have() -> None:
    row = of_dumps(dump(0, AR, RS, AG), dump(1, RS, AG, first=2))
    assert (Agreement.AGREE, "the same calls at the sequence numbers 2 to 3") == (row.agreement, row.message)


def test_the_rank_that_is_behind_is_named_with_its_last_call() -> None:
    row = of_dumps(dump(0, AR, AR, state="scheduled"), dump(1, AR, state="scheduled"))
    assert Agreement.DIFFER is row.agreement
    assert "at sequence number 2 rank 0: all_reduce" in row.message
    assert row.message.endswith("rank 1: nothing, its last is 1")


def test_dumps_with_other_counts_differ_and_states_alone_do_not() -> None:
    assert Agreement.DIFFER is of_dumps(dump(0, AR), dump(1, AR, numel=2048)).agreement
    assert Agreement.AGREE is of_dumps(dump(0, AR), dump(1, AR, state="started")).agreement


def test_a_member_of_a_group_that_called_nothing_in_it_is_named() -> None:
    row = of_dumps(dump(0, AR), dump(1))
    assert "rank 0: 1 call in this group; rank 1: 0 calls in this group" == row.message


def test_dumps_without_entries_of_the_group_s_other_ranks_say_nothing() -> None:
    assert () == read_kernels([dump(0, AR), dump(5)]).agreement


def test_dumps_beside_profiles_are_no_ranks_of_their_ranges() -> None:
    assert [None] == [row.range for row in read_kernels([program(AR).capture(), dump(0, AR), dump(1, AR)]).agreement]


def test_calls_of_a_coalesced_group_share_a_number_and_are_compared_in_order() -> None:
    def coalesced(rank: int, *collectives: str) -> Capture:
        made = dump(rank, *collectives)
        calls = tuple(
            dataclasses.replace(call, metadata=dataclasses.replace(call.metadata, sequence=1)) for call in made.calls
        )
        return dataclasses.replace(made, calls=calls)

    assert Agreement.DIFFER is of_dumps(coalesced(0, AR, RS), coalesced(1, AR, AG)).agreement
