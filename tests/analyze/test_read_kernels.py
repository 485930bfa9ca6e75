"""From a capture to the answer, on small programs recorded by hand."""

from __future__ import annotations

import dataclasses

import pytest

from captured import Tracer, described
from rsag.analyze.executed import join
from rsag.analyze.kernels import read_kernels
from rsag.records.codec import decode, document
from rsag.records.kernels import (
    Evidence,
    KernelReasonCode,
    KernelsDocument,
    RangeRow,
    Rule,
    Structure,
)
from rsag.records.protocol import Choice
from rsag.traces.events import (
    CallSource,
    Capture,
    Format,
    LimitCode,
    Metadata,
    OperationKind,
    Origin,
    Quarantine,
    RangeKind,
)


def only(tracer: Tracer, rule: Rule = Rule.SAME_THREAD, **more: object) -> RangeRow:
    (row,) = read_kernels([tracer.capture(**more)], rule=rule).ranges
    return row


def codes(row: RangeRow) -> set[KernelReasonCode]:
    return {reason.code for reason in row.reasons}


def said(row: RangeRow, code: KernelReasonCode) -> str:
    return next(reason.message for reason in row.reasons if reason.code is code)


def in_range(*calls: tuple[str, ...], name: str = "step") -> Tracer:
    """A range with calls of one collective each and the kernels that they launched."""
    tracer = Tracer()
    start = tracer.tick()
    for collective, *kernels in calls:
        tracer.call(collective, *kernels)
    tracer.mark(name, start)
    return tracer


REPLAYED_PAIRS = {
    KernelReasonCode.BY_NAME,
    KernelReasonCode.IDENTITY_UNPROVED,
    KernelReasonCode.PAIRS_UNPROVED,
    KernelReasonCode.GRAPH_REPLAY,
}
AR, RS, AG = (("all_reduce",) * 2, ("reduce_scatter",) * 2, ("all_gather",) * 2)


def test_five_all_reduces_of_one_kernel_each_are_single_kernels() -> None:
    row = only(in_range(*[AR] * 5))
    assert (Structure.SINGLE_KERNEL, Evidence.MATCHED) == (row.structure, row.evidence)
    assert {"all_reduce": 5} == row.collectives == row.calls
    assert 50_000 == row.kernels[0].total_ns


def test_reduce_scatters_with_their_all_gathers_are_decomposed() -> None:
    row = only(in_range(*[RS, AG] * 5))
    assert (Structure.DECOMPOSED, Evidence.MATCHED) == (row.structure, row.evidence)
    assert {"reduce_scatter": 5, "all_gather": 5} == row.collectives
    assert {KernelReasonCode.IDENTITY_UNPROVED} == codes(row)


def test_kernels_that_compute_may_have_changed_the_shards_in_between() -> None:
    row = only(in_range(RS, AG), num_other_kernels=12)
    assert "12 other kernels, which may have changed them" in said(row, KernelReasonCode.IDENTITY_UNPROVED)


def test_pipelined_chunks_are_decomposed_too() -> None:
    assert Structure.DECOMPOSED is only(in_range(RS, RS, AG, AG)).structure


def test_an_all_gather_before_its_reduce_scatter_is_no_decomposition() -> None:
    row = only(in_range(AG, RS))
    assert Structure.SEVERAL is row.structure
    assert "an AllGather has no ReduceScatter before it" == said(row, KernelReasonCode.PAIRS_DIFFER)


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"in_numel": 100}, "shard 512 and 100"),
        ({"out_numel": 100}, "full 1024 and 100"),
        ({"dtype": "BFloat16"}, "dtype Float and BFloat16"),
        ({"group": "1"}, "group 0 and 1"),
        ({"group_ranks": (2, 3)}, "ranks (0, 1) and (2, 3)"),
    ],
)
def test_a_gather_of_something_else_is_no_decomposition(changed: dict[str, object], difference: str) -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("reduce_scatter", "reduce_scatter")
    tracer.call("all_gather", "all_gather", metadata=described("all_gather", **changed))
    tracer.mark("step", start)
    row = only(tracer)
    assert Structure.SEVERAL is row.structure
    assert difference in said(row, KernelReasonCode.PAIRS_DIFFER)


def test_a_range_that_ends_before_its_kernels_run_holds_them() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.launch("all_reduce", later_us=500)
    tracer.mark("step", start)
    assert {"all_reduce": 1} == only(tracer).collectives


def test_a_kernel_that_runs_within_a_range_but_was_launched_before_it_is_not_in_it() -> None:
    tracer = Tracer()
    tracer.launch("all_reduce", later_us=5)
    start = tracer.tick()
    tracer.tick(100)
    tracer.mark("step", start)
    answer = read_kernels([tracer.capture()])
    assert () == answer.ranges
    assert 1 == answer.devices[0].unattributed


def test_a_kernel_without_a_launch_is_unknown_and_counted() -> None:
    tracer = in_range(AR)
    tracer.launch("sendrecv", launched=False)
    (device,) = read_kernels([tracer.capture()]).devices
    assert (1, 1) == (device.unattributed, device.unknown)
    assert {"all_reduce": 1, "unknown": 1} == device.collectives


def test_instances_of_a_range_are_counted_and_a_kernel_in_two_of_them_once() -> None:
    tracer = Tracer()
    outer = tracer.tick()
    inner = tracer.tick()
    tracer.call("all_reduce", "all_reduce")
    tracer.mark("step", inner)
    tracer.mark("step", outer)
    row = only(tracer)
    assert (2, {"all_reduce": 1}) == (row.instances, row.collectives)


def test_devices_of_one_process_are_counted_each_by_itself() -> None:
    tracer = Tracer()
    start = tracer.tick()
    for _ in range(5):
        for device in (0, 1):
            tracer.launch("all_reduce", device=device)
    tracer.mark("direct", start)
    answer = read_kernels([tracer.capture()])
    assert [0, 1] == [row.device for row in answer.ranges]
    assert {"all_reduce": 5} == answer.kernels_in("direct", device=1)
    assert {"all_reduce": 10} == answer.kernels_in("direct")


def group_end(tracer: Tracer, *kernels: str, devices: tuple[int, ...] = (0,)) -> None:
    """The end of a group, which launches its kernels, on each of the devices."""
    end = tracer.tick()
    for device in devices:
        for kernel in kernels:
            tracer.launch(kernel, device=device)
    tracer.record(CallSource.LIBRARY, Metadata(collective="ncclGroupEnd"), end)


def test_a_group_of_four_in_one_kernel_is_grouped() -> None:
    tracer = Tracer()
    start = tracer.tick()
    for _ in range(4):
        tracer.call("reduce_scatter")
    group_end(tracer, "reduce_scatter")
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.GROUPED, {"reduce_scatter": 1}, {"reduce_scatter": 4}) == (
        row.structure,
        row.collectives,
        row.calls,
    )
    assert "4 collectives ran as 1 kernel" == said(row, KernelReasonCode.GROUP)


def test_a_coalesced_call_is_a_group_of_a_size_that_is_not_known() -> None:
    tracer = Tracer()
    start = tracer.tick()
    coalesced = dataclasses.replace(described("all_gather"), collective="allgather_into_tensor_coalesced")
    tracer.call("all_gather", "all_gather", metadata=coalesced)
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.GROUPED, {KernelReasonCode.COALESCED}) == (row.structure, codes(row))


@pytest.mark.parametrize(("num_within", "expected"), [(1, Structure.SINGLE_KERNEL), (3, Structure.GROUPED)])
def test_a_coalesced_call_of_a_known_size_is_what_its_size_says(num_within: int, expected: Structure) -> None:
    tracer = Tracer()
    start, call = tracer.tick(), tracer.tick()
    for _ in range(num_within):
        tracer.record(CallSource.LIBRARY, Metadata(collective="ncclAllGather"), tracer.tick())
    tracer.launch("all_gather")
    tracer.record(CallSource.C10D, Metadata(collective="c10d::allgather_into_tensor_coalesced_"), call)
    tracer.mark("step", start)
    row = only(tracer)
    assert (expected, num_within) == (row.structure, row.calls["all_gather"])
    assert KernelReasonCode.COALESCED not in codes(row)


def test_calls_of_one_range_are_not_given_to_a_kernel_of_a_later_one() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce")
    tracer.mark("capture", start)
    start = tracer.tick()
    tracer.launch("all_reduce")
    tracer.mark("serve", start)
    captured, served = read_kernels([tracer.capture()]).ranges
    assert (Structure.NO_KERNEL, Structure.SINGLE_KERNEL) == (captured.structure, served.structure)
    assert (Evidence.NAMES, {}) == (served.evidence, served.calls)


def test_calls_of_one_range_are_no_members_of_a_group_in_a_later_one() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce")
    tracer.mark("capture", start)
    start = tracer.tick()
    tracer.call("all_reduce")
    group_end(tracer, "all_reduce")
    tracer.mark("serve", start)
    _, served = read_kernels([tracer.capture()]).ranges
    assert (Structure.SINGLE_KERNEL, {"all_reduce": 1}) == (served.structure, served.calls)


@pytest.mark.parametrize("between", ["kernel", "group", "graph"])
def test_calls_before_another_launch_are_no_members_of_a_group_after_it(between: str) -> None:
    tracer = Tracer()
    tracer.call("all_reduce")
    if between == "kernel":
        tracer.call("all_reduce", "all_reduce")
    elif between == "graph":
        tracer.launch("all_reduce", api="cudaGraphLaunch")
    else:
        group_end(tracer)
    tracer.call("all_reduce")
    group_end(tracer, "all_reduce")
    last = join(tracer.capture()).executed[-1]
    assert 1 == len(last.calls)


def test_a_kernel_that_is_no_part_of_the_library_is_not_given_the_calls_of_its_group() -> None:
    tracer = Tracer()
    tracer.call("all_reduce")
    group_end(tracer, "deep_ep::intranode::dispatch<8>(int*)")
    (one,) = join(tracer.capture()).executed
    assert () == one.calls


def test_a_graph_s_kernels_and_copies_are_no_part_of_a_group() -> None:
    tracer = Tracer()
    tracer.call("all_gather")
    end = tracer.tick()
    tracer.launch("all_gather", api="cudaGraphLaunch")
    tracer.launch("Memcpy PtoP", kind=OperationKind.COPY, device=1)
    tracer.launch("all_gather")
    tracer.record(CallSource.LIBRARY, Metadata(collective="ncclGroupEnd"), end)
    assert [(), (), (0,)] == [one.calls for one in join(tracer.capture()).executed]


def group_over_devices(*asked: str) -> Tracer:
    tracer = Tracer()
    start = tracer.tick()
    for collective in asked:
        tracer.record(CallSource.LIBRARY, Metadata(collective=collective), tracer.tick())
    group_end(tracer, "all_reduce", devices=(0, 1))
    tracer.mark("step", start)
    return tracer


def test_a_group_s_calls_are_dealt_to_its_devices_kind_by_kind() -> None:
    asked = ("ncclAllReduce", "ncclAllReduce", "ncclReduceScatter", "ncclReduceScatter")
    joined = join(group_over_devices(*asked).capture())
    kinds = [[joined.asked[index].collective for index in one.calls] for one in joined.executed]
    assert [["all_reduce", "reduce_scatter"]] * 2 == kinds


def test_a_group_that_cannot_be_the_same_on_each_device_is_dealt_to_none() -> None:
    answer = read_kernels([group_over_devices("ncclAllReduce", "ncclReduceScatter", "ncclReduceScatter").capture()])
    assert {(Structure.MIXED, Evidence.NAMES)} == {(row.structure, row.evidence) for row in answer.ranges}
    assert all(KernelReasonCode.CALLS_WITHOUT_KERNEL in codes(row) for row in answer.ranges)


def test_which_kernel_of_a_group_ran_which_call_is_not_guessed() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce")
    tracer.call("reduce_scatter")
    group_end(tracer, "reduce_scatter", "all_reduce")
    tracer.mark("step", start)
    row = only(tracer)
    assert Structure.CANNOT_TELL is row.structure
    expected = "2 collectives ran as 2 kernels of one group: which ran which is not recorded"
    assert expected == said(row, KernelReasonCode.GROUP)


def test_the_library_s_own_ranges_tell_how_large_a_group_was() -> None:
    tracer = Tracer()
    start, call = tracer.tick(), tracer.tick()
    for _ in range(3):
        tracer.record(CallSource.LIBRARY, Metadata(collective="ncclAllGather"), tracer.tick())
    tracer.launch("all_gather")
    tracer.record(CallSource.C10D, Metadata(collective="c10d::allgather_into_tensor_coalesced_"), call)
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.GROUPED, {"all_gather": 3}) == (row.structure, row.calls)


def test_a_group_over_two_devices_of_one_process_is_one_kernel_on_each() -> None:
    tracer = Tracer()
    start = tracer.tick()
    group = tracer.tick()
    for _ in (0, 1):
        tracer.record(CallSource.LIBRARY, Metadata(collective="ncclAllReduce"), tracer.tick())
    end = tracer.tick()
    for device in (0, 1):
        tracer.launch("all_reduce", device=device)
    tracer.record(CallSource.LIBRARY, Metadata(collective="ncclGroupEnd"), end)
    tracer.mark("direct", start)
    assert group < end
    answer = read_kernels([tracer.capture()])
    assert [Structure.SINGLE_KERNEL] * 2 == [row.structure for row in answer.ranges]
    assert {"all_reduce": 2} == answer.ranges[0].calls


def test_calls_that_launched_nothing_are_not_given_to_a_kernel_of_another_collective() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("reduce_scatter")
    tracer.call("reduce_scatter")
    tracer.launch("broadcast")
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.MIXED, {"broadcast": 1}) == (row.structure, row.collectives)
    assert "2 reduce_scatter" in said(row, KernelReasonCode.CALLS_WITHOUT_KERNEL)


def test_a_name_that_differs_from_its_caller_is_counted_as_what_the_caller_asked_for() -> None:
    row = only(in_range(("reduce_scatter", "sendrecv"), ("all_gather", "sendrecv")))
    assert Structure.DECOMPOSED is row.structure
    assert {"reduce_scatter": 1, "all_gather": 1} == row.collectives
    assert [
        "name says sendrecv, caller says reduce_scatter: 1 kernel",
        "name says sendrecv, caller says all_gather: 1 kernel",
    ] == [reason.message for reason in row.reasons if reason.code is KernelReasonCode.NAME_AND_CALLER_DIFFER]


def test_an_all_to_all_that_runs_as_send_and_receive_is_no_disagreement() -> None:
    row = only(in_range(("all_to_all", "sendrecv")))
    assert ({"all_to_all": 1}, set()) == (row.collectives, codes(row))


def test_a_name_that_fits_anything_cannot_be_told_without_its_caller() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.launch("generic")
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.CANNOT_TELL, {"unknown": 1}) == (row.structure, row.collectives)


def test_a_graph_replay_is_in_the_range_around_it_and_known_by_name_only() -> None:
    tracer = Tracer()
    start = tracer.tick()
    for _ in range(3):
        tracer.correlation += 1
        tracer.launch("reduce_scatter", api="cudaGraphLaunch")
        replay = tracer.operations.pop()
        tracer.operations += [replay]
        tracer.launch("all_gather", api="cudaGraphLaunch")
    tracer.mark("replay", start)
    row = only(tracer)
    assert (Structure.DECOMPOSED, Evidence.NAMES) == (row.structure, row.evidence)
    assert REPLAYED_PAIRS == codes(row)


def test_graphs_that_were_not_expanded_say_how_many_and_what_would() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.graph()
    tracer.graph()
    tracer.mark("replay", start)
    row = only(tracer)
    assert Structure.NO_KERNEL is row.structure
    message = said(row, KernelReasonCode.GRAPHS_NOT_EXPANDED)
    assert message.startswith("2 graph launches not expanded")
    assert "--cuda-graph-trace=node" in message


def test_kernels_beside_graphs_that_were_not_expanded_are_not_all_there_is() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce", "all_reduce")
    tracer.graph()
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.CANNOT_TELL, {"all_reduce": 1}) == (row.structure, row.collectives)
    assert KernelReasonCode.GRAPHS_NOT_EXPANDED in codes(row)


def test_a_group_of_one_has_no_kernel_and_only_that_reason() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce", metadata=described("all_reduce", size=1))
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.NO_KERNEL, {KernelReasonCode.GROUP_OF_ONE}) == (row.structure, codes(row))


def test_calls_without_any_kernel_have_every_reason_that_may_hold() -> None:
    row = only(in_range(("all_gather",)))
    assert Structure.NO_KERNEL is row.structure
    expected = {KernelReasonCode.COPY_ENGINE, KernelReasonCode.GRAPH_REPLAY, KernelReasonCode.NOT_CAPTURED}
    assert expected == codes(row)


def test_a_capture_without_gpu_activity_says_so_and_nothing_else() -> None:
    tracer = in_range(("all_reduce",))
    tracer.limit(LimitCode.NO_DEVICE_ROWS)
    assert {KernelReasonCode.NOT_CAPTURED} == codes(only(tracer))


def test_an_all_gather_by_copies_between_devices_is_recognised() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_gather", "Memcpy PtoP", "Memcpy PtoP", kind=OperationKind.COPY)
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.COPY_ENGINE, {}, 1) == (row.structure, row.collectives, row.copies)


def test_a_reduce_scatter_kernel_with_an_all_gather_by_copies_is_decomposed() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("reduce_scatter", "reduce_scatter")
    tracer.call("all_gather", "Memcpy PtoP", "Memcpy PtoP", kind=OperationKind.COPY)
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.DECOMPOSED, {"reduce_scatter": 1}) == (row.structure, row.collectives)
    assert {KernelReasonCode.COPY_ENGINE, KernelReasonCode.IDENTITY_UNPROVED} == codes(row)


def gathered(*copies: str, size: int = 3) -> Tracer:
    tracer = Tracer()
    start = tracer.tick()
    metadata = described("all_gather", size=size)
    tracer.call("all_gather", *copies, kind=OperationKind.COPY, metadata=metadata)
    tracer.mark("step", start)
    return tracer


def test_copies_within_one_device_move_nothing_between_ranks() -> None:
    assert Structure.NO_KERNEL is only(gathered("Memcpy DtoD", "Memcpy DtoD")).structure


def test_fewer_copies_than_there_are_peers_are_no_all_gather() -> None:
    assert Structure.NO_KERNEL is only(gathered("Memcpy PtoP", size=3)).structure
    assert Structure.COPY_ENGINE is only(gathered("Memcpy PtoP", size=2)).structure


def test_copies_where_a_row_was_skipped_may_have_had_a_kernel() -> None:
    row = only(gathered("Memcpy PtoP", "Memcpy PtoP"), quarantine=Quarantine(num_skipped=1, num_seen=9))
    assert Structure.CANNOT_TELL is row.structure
    assert "among the 1 row" in said(row, KernelReasonCode.ROWS_SKIPPED)


def test_a_call_with_local_copies_alone_has_no_kernel_of_its_own() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce", "all_reduce")
    tracer.call("all_gather", "Memcpy DtoD", kind=OperationKind.COPY)
    tracer.mark("step", start)
    row = only(tracer)
    assert Structure.MIXED is row.structure
    assert "1 all_gather" in said(row, KernelReasonCode.CALLS_WITHOUT_KERNEL)


def test_copies_cannot_reduce() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce", "Memcpy PtoP", kind=OperationKind.COPY)
    tracer.mark("step", start)
    assert Structure.NO_KERNEL is only(tracer).structure


def test_kernels_of_another_thread_are_counted_and_the_weaker_rule_is_named() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce", "all_reduce", thread=2)
    tracer.mark("step", start)
    row = only(tracer)
    assert (Structure.NOTHING, 1) == (row.structure, row.unattributed)
    assert "--any-thread" in said(row, KernelReasonCode.OTHER_THREADS)


def test_the_weaker_rule_counts_them_and_says_that_it_is_weaker() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce", "all_reduce", thread=2)
    tracer.mark("step", start)
    row = only(tracer, Rule.ANY_THREAD)
    assert (Structure.SINGLE_KERNEL, {"all_reduce": 1}, 0) == (row.structure, row.collectives, row.unattributed)
    assert KernelReasonCode.WEAKER_RULE in codes(row)


def test_instances_that_differ_are_the_finding() -> None:
    tracer = in_range(AR)
    start = tracer.tick()
    tracer.call("reduce_scatter", "reduce_scatter")
    tracer.call("all_gather", "all_gather")
    tracer.mark("step", start)
    row = only(tracer)
    assert Structure.MIXED is row.structure
    message = said(row, KernelReasonCode.INSTANCES_DIFFER)
    expected = "1 single-kernel of all_reduce, 1 decomposed of all_gather and reduce_scatter"
    assert f"instances of the range differ: {expected}" == message


def test_instances_of_one_kernel_each_that_ran_different_collectives_differ() -> None:
    tracer = in_range(AR)
    start = tracer.tick()
    tracer.call("broadcast", "broadcast")
    tracer.mark("step", start)
    row = only(tracer)
    assert Structure.MIXED is row.structure
    assert "1 single-kernel of broadcast" in said(row, KernelReasonCode.INSTANCES_DIFFER)


def test_the_evidence_of_instances_is_that_of_the_weakest() -> None:
    tracer = in_range(AR)
    start = tracer.tick()
    tracer.launch("all_reduce")
    tracer.mark("step", start)
    assert Evidence.NAMES is only(tracer).evidence


def test_a_group_of_one_is_no_reason_where_other_instances_ran_kernels() -> None:
    tracer = Tracer()
    for kernels in (["all_reduce"], []):
        start = tracer.tick()
        tracer.call("all_reduce", *kernels, metadata=described("all_reduce", size=None))
        tracer.mark("step", start)
    row = only(tracer)
    assert Structure.MIXED is row.structure
    assert KernelReasonCode.GROUP_OF_ONE not in codes(row)


def gloo(*pairs: tuple[str, str]) -> Tracer:
    """Calls on the caller's thread, and what Gloo's own thread says it ran for each."""
    tracer = Tracer()
    start = tracer.tick()
    for asked, ran in pairs:
        tracer.call(asked)
        tracer.record(CallSource.WORKER, Metadata(collective=f"gloo:{ran}"), tracer.tick(), thread=9)
    tracer.mark("step", start)
    tracer.limit(LimitCode.NO_DEVICE_ROWS)
    return tracer


def test_on_gloo_the_evidence_is_the_calls_and_its_substitute_is_named() -> None:
    row = only(gloo(("reduce_scatter", "all_reduce"), ("all_gather", "all_gather")), backend="gloo")
    assert (Structure.DECOMPOSED, Evidence.CALLS, {}) == (row.structure, row.evidence, row.collectives)
    assert "gloo ran all_reduce for reduce_scatter: 1 call" == said(row, KernelReasonCode.BACKEND_RAN_OTHER)
    assert "gloo has no kernels: the evidence is the calls" == said(row, KernelReasonCode.NO_DEVICE_KERNELS)


def test_on_gloo_an_all_reduce_is_a_single_call() -> None:
    row = only(gloo(("all_reduce", "all_reduce")), backend="gloo")
    assert (Structure.SINGLE_CALL, {"all_reduce": 1}) == (row.structure, row.calls)


def test_only_marks_are_shown_unless_a_glob_asks_for_more() -> None:
    tracer = Tracer()
    start = tracer.tick()
    tracer.call("all_reduce", "all_reduce")
    tracer.mark("autograd::engine", start, kind=RangeKind.FRAMEWORK)
    tracer.mark("step", start)
    tracer.mark("idle", tracer.tick())
    capture = tracer.capture()
    answer = read_kernels([capture])
    assert (["step"], 1) == ([row.range for row in answer.ranges], answer.ranges_left_out)
    assert ["autograd::engine"] == [row.range for row in read_kernels([capture], "auto*").ranges]


def test_the_log_gives_algorithm_and_protocol_and_the_name_is_set_against_it() -> None:
    tracer = in_range(AR)
    choice = Choice(function="AllReduce", bytes=4096, algorithm="RING", protocol="SIMPLE", channels=24)
    log = Capture(source="nccl.log", format=Format.NCCL_LOG, choices=(choice,))
    (row,) = read_kernels([tracer.capture(), log]).ranges
    assert (choice,) == row.kernels[0].choices
    message = said(row, KernelReasonCode.NAME_AND_LOG_DIFFER)
    assert "name says RING LL, the library's log says RING SIMPLE" == message


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (Origin(library_version="2.20.5+cuda12.4"), "version 2.20.5+cuda12.4 against NCCL 2.28.9"),
        (Origin(world_size=64), "64 ranks against 2"),
    ],
)
def test_a_log_of_another_run_is_no_word_on_this_one(log: Origin, said: str) -> None:
    capture = in_range(AR).capture()
    origin = dataclasses.replace(capture.origin, library_version="NCCL 2.28.9", world_size=2)
    choice = Choice(function="AllReduce", bytes=4096, algorithm="TREE", protocol="LL128", channels=8)
    other = Capture(source="other.log", format=Format.NCCL_LOG, choices=(choice,), origin=log)
    answer = read_kernels([dataclasses.replace(capture, origin=origin), other])
    assert () == answer.ranges[0].kernels[0].choices
    assert (f"other.log is the log of another run and is not used: {said}",) == answer.notes


def test_the_log_of_the_same_release_and_size_is_used() -> None:
    capture = in_range(AR).capture()
    origin = dataclasses.replace(capture.origin, library_version="NCCL 2.28.9", world_size=2)
    choice = Choice(function="AllReduce", bytes=4096, algorithm="TREE", protocol="LL128", channels=8)
    log = Origin(library_version="2.28.9+cuda13.0", world_size=2)
    other = Capture(source="nccl.log", format=Format.NCCL_LOG, choices=(choice,), origin=log)
    answer = read_kernels([dataclasses.replace(capture, origin=origin), other])
    assert ((choice,), ()) == (answer.ranges[0].kernels[0].choices, answer.notes)


def test_choices_of_one_size_that_differ_are_joined_by_their_order() -> None:
    choices = tuple(
        Choice(function="ReduceScatter", bytes=2048, algorithm="RING", protocol=protocol, channels=1)
        for protocol in ("LL", "SIMPLE")
    )
    tracer = in_range(RS, name="first")
    start = tracer.tick()
    tracer.call("reduce_scatter", "reduce_scatter")
    tracer.mark("second", start)
    first, second = read_kernels([tracer.capture(choices=choices)]).ranges
    assert [(choices[0],), (choices[1],)] == [row.kernels[0].choices for row in (first, second)]


def ranks(*programs: Tracer) -> KernelsDocument:
    for rank, tracer in enumerate(programs):
        tracer.rank = rank
    return read_kernels([tracer.capture() for tracer in programs])


def test_the_document_survives_its_file() -> None:
    answer = ranks(in_range(RS, AG), in_range(AR))
    fields = {key: value for key, value in document(answer).items() if key not in ("schema", "version")}
    assert answer == decode(KernelsDocument, fields)
