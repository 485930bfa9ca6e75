"""Every spelling of a collective gives one word; what is none gives nothing."""

from __future__ import annotations

import pytest

from rsag.analyze.words import backend, is_group_end, name_claims, name_says, runs_as, word

SPELLINGS = {
    "all_reduce": ("allreduce", "c10d::allreduce_", "nccl:all_reduce", "gloo:all_reduce", "ncclAllReduce", "AllReduce"),
    "reduce_scatter": (
        "_reduce_scatter_base",
        "c10d::_reduce_scatter_base_",
        "c10d::reduce_scatter_tensor_coalesced_",
        "nccl:reduce_scatter_tensor_coalesced",
        "ncclReduceScatter",
    ),
    "all_gather": ("_allgather_base", "nccl:_all_gather_base", "allgather_into_tensor_coalesced", "ncclAllGather"),
    "all_to_all": ("all_to_allv", "c10d::alltoall_base_", "nccl:all_to_all", "alltoall", "ncclAllToAll"),
    "broadcast": ("_broadcast_oop", "c10d::broadcast_", "ncclBcast", "ncclBroadcast"),
    "reduce": ("_reduce_oop", "c10d::reduce_", "ncclReduce"),
    "gather": ("nccl:gather_single", "ncclGather"),
    "scatter": ("c10d::scatter_",),
    "barrier": ("c10d::barrier", "gloo:barrier"),
    "send": ("ncclSend", "nccl:send 0->1"),
    "recv": ("c10d::recv_", "nccl:recv 1<-0"),
    "sendrecv": ("SendRecv",),
}


@pytest.mark.parametrize(
    ("expected", "spelling"), [(expected, spelling) for expected, all_ in SPELLINGS.items() for spelling in all_]
)
def test_a_spelling_gives_its_word(expected: str, spelling: str) -> None:
    assert expected == word(spelling)


@pytest.mark.parametrize("spelling", ["wait", "init", "nccl:coalesced", "ncclGroupStart", "ncclGroupEnd", "", None])
def test_what_is_no_collective_gives_no_word(spelling: str | None) -> None:
    assert word(spelling) is None


def test_the_end_of_a_group_is_told_from_calls() -> None:
    assert [True, True, False, False] == [
        is_group_end(spelling) for spelling in ("ncclGroupEnd", "nccl:coalesced", "ncclGroupStart", "ncclAllReduce")
    ]


def test_a_backend_is_named_by_its_annotations_and_not_by_operators() -> None:
    assert ["gloo", "nccl", None, None] == [
        backend(spelling) for spelling in ("gloo:all_reduce", "nccl:all_reduce", "c10d::allreduce_", "allreduce")
    ]


def test_send_and_receive_in_a_name_says_something_and_claims_nothing() -> None:
    name = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
    assert ("sendrecv", None) == (name_says(name), name_claims(name))


def test_an_all_to_all_runs_as_send_and_receive_and_a_reduction_does_not() -> None:
    assert [True, False, True, False] == [
        runs_as("sendrecv", "all_to_all"),
        runs_as("sendrecv", "reduce_scatter"),
        runs_as("all_reduce", "barrier"),
        runs_as("all_reduce", "reduce_scatter"),
    ]
