"""Waiting is told from transfer where the times can be of one clock, and nowhere else."""

from __future__ import annotations

import dataclasses

import pytest

from captured import Tracer, described
from rsag.analyze.kernels import read_kernels
from rsag.records.kernels import KernelsDocument, TransferRow
from rsag.traces.events import Capture, Format, Metadata

Ran = tuple[str, int, int]
"""A collective, and when it started and ended in microseconds."""


def rank(number: int, *ran: Ran, sequences: tuple[int, ...] = (), **more: object) -> Capture:
    tracer = Tracer(rank=number)
    for place, (collective, _, _) in enumerate(ran):
        metadata = described(collective, **more)  # type: ignore[arg-type]
        sequence = sequences[place] if sequences else None
        tracer.launch(collective, metadata=dataclasses.replace(metadata, sequence=sequence))
    times = [
        dataclasses.replace(operation, start_ns=start * 1_000, end_ns=end * 1_000)
        for operation, (_, start, end) in zip(tracer.operations, ran)
    ]
    tracer.operations = times
    return tracer.capture()


def only(*captures: Capture) -> TransferRow:
    (row,) = read_kernels(captures).transfers
    return row


def note(answer: KernelsDocument) -> str:
    assert () == answer.transfers
    (said,) = answer.notes
    return said


def test_waiting_for_the_last_rank_is_told_from_the_transfer() -> None:
    row = only(rank(0, ("all_reduce", 2_000, 10_010)), rank(1, ("all_reduce", 10_000, 10_010)))
    assert (1, 10_000, 8_000_000) == (row.last_rank, row.transfer_ns, row.waiting_ns)
    assert (10_000, 8_010_000, 0) == (row.shortest_ns, row.longest_ns, row.ends_within_ns)


def test_one_rank_that_ends_before_another_starts_has_another_clock() -> None:
    answer = read_kernels([rank(0, ("all_reduce", 2_000, 10_010)), rank(1, ("all_reduce", 10_020, 10_030))])
    assert "the clocks differ" in note(answer)


@pytest.mark.parametrize(
    ("lasts_us", "apart_us", "is_told"),
    [(20, 10, True), (20, 11, False), (300, 30, True), (300, 31, False), (9_000, 50, True), (9_000, 51, False)],
)
def test_ends_that_lie_too_far_apart_are_of_different_clocks(lasts_us: int, apart_us: int, *, is_told: bool) -> None:
    captures = [
        rank(0, ("all_reduce", 1_000, 1_000 + lasts_us)),
        rank(1, ("all_reduce", 1_000 + apart_us, 1_000 + apart_us + lasts_us)),
    ]
    answer = read_kernels(captures)
    if is_told:
        assert 1 == len(answer.transfers)
    else:
        assert f"up to {apart_us:.1f} us" in note(answer)


def test_exports_that_count_from_their_own_start_have_no_common_clock() -> None:
    captures = [
        dataclasses.replace(rank(number, ("all_reduce", 1_000, 2_000)), format=Format.NSYS_SQLITE) for number in (0, 1)
    ]
    assert "counts time from its own start" in note(read_kernels(captures))


@pytest.mark.parametrize("other", ["broadcast", "send", "reduce", "scatter"])
def test_a_collective_in_which_not_all_wait_spoils_nothing_and_has_no_row(other: str) -> None:
    def with_other(number: int, end: int) -> Capture:
        tracer = Tracer(rank=number)
        for collective in (other, "all_reduce"):
            tracer.launch("all_reduce", metadata=described(collective))
        root, all_reduce = tracer.operations
        tracer.operations = [
            dataclasses.replace(root, start_ns=end - 1_000, end_ns=end),
            dataclasses.replace(all_reduce, start_ns=900_000, end_ns=950_000),
        ]
        return tracer.capture()

    assert ("all_reduce", 1) == (
        (row := only(with_other(0, 100_000), with_other(1, 800_000))).collective,
        row.count,
    )


def test_sends_of_one_rank_leave_the_numbers_of_collectives_alike() -> None:
    sender = rank(0, ("sendrecv", 10, 20), ("all_reduce", 30, 40))
    sends = [dataclasses.replace(one, metadata=described("send")) for one in sender.operations[:1]]
    sender = dataclasses.replace(sender, operations=(*sends, *sender.operations[1:]))
    assert 1 == only(sender, rank(1, ("all_reduce", 30, 40))).count


def test_ranks_with_unlike_numbers_of_collectives_are_noted() -> None:
    one = ("all_reduce", 10, 20)
    assert "1 on rank 0, 2 on rank 1" in note(read_kernels([rank(0, one), rank(1, one, ("all_reduce", 30, 40))]))


def test_collectives_are_paired_by_sequence_where_launches_are_in_another_order() -> None:
    first, second = ("all_reduce", 10, 20), ("all_reduce", 30, 40)
    row = only(rank(0, first, second, sequences=(1, 2)), rank(1, second, first, sequences=(2, 1)))
    assert (2, 0) == (row.count, row.waiting_ns)


def test_a_rank_that_ran_nothing_is_named() -> None:
    one = ("all_reduce", 10, 20)
    answer = read_kernels([rank(0, one, size=3), rank(1, one, size=3), rank(2)])
    assert note(answer).endswith("rank 2 ran none of its collectives")


def test_where_ranks_of_a_group_are_not_here_the_last_to_come_is_not_known() -> None:
    one = ("all_reduce", 10, 20)
    answer = read_kernels([rank(0, one, size=64), rank(1, one, size=64)])
    assert note(answer).endswith("2 of its 64 ranks are here")


def test_kernels_of_unknown_collectives_have_no_row() -> None:
    captures = []
    for number in (0, 1):
        tracer = Tracer(rank=number)
        tracer.launch("generic", metadata=Metadata())
        captures.append(tracer.capture())
    assert () == read_kernels(captures).transfers
